"""What is to happen on the fleet, in order of time (SC-730)."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

Action = Callable[[datetime], None]


@dataclass(slots=True, eq=False)
class Entry:
    """One thing that is to happen; it is called with its own moment."""

    at: datetime
    action: Action
    cancelled: bool = False

    def cancel(self) -> None:
        """See that it does not happen."""
        self.cancelled = True


@dataclass(slots=True)
class Timetable:
    """Entries by their moments; of one moment, in the order in which they were put in."""

    _entries: list[tuple[datetime, int, Entry]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)

    def put(self, at: datetime, action: Action) -> Entry:
        """Let something happen at a moment."""
        entry = Entry(at, action)
        heapq.heappush(self._entries, (at, next(self._order), entry))
        return entry

    def next(self) -> datetime | None:
        """Return when something happens next; None if nothing does."""
        while self._entries and self._entries[0][2].cancelled:
            heapq.heappop(self._entries)
        return self._entries[0][0] if self._entries else None

    def run(self, until: datetime) -> None:
        """Let everything up to a moment happen, also what follows from it by then."""
        while (at := self.next()) is not None and at <= until:
            _, _, entry = heapq.heappop(self._entries)
            entry.action(at)


@dataclass(slots=True)
class Timers:
    """The entries of one machine or runner, by name; a new one of a name replaces the old."""

    _timetable: Timetable
    _running: dict[str, Entry] = field(default_factory=dict)

    def set(self, name: str, at: datetime, action: Action) -> None:
        """Let something happen at a moment, instead of what was to happen by this name."""
        self.stop(name)
        self._running[name] = self._timetable.put(at, action)

    def stop(self, name: str) -> None:
        """Let what was to happen by this name not happen."""
        if (entry := self._running.pop(name, None)) is not None:
            entry.cancel()

    def stop_all(self) -> None:
        """Let nothing happen any more."""
        for entry in self._running.values():
            entry.cancel()
        self._running.clear()
