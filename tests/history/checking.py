"""All checkers together: what a history breaks.

Each is a pure function of a history and its indexed log; the numbers (H-01 …) are those of the
watch and list properties. A finding names its property and the two facts that cannot both be.
"""

from collections.abc import Callable, Iterator

from tests.history import (
    bodies,
    commits,
    ends,
    events,
    filters,
    initial,
    isolation,
    ledgers,
    lists,
    lives,
    losses,
    progress,
    reads,
    streams,
)
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


WIRE: tuple[Checker, ...] = (
    consecutive,
    streams.ordered,
    streams.unique,
    streams.reliable,
    streams.resumable,
    streams.bookmarked,
    progress.progress,
    commits.uncut,
    commits.whole,
    events.typed,
    events.introduced,
    events.deleted_bodies,
    filters.filtered,
    filters.apart,
    initial.initial,
    lists.is_state,
    lists.fresh,
    lists.fresh_gets,
    lists.found,
    reads.not_older,
    reads.monotone,
    lists.paged,
    reads.exact,
    reads.future,
    ends.ahead,
    ends.past,
    ends.honest,
    isolation.undelayed,
    isolation.resumed,
    bodies.agreed,
    bodies.views,
)
"""What requests and answers must be, whatever the documents say."""

OF_LOSSES: tuple[Checker, ...] = (
    losses.ended,
    losses.of_lost,
    losses.unique,
    losses.of_later_epochs,
)
"""Those that see what was told of lost commits too, which the others cannot judge."""

LIVES: tuple[Checker, ...] = (
    lives.alone,
    lives.steps,
    lives.slots,
    ledgers.projected,
    ledgers.logged,
    ledgers.summed,
    ledgers.proven,
    ledgers.machines,
)
"""What the documents tell of the Attempts' lives, their money and their machines."""


def findings(history: History, checkers: tuple[Checker, ...] = (*WIRE, *LIVES)) -> list[Finding]:
    """Return everything that a history breaks."""
    truth = Truth(history.log)
    kept = losses.kept(history, truth)
    found = [finding for checker in checkers for finding in checker(kept, truth)]
    return found + [finding for checker in OF_LOSSES for finding in checker(history, truth)]


def assert_sound(history: History, checkers: tuple[Checker, ...] = (*WIRE, *LIVES)) -> None:
    """Fail with the first findings, if there are any."""
    found = findings(history, checkers)
    shown = "\n".join(str(one) for one in found[:_SHOWN])
    assert not found, f"{len(found)} findings\n{shown}"
