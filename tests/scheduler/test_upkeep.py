"""The leader keeps the log in bounds: what is due when, and what it does when it may not."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from tests.storage.conftest import fresh_database
from tests.storage.log_at import begin_epoch
from tests.storage.logins import as_login
from tests.storage.scene import Connection

from nodus_api.clock import ManualClock
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.upkeep import Upkeep
from nodus_api.storage import migrate
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.leader_store import LeaderStore, Reign
from nodus_api.storage.upkeep import WIDTH, LogTables, Partition, UpkeepStore
from nodus_api.tasks import end, spawn

HOUR = 3600


class Kept:
    """A log of its own, and its leader's upkeep."""

    def __init__(self, owner: Connection, database: Database, clock: ManualClock) -> None:
        self.owner = owner
        self.database = database
        self.clock = clock
        self.metrics = LoopMetrics()
        self.store = UpkeepStore(database)

    async def lead(self, retention: timedelta = timedelta(hours=1)) -> Upkeep:
        reign: Reign = await LeaderStore(self.database).take_over("test")
        return Upkeep(self.store, self.clock, self.metrics, token=reign.token, retention=retention)

    async def partition(self, *, room: int = 9) -> int:
        """Go on in another partition, by an epoch; returns its first revision."""
        now = self.clock.now().isoformat()
        await self.owner.execute("SELECT set_config('nodus.now', $1, false)", now)
        return await begin_epoch(self.owner, room=room) // WIDTH * WIDTH

    async def firsts(self) -> list[int]:
        return [one.first for one in (await self.store.look()).partitions]

    async def oldest(self) -> int:
        return (await self.store.look()).oldest

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"nodus_scheduler_{name}")

    def failures(self) -> float:
        labels = {"step": "upkeep"}
        name = "nodus_scheduler_failed_steps_total"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def kept(database_url: str, clock: ManualClock) -> AsyncIterator[Kept]:
    async with fresh_database(database_url, "nodus_kept") as url:
        await migrate.upgrade(url)
        database = Database(url, role=Role.SCHEDULER, pinned_now=clock.now)
        owner: Connection = await asyncpg.connect(url)
        await owner.execute("UPDATE nodus.changes SET at = $1", clock.now())
        yield Kept(owner, database, clock)
        await owner.close()
        await database.close()


async def test_what_is_older_than_the_retention_goes_a_minute_after_the_edge(
    kept: Kept,
) -> None:  # storage.md section 7
    await kept.clock.advance(10)
    second = await kept.partition()
    third = await kept.partition()
    upkeep = await kept.lead()
    assert await upkeep.look()
    assert await kept.oldest() == 1
    await kept.clock.advance(HOUR - 11)
    await upkeep.look()
    assert await kept.oldest() == 1  # the last row before is a second too young

    await kept.clock.advance(60)
    before = await kept.firsts()
    await upkeep.look()
    assert await kept.oldest() == third  # the first revision of the head's partition
    await kept.clock.advance(59)
    await upkeep.look()
    assert await kept.firsts() == before
    await kept.clock.advance(1)
    await upkeep.look()
    assert await kept.firsts() == [third, third + WIDTH, third + 2 * WIDTH]
    assert second < third

    for _ in range(3):  # the head's partition stays, however old (kine #311)
        await kept.clock.advance(HOUR)
        await upkeep.look()
    assert await kept.firsts() == [third, third + WIDTH, third + 2 * WIDTH]
    assert (kept.metric("log_partitions"), kept.metric("log_partitions_ahead")) == (3, 2)
    assert kept.failures() == 0


async def test_a_new_leader_waits_its_own_minute(kept: Kept) -> None:
    first = await kept.lead()
    await kept.partition()
    await kept.clock.advance(HOUR)
    await first.look()
    edge = await kept.oldest()
    assert edge > 1

    second = await kept.lead()
    await kept.clock.advance(59)
    await second.look()
    assert 0 in await kept.firsts()  # it does not know for how long the edge has stood there
    await kept.clock.advance(60)
    await second.look()
    assert 0 not in await kept.firsts()


async def test_another_leader_ends_the_upkeep(kept: Kept) -> None:  # SC-602
    first = await kept.lead(timedelta(0))
    await kept.lead()
    head = await kept.partition()
    running = spawn("upkeep", first.run())
    async with asyncio.timeout(30):
        await running
    assert await kept.oldest() == 1
    assert head + 2 * WIDTH not in await kept.firsts()


async def test_who_else_alters_the_log_is_waited_for(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep = await kept.lead(timedelta(0))
    await kept.partition()
    await upkeep.look()
    head = await kept.partition()
    async with kept.database.dedicated() as other:
        # as another session that alters the log's tables does
        await other.execute("SET ROLE nodus_migrate")
        async with other.transaction():
            await other.execute("LOCK TABLE nodus.changes IN SHARE UPDATE EXCLUSIVE MODE")
            with caplog.at_level(logging.WARNING, "nodus_api.scheduler.upkeep"):
                for _ in range(3):
                    assert not await upkeep.look()
            assert caplog.text.count("the upkeep of the log waits") == 1  # it is told once
            assert kept.metric("log_partitions_ahead") == 1
    running = spawn("upkeep", upkeep.run())
    async with asyncio.timeout(30):
        while head + 2 * WIDTH not in await kept.firsts():
            await kept.clock.advance(1)
    await end(running)
    assert kept.failures() == 0


class Broken(UpkeepStore):
    """A database that answers what no version of it does."""

    async def look(self) -> LogTables:
        raise ZeroDivisionError


async def test_whatever_fails_is_tried_again(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    reign = await LeaderStore(kept.database).take_over("test")
    upkeep = Upkeep(
        Broken(kept.database), kept.clock, kept.metrics, token=reign.token, retention=timedelta(0)
    )
    assert not await upkeep.look()
    assert kept.failures() == 2
    assert "crashed and is tried again" in caplog.text


async def test_no_partition_at_all_is_told_and_mended(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:  # F21
    head = await kept.partition(room=0)
    after = Partition(head + WIDTH)
    await kept.owner.execute(f"DROP TABLE nodus.{after.name}")
    upkeep = await kept.lead()
    assert await upkeep.look()
    assert "writes fail beyond the head's" in caplog.text
    assert {head, head + WIDTH, head + 2 * WIDTH} <= set(await kept.firsts())
    assert kept.metric("log_partitions_ahead") == 2


async def test_a_login_that_may_not_alter_the_log_is_told_once(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    """The role is the server's: made for this test, and gone with it."""
    await kept.owner.execute(
        "DROP ROLE IF EXISTS nodus_test_clerk; CREATE ROLE nodus_test_clerk LOGIN;"
        " GRANT USAGE ON SCHEMA nodus TO nodus_test_clerk;"
        " GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA nodus TO nodus_test_clerk;"
        " GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA nodus TO nodus_test_clerk"
    )
    head = await kept.partition()
    url = as_login(kept.database.where, "nodus_test_clerk")
    clerk = Database(url, role=Role.SCHEDULER, pinned_now=kept.clock.now)
    reign = await LeaderStore(kept.database).take_over("test")
    upkeep = Upkeep(
        UpkeepStore(clerk), kept.clock, kept.metrics, token=reign.token, retention=timedelta(0)
    )
    for _ in range(3):
        assert not await upkeep.look()
    assert caplog.text.count("the upkeep of the log failed") == 1
    assert kept.failures() == 3
    assert head + 2 * WIDTH not in await kept.firsts()
    await clerk.close()
    await kept.owner.execute("DROP OWNED BY nodus_test_clerk; DROP ROLE nodus_test_clerk")
