"""A state of a moment ago: the present order with the events since taken back."""

from collections.abc import Sequence
from uuid import UUID

from nodus_api.clock import Clock, give_way
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.snapshot import ScopeSnapshot, SortedEntries

SLICE_SECONDS = 0.003
"""How long one step may hold the loop."""


class Turns:
    """Gives the loop to others whenever 3 ms have passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()

    async def give(self) -> None:
        """Yield to the loop if this turn was long."""
        if self._clock.monotonic() - self._since >= SLICE_SECONDS:
            await give_way()
            self._since = self._clock.monotonic()


async def undone(
    now: ScopeSnapshot, events: Sequence[Event], rev: int, clock: Clock
) -> ScopeSnapshot:
    """Return the scope as it stood at `rev`; `events` are all of the scope after `rev`, in order.

    Entries whose document the history no longer holds have no body.
    """
    turns = Turns(clock)
    earliest: dict[UUID, Event] = {}
    orders = dict(now.parts)
    for event in events:
        if earliest.setdefault(event.uid, event) is event:
            # all of today's versions go first: a name may have passed to another Attempt since
            orders[event.project] = orders.get(event.project, SortedEntries()).remove(event.name)
        await turns.give()
    for event in earliest.values():
        before = event.before()
        if before is not None:
            orders[event.project] = orders[event.project].put(before)
        await turns.give()
    return ScopeSnapshot(rev, tuple(sorted(orders.items())))
