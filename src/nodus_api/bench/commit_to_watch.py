"""Area `delay`: from the commit of one change to the client that watches.

The clock runs from the return of the writer's COMMIT, so it holds the wake-up (NOTIFY in a
transaction of its own), the feed's read, the cache, the frame, TLS and the client's parse.
The yardstick is the feed alone: a reader that waits for the same wake-up and reads the row.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from nodus_api.bench.report import NotMeasured, Row, rows_of
from nodus_api.bench.rig import Rig
from nodus_api.bench.writer import Writer
from nodus_api.clock import Clock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.storage.wakeups import Wakeups

AREA = "delay"
_FEED_ALONE = "the feed alone"
_WATCH = "watch over TLS"
_PAUSE_SECONDS = 0.02  # between changes, so that each meets an idle server
_PATIENCE_SECONDS = 10.0
_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    changes: int
    attempts: int


QUICK = Effort(rounds=3, changes=100, attempts=100)
FULL = Effort(rounds=9, changes=400, attempts=10_000)


class DelayFailed(NotMeasured):
    """A change did not arrive."""


class _Reader(Protocol):
    async def until(self, rev: int) -> float:
        """Return the moment at which `rev` was seen."""
        ...


async def commit_to_watch(rig: Rig, *, clock: Clock, effort: Effort) -> list[Row]:
    """Measure the delay in milliseconds, rounds of yardstick and product interleaved.

    Raises DelayFailed when a change does not arrive within ten seconds.
    """
    database = Database(rig.database_url, role=Role.SCHEDULER)
    try:
        writer = Writer(database)
        numbers = await writer.fill(effort.attempts, now=clock.now().replace(microsecond=0))
        feed = Feed(database, clock=clock)
        rounds = []
        for _ in range(effort.rounds):
            async with _following(feed, clock) as reader:
                alone = await _delays(writer, numbers, reader, clock, effort.changes)
            async with _watching(rig, await feed.head(), clock) as watcher:
                watch = await _delays(writer, numbers, watcher, clock, effort.changes)
            rounds.append({_FEED_ALONE: alone, _WATCH: watch})
    finally:
        await database.close()
    return rows_of(AREA, "ms", rounds, yardstick=_FEED_ALONE)


async def _delays(
    writer: Writer, numbers: Sequence[int], reader: _Reader, clock: Clock, changes: int
) -> list[float]:
    taken = []
    for turn in range(changes):
        rev = await writer.change(numbers[turn % len(numbers)])
        committed = clock.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                _, seen = await asyncio.gather(writer.wake(), reader.until(rev))
        except TimeoutError:
            raise DelayFailed(f"revision {rev} did not arrive in ten seconds") from None
        taken.append((seen - committed) * 1000)
        await clock.sleep(_PAUSE_SECONDS)
    return taken


@dataclass(slots=True)
class _FeedReader:
    feed: Feed
    wakeups: Wakeups
    clock: Clock
    position: int

    async def until(self, rev: int) -> float:
        while self.position < rev:
            await self.wakeups.wait(_PATIENCE_SECONDS)
            for change in await self.feed.read(self.position):
                self.position = change.rev
        return self.clock.monotonic()


@asynccontextmanager
async def _following(feed: Feed, clock: Clock) -> AsyncIterator[_Reader]:
    async with feed.listen() as wakeups:
        yield _FeedReader(feed, wakeups, clock, await feed.head())


@dataclass(slots=True)
class _WatchReader:
    stream: asyncio.StreamReader
    clock: Clock

    async def until(self, rev: int) -> float:
        while True:
            line = await self.stream.readline()
            if not line:
                raise DelayFailed("the server ended the watch")
            found = _REVISION.search(line)
            if found and int(found[1]) >= rev:
                return self.clock.monotonic()


@asynccontextmanager
async def _watching(rig: Rig, rev: int, clock: Clock) -> AsyncIterator[_Reader]:
    stream, writer = await asyncio.open_connection(
        rig.host, rig.port, ssl=rig.tls, server_hostname="localhost"
    )
    try:
        writer.write(
            f"GET /apis/nodus.dev/v1/attempts?watch=1&resourceVersion={rev} HTTP/1.1\r\n"
            f"Host: localhost\r\nAuthorization: Bearer {rig.token}\r\n\r\n".encode()
        )
        await writer.drain()
        status = await stream.readline()
        if b" 200 " not in status:
            raise DelayFailed(f"the watch was refused: {status.decode().strip()}")
        while await stream.readline() != b"\r\n":
            pass
        yield _WatchReader(stream, clock)
    finally:
        writer.close()
