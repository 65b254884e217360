"""The cache on a real Postgres, through the real feed."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import orjson
import pytest
from tests.watchcache.conftest import running, until
from tests.watchcache.published import Publisher

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageTimeout
from nodus_api.storage.feed import Change, Feed
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache, Window
from nodus_api.watchcache.behind import Behind
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.errors import ReadTimedOut, StateNotReached
from nodus_api.watchcache.freshness import WAIT_SECONDS
from nodus_api.watchcache.source import ChangeFeed

T = TypeVar("T")


@pytest.fixture
async def publisher(scheduler_database: Database) -> Publisher:
    made = Publisher(scheduler_database)
    await made.begin()
    return made


@pytest.fixture
async def cache(
    publisher: Publisher, api_database: Database, clock: ManualClock
) -> AsyncIterator[AttemptCache]:
    feed: ChangeFeed = Feed(api_database, clock=clock)
    async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as made:
        yield made


def shown(body: bytes | None) -> tuple[str, str, int]:
    found = orjson.loads(body or b"")
    meta = found["metadata"]
    return meta["name"], found["status"]["phase"], int(meta["resourceVersion"])


async def test_a_list_holds_what_was_committed_before_it(
    cache: AttemptCache, publisher: Publisher
) -> None:
    head = await publisher.add("n1", "n2")

    page = await cache.list("default", LATEST)

    assert page.rev == head
    assert [shown(e.body) for e in page.entries] == [
        ("n1", "Queued", head - 1),
        ("n2", "Queued", head),
    ]


async def test_a_watch_sees_every_change_in_order(
    cache: AttemptCache, publisher: Publisher
) -> None:
    start = await publisher.add("n1")
    watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
    running_at = await publisher.change(1, "n1", "Running")
    added_at = await publisher.add("n2")
    gone_at = await publisher.retire(1)
    await cache.list(None, LATEST)

    got = [(d.type, *shown(d.body)) for d in await watcher.take()]

    assert got == [
        ("MODIFIED", "n1", "Running", running_at),
        ("ADDED", "n2", "Queued", added_at),
        ("MODIFIED", "n1", "Cancelled", gone_at - 1),
        ("DELETED", "n1", "Cancelled", gone_at),
    ]


async def test_a_second_replica_has_the_history_of_the_first(
    cache: AttemptCache, publisher: Publisher, api_database: Database, clock: ManualClock
) -> None:  # LW-135
    start = await publisher.add("n1", "n2")
    changed = await publisher.change(1, "n1", "Running")
    feed = Feed(api_database, clock=clock)
    async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as other:
        watcher = await other.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
        got = [(d.type, *shown(d.body)) for d in await watcher.take()]
        before = await other.list(None, ReadAt(Mode.EXACT, start))
        pages = [(await one.list(None, LATEST)).entries for one in (cache, other)]

    assert got == [("MODIFIED", "n1", "Running", changed)]
    assert [shown(e.body)[:2] for e in before.entries] == [("n1", "Queued"), ("n2", "Queued")]
    assert [e.body for e in pages[0]] == [e.body for e in pages[1]]


async def test_documents_that_are_no_longer_held_come_from_the_log(
    cache: AttemptCache, publisher: Publisher, clock: ManualClock
) -> None:
    start = await publisher.add("n1")
    changed = await publisher.change(1, "n1", "Running")
    gone = await publisher.retire(1)
    await cache.list(None, LATEST)
    await clock.advance(76)
    assert cache._contents is not None
    cache._contents.history.trim(clock.monotonic())

    watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
    got = [(d.type, *shown(d.body)) for d in await watcher.take()]
    before = await cache.list(None, ReadAt(Mode.EXACT, changed))

    assert got == [
        ("MODIFIED", "n1", "Running", changed),
        ("MODIFIED", "n1", "Cancelled", gone - 1),
        ("DELETED", "n1", "Cancelled", gone),
    ]
    assert [shown(e.body) for e in before.entries] == [("n1", "Running", changed)]


async def test_lost_connections_are_made_anew_and_nothing_is_missed(
    publisher: Publisher, database_url: str
) -> None:  # storage.md section 6, "Behind or cut off"
    clock = SystemClock()
    superuser = await asyncpg.connect(database_url)
    since = await superuser.fetchval("SELECT clock_timestamp()")
    database = Database(database_url, role=Role.API)  # of its own: all its connections are new
    feed = Feed(database, clock=clock)
    async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as cache:
        start = await publisher.add("n1")
        await cache.list(None, LATEST)
        watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
        ended = await superuser.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE backend_start > $1 AND backend_type = 'client backend'",
            since,
        )
        head = await publisher.change(1, "n1", "Running")
        await until(lambda: cache.position == head)
        got = [(d.type, *shown(d.body)) for d in await watcher.take()]
        page = await cache.list(None, LATEST)
    await database.close()
    await superuser.close()

    assert ended >= 2  # the pool's, and the one that listens
    assert got == [("MODIFIED", "n1", "Running", head)]
    assert page.rev == head
    assert (cache.health.reloads, cache.health.faults) == (1, 0)


async def test_a_list_older_than_the_history_comes_from_the_log(
    cache: AttemptCache, publisher: Publisher
) -> None:  # LW-117, storage.md section 6
    await publisher.add("n1", "n2", "n3")
    await publisher.change(2, "n2", "Running")
    rev = await publisher.add("n4")
    await publisher.change(1, "n1", "Running")
    await publisher.change(1, "n1", "Failed")
    await publisher.retire(3)
    await publisher.add("n5")
    await cache.list(None, LATEST)
    before = await cache.list("default", ReadAt(Mode.EXACT, rev))
    assert cache._contents is not None
    cache._contents.history._drop_through(cache.position)
    cache._pins.clear()

    page = await cache.list("default", ReadAt(Mode.EXACT, rev))
    nothing = await cache.list("defa\0ult", ReadAt(Mode.EXACT, rev))  # no text of a database

    assert page.rev == rev
    assert (nothing.rev, nothing.entries) == (rev, [])
    assert [shown(e.body) for e in page.entries] == [shown(e.body) for e in before.entries]
    assert [shown(e.body)[:2] for e in page.entries] == [
        ("n1", "Queued"),
        ("n2", "Running"),
        ("n3", "Queued"),
        ("n4", "Queued"),
    ]


async def test_a_walk_of_the_log_has_a_time_limit(
    publisher: Publisher, api_database: Database, clock: ManualClock, database_url: str
) -> None:  # LW-198
    head = await publisher.add("n1", "n2")
    feed = Feed(api_database, clock=clock, history_timeout=timedelta(seconds=0.2))
    owner = await asyncpg.connect(database_url)
    try:
        async with owner.transaction():
            await owner.execute("LOCK TABLE nodus.changes IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StorageTimeout):
                await feed.first_changes(1, head, None)
        oldest, rows = await feed.first_changes(1, head, None)
    finally:
        await owner.close()

    assert (oldest, sorted(row.rev for row in rows)) == (1, [head - 1, head])


class HeldBack(Feed):
    """The log, for a replica that does not come to read it any more."""

    held = False

    async def read(self, after: int, *, limit: int = 1000) -> list[Change]:
        return [] if self.held else await super().read(after, limit=limit)


async def test_a_cache_that_lags_is_read_around(
    publisher: Publisher, api_database: Database, clock: ManualClock, database_url: str
) -> None:  # LW-101, LW-198, storage.md section 6
    feed = HeldBack(api_database, clock=clock, history_timeout=timedelta(seconds=0.5))
    await publisher.add("n1", "n2")
    async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as cache:
        feed.held = True
        await publisher.change(1, "n1", "Running")
        await publisher.retire(2)
        head = await publisher.add("n3", "n4")

        async def waited(answer: Coroutine[Any, Any, T]) -> T:
            asked = spawn("asked", answer)
            await until(lambda: len(cache._reached) == 1, 30)
            await clock.advance(WAIT_SECONDS)
            async with asyncio.timeout(30):
                return await asked

        page = await waited(cache.list("default", LATEST, limit=2))
        rest = await cache.list(  # of the state kept for it, at once
            "default", ReadAt(Mode.EXACT, head), limit=2, start=("default", "n3\0")
        )
        empty = await waited(cache.list("other", LATEST))
        nothing = await waited(cache.list("oth\0er", LATEST))  # no text of a database
        nobody = await waited(cache.get("default", "n\0", LATEST))
        one = await waited(cache.get("default", "n1", LATEST))
        gone = await waited(cache.get("default", "n2", LATEST))
        owner = await asyncpg.connect(database_url)
        try:
            async with owner.transaction():
                await owner.execute("LOCK TABLE nodus.attempt_objects IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(ReadTimedOut):
                    await waited(cache.list("default", LATEST))
        finally:
            await owner.close()

    assert [shown(entry.body)[:2] for entry in [*page.entries, *rest.entries]] == [
        ("n1", "Running"),
        ("n3", "Queued"),
        ("n4", "Queued"),
    ]
    assert (page.rev, page.remaining, rest.rev, rest.more) == (head, 1, head, False)
    assert (empty.rev, empty.entries) == (nothing.rev, nothing.entries) == (head, [])
    assert nobody is None
    assert one is not None
    assert shown(one.body)[:2] == ("n1", "Running")
    assert gone is None


async def test_what_stands_is_read_again_where_a_migration_outdated_the_read(
    publisher: Publisher, clean_database: str, clock: ManualClock
) -> None:  # field case C12, LW-199: no database is away
    """As storage/test_migrated.py has it of the feed's own reads: this one is the cache's."""
    database = Database(clean_database, role=Role.API, pool_size=1)
    owner = await asyncpg.connect(clean_database)
    behind = Behind(Feed(database, clock=clock), lambda: Contents(Window()))
    late = StateNotReached(await publisher.add("n1", "n2"), 0)

    async def read() -> list[str]:
        state = await behind.state("default", late)
        one = await behind.entry("default", "n2", late)
        assert one is not None
        return [*(entry.name for piece in state.pieces() for entry in piece), one.name]

    try:
        before = await read()
        await owner.execute("ALTER TABLE nodus.attempt_objects ALTER COLUMN name TYPE varchar")
        assert await read() == before
    finally:
        await owner.execute("ALTER TABLE nodus.attempt_objects ALTER COLUMN name TYPE text")
        await owner.close()
        await database.close()
