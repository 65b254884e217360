"""The log's tables are made ahead and dropped behind, beside whoever reads or writes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest
from tests.storage.log_at import begin_epoch
from tests.storage.scene import SCENE, Connection

from nodus_api.clock import ManualClock
from nodus_api.storage import upkeep as module
from nodus_api.storage.driver import DriverConnection
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import FencedOff, StorageContention, StorageTimeout
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.upkeep import WIDTH, LogTables, Partition, UpkeepStore
from nodus_api.tasks import end, spawn

HOUR = timedelta(hours=1)


@dataclass
class Log:
    """A database of its own, with a leader, whose log's tables come and go."""

    owner: Connection
    store: UpkeepStore
    token: int
    clock: ManualClock

    async def run(self, *statements: str) -> None:
        async with self.owner.transaction():
            now = self.clock.now().isoformat()
            await self.owner.execute("SELECT set_config('nodus.now', $1, true)", now)
            for statement in statements:
                await self.owner.execute(statement)

    async def publish(self, mark: str) -> int:
        await self.run(f"SELECT pg_temp.publish(ARRAY[101], '{mark}')")
        return await self.head()

    async def begin_epoch(self, *, room: int) -> int:
        now = self.clock.now().isoformat()
        await self.owner.execute("SELECT set_config('nodus.now', $1, false)", now)
        return await begin_epoch(self.owner, room=room)

    async def head(self) -> int:
        return int(await self.owner.fetchval("SELECT max(rev) FROM nodus.changes"))

    async def firsts(self) -> list[int]:
        return [one.first for one in (await self.store.look()).partitions]


@pytest.fixture
async def log(own_url: str, clock: ManualClock) -> AsyncIterator[Log]:
    database = Database(own_url, role=Role.SCHEDULER, pinned_now=clock.now)
    owner: Connection = await asyncpg.connect(own_url)
    await owner.execute("SET search_path = nodus")
    reign = await LeaderStore(database).take_over("test")
    made = Log(owner, UpkeepStore(database), reign.token, clock)
    await made.run(SCENE)
    yield made
    await owner.close()
    await database.close()


_SHAPE = """
SELECT (SELECT jsonb_agg(jsonb_build_array(attname, atttypid, attnotnull, atthasdef, attstorage)
          ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0) AS columns,
       (SELECT jsonb_agg(jsonb_build_array(conname, pg_get_constraintdef(oid)) ORDER BY conname)
          FROM pg_constraint WHERE conrelid = c.oid AND contype <> 'p') AS constraints,
       (SELECT jsonb_agg(jsonb_build_array(indkey::text, indisprimary)) FROM pg_index
          WHERE indrelid = c.oid) AS keys,
       reloptions::text, relacl::text, relowner::regrole::text, relispartition
FROM pg_class c WHERE oid = ('nodus.' || $1)::regclass
"""


async def test_partitions_are_kept_two_ahead_as_the_migration_makes_them(log: Log) -> None:
    begun = await log.begin_epoch(room=1)  # one more row fits
    tables = await log.store.look()
    assert (tables.head, tables.ahead) == (begun, 1)
    (missing,) = tables.missing()
    assert missing.first == begun // WIDTH * WIDTH + 2 * WIDTH

    with pytest.raises(FencedOff):
        await log.store.make(log.token - 1, missing)
    await log.store.make(log.token, missing)
    assert (await log.store.look()).ahead == 2
    assert (await log.store.look()).missing() == []
    made, given = [
        tuple(await log.owner.fetchrow(_SHAPE, name) or ())
        for name in (missing.name, Partition(begun // WIDTH * WIDTH).name)
    ]
    assert made == given

    heads = [await log.publish(f"over-{n}") for n in range(3)]
    assert heads == [begun + 1, begun + 2, begun + 3]  # over the edge, without a gap
    assert (await log.store.look()).ahead == 1


async def test_a_long_reader_does_not_hold_up_a_new_partition(log: Log, own_url: str) -> None:
    """A dump holds its share of every table for hours: writes must not run out of partitions."""
    begun = await log.begin_epoch(room=5)
    (missing,) = (await log.store.look()).missing()
    reader: Connection = await asyncpg.connect(own_url)
    async with reader.transaction(isolation="repeatable_read", readonly=True):
        await reader.fetchval("SELECT max(rev) FROM nodus.changes")
        await log.owner.execute("SET lock_timeout = '200ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):  # what the migration's function needs
            await log.owner.execute("SELECT nodus.ensure_partitions($1, 2)", begun)
        await log.store.make(log.token, missing)
        assert (await log.store.look()).ahead == 2
    await reader.close()


async def test_a_missing_partition_fails_the_write_and_nothing_else(log: Log) -> None:  # F21
    begun = await log.begin_epoch(room=1)
    after = Partition(begun // WIDTH * WIDTH + WIDTH)
    await log.owner.execute(f"DROP TABLE nodus.{after.name}")
    assert await log.publish("fits") == begun + 1
    with pytest.raises(asyncpg.CheckViolationError, match="no partition of relation"):
        await log.publish("does not")

    tables = await log.store.look()
    assert (tables.head, tables.ahead) == (begun + 1, 0)
    for partition in tables.missing():
        await log.store.make(log.token, partition)
    assert await log.publish("fits again") == begun + 2


async def test_the_edge_is_the_first_partition_with_a_row_young_enough(log: Log) -> None:
    start = log.clock.now()
    ages: list[tuple[int, datetime]] = []  # the first revision of a partition, its last row's time
    for _ in range(5):
        begun = await log.begin_epoch(room=1)
        await log.publish(f"last-{begun}")
        ages.append((begun // WIDTH * WIDTH, log.clock.now()))
        await log.clock.advance(600)
    tables = await log.store.look()

    async def edge(older_than: timedelta) -> int:
        return await log.store.edge(older_than, tables)

    for n in range(4):
        age = log.clock.now() - ages[n][1]
        after = ages[n + 1][0]
        assert await edge(age) == after  # all of the n-th is that old
        assert await edge(age + timedelta(seconds=1)) < after
    assert await edge(log.clock.now() - start + HOUR) == 1  # nothing is
    # everything is: the head's partition stays, however old
    assert await edge(timedelta(0)) == ages[-1][0]


async def test_the_edge_never_goes_back_and_is_the_leaders(log: Log) -> None:
    await log.store.advance(log.token, WIDTH)
    await log.store.advance(log.token, 1)
    assert (await log.store.look()).oldest == WIDTH
    with pytest.raises(FencedOff):
        await log.store.advance(log.token - 1, 2 * WIDTH)
    assert (await log.store.look()).oldest == WIDTH


async def test_only_what_is_below_edge_and_head_may_go(log: Log) -> None:
    first = (await log.firsts())[0]
    begun = await log.begin_epoch(room=9)
    tables = await log.store.look()
    with pytest.raises(ValueError, match="must stay"):
        await log.store.drop(log.token, tables.partitions[0])  # the edge has not moved
    await log.store.advance(log.token, 1 << 60)  # as no leader does
    tables = await log.store.look()
    assert [one.first for one in tables.below(1 << 60)] == [0, WIDTH, 2 * WIDTH]
    head = next(one for one in tables.partitions if one.first <= begun < one.end)
    for one in (head, *(one for one in tables.partitions if one.first > begun)):
        with pytest.raises(ValueError, match="must stay"):
            await log.store.drop(log.token, one)
    with pytest.raises(FencedOff):
        await log.store.drop(log.token - 1, tables.partitions[0])

    for one in tables.below(1 << 60):
        await log.store.drop(log.token, one)
    assert first not in await log.firsts()
    assert await log.owner.fetchval("SELECT count(*) FROM nodus.changes") == 1
    assert await log.owner.fetchval("SELECT to_regclass('nodus.changes_0')") is None


async def test_nobody_drops_beside_another(log: Log, own_url: str) -> None:
    await log.begin_epoch(room=9)
    await log.store.advance(log.token, 1 << 44)
    partition = (await log.store.look()).partitions[0]
    other: Connection = await asyncpg.connect(own_url)
    await other.execute(f"SELECT pg_advisory_lock({module.UPKEEP_LOCK})")
    with pytest.raises(StorageContention):
        await log.store.drop(log.token, partition)
    await other.close()


@pytest.mark.parametrize("how", ["a time limit", "a crash"])
async def test_a_detach_that_was_interrupted_is_finished_by_the_next(
    log: Log, own_url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = await log.begin_epoch(room=9)
    await log.store.advance(log.token, 1 << 44)
    reader: Connection = await asyncpg.connect(own_url)
    async with reader.transaction(isolation="repeatable_read", readonly=True):
        assert await reader.fetchval("SELECT min(rev) FROM nodus.changes") == 1
        if how == "a time limit":
            monkeypatch.setattr(module, "MOST_SECONDS", "0.3")
            with pytest.raises(StorageTimeout):
                await log.store.drop(log.token, (await log.store.look()).partitions[0])
        else:
            first = (await log.store.look()).partitions[0]
            dropping = spawn("drop", log.store.drop(log.token, first))
            while not (await log.store.look()).partitions[0].leaving:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            # it waits, and holds up nobody
            await log.store.make(log.token, (await log.store.look()).missing()[0])
            await end(dropping)
        leaving = (await log.store.look()).partitions[0]
        assert (leaving.first, leaving.attached, leaving.leaving) == (0, True, True)
        # whoever began before sees it to the end, and writers go on
        assert await reader.fetchval("SELECT min(rev) FROM nodus.changes") == 1
        assert await log.publish("meanwhile") == begun + 1
        for missing in (await log.store.look()).missing():
            await log.store.make(log.token, missing)

    await dropped(log, leaving)
    assert 0 not in await log.firsts()
    await reader.close()


async def dropped(log: Log, partition: Partition) -> None:
    """Drop it; a session whose client is gone may be at it still, and end it."""
    async with asyncio.timeout(30):
        while True:
            try:
                await log.store.drop(log.token, partition)
            except StorageContention:
                await asyncio.sleep(0.01)
            else:
                return


async def test_a_table_that_was_detached_and_not_dropped_is_found(log: Log) -> None:
    await log.begin_epoch(room=9)
    await log.store.advance(log.token, 1 << 44)
    await log.owner.execute("ALTER TABLE nodus.changes DETACH PARTITION nodus.changes_0")
    lost = (await log.store.look()).partitions[0]
    assert (lost.first, lost.attached) == (0, False)
    await log.store.drop(log.token, lost)
    assert 0 not in await log.firsts()


def test_ahead_counts_what_follows_without_a_hole() -> None:
    def tables(*firsts: int) -> LogTables:
        return LogTables(WIDTH + 5, 1, [Partition(first * WIDTH) for first in firsts])

    assert tables(0, 1).ahead == 0
    assert tables(0, 1, 3).ahead == 0
    assert [one.first for one in tables(0, 1, 3).missing()] == [2 * WIDTH]
    assert tables(0, 1, 2, 3, 4).ahead == 3
    assert [one.first for one in tables(0, 1, 2, 3).below(1 << 60)] == [0]


async def test_other_tables_are_no_partitions(log: Log) -> None:
    await log.owner.execute("CREATE TABLE nodus.changes_zz ()")
    assert len(await log.firsts()) == 3
    with pytest.raises(ValueError, match="no partition"):
        module._first_of("changes_zz")


class Killed(BaseException):
    """The process is gone."""


class Mortal(Database):
    """Dies at a statement of its own connections: before it is sent, or after its effect."""

    left = 0
    after = False

    @contextlib.asynccontextmanager
    async def dedicated(self) -> AsyncIterator[DriverConnection]:
        async with super().dedicated() as connection:
            dying: Any = Dying(self, connection)
            yield dying


class Dying:
    """A connection as the upkeep uses it, counted."""

    def __init__(self, mortal: Mortal, connection: DriverConnection) -> None:
        self._mortal = mortal
        self._connection = connection
        self.transaction = connection.transaction

    async def execute(self, *arguments: Any) -> None:
        await self._count(self._connection.execute(*arguments))

    async def fetchval(self, *arguments: Any) -> Any:
        return await self._count(self._connection.fetchval(*arguments))

    async def _count(self, statement: Coroutine[Any, Any, Any]) -> Any:
        self._mortal.left -= 1
        if self._mortal.left < 0 and not self._mortal.after:
            statement.close()
            raise Killed
        answer = await statement
        if self._mortal.left < 0:
            raise Killed
        return answer


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_dying_at_each_statement_leaves_what_the_next_leader_finishes(
    log: Log, own_url: str, after: bool
) -> None:  # reliability.md G3
    begun = [await log.begin_epoch(room=9) for _ in range(6)]
    edge = begun[-1] // WIDTH * WIDTH
    await log.store.advance(log.token, edge)
    mortal = Mortal(own_url, role=Role.SCHEDULER, pinned_now=log.clock.now)
    mortal.after = after
    dying = UpkeepStore(mortal)
    deaths = 0
    for statement in range(20):
        partition = (await log.store.look()).below(edge)[0]
        mortal.left = statement
        try:
            await dying.drop(log.token, partition)
        except Killed:
            deaths += 1
        else:
            break
        # the next leader finds it as it was left, or gone; the dead one's session may end later
        async with asyncio.timeout(30):
            while partition.first in await log.firsts():
                for one in (await log.store.look()).below(edge):
                    with contextlib.suppress(StorageContention):
                        if one.first == partition.first:
                            await log.store.drop(log.token, one)
        assert partition.first not in await log.firsts()
        head = await log.head()
        assert await log.publish(f"after-{statement}") == head + 1
        for missing in (await log.store.look()).missing():
            await log.store.make(log.token, missing)
    assert deaths == 9  # each of its statements
    await mortal.close()
