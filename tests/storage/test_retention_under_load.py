"""Partitions go while the log is written, watched and read at old revisions (storage.md 11.5).

Epochs that begin a few rows before the end of a partition make a small log cross many.
"""

import asyncio
import random
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import asyncpg
import orjson
import pytest
from tests.storage.conftest import fresh_database
from tests.storage.log_at import begin_epoch
from tests.storage.scene import Connection
from tests.watchcache.conftest import running, until
from tests.watchcache.published import Publisher

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.upkeep import RETENTION_SECONDS, Upkeep
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Change, Feed
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.migrate import upgrade
from nodus_api.storage.upkeep import WIDTH, UpkeepStore
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache, Window
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.entry import finished
from nodus_api.watchcache.errors import StateTooOld

pytestmark = pytest.mark.slow  # eight partitions come and go under load

OBJECTS = 12
DROPPED = 8
RETENTION = timedelta(seconds=3)
"""So long a replica may lag: whoever lags more loses its place, as it must."""
NO_WINDOW = Window(stubs=timedelta(0), documents=timedelta(0))
CLOCK = SystemClock()


@dataclass
class Truth:
    """The whole log, kept by a reader that follows it: later nobody could read it again."""

    rows: list[Change] = field(default_factory=list)

    @property
    def revs(self) -> list[int]:
        return [row.rev for row in self.rows]

    def state(self, rev: int) -> list[bytes]:
        """The documents at a revision, in the order of a list."""
        found: dict[str, bytes] = {}
        for row in self.rows[: bisect_right(self.revs, rev)]:
            if row.name is not None and row.doc is not None:
                found.pop(row.name, None)
                if row.kind != "D":
                    found[row.name] = finished(row.doc, row.rev)
        return [found[name] for name in sorted(found)]

    def gaps(self, prev_lasts: dict[int, int]) -> list[tuple[int, int]]:
        """Where the log does not go on by one, nor by the marker of an epoch."""
        return [
            (one.rev, two.rev)
            for one, two in pairwise(self.rows)
            if two.rev != one.rev + 1 and prev_lasts.get(two.rev) != one.rev
        ]


async def follow(feed: Feed, truth: Truth) -> None:
    while True:
        truth.rows.extend(await feed.read(truth.rows[-1].rev if truth.rows else 0))
        await CLOCK.sleep(0.005)


async def write(publisher: Publisher, mine: Sequence[int], chance: random.Random) -> None:
    while True:
        number = chance.choice(mine)
        await publisher.change(number, f"n{number:02}", f"Phase{chance.randrange(10**6)}")
        await CLOCK.sleep(0.002)


async def go_on(owner: Connection, chance: random.Random, begun: list[int]) -> None:
    """Begin another epoch, once the one before has crossed into its next partition."""
    while True:
        head = int(await owner.fetchval("SELECT max(rev) FROM nodus.changes"))
        if not begun or head // WIDTH > begun[-1] // WIDTH:
            begun.append(await begin_epoch(owner, room=chance.randint(3, 30)))
        await CLOCK.sleep(0.01)


async def watch(cache: AttemptCache, since: int, seen: list[int]) -> None:
    watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, since), initial=False))
    try:
        while True:
            seen.extend(one.rev for one in await watcher.take())
            assert watcher.over is None
            await watcher.wait()
    finally:
        watcher.close()


@dataclass
class Reads:
    """What exact readers met; `wrong` must stay empty."""

    answered: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


async def read_old(
    cache: AttemptCache, feed: Feed, truth: Truth, chance: random.Random, reads: Reads
) -> None:
    while True:
        await CLOCK.sleep(0.005)
        # young ones, and any: how old a state may be, and is gone, is not a matter of speed
        rev = chance.choice(chance.choice([truth.revs[-150:], truth.revs]))
        try:
            page = await cache.list(None, ReadAt(Mode.EXACT, rev))
        except StateTooOld:
            reads.refused += 1
            if rev >= (await feed.state()).oldest:
                reads.wrong.append(f"{rev} is refused and promised")
            continue
        reads.answered += 1
        if [entry.body for entry in page.entries] != truth.state(rev):
            reads.wrong.append(f"{rev} is told wrongly")


async def retain(upkeep: Upkeep, clock: ManualClock) -> None:
    """Look as often as can be, each a minute after the last."""
    while True:
        assert await upkeep.look()
        await clock.advance(RETENTION_SECONDS)
        await CLOCK.sleep(0.02)


@asynccontextmanager
async def together(*works: Awaitable[None]) -> AsyncIterator[Callable[[], bool]]:
    """Run them all; gives whether one ended, which none may."""
    tasks = [spawn("work", _of(work)) for work in works]
    try:
        yield lambda: any(task.done() for task in tasks)
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        await asyncio.gather(*map(end, tasks), return_exceptions=True)


async def _of(work: Awaitable[None]) -> None:
    await work


def whole_seconds() -> datetime:
    return CLOCK.now().replace(microsecond=0)


@dataclass
class Load:
    """The connections of all that goes on, to a database of their own."""

    owner: Connection
    writer: Database
    api: Database


@pytest.fixture
async def load(database_url: str) -> AsyncIterator[Load]:
    async with fresh_database(database_url, "nodus_load") as url:
        await upgrade(url)
        # whole seconds, as the scheduler's rows have them
        writer = Database(url, role=Role.SCHEDULER, pool_size=4, pinned_now=whole_seconds)
        made = Load(await asyncpg.connect(url), writer, Database(url, role=Role.API, pool_size=8))
        yield made
        await made.owner.close()
        await made.writer.close()
        await made.api.close()


async def test_partitions_go_under_writers_watchers_and_exact_readers(load: Load) -> None:
    chance = random.Random(5)  # noqa: S311
    owner, writer, api = load.owner, load.writer, load.api
    clock, feed = ManualClock(CLOCK.now()), Feed(api, clock=CLOCK)
    reign = await LeaderStore(writer).take_over("test")
    upkeep = Upkeep(
        UpkeepStore(writer), clock, LoopMetrics(), token=reign.token, retention=RETENTION
    )
    publisher, truth, reads = Publisher(writer), Truth(), Reads()
    begun: list[int] = []
    seen: list[list[int]] = [[], []]
    await publisher.begin()
    start = await publisher.add(*(f"n{n:02}" for n in range(1, OBJECTS + 1)))
    watching = AttemptCache(feed, clock=CLOCK, chance=chance.random)
    reading = AttemptCache(feed, clock=CLOCK, chance=chance.random, window=NO_WINDOW)

    async def tables() -> set[str]:
        return {one.name for one in (await UpkeepStore(writer).look()).partitions}

    there: set[str] = set()
    gone: set[str] = set()
    async with running(watching), running(reading):
        async with together(
            *(watch(watching, start, one) for one in seen), follow(feed, truth)
        ) as watch_ended:
            await until(lambda: bool(truth.rows), 30)
            async with together(
                *(write(publisher, range(n, OBJECTS + 1, 2), chance) for n in (1, 2)),
                *(read_old(reading, feed, truth, chance, reads) for _ in range(2)),
                go_on(owner, chance, begun),
                retain(upkeep, clock),
            ) as ended:
                async with asyncio.timeout(90):
                    while len(gone) < DROPPED or not reads.refused or reads.answered < 20:
                        if ended() or watch_ended():
                            break
                        now = await tables()
                        there |= now
                        gone = there - now
                        await CLOCK.sleep(0.02)
            head = (await watching.list(None, LATEST)).rev
            await until(lambda: truth.revs[-1] == head and all(one[-1] == head for one in seen), 30)

        assert reads.wrong == []
        epochs = (await feed.state()).epochs
        assert truth.gaps({one.first_rev: one.prev_last for one in epochs}) == []
        told = [row.rev for row in truth.rows if row.rev > start and row.kind != "E"]
        assert seen == [told, told]  # on the connections that they began with
        for cache in (watching, reading):
            assert (cache.health.reloads, cache.health.faults) == (1, 0)
        assert await upkeep.look()
        assert (await UpkeepStore(writer).look()).ahead == 2
        await at_the_boundary(api, truth)


async def at_the_boundary(api: Database, truth: Truth) -> None:
    """A replica without history of its own answers from the edge on, and not a revision below."""
    feed = Feed(api, clock=CLOCK)
    oldest = (await feed.state()).oldest
    cut = bisect_right(truth.revs, oldest - 1)
    before, first = truth.revs[:cut], truth.revs[cut]
    async with running(
        AttemptCache(feed, clock=CLOCK, chance=lambda: 0.5, window=NO_WINDOW)
    ) as cache:
        for rev in (before[-1], first):  # the state before the first row that is left, and at it
            page = await cache.list(None, ReadAt(Mode.EXACT, rev))
            assert [entry.body for entry in page.entries] == truth.state(rev)
            assert (
                len({orjson.loads(e.body or b"")["metadata"]["name"] for e in page.entries})
                == OBJECTS
            )
        for rev in (before[-2], before[0], 1):
            with pytest.raises(StateTooOld):
                await cache.list(None, ReadAt(Mode.EXACT, rev))
