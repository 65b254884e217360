"""The log's partitions: made ahead of the head, dropped below what is promised (storage.md 7).

What may be dropped follows from the table `feed` alone, whose edge only a leader moves, so a leader
that was deposed meanwhile can do no harm: its statements are refused or were due anyway.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.driver import DriverConnection
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff, StorageContention
from nodus_api.storage.statements import database_now

WIDTH = 262_144
"""Revisions a partition, as `ensure_partitions` makes them; `publish` counts on it (`>> 18`)."""
AHEAD = 2
"""So many partitions stand ready after the one that holds the head."""
UPKEEP_LOCK = 7237384
"""Advisory lock of whoever takes partitions away."""
MOST_SECONDS = 20
"""How long a DETACH may wait for old readers; one that was given up is finished another time."""

_NAME = re.compile(r"changes_[0-9a-f]+")
_LOOK = sa.text("""
SELECT (SELECT max(rev) FROM nodus.changes) AS head, f.oldest, c.relname AS name,
       i.inhrelid IS NOT NULL AS attached, coalesce(i.inhdetachpending, false) AS leaving
FROM nodus.feed f CROSS JOIN pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'nodus'::regnamespace AND c.relkind = 'r'
  AND c.relname ~ '^changes_[0-9a-f]+$'
""")
_MAY_GO = """
SELECT $2 <= f.oldest AND $2 <= (SELECT max(rev) FROM nodus.changes)
FROM nodus.feed f JOIN nodus.leader l ON l.token = $1
"""
_LEAVING = """
SELECT i.inhdetachpending FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'nodus.changes'::regclass AND c.relname = $1
"""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """A table of the log, by its first revision; `end` is the first one after it."""

    first: int
    attached: bool = True
    leaving: bool = False
    """Whether a DETACH began and did not end."""

    @property
    def end(self) -> int:
        """The first revision of the partition after this one."""
        return self.first + WIDTH

    @property
    def name(self) -> str:
        """The table's name."""
        return f"changes_{self.first // WIDTH:x}"


@dataclass(frozen=True, slots=True)
class LogTables:
    """The log's head and promised edge, and its tables in order, the detached ones included."""

    head: int
    oldest: int
    partitions: Sequence[Partition]

    @property
    def ahead(self) -> int:
        """How many partitions stand ready, one after the other, after the one of the head."""
        there = {one.first for one in self.partitions if one.attached and not one.leaving}
        ahead = 0
        while self._after_head(ahead + 1) in there:
            ahead += 1
        return ahead

    def missing(self) -> list[Partition]:
        """Return those that should stand ready, and do not."""
        there = {one.first for one in self.partitions}
        wanted = (self._after_head(n) for n in range(AHEAD + 1))
        return [Partition(first) for first in wanted if first not in there]

    def below(self, edge: int) -> list[Partition]:
        """Return what lies wholly below `edge`; never what holds the head, or comes after it."""
        return [one for one in self.partitions if one.end <= min(edge, self.head)]

    def _after_head(self, count: int) -> int:
        return (self.head // WIDTH + count) * WIDTH


class UpkeepStore:
    """The door to the log's tables, for the one loop that leads.

    Only their owner may make and drop them: that is done on a connection of its own in that role.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self) -> LogTables:
        """Return the log's tables as they stand."""
        async with self._database.single_reads() as connection:
            rows = (await connection.execute(_LOOK)).all()
        found = [Partition(_first_of(row.name), row.attached, row.leaving) for row in rows]
        return LogTables(rows[0].head, rows[0].oldest, sorted(found))

    async def make(self, token: int, partition: Partition) -> None:
        """Make a partition as `ensure_partitions` does, beside whoever reads or writes.

        Attached, it needs no lock that a long reader (a dump, say) would hold up, which CREATE ...
        PARTITION OF does. Given up after 200 ms, as StorageContention, where another changes the
        log's tables. Raises FencedOff when another loop leads.
        """
        name, first, end = partition.name, partition.first, partition.end
        async with self._as_owner() as connection, connection.transaction():
            await _fence(connection, token)
            await connection.execute("SET LOCAL lock_timeout = '200ms'")
            await connection.execute(
                f"CREATE TABLE nodus.{name} (LIKE nodus.changes INCLUDING ALL)"
                " WITH (autovacuum_enabled = off, toast_tuple_target = 8160);"
                f"REVOKE ALL ON nodus.{name} FROM PUBLIC, nodus_api, nodus_scheduler;"
                f"ALTER TABLE nodus.changes ATTACH PARTITION nodus.{name}"
                f" FOR VALUES FROM ({first}) TO ({end})"
            )

    async def edge(self, older_than: timedelta, log: LogTables) -> int:
        """Return the first revision of the oldest partition that must stay.

        Every row below it is that old, by the database's clock; found by bisection over the
        partitions, by the last row before each. The partition of the head always stays.
        """
        firsts = [one.first for one in log.partitions if log.oldest < one.first <= log.head]
        low, high = 0, len(firsts)  # those before `low` may be the edge, those from `high` not
        async with self._database.single_reads() as connection:
            while low < high:
                middle = (low + high) // 2
                query, given = _old_before(firsts[middle]), {"older_than": older_than}
                old = (await connection.execute(query, given)).scalar()
                if old is None or old:
                    low = middle + 1
                else:
                    high = middle
        return firsts[low - 1] if low else log.oldest

    async def advance(self, token: int, edge: int) -> None:
        """Promise nothing below `edge` any more. Locks the row of `feed`; it never goes back."""
        async with self._database.transaction() as connection:
            await fence(connection, token)
            await connection.execute(sa.select(sa.func.nodus.advance_oldest(edge)))

    async def drop(self, token: int, partition: Partition) -> None:
        """Take a partition that lies below the promised edge out of the log, and drop it.

        DETACH ... CONCURRENTLY waits for readers that may still see it and holds up nobody else.
        After 20 s it is given up (StorageTimeout), and stays half done until this is called again,
        by this leader or the next. Raises FencedOff when another loop leads, and StorageContention
        where another session is at it or a reader holds the table.
        """
        async with self._as_owner() as connection:
            if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", UPKEEP_LOCK):
                raise StorageContention("another session takes partitions of the log away")
            await _must_go(connection, token, partition)
            # a session that seemed to be dead may have gone on until it let go of the lock
            leaving = await connection.fetchval(_LEAVING, partition.name)
            if leaving is not None:
                how = "FINALIZE" if leaving else "CONCURRENTLY"
                await connection.execute(f"SET statement_timeout = '{MOST_SECONDS}s'")
                await connection.execute(
                    f"ALTER TABLE nodus.changes DETACH PARTITION nodus.{partition.name} {how}"
                )
            async with connection.transaction():
                await _fence(connection, token)
                await connection.execute("SET LOCAL lock_timeout = '200ms'")
                await connection.execute(f"DROP TABLE IF EXISTS nodus.{partition.name}")

    @asynccontextmanager
    async def _as_owner(self) -> AsyncIterator[DriverConnection]:
        async with self._database.dedicated() as connection:
            await connection.execute("SET ROLE nodus_migrate")
            yield connection


async def _fence(connection: DriverConnection, token: int) -> None:
    leads = "SELECT 1 FROM nodus.leader WHERE token = $1 FOR SHARE"
    if await connection.fetchval(leads, token) is None:
        raise FencedOff(token)


async def _must_go(connection: DriverConnection, token: int, partition: Partition) -> None:
    """Ask again, in the session that drops: a mistake here cannot be taken back."""
    may_go = await connection.fetchval(_MAY_GO, token, partition.end)
    if may_go is None:
        raise FencedOff(token)
    if not may_go:
        raise ValueError(f"{partition.name} holds what the log promises, and must stay")


def _old_before(rev: int) -> sa.Select[Any]:
    """Whether the last row before `rev` is :older_than; none: there is no row. Primary key."""
    age = sa.bindparam("older_than", type_=sa.Interval)
    return (
        sa.select(t.changes.c.at <= database_now - age)
        .where(t.changes.c.rev < rev)
        .order_by(t.changes.c.rev.desc())
        .limit(1)
    )


def _first_of(name: str) -> int:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no partition of the log")
    return int(name.removeprefix("changes_"), 16) * WIDTH
