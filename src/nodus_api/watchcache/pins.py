"""Snapshots kept for the later pages of a list, so that they need not be undone again."""

from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from nodus_api.clock import Clock
from nodus_api.watchcache.history import EventLog
from nodus_api.watchcache.holds import Hold, Holds
from nodus_api.watchcache.snapshot import ScopeSnapshot

HELD = timedelta(minutes=5)
AT_MOST = 64


@dataclass(slots=True, eq=False)
class _Pin:
    scope: str | None
    since: int
    until: int | None  # the scope's next change; None while there was none
    snapshot: ScopeSnapshot
    taken: float
    hold: Hold


class Pins:
    """At most 64 snapshots, each valid from its revision up to its scope's next change.

    The oldest go where the documents that they and others hold exceed the budget of `holds`.
    """

    def __init__(self, clock: Clock, holds: Holds) -> None:
        self._clock = clock
        self._holds = holds
        self._pins: deque[_Pin] = deque()
        self._open: dict[str | None, _Pin] = {}

    def __len__(self) -> int:
        """Return how many snapshots are kept."""
        return len(self._pins)

    def keep(self, scope: str | None, snapshot: ScopeSnapshot, *, until: int | None) -> None:
        """Keep a scope's snapshot; `until` is the revision of the scope's next change, if known."""
        open_pin = self._open.get(scope)
        if until is None and open_pin is not None:
            return  # the same state is kept already: nothing changed since
        if any(pin.scope == scope and pin.since == snapshot.rev for pin in self._pins):
            return  # an earlier page kept it
        self._expire()
        if len(self._pins) >= AT_MOST:
            self._drop_oldest()
        hold = self._holds.hold(scope, snapshot.rev)
        pin = _Pin(scope, snapshot.rev, until, snapshot, self._clock.monotonic(), hold)
        self._pins.append(pin)
        if until is None:
            self._open[scope] = pin
        self.bound()

    def bound(self) -> None:
        """Drop the oldest while the budget of held documents is exceeded."""
        while self._pins and self._holds.exceeded:
            self._drop_oldest()

    def renewed(self, scope: str | None, rev: int) -> bool:
        """Keep the scope's state that was taken at `rev` for longer; return whether it is kept."""
        self._expire()
        for pin in self._pins:
            if pin.scope == scope and pin.since == rev:
                self._pins.remove(pin)
                pin.taken = self._clock.monotonic()
                self._pins.append(pin)
                return True
        return False

    def changed(self, scope: str | None, events: EventLog) -> None:
        """Close the scope's open pin at the first of its events since."""
        pin = self._open.pop(scope, None)
        if pin is not None:
            following = events.first_after(pin.since)
            pin.until = following.rev if following is not None else pin.since + 1

    def find(self, scope: str | None, rev: int) -> ScopeSnapshot | None:
        """Return the scope's state at `rev`, if one is kept."""
        self._expire()
        for pin in self._pins:
            if pin.scope == scope and pin.since <= rev and (pin.until is None or rev < pin.until):
                return pin.snapshot
        return None

    def at(self, scope: str | None, rev: int) -> ScopeSnapshot | None:
        """Return the scope's state that was taken at `rev` itself, which the cache need not have.

        An open pin says nothing of revisions above the cache's position.
        """
        self._expire()
        kept = (p.snapshot for p in self._pins if p.scope == scope and p.since == rev)
        return next(kept, None)

    def clear(self) -> None:
        """Forget all: the history they belong to is gone."""
        while self._pins:
            self._drop_oldest()

    def _expire(self) -> None:
        old = self._clock.monotonic() - HELD.total_seconds()
        while self._pins and self._pins[0].taken <= old:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        pin = self._pins.popleft()
        self._holds.release(pin.hold)
        if self._open.get(pin.scope) is pin:
            del self._open[pin.scope]
