"""The one way to start a background task (held by tests/test_seams.py).

Every task has a name and an owner that keeps, awaits and cancels it.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from nodus_api.clock import Clock

T = TypeVar("T")

OFTEN = 3
OFTEN_SECONDS = 60.0


def spawn(name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start `coroutine` as a task called `name`; the caller keeps and ends it."""
    return asyncio.get_running_loop().create_task(coroutine, name=name)


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it is over; what it raised before is raised here.

    A cancellation of the caller while it waits is the caller's, and goes on.
    """
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


class Crashes:
    """When a task crashed that is started again each time; three in a minute is often (AS-094)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: deque[float] = deque(maxlen=OFTEN)
        self.total = 0

    def note(self) -> None:
        """Note a crash."""
        self.total += 1
        self._last.append(self._clock.monotonic())

    def often(self) -> bool:
        """Return whether the last three lie within the last minute."""
        since = self._clock.monotonic() - OFTEN_SECONDS
        return len(self._last) == OFTEN and self._last[0] >= since
