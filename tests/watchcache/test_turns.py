"""Long steps let others run: a selector may have 1,000 terms, the history a million events."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.watchcache.conftest import following
from tests.watchcache.feed_log import FeedLog

from nodus_api.clock import ManualClock
from nodus_api.metav1 import labels
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.filters import Filter

NONE = Filter(labels=labels.parse("team=nobody"))
UNTOLD = Filter(labels=labels.parse("team>3"))  # no index tells of it
TOLD = Filter(labels=labels.parse("team,team>3"))
OBJECTS = 200
EVENTS = 1_000


class SlowClock(ManualClock):
    """The clock of a machine on which every step is a long one."""

    def monotonic(self) -> float:
        self._elapsed += 0.01
        return self._elapsed


class Others:
    """A task that counts how often it is let run."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = spawn("others", self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def close(self) -> None:
        await end(self._task)


@pytest.fixture
async def cache() -> AsyncIterator[AttemptCache]:
    log = FeedLog(backfilled=EVENTS + OBJECTS)
    for number in range(OBJECTS):
        log.commit(("A", UUID(int=number + 1), "p", f"n{number}", {"team": "red"}, {}))
    for number in range(EVENTS):
        at = number % OBJECTS
        log.commit(("M", UUID(int=at + 1), "p", f"n{at}", {"team": "red"}, {}))
    async with following(log, SlowClock(datetime(2026, 1, 1, tzinfo=UTC))) as made:
        yield made


@pytest.fixture
async def others() -> AsyncIterator[Others]:
    made = Others()
    yield made
    await made.close()


def resumed(cache: AttemptCache) -> WatchFrom:
    return WatchFrom(ReadAt(Mode.EXACT, cache.position - EVENTS), False)


@pytest.mark.parametrize("chosen", [UNTOLD, TOLD], ids=["walked", "gathered"])
async def test_a_list_with_a_selector(cache: AttemptCache, others: Others, chosen: Filter) -> None:
    before = others.turns
    page = await cache.list("p", LATEST, chosen=chosen)

    assert page.entries == []
    assert others.turns - before >= OBJECTS / 8


async def test_a_watch_that_resumes_far_back(cache: AttemptCache, others: Others) -> None:
    watcher = await cache.watch("p", resumed(cache), chosen=NONE)
    before = others.turns

    assert await watcher.take() == []
    assert others.turns - before >= EVENTS / 8
    assert watcher.position == cache.position


async def test_a_watch_that_is_over_walks_no_further(
    cache: AttemptCache, others: Others
) -> None:  # LW-148
    watcher = await cache.watch("p", resumed(cache), chosen=NONE)
    walk = spawn("walk", watcher.take())
    before = others.turns
    while others.turns == before:  # noqa: ASYNC110  the walk has no event
        await asyncio.sleep(0)
    watcher.end("the client left")

    assert await walk == []
    assert watcher.position < cache.position


async def test_a_list_of_an_old_state(cache: AttemptCache, others: Others) -> None:
    rev = cache.position - EVENTS
    assert cache._contents is not None
    cache._contents.history._drop_through(cache.position)
    before = others.turns
    page = await cache.list("p", ReadAt(Mode.EXACT, rev))

    assert len(page.entries) == OBJECTS
    assert others.turns - before >= 3  # rows read, taken back, and put in again
