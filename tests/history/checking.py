"""All checkers together: what a history breaks.

Each is a pure function of a history and its indexed log; the numbers (H-01 …) are those of the
watch and list properties. A finding names its property and the two facts that cannot both be.
"""

from collections.abc import Callable, Iterator

from tests.history import bodies, events, initial, ledgers, lists, lives, streams
from tests.history.facts import EPOCH, Finding, History
from tests.history.truth import Truth

Checker = Callable[[History, Truth], Iterator[Finding]]

_SHOWN = 10


def consecutive(history: History, _: Truth) -> Iterator[Finding]:
    """The log counts by one; only an epoch's marker may leap."""
    last = None
    for row in history.log:
        if last is not None and row.rev != last + 1 and not (row.kind == EPOCH and row.rev > last):
            yield Finding(
                rule="log",
                where=row.name,
                said=f"revision {last}",
                but=f"the next row is {row.rev}",
            )
        last = row.rev


CHECKERS: tuple[Checker, ...] = (
    consecutive,
    streams.ordered,
    streams.unique,
    streams.reliable,
    streams.resumable,
    streams.bookmarked,
    events.typed,
    events.introduced,
    events.deleted_bodies,
    initial.initial,
    lists.is_state,
    lists.fresh,
    lists.fresh_gets,
    lists.paged,
    bodies.agreed,
    bodies.views,
    lives.alone,
    lives.steps,
    lives.slots,
    ledgers.projected,
    ledgers.logged,
    ledgers.summed,
    ledgers.proven,
    ledgers.machines,
)


def findings(history: History) -> list[Finding]:
    """Return everything that a history breaks."""
    truth = Truth(history.log)
    return [finding for checker in CHECKERS for finding in checker(history, truth)]


def assert_sound(history: History) -> None:
    """Fail with the first findings, if there are any."""
    found = findings(history)
    shown = "\n".join(str(one) for one in found[:_SHOWN])
    assert not found, f"{len(found)} findings\n{shown}"
