"""How often the follower looks, and what it says of itself, on the model of the log."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from uuid import UUID

import pytest
from tests.watchcache.conftest import following, until
from tests.watchcache.feed_log import FeedLog, Row, State, Waking
from tests.watchcache.test_reflector import add, settle

from nodus_api.apiserver.metrics import cache_facts
from nodus_api.clock import ManualClock
from nodus_api.storage.errors import StorageFault, StorageUnavailable
from nodus_api.watchcache import AttemptCache, reflector
from nodus_api.watchcache.consistency import LATEST


class Looking(FeedLog):
    """Notes how long each wait was to be, how often the state was asked for, and what was seen."""

    listening = True
    cache: AttemptCache | None = None
    error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.states = 0
        self.since_equal: list[float] = []
        self.behind: list[float] = []

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Waking]:
        yield Noting(self)

    async def state(self) -> State:
        self.states += 1
        if self.error is not None:
            raise self.error
        return await super().state()

    async def read(self, after: int, *, limit: int = 1000) -> list[Row]:
        if self.cache is not None and self.cache.position < self.rows[-1].rev:
            facts = cache_facts(self.cache)
            self.since_equal.append(facts["nodus_watchcache_seconds_since_equal"])
            self.behind.append(facts["nodus_watchcache_behind_revisions"])
        if self.error is not None:
            raise self.error
        return await super().read(after, limit=limit)


class Noting(Waking):
    def __init__(self, log: Looking) -> None:
        super().__init__(log)
        self.listening = log.listening
        self._noted = log

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  the protocol's name
        self._noted.waits.append(timeout)
        await asyncio.sleep(0.001)
        return False


@pytest.mark.parametrize(("listening", "seconds", "polls"), [(True, 0.25, 1), (False, 0.025, 10)])
async def test_without_notifications_it_polls_ten_times_as_often(
    clock: ManualClock, listening: bool, seconds: float, polls: int
) -> None:  # storage.md section 3.3
    log = Looking()
    log.listening = listening
    async with following(log, clock):
        await until(lambda: len(log.waits) > 50, 30)

    assert set(log.waits) == {seconds}
    # the state is asked for each quarter of a second, however often the rows are
    assert abs(log.states - len(log.waits) / polls) <= 2


async def test_a_piece_of_the_log_is_not_its_end(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:  # AS-105: readyz is red for who is behind, however fast it reads
    monkeypatch.setattr(reflector, "PIECE", 3)
    log = Looking()
    async with following(log, clock) as cache:
        await cache.list(None, LATEST)
        log.lagging = True
        log.commit(*(("A", UUID(int=n), "p", f"n{n}", {}, {}) for n in range(1, 4)))
        for number in range(4, 20):
            add(log, number)
        head = log.rows[-1].rev
        await until(lambda: cache.health.head == head, 30)  # the state tells of what no row does
        await clock.advance(40)
        log.cache = cache
        log.lagging = False
        await until(lambda: cache.position == head, 30)

        assert len(log.since_equal) >= 7
        assert min(log.since_equal) >= 40
        assert log.behind[-7:] == sorted(log.behind[-7:], reverse=True)
        assert log.behind[-7] >= 18
        await until(lambda: cache.health.seconds_since_equal == 0, 30)


async def test_a_second_cause_of_an_outage_is_told_too(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = Looking()
    with caplog.at_level(logging.WARNING, logger="nodus_api.watchcache.reflector"):
        async with following(log, clock) as cache:
            for error in (
                StorageUnavailable("here", "connection refused"),
                StorageFault("42501", "permission denied"),
            ):
                log.error = error
                for _ in range(5):
                    await clock.advance(4)
                    await asyncio.sleep(0.005)
            log.error = None
            await settle(log, cache, clock)

    causes = [cast("str", one.__dict__["cause"]) for one in caplog.records]
    assert len(causes) == 2  # five tries each
    assert "connection refused" in causes[0]
    assert "permission denied" in causes[1]
