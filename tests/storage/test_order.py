"""Revision order is commit order, under writers that do all to break it (storage.md 3.1, 11.1)."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest
from tests.storage.order_harness import (
    WRITERS,
    Listing,
    Observed,
    Ordering,
    RolledBack,
    Row,
    observe,
    pause,
    perhaps_rolled_back,
)

from nodus_api.clock import SystemClock
from nodus_api.storage import migrate
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Change, Feed

# generic in its stubs alone
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Pooled: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

SLOTS = 60
SEED = 7
ENOUGH = 600
HEAD = b'{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":"","n":'


@pytest.fixture
async def writers(empty_url: str) -> AsyncIterator[Pool]:
    """Connections for the writers, in a database of their own, migrated."""
    await migrate.upgrade(empty_url)
    pool = await asyncpg.create_pool(
        empty_url, min_size=WRITERS, max_size=WRITERS, server_settings={"search_path": "nodus"}
    )
    yield pool
    await pool.close()


# the product's way ------------------------------------------------------------------------------

_BEGIN = """
INSERT INTO workloads (uid, project, kind, name, spec, created)
  VALUES ('00000000-0000-0000-0000-000000000001', 'default', 'Job', 'train', '{}', now());
INSERT INTO slots (workload, slot)
  SELECT '00000000-0000-0000-0000-000000000001', n::text FROM generate_series(0, 59) n;
"""
# pull_seconds stands in for the object's version
_NEW = """
INSERT INTO attempts (uid, project, name, workload, slot, epoch, stage, queued, pull_seconds)
  VALUES ($1, 'default', $2, '00000000-0000-0000-0000-000000000001', $3, $4, 'Pending',
    date_trunc('second', now()), 1) RETURNING no
"""
_LIVE = """
SELECT no, slot FROM attempts WHERE finished IS NULL AND slot = ANY ($1) ORDER BY no FOR UPDATE
"""
_TOUCH = """
UPDATE attempts SET pull_seconds = pull_seconds + 1 WHERE no = $1 RETURNING uid, pull_seconds, epoch
"""
_END = """
UPDATE attempts SET pull_seconds = pull_seconds + 1, stage = 'Stopped', reason = 'Released',
  finished = date_trunc('second', now()) + interval '1 second'
  WHERE no = $1 RETURNING uid, pull_seconds, epoch
"""
_ENDED = """
SELECT no, uid FROM attempts WHERE finished IS NOT NULL ORDER BY no LIMIT 3 FOR UPDATE SKIP LOCKED
"""


class RowLockAndHead:
    """Candidate e, the real schema: attempts, their documents and `publish()` last."""

    gap_free = True

    def __init__(self, pool: Pool, feed: Feed) -> None:
        self._pool = pool
        self._feed = feed
        self.forgotten = 0
        self.refused = 0

    async def begin(self) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_BEGIN)
            # two retirements at once may both try to make the month's partition, and one of them
            # fails; the product has one writer
            await connection.execute("SELECT ensure_archive(now())")
            await connection.execute("SET LOCAL ROLE nodus_scheduler")
            for slot in range(SLOTS):
                uid = UUID(int=slot)
                no = await connection.fetchval(_NEW, uid, f"train-{slot}-1", str(slot), 1)
                await self._publish(connection, [(no, 1)])

    async def write(self, chance: random.Random) -> list[tuple[str, int | None]]:
        forgets = chance.random() < 0.05
        try:
            with perhaps_rolled_back():
                async with self._pool.acquire() as connection, connection.transaction():
                    await connection.execute("SET LOCAL ROLE nodus_scheduler")
                    if chance.random() < 0.3:
                        await connection.execute("SELECT pg_current_xact_id()")
                    changed = await self._change(connection, chance, forgets=forgets)
                    if chance.random() < 0.1:
                        raise RolledBack
                    self.forgotten += forgets and bool(changed)
                return changed
        except asyncpg.ForeignKeyViolationError as error:
            self.refused += error.constraint_name == "attempts_published"
        return []

    async def _change(
        self, connection: Pooled, chance: random.Random, *, forgets: bool
    ) -> list[tuple[str, int | None]]:
        if not forgets and chance.random() < 0.1:
            return await self._retire(connection, chance)
        slots = [str(slot) for slot in chance.sample(range(SLOTS), chance.randint(1, 5))]
        changed: list[tuple[str, int | None]] = []
        published: list[tuple[int, int]] = []
        for live in await connection.fetch(_LIVE, slots):
            await pause(chance)
            ends = chance.random() < 0.1
            row = await connection.fetchrow(_END if ends else _TOUCH, live["no"])
            assert row is not None
            changed.append((str(row["uid"]), row["pull_seconds"]))
            published.append((live["no"], row["pull_seconds"]))
            if ends:
                uid, epoch, slot = UUID(int=chance.getrandbits(128)), row["epoch"] + 1, live["slot"]
                no = await connection.fetchval(_NEW, uid, f"train-{slot}-{epoch}", slot, epoch)
                changed.append((str(uid), 1))
                published.append((no, 1))
        if not forgets:
            await self._publish(connection, published)
        await pause(chance)
        return changed

    async def _retire(
        self, connection: Pooled, chance: random.Random
    ) -> list[tuple[str, int | None]]:
        ended = await connection.fetch(_ENDED)
        if ended:
            await connection.execute(
                "SELECT retire($1, $2)", [row["no"] for row in ended], [b"zip"] * len(ended)
            )
            await pause(chance)
        return [(str(row["uid"]), None) for row in ended]

    async def _publish(self, connection: Pooled, versions: list[tuple[int, int]]) -> None:
        await connection.execute(
            "SELECT publish($1, $2, $3)",
            [no for no, _ in versions],
            [HEAD + b"%d}}" % version for _, version in versions],
            ['{"labels":{},"fields":{}}'] * len(versions),
        )

    async def read(self, after: int, limit: int) -> list[Row]:
        return [_row(change) for change in await self._feed.read(max(after, 1), limit=limit)]

    async def list(self) -> Listing:
        async with self._feed.snapshot(timedelta(0)) as snapshot:
            pieces = [piece async for piece in snapshot.objects()]
        objects = {str(each.uid): _version(each.doc) for piece in pieces for each in piece}
        return Listing(head=snapshot.state.head, objects=objects)


def _version(doc: bytes) -> int:
    return int(doc[len(HEAD) : -2])


def _row(change: Change) -> Row:
    assert change.doc is not None
    return Row(
        rev=change.rev,
        key=str(change.uid),
        ver=None if change.kind == "D" else _version(change.doc),
        prev_rev=change.prev_rev,
    )


def plenty(observed: Observed) -> bool:
    """Say whether enough was tried for this run: changes, retirements, and lists meanwhile."""
    retired = any(version is None for _, version in observed.committed)
    return len(observed.committed) > ENOUGH and retired and len(observed.lists) > 10


@pytest.mark.slow  # seconds of real contention: commits that meet are what is tried
async def test_the_log_has_no_gap_no_omission_and_one_order(empty_url: str, writers: Pool) -> None:
    database = Database(empty_url, role=Role.API)
    ordering = RowLockAndHead(writers, Feed(database, clock=SystemClock()))
    await ordering.begin()
    observed = await observe(
        ordering, seconds=60, seed=SEED, enough=lambda one: plenty(one) and ordering.forgotten > 0
    )
    await database.close()

    assert observed.faults() == {}
    assert (ordering.refused, ordering.forgotten > 0) == (ordering.forgotten, True)
    assert plenty(observed)  # a run that did little proves little
    assert len(observed.seen[0]) == len(observed.committed) + SLOTS


# a wrong way ------------------------------------------------------------------------------------


class PlainSequence:
    """Candidate 0: numbers from a sequence, nothing that orders commits. Known to be broken."""

    gap_free = False

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def begin(self) -> None:
        await self._pool.execute(
            "CREATE TABLE nodus.obj (id int PRIMARY KEY, ver int NOT NULL);"
            "CREATE TABLE nodus.chg (rev bigserial PRIMARY KEY, id int NOT NULL, ver int NOT NULL);"
            "INSERT INTO nodus.obj SELECT n, 0 FROM generate_series(1, 40) n"
        )

    async def write(self, chance: random.Random) -> list[tuple[str, int | None]]:
        with perhaps_rolled_back():
            async with self._pool.acquire() as connection, connection.transaction():
                changed: list[tuple[str, int | None]] = []
                for key in sorted(chance.sample(range(1, 41), chance.randint(1, 5))):
                    await pause(chance)
                    ver = await connection.fetchval(
                        "UPDATE obj SET ver = ver + 1 WHERE id = $1 RETURNING ver", key
                    )
                    await connection.execute("INSERT INTO chg (id, ver) VALUES ($1, $2)", key, ver)
                    changed.append((str(key), ver))
                await pause(chance)
                if chance.random() < 0.1:
                    raise RolledBack
            return changed
        return []

    async def read(self, after: int, limit: int) -> list[Row]:
        rows = await self._pool.fetch(
            "SELECT rev, id, ver FROM chg WHERE rev > $1 ORDER BY rev LIMIT $2", after, limit
        )
        return [Row(rev=row["rev"], key=str(row["id"]), ver=row["ver"]) for row in rows]

    async def list(self) -> None:
        return None


@pytest.mark.slow  # real contention, until a fault shows
async def test_the_judge_sees_the_faults_of_a_plain_sequence(
    writers: Pool,
) -> None:
    ordering = PlainSequence(writers)
    await ordering.begin()
    observed = await observe(ordering, seconds=10, seed=SEED, enough=broken)

    assert observed.faults().keys() >= {
        "committed change never seen",
        "order of an object broken",
    }


def broken(observed: Observed) -> bool:
    """Say whether enough was written that a skipped change must have shown."""
    return len(observed.committed) > 1000


def test_both_ways_are_orderings() -> None:
    ways: list[type[Ordering]] = [RowLockAndHead, PlainSequence]
    assert [way.gap_free for way in ways] == [True, False]
