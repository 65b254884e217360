"""Areas `delay` and `busy`: from the commit of a change to the client that watches.

`delay` commits one change at a time to an idle server; `busy` 50 at a time, 20 times a second:
each event counts, and the last of each commit once more by itself.

The clock runs from the return of the writer's COMMIT, so it holds the wake-up (NOTIFY in a
transaction of its own), the feed's read, the cache, the frame, TLS and the client's look at what
it read. The yardstick is the feed alone: a reader that waits for the same wake-up and reads the
rows.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Protocol

from nodus_api.bench.report import NotMeasured, Row, rows_of
from nodus_api.bench.rig import Rig
from nodus_api.bench.writer import Writer
from nodus_api.clock import Clock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.storage.wakeups import Wakeups

AREA = "delay"
BUSY_AREA = "busy"
_FEED_ALONE = "the feed alone"
_WATCH = "watch over TLS"
_LAST = "the last of each commit"
_PATIENCE_SECONDS = 10.0
_PIECE = 65_536
_FRAME = re.compile(rb"(?:\r\n)?([0-9a-fA-F]+)\r\n")
_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    area: str = AREA
    rounds: int
    commits: int
    attempts: int
    at_once: int = 1
    """Changes a commit."""
    every: float = 0.02
    """Seconds between commits at least; alone, so that each meets an idle server."""
    targets: Mapping[str, str] = field(default_factory=dict)


QUICK = Effort(rounds=3, commits=100, attempts=100)
FULL = Effort(rounds=9, commits=400, attempts=10_000)
_TARGETS = {_WATCH: "median <= 5 ms, p99 <= 25 ms"}
BUSY_QUICK = Effort(
    area=BUSY_AREA, rounds=2, commits=60, attempts=1000, at_once=50, every=0.05, targets=_TARGETS
)
BUSY_FULL = Effort(
    area=BUSY_AREA, rounds=5, commits=400, attempts=10_000, at_once=50, every=0.05, targets=_TARGETS
)


class DelayFailed(NotMeasured):
    """A change did not arrive."""


class _Reader(Protocol):
    async def until(self, rev: int) -> list[float]:
        """Return the moments at which the changes up to `rev` were seen, in their order."""
        ...


async def commit_to_watch(rig: Rig, *, clock: Clock, effort: Effort) -> list[Row]:
    """Measure the delay in milliseconds, rounds of yardstick and product interleaved.

    Raises DelayFailed when a change does not arrive within ten seconds.
    """
    database = Database(rig.database_url, role=Role.SCHEDULER)
    try:
        writer = Writer(database, effort.area)
        numbers = await writer.fill(effort.attempts, now=clock.now().replace(microsecond=0))
        feed = Feed(database, clock=clock)
        rounds = []
        for _ in range(effort.rounds):
            async with _following(feed, clock) as reader:
                alone = await _delays(writer, numbers, reader, clock, effort)
            async with _watching(rig, await feed.head(), clock) as watcher:
                watch = await _delays(writer, numbers, watcher, clock, effort)
            rounds.append({_FEED_ALONE: alone, _WATCH: watch})
            if effort.at_once > 1:
                rounds[-1][_LAST] = watch[effort.at_once - 1 :: effort.at_once]
    finally:
        await database.close()
    return rows_of(effort.area, "ms", rounds, yardstick=_FEED_ALONE, targets=effort.targets)


async def _delays(
    writer: Writer, numbers: Sequence[int], reader: _Reader, clock: Clock, effort: Effort
) -> list[float]:
    taken, turns = [], cycle(numbers)
    for _ in range(effort.commits):
        began = clock.monotonic()
        rev = await writer.change(list(islice(turns, effort.at_once)))
        committed = clock.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                _, moments = await asyncio.gather(writer.wake(), reader.until(rev))
        except TimeoutError:
            raise DelayFailed(f"revision {rev} did not arrive in ten seconds") from None
        if len(moments) != effort.at_once:
            raise DelayFailed(f"{len(moments)} changes arrived of {effort.at_once}")
        taken += [(seen - committed) * 1000 for seen in moments]
        await clock.sleep(max(began + effort.every - clock.monotonic(), 0))
    return taken


@dataclass(slots=True)
class _FeedReader:
    feed: Feed
    wakeups: Wakeups
    clock: Clock
    position: int

    async def until(self, rev: int) -> list[float]:
        moments: list[float] = []
        while self.position < rev:
            await self.wakeups.wait(_PATIENCE_SECONDS)
            changes = await self.feed.read(self.position)
            moments += [self.clock.monotonic()] * len(changes)
            self.position = changes[-1].rev if changes else self.position
        return moments


@asynccontextmanager
async def _following(feed: Feed, clock: Clock) -> AsyncIterator[_Reader]:
    async with feed.listen() as wakeups:
        yield _FeedReader(feed, wakeups, clock, await feed.head())


@dataclass(slots=True)
class _WatchReader:
    stream: asyncio.StreamReader
    clock: Clock
    position: int
    rest: bytes = b""
    """The begin of a line that is not whole yet."""
    frame: bytes = b""
    """The begin of a chunk's frame."""
    left: int = 0
    """Bytes of the chunk to come."""

    async def until(self, rev: int) -> list[float]:
        moments: list[float] = []
        while self.position < rev:
            piece = await self.stream.read(_PIECE)
            if not piece:
                raise DelayFailed("the server ended the watch")
            lines, _, self.rest = (self.rest + self._body(piece)).rpartition(b"\n")
            seen = _REVISION.findall(lines)
            moments += [self.clock.monotonic()] * len(seen)
            self.position = int(seen[-1]) if seen else self.position
        return moments

    def _body(self, piece: bytes) -> bytes:
        """Return what of the body is in a piece of the stream, without the frames of chunks."""
        piece, self.frame, found = self.frame + piece, b"", []
        while piece:
            if self.left:
                found.append(piece[: self.left])
                piece, self.left = piece[self.left :], max(self.left - len(piece), 0)
            elif (frame := _FRAME.match(piece)) is not None:
                piece, self.left = piece[frame.end() :], int(frame[1], 16)
            else:
                self.frame, piece = piece, b""
        return b"".join(found)


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
        yield _WatchReader(stream, clock, rev)
    finally:
        writer.close()
