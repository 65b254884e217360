"""A cache over the model of the log, following."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from tests.watchcache.feed_log import FeedLog

from nodus_api.clock import Clock, ManualClock
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache, Window


@asynccontextmanager
async def following(
    log: FeedLog, clock: Clock, *, window: Window | None = None
) -> AsyncIterator[AttemptCache]:
    cache = AttemptCache(log, clock=clock, chance=lambda: 0.5, window=window)
    async with running(cache, or_else=lambda: log.away):
        yield cache


@asynccontextmanager
async def running(
    cache: AttemptCache, or_else: Callable[[], bool] = lambda: False
) -> AsyncIterator[AttemptCache]:
    """A cache that follows, from its first load on."""
    task = spawn("cache", cache.run())
    try:
        await until(lambda: cache.ready or or_else())
        yield cache
    finally:
        await end(task)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until a condition holds; fails after so many real seconds.

    What was spawned in the very turn of the loop that made it hold has begun then, too: a wait that
    shows itself has put its timer into the clock that the test will move.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the condition has no event
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)


async def soon(answer: Awaitable[object], seconds: float = 5.0) -> object:
    async with asyncio.timeout(seconds):
        return await answer


@pytest.fixture
def log() -> FeedLog:
    return FeedLog()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
async def cache(log: FeedLog, clock: ManualClock) -> AsyncIterator[AttemptCache]:
    async with following(log, clock) as made:
        yield made
