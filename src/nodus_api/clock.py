"""The one source of time: a protocol, the system's clock, and a clock that tests move.

No other module reads the time (held by ruff and tests/test_seams.py).
"""

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, sleep for waiting."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of this clock."""
        ...


async def give_way() -> None:
    """Let other tasks run once; no time passes."""
    await asyncio.sleep(0)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many real seconds."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands until `advance` moves it; sleepers wake in order of their due time."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the start plus all that was advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved so far."""
        due = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), due))
        await due

    async def advance(self, seconds: float) -> None:
        """Move the clock, waking each sleeper at its own moment.

        Tasks that were started before the call begin first: their sleeps count from before it.
        """
        await asyncio.sleep(0)
        end = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, due = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, at)
            if not due.done():
                due.set_result(None)
            await asyncio.sleep(0)
        self._elapsed = end
        await asyncio.sleep(0)
