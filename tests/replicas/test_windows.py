"""Several caches on one Postgres are one server: the same events and states at each revision.

storage.md section 11.4, in process; with real processes it is in test_processes.py.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from uuid import UUID

import orjson
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.clients.writing import OTHER, Lives
from tests.history import rows
from tests.history.examples import scope
from tests.history.scope import Scope
from tests.history.truth import Truth
from tests.watchcache.conftest import running, until
from tests.watchcache.feed_log import document
from tests.watchcache.published import WORKLOAD, Publisher

from nodus_api.clock import ManualClock
from nodus_api.metav1 import fields
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import Change, Feed
from nodus_api.storage.wakeups import FEED, notify
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.filters import EVERYTHING, Filter

COMMITS = 40
ALL = "/apis/nodus.dev/v1/attempts"
SCOPES = (
    (None, ALL, ""),
    (OTHER, f"/apis/nodus.dev/v1/namespaces/{OTHER}/attempts", ""),
    (None, ALL, "status.phase=Queued"),
    (None, ALL, "status.phase!=Queued"),
)
Told = list[tuple[str, int, bytes]]


def scope_of(target: str, chosen: str) -> Scope:
    return scope(f"{target}?fieldSelector={chosen.replace('=', '%3D').replace('!', '%21')}")


def filter_of(chosen: str) -> Filter:
    return Filter(fields=fields.parse(chosen)) if chosen else EVERYTHING


@pytest.fixture
async def lives(scheduler_database: Database, clock: ManualClock) -> Lives:
    made = Lives(database=scheduler_database, clock=clock, chance=random.Random(7))  # noqa: S311
    await made.begin()
    return made


async def replica(held: AsyncExitStack, database: Database, clock: ManualClock) -> AttemptCache:
    """Start one more cache, as one more process has it."""
    feed = Feed(database, clock=clock)
    cache = AttemptCache(feed, clock=clock, chance=lambda: 0.5)
    return await held.enter_async_context(running(cache))


async def told(cache: AttemptCache, project: str | None, rev: int, chosen: Filter) -> Told:
    """Resume at a revision, and return all that the watch says up to the position."""
    watcher = await cache.watch(project, WatchFrom(ReadAt(Mode.EXACT, rev), False), chosen=chosen)
    found: Told = []
    try:
        while some := await watcher.take():
            found += [(one.type, one.rev, one.body) for one in some]
    finally:
        watcher.close()
    return found


async def test_each_revision_is_the_same_on_every_replica(
    lives: Lives, api_database: Database, scheduler_database: Database, clock: ManualClock
) -> None:  # storage.md 11.4, H-04, H-16, H-22
    """One follows from the beginning, one starts at the end, one holds no documents any more."""
    async with AsyncExitStack() as held:
        first = await replica(held, api_database, clock)
        start = (await first.list(None, LATEST)).rev
        aged = await replica(held, api_database, clock)
        for _ in range(COMMITS):
            await lives.step()
        head = (await first.list(None, LATEST)).rev
        await aged.list(None, LATEST)
        assert aged._contents is not None
        history = aged._contents.history
        while history._with_documents:
            history._release_oldest()
        later = await replica(held, api_database, clock)
        truth = Truth(await rows.read_log(scheduler_database))
        departures = 0
        for rev in range(start, head + 1):
            for project, target, chosen in SCOPES:
                asked = scope_of(target, chosen)
                due = [(one.type, one.rev, one.body) for one in truth.projection(asked, rev, head)]
                departures += sum(kind == "DELETED" for kind, _, _ in due)
                listed = [one.body for one in truth.listed(asked, rev)]
                for cache in (first, later, aged):
                    selected = filter_of(chosen)
                    assert await told(cache, project, rev, selected) == due
                    page = await cache.list(project, ReadAt(Mode.EXACT, rev), chosen=selected)
                    assert page.rev == rev
                    assert [entry.body for entry in page.entries] == listed
        assert departures > 0


async def test_pages_go_on_elsewhere(
    lives: Lives, api_database: Database, clock: ManualClock
) -> None:  # H-15, LW-110: a token holds a revision, no process
    async with AsyncExitStack() as held:
        caches = [await replica(held, api_database, clock) for _ in range(2)]
        whole = await caches[0].list(None, LATEST)
        page = await caches[0].list(None, LATEST, limit=7)
        found = list(page.entries)
        while page.more:
            await lives.step()
            last = page.entries[-1]
            caches.reverse()
            page = await caches[0].list(
                None,
                ReadAt(Mode.EXACT, whole.rev),
                limit=7,
                start=(last.project, f"{last.name}\0"),
            )
            found += page.entries
        assert [entry.body for entry in found] == [entry.body for entry in whole.entries]


class PieceByPiece(Feed):
    """A feed whose reader is kept waiting before each read."""

    go: asyncio.Semaphore
    waiting = 0

    async def read(self, after: int, *, limit: int = 1000) -> list[Change]:
        self.waiting += 1
        await self.go.acquire()
        self.waiting -= 1
        return await super().read(after, limit=limit)


@pytest.fixture
async def publisher(scheduler_database: Database) -> Publisher:
    made = Publisher(scheduler_database)
    await made.begin()
    return made


@pytest.mark.usefixtures("publisher")
async def test_a_commit_of_more_than_a_piece_is_one_step(
    scheduler_database: Database, api_database: Database, clock: ManualClock
) -> None:  # storage.md 11.4, H-07
    """1,300 changes in one commit: 300 deletions and 1,000 changes, read 1,000 at a time."""
    await add_many(scheduler_database, 1300, ended=300)
    lagging = PieceByPiece(api_database, clock=clock)
    lagging.go = asyncio.Semaphore(1000)
    async with AsyncExitStack() as held:
        prompt = await replica(held, api_database, clock)
        slow = AttemptCache(lagging, clock=clock, chance=lambda: 0.5)
        await held.enter_async_context(running(slow))
        before = (await slow.list(None, LATEST)).rev
        watcher = await slow.watch(None, WatchFrom(ReadAt(Mode.EXACT, before), False))
        lagging.go = asyncio.Semaphore(0)
        await until(lambda: lagging.waiting == 1)

        after = await change_many(scheduler_database, 1000, retired=300)
        assert after == before + 1300
        assert (await prompt.list(None, LATEST)).rev == after
        assert len(await told(prompt, None, before, EVERYTHING)) == 1300
        for pieces in range(3):
            # a list, a state that a watch begins with, and what a bookmark would say
            page = await slow.list(None, CACHED)
            begun = await slow.watch(None, WatchFrom(CACHED, True))
            seen = {page.rev, begun.position, watcher.process_position}
            begun.close()
            assert len(seen) == 1
            assert seen <= {before, after}
            assert len(page.entries) == (1300 if page.rev == before else 1000)
            if slow.position == after:
                break
            assert pieces < 2
            received = slow.health.received
            lagging.go.release()
            await until(lambda received=received: slow.health.received > received)  # type: ignore[misc]
            await until(lambda: lagging.waiting == 1 or slow.position == after)
        assert slow.position == after
        assert await told(slow, None, before, EVERYTHING) == await told(
            prompt, None, before, EVERYTHING
        )
        lagging.go = asyncio.Semaphore(1000)


@pytest.mark.usefixtures("publisher")
async def test_a_lagging_replica_answers_no_older_than_was_seen(
    scheduler_database: Database, api_database: Database, clock: ManualClock
) -> None:  # H-13, H-14, LW-103
    """It waits, and then asks Postgres itself; a revision that it must name it refuses."""
    await add_many(scheduler_database, 3, ended=0)
    lagging = PieceByPiece(api_database, clock=clock)
    lagging.go = asyncio.Semaphore(1000)
    async with AsyncExitStack() as held:
        prompt = await replica(held, api_database, clock)
        slow = AttemptCache(lagging, clock=clock, chance=lambda: 0.5)
        await held.enter_async_context(running(slow))
        await slow.list(None, LATEST)
        lagging.go = asyncio.Semaphore(0)
        await until(lambda: lagging.waiting == 1)
        seen = await change_many(scheduler_database, 3)
        assert (await prompt.list(None, LATEST)).rev == seen

        newest = spawn("newest", slow.list(None, LATEST))
        named = spawn("named", slow.list(None, ReadAt(Mode.NOT_OLDER_THAN, seen)))
        async with asyncio.timeout(20):
            while not (newest.done() and named.done()):
                await clock.advance(0.25)
                await asyncio.sleep(0.002)
        assert slow.position < seen
        assert newest.result().rev == seen
        assert "StateNotReached" in repr(named.exception())
        lagging.go = asyncio.Semaphore(1000)


async def add_many(database: Database, count: int, *, ended: int) -> None:
    """Publish so many Attempts, the last `ended` of which are over; at most 1,000 a commit."""
    for first in range(1, count + 1, 1000):
        last = min(first + 999, count)
        given = {"workload": WORKLOAD, "first": first, "last": last}
        async with database.transaction() as connection:
            await connection.execute(sa.text(_SLOTS), given)
            await connection.execute(sa.text(_ATTEMPTS), given | {"live": count - ended})
            await _publish(connection, range(first, last + 1), "Queued")


async def change_many(database: Database, count: int, *, retired: int = 0) -> int:
    """Change the first so many, and retire those after them, in one commit; return the head."""
    async with database.transaction() as connection:
        if retired:
            gone = list(range(count + 1, count + retired + 1))
            await connection.execute(
                sa.select(
                    sa.func.nodus.retire(
                        sa.bindparam("nos", gone, sa.ARRAY(sa.BigInteger)),
                        sa.bindparam("docs", [b"{}"] * retired, sa.ARRAY(sa.LargeBinary)),
                    )
                )
            )
        await connection.execute(
            sa.text("UPDATE nodus.attempts SET ver = ver WHERE no <= :count"), {"count": count}
        )
        head = await _publish(connection, range(1, count + 1), "Running")
    await notify(database, FEED)
    return head


_SLOTS = """
INSERT INTO nodus.slots (workload, slot)
SELECT :workload, i::text FROM generate_series(CAST(:first AS int), CAST(:last AS int)) i
"""
_ATTEMPTS = """
INSERT INTO nodus.attempts (no, uid, project, name, workload, slot, epoch, stage, reason, finished,
                            queued) OVERRIDING SYSTEM VALUE
SELECT i, CAST('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0') AS uuid), 'default',
       'n' || i, :workload, i::text, 1,
       CASE WHEN i > CAST(:live AS int) THEN 'Stopped' ELSE 'Pending' END,
       CASE WHEN i > CAST(:live AS int) THEN 'Stopped' END,
       CASE WHEN i > CAST(:live AS int) THEN nodus.now() END, nodus.now()
FROM generate_series(CAST(:first AS int), CAST(:last AS int)) i
"""


async def _publish(connection: AsyncConnection, numbers: Sequence[int], phase: str) -> int:
    values = {"status.phase": phase}
    docs = [document(UUID(int=no), "default", f"n{no}", {}, values, len(phase)) for no in numbers]
    sel = orjson.dumps({"labels": {}, "fields": values}).decode()
    statement = sa.text("SELECT nodus.publish(:nos, :docs, CAST(:sels AS jsonb[]))").bindparams(
        sa.bindparam("nos", list(numbers), sa.ARRAY(sa.BigInteger)),
        sa.bindparam("docs", docs, sa.ARRAY(sa.LargeBinary)),
        sa.bindparam("sels", [sel] * len(docs), sa.ARRAY(sa.Text)),
    )
    return int((await connection.scalars(statement)).one())
