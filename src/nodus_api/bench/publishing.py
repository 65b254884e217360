"""Areas `publish` and `snapshot`: what one writer publishes, with batches of 100.

`publish`: the whole path of a batch (rows, checks, documents, log, wake-up) beside plain inserts
of the same documents, as many a transaction; and once more with the rendering of the documents,
which is the scheduler's work, not storage's. `snapshot`: the same while another session keeps an
old snapshot open, which no dead row version may be pruned below.
"""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.bench.report import Row, rows_of
from nodus_api.bench.rig import Rig
from nodus_api.bench.writer import Writer
from nodus_api.clock import Clock
from nodus_api.storage.engine import Database, Role

PUBLISH_AREA = "publish"
SNAPSHOT_AREA = "snapshot"
_BATCH = 100
_PLAIN, _PUBLISHED = "plain inserts", "published changes"
_RENDERED = "rendered and published"
_WITHOUT, _WITH = "no old snapshot", "an old snapshot"
_INSERT = sa.text("INSERT INTO nodus.bench_plain (doc) SELECT unnest(CAST(:docs AS bytea[]))")
_TARGETS = {_PUBLISHED: "ratio >= 0.25, 6000/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    attempts: int
    seconds: float
    """How long each case takes in each round."""
    open_seconds: float = 20.0
    """How long the old snapshot stands open before it counts, publishing all the while."""


QUICK = Effort(rounds=3, attempts=2000, seconds=2.0, open_seconds=5.0)
FULL = Effort(rounds=5, attempts=10_000, seconds=5.0)


async def publish_rate(rig: Rig, *, clock: Clock, effort: Effort) -> list[Row]:
    """Measure changes a second, rounds of plain inserts and publishing interleaved."""
    async with AsyncExitStack() as stack:
        writer, numbers = await _filled(rig, PUBLISH_AREA, stack, clock, effort)
        plain = await _plain_table(rig, stack)
        rounds = []
        for _ in range(effort.rounds):
            docs = writer.documents(list(islice(numbers, _BATCH)))
            inserted = await _inserts(plain, docs, clock, effort.seconds)
            published = await _publishes(writer, numbers, clock, effort.seconds)
            whole = await _publishes(writer, numbers, clock, effort.seconds, rendered=False)
            rounds.append({_PLAIN: inserted, _PUBLISHED: published, _RENDERED: whole})
    return rows_of(PUBLISH_AREA, "/s", rounds, yardstick=_PLAIN, targets=_TARGETS)


async def cost_with_old_snapshot(rig: Rig, *, clock: Clock, effort: Effort) -> list[Row]:
    """Measure what a published change costs the server, without and with an old snapshot.

    In microseconds of CPU of the writer's session, which other load on the machine does not bend;
    the wall time a commit beside it.
    """
    reader = Database(rig.database_url, role=Role.API, pool_size=1)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(reader.close)
        writer, numbers = await _filled(rig, SNAPSHOT_AREA, stack, clock, effort)
        session = await _session_of(writer)
        cpu, wall = [], []
        for _ in range(effort.rounds):
            free = await _costs(writer, numbers, session, clock, effort.seconds)
            async with reader.snapshot() as connection:
                await connection.execute(sa.text("SELECT max(rev) FROM nodus.changes"))
                await _publishes(writer, numbers, clock, effort.open_seconds)
                held = await _costs(writer, numbers, session, clock, effort.seconds)
            cpu.append({_WITHOUT: free.cpu, _WITH: held.cpu})
            wall.append({_WITHOUT: free.wall, _WITH: held.wall})
    targets = {_WITH: "ratio <= 1.3"}
    return [
        *rows_of(SNAPSHOT_AREA, "us CPU", cpu, yardstick=_WITHOUT, targets=targets),
        *rows_of(SNAPSHOT_AREA, "ms/commit", wall, yardstick=_WITHOUT),
    ]


async def _filled(
    rig: Rig, area: str, stack: AsyncExitStack, clock: Clock, effort: Effort
) -> tuple[Writer, Iterator[int]]:
    """Return a writer over one connection, and its Attempts by turns."""
    database = Database(rig.database_url, role=Role.SCHEDULER, pool_size=1)
    stack.push_async_callback(database.close)
    writer = Writer(database, area)
    numbers = await writer.fill(effort.attempts, now=clock.now().replace(microsecond=0))
    return writer, cycle(numbers)


async def _plain_table(rig: Rig, stack: AsyncExitStack) -> Database:
    database = Database(rig.database_url, role=Role.MIGRATE, pool_size=1)
    stack.push_async_callback(database.close)
    async with database.transaction() as connection:
        await connection.execute(
            sa.text(
                "CREATE TABLE nodus.bench_plain"
                " (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, doc bytea NOT NULL)"
            )
        )
    return database


async def _inserts(
    plain: Database, docs: Sequence[bytes], clock: Clock, seconds: float
) -> list[float]:
    async def insert() -> None:
        async with plain.transaction() as connection:
            await connection.execute(_INSERT, {"docs": list(docs)})

    done, began = 0, clock.monotonic()
    while clock.monotonic() < began + seconds:
        await insert()
        done += len(docs)
    return [done / (clock.monotonic() - began)]


async def _publishes(
    writer: Writer, numbers: Iterator[int], clock: Clock, seconds: float, *, rendered: bool = True
) -> list[float]:
    """Publish, waking the readers after each commit as the scheduler does; return the rate.

    Where documents are `rendered` beforehand, the time that takes is left out.
    """
    done, apart, began = 0, 0.0, clock.monotonic()
    while clock.monotonic() < began + seconds:
        before = clock.monotonic()
        change = writer.render(list(islice(numbers, _BATCH)))
        if rendered:
            apart += clock.monotonic() - before
        await writer.write(change)
        await writer.wake()
        done += _BATCH
    return [done / (clock.monotonic() - began - apart)]


@dataclass(frozen=True, slots=True)
class _Costs:
    cpu: list[float]
    """Microseconds of the session's CPU a change, by commit."""
    wall: list[float]
    """Milliseconds a commit."""


async def _costs(
    writer: Writer, numbers: Iterator[int], session: Path, clock: Clock, seconds: float
) -> _Costs:
    costs, end = _Costs([], []), clock.monotonic() + seconds
    while (began := clock.monotonic()) < end:
        used = _cpu_ns(session)
        await writer.change(list(islice(numbers, _BATCH)))
        costs.cpu.append((_cpu_ns(session) - used) / 1000 / _BATCH)
        costs.wall.append((clock.monotonic() - began) * 1000)
    return costs


async def _session_of(writer: Writer) -> Path:
    """Return where the kernel counts the CPU of the writer's one session."""
    async with writer.database.transaction() as connection:
        pid = await _pid(connection)
    return Path(f"/proc/{pid}/schedstat")


async def _pid(connection: AsyncConnection) -> int:
    return int((await connection.execute(sa.text("SELECT pg_backend_pid()"))).scalar_one())


def _cpu_ns(session: Path) -> int:
    return int(session.read_text().split()[0])
