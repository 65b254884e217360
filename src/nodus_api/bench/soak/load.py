"""The soak's writer, a process of its own: changes at a steady rate, and the log's retention.

A program: `python -m nodus_api.bench.soak.load` reads a `Load` as JSON from standard input and
writes what it did as JSON to standard output when SIGTERM ends it. It goes on through restarts of
Postgres.
"""

import asyncio
import itertools
import json
import logging
import signal
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta

import sqlalchemy as sa
import uvloop

from nodus_api.bench.writer import Writer
from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageError
from nodus_api.tasks import end, spawn

OWNER = "soak"
_AT_ONCE = 25
_AGAIN_SECONDS = 0.2
_LOOK_SECONDS = 20.0
_WIDTH = 262_144
_CLOCK = SystemClock()
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be written: changes a second, of Attempts in so many projects."""

    url: str
    rate: float
    attempts: int
    projects: int
    retention_seconds: float
    """How long a change stays in the log, to the partition."""


@dataclass(slots=True)
class Wrote:
    """What was done."""

    changes: int = 0
    failures: int = 0
    oldest: int = 1
    partitions_dropped: int = 0


async def write(load: Load, stop: asyncio.Event) -> Wrote:
    """Write until `stop`; 25 changes a commit, each with its wake-up."""
    database = Database(load.url, role=Role.SCHEDULER, pool_size=3)
    done = Wrote()
    writer = Writer(database, OWNER, project=OWNER)
    now = _CLOCK.now().replace(microsecond=0)
    numbers = itertools.cycle(await writer.fill(load.attempts, now=now, projects=load.projects))
    retaining = spawn("retention", _retain(database, load, done))
    began = _CLOCK.monotonic()
    try:
        while not stop.is_set():
            try:
                await writer.change(list(itertools.islice(numbers, _AT_ONCE)))
                done.changes += _AT_ONCE
                await writer.wake()
            except StorageError:
                done.failures += 1
                await _CLOCK.sleep(_AGAIN_SECONDS)
                began += _AGAIN_SECONDS  # what was missed is not made up for
            await _CLOCK.sleep(max(began + done.changes / load.rate - _CLOCK.monotonic(), 0))
    finally:
        await end(retaining)
        await database.close()
    return done


async def _retain(database: Database, load: Load, done: Wrote) -> None:
    """Move the log's edge, and drop what was below it at the look before (storage.md section 7)."""
    edge = 1
    while True:
        try:
            for first in range(edge // _WIDTH - 1, -1, -1):
                await _drop(database, f"changes_{first:x}", done)
            edge = done.oldest = await _advance(database, load)
        except StorageError as error:
            log.warning("the log's retention waits", extra={"cause": str(error)})
        await _CLOCK.sleep(_LOOK_SECONDS)


async def _advance(database: Database, load: Load) -> int:
    """Promise nothing any more that is too old; return the edge, a partition's first revision."""
    old = timedelta(seconds=load.retention_seconds)
    query = sa.text(
        "SELECT coalesce(max(rev), 1) FROM (SELECT k * :width AS rev FROM generate_series("
        " 1, (SELECT max(rev) FROM nodus.changes) / :width) k) edges"
        " WHERE (SELECT at FROM nodus.changes c WHERE c.rev >= edges.rev ORDER BY c.rev LIMIT 1)"
        " <= nodus.now() - CAST(:old AS interval)"
    ).bindparams(sa.bindparam("old", type_=sa.Interval), sa.bindparam("width", type_=sa.BigInteger))
    async with database.transaction() as connection:
        edge = int((await connection.execute(query, {"old": old, "width": _WIDTH})).scalar_one())
        await connection.execute(sa.select(sa.func.nodus.advance_oldest(edge)))
        head = sa.text("SELECT nodus.ensure_partitions(max(rev), 2) FROM nodus.changes")
        await connection.execute(head)
    return edge


async def _drop(database: Database, name: str, done: Wrote) -> None:
    async with database.dedicated() as connection:
        await connection.execute("SET ROLE nodus_migrate")
        if await connection.fetchval("SELECT to_regclass($1) IS NULL", f"nodus.{name}"):
            return
        await connection.execute(
            f"ALTER TABLE nodus.changes DETACH PARTITION nodus.{name} CONCURRENTLY"
        )
        await connection.execute(f"DROP TABLE nodus.{name}")
        done.partitions_dropped += 1


async def _main(load: Load) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    json.dump(asdict(await write(load, stop)), sys.stdout)


if __name__ == "__main__":
    given = Load(**json.load(sys.stdin))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(given))
