"""When Python looks for garbage: seldom, and not among what is there to stay.

A whole collection visits every object, and stands still meanwhile: with 100,000 Attempts in memory
for tenths of a second, again and again while a state of before is put together.
"""

import gc

_THRESHOLDS = (50_000, 10, 10)
"""New objects, and rounds of the younger generations, between two collections.

Seldom must not mean never: what is in a cycle stays until then (a failed task and its traceback).
"""


def look_seldom() -> None:
    """Look for garbage after many new objects only (performance.md section 5)."""
    gc.set_threshold(*_THRESHOLDS)


def spare_what_is_there() -> None:
    """Never look again at what is in memory now; it is still freed when nothing holds it.

    For the moment after a load. What is garbage by then, the young of it, is taken away first.
    What is in a cycle by then, and is dropped later, stays: some tasks and connections a load.
    """
    gc.collect(1)
    gc.freeze()
