"""The one way to start a background task (held by tests/test_seams.py).

Every task has a name and an owner that keeps, awaits and cancels it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
