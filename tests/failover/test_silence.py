"""A server that says nothing, and one that cannot be heard: noticed within 5 s, and got over."""

from datetime import timedelta
from pathlib import Path
from socket import (
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_USER_TIMEOUT,
)
from typing import Any

import pytest
from tests.failover.conftest import opened, replica
from tests.failover.servers import Door, frozen
from tests.watchcache.conftest import until
from tests.watchcache.published import Publisher

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.storage import wakeups
from nodus_api.storage.driver import Deadline
from nodus_api.storage.embedded import SOCKET, EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageUnavailable
from nodus_api.storage.feed import ANSWER_SECONDS, Feed
from nodus_api.storage.wakeups import PROBE_SECONDS
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.errors import FeedUnavailable
from nodus_api.watchcache.reflector import POLL_SECONDS

PATIENCE = 30.0
SHORT = 0.3


def test_silence_is_noticed_within_five_seconds() -> None:  # F20, G10
    assert POLL_SECONDS + ANSWER_SECONDS <= 5
    assert 2 * PROBE_SECONDS <= 5


@pytest.fixture
def socket(postgres: EmbeddedPostgres) -> Path:
    return postgres._run_dir / SOCKET


async def test_a_frozen_server_is_out_of_reach_until_it_thaws(
    clean_database: str, postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:  # storage.md section 6, "Behind or cut off"
    async with opened(clean_database, Role.SCHEDULER) as scheduler:
        publisher = Publisher(scheduler)
        await publisher.begin()
        head = await publisher.add("n1")
        async with replica(clean_database, answer_seconds=SHORT) as cache:
            await until(lambda: cache.position == head, PATIENCE)
            watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, head), False))
            with frozen(postgres.start()):
                await until(lambda: cache.health.refused, PATIENCE)
                with pytest.raises(FeedUnavailable):
                    await cache.list(None, LATEST)
                with pytest.raises(FeedUnavailable):
                    cache.check_watch()
                assert len((await cache.list(None, CACHED)).entries) == 1
            head = await publisher.change(1, "n1", "Running")
            await until(lambda: cache.position == head and cache.health.connected, PATIENCE)

            assert watcher.over is None
            assert len(await watcher.take()) == 1
            assert (cache.health.reloads, cache.health.faults) == (1, 0)
    causes = [str(one.__dict__.get("cause")) for one in caplog.records]
    silent = (f"no answer within {SHORT} s", "no connection in time")  # there already, or made then
    assert any(one in cause for cause in causes for one in silent), causes


async def test_a_network_that_swallows_all_is_got_over(clean_database: str, socket: Path) -> None:
    async with Door() as door, opened(clean_database, Role.SCHEDULER) as scheduler:
        door.lead_to(socket)
        publisher = Publisher(scheduler)
        await publisher.begin()
        await publisher.add("n1")
        async with replica(door.url, answer_seconds=SHORT) as cache:
            door.swallow()
            await until(lambda: cache.health.refused, PATIENCE)
            head = await publisher.change(1, "n1", "Running")
            door.cut()
            door.flow()
            await until(lambda: cache.position == head and cache.health.connected, PATIENCE)

            assert (await cache.list(None, LATEST)).rev == head
            assert (cache.health.reloads, cache.health.faults) == (1, 0)


async def test_a_load_of_a_server_that_falls_silent_ends(clean_database: str, socket: Path) -> None:
    async with Door() as door, opened(door.url, Role.API) as database:
        door.lead_to(socket)
        feed = Feed(database, clock=SystemClock(), answer_seconds=SHORT)
        await feed.head()

        async def load() -> None:
            async with feed.snapshot(timedelta(0)) as snapshot:
                door.swallow()
                async for _ in snapshot.objects():
                    pass

        with pytest.raises(StorageUnavailable, match="no answer within"):
            await load()


async def test_a_pool_that_is_all_taken_by_the_silent_is_no_reason_to_wait(
    clean_database: str,
) -> None:
    database = Database(clean_database, role=Role.API, pool_size=1)
    async with database.single_reads():
        with pytest.raises(StorageUnavailable, match="no connection in time"):
            async with database.single_reads(deadline=Deadline(SHORT)):
                pass
    await database.close()


async def test_a_listener_that_hears_nothing_any_more_is_given_up(
    clean_database: str, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # F20
    monkeypatch.setattr(wakeups, "PROBE_SECONDS", SHORT)
    async with Door() as door, opened(door.url, Role.API) as database:
        door.lead_to(socket)
        async with wakeups.listen(database, wakeups.FEED, SystemClock()) as heard:
            await until(lambda: heard.listening, PATIENCE)
            async with opened(clean_database, Role.SCHEDULER) as scheduler:
                await wakeups.notify(scheduler, wakeups.FEED)
            assert await heard.wait(PATIENCE)
            assert (heard.listening, heard.alive) == (True, True)
            door.swallow()
            await until(lambda: not heard.alive, PATIENCE)


async def test_where_no_listener_can_be_had_it_is_tried_again(
    clean_database: str, socket: Path, clock: ManualClock
) -> None:
    assert clean_database
    async with (
        Door() as door,
        opened(door.url, Role.API) as database,
        wakeups.listen(database, wakeups.FEED, clock) as heard,
    ):
        await until(lambda: bool(clock._sleepers), PATIENCE)  # the door led nowhere
        assert (heard.listening, heard.alive) == (False, True)
        door.lead_to(socket)
        await clock.advance(wakeups.LISTEN_AGAIN_SECONDS)
        await until(lambda: heard.listening, PATIENCE)


async def test_a_connection_keeps_its_peer_under_watch(socket: Path) -> None:
    async with Door() as door, opened(door.url, Role.API) as database:
        door.lead_to(socket)
        async with database.dedicated() as connection:
            driver: Any = connection
            kept = driver._transport.get_extra_info("socket")
            assert kept.getsockopt(SOL_SOCKET, SO_KEEPALIVE) == 1
            times = [TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT]
            idle, interval, count, unanswered = (kept.getsockopt(IPPROTO_TCP, t) for t in times)
            assert idle + interval * count <= 5
            assert unanswered <= 5000
