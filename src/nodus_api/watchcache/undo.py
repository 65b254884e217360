"""A state of a moment ago: the present order with the events since taken back."""

from collections.abc import Sequence

from nodus_api.clock import Clock, give_way
from nodus_api.watchcache.entry import Entry
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.snapshot import ScopeSnapshot, SortedEntries

SLICE_SECONDS = 0.003
"""How long one step may hold the loop."""

_STEP = 256
"""Events between two looks at the clock."""


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
    orders = dict(now.parts)
    changes = await _changes(await first_since(events, rev, turns), turns)
    for project, edits in changes.items():
        for order in orders.get(project, SortedEntries()).edited(edits):
            if order is not None:
                orders[project] = order
            await turns.give()
    return ScopeSnapshot(rev, tuple(sorted(orders.items())))


async def first_since(events: Sequence[Event], rev: int, turns: Turns) -> list[Event]:
    """Return of all events after `rev` the first of each Attempt: its predecessor is the state.

    It is the one whose predecessor is not after `rev`, or that has none.
    """
    found: list[Event] = []
    for at in range(0, len(events), _STEP):
        found.extend(
            event
            for event in events[at : at + _STEP]
            if event.prev_rev is None or event.prev_rev <= rev
        )
        await turns.give()
    return found


async def _changes(events: Sequence[Event], turns: Turns) -> dict[str, dict[str, Entry | None]]:
    """Return by project and name what takes the place of today's entries; `events` differ in uid.

    All of today's versions go first: a name may have passed to another Attempt since.
    """
    changes: dict[str, dict[str, Entry | None]] = {}
    for at in range(0, len(events), _STEP):
        for event in events[at : at + _STEP]:
            changes.setdefault(event.project, {})[event.name] = None
        await turns.give()
    for at in range(0, len(events), _STEP):
        for event in events[at : at + _STEP]:
            if event.prev_rev is not None:
                changes[event.project][event.name] = event.before()
        await turns.give()
    return changes
