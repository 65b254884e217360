"""Behind a transaction pooler: everything but LISTEN (storage.md sections 1 and 3.3)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from tests.failover.bouncer import bouncer, program
from tests.failover.conftest import opened, replica
from tests.watchcache.conftest import until
from tests.watchcache.published import Publisher
from tests.watchcache.test_postgres import shown

from nodus_api.clock import SystemClock
from nodus_api.storage import migrate
from nodus_api.storage.access_store import AccessStore
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import PooledSession, StorageFault
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, WatchFrom

PATIENCE = 30.0
NOW = sa.select(sa.func.nodus.now())
WHO = sa.text("SELECT current_user::text, current_setting('search_path')")

pytestmark = pytest.mark.skipif(program() is None, reason="pgbouncer is not installed here")


@pytest.fixture
def pooler(clean_database: str, postgres: EmbeddedPostgres, open_folder: Path) -> Iterator[str]:
    """The address of a pooler whose two connections all that follows must share."""
    assert clean_database
    with bouncer(postgres, open_folder / "pgbouncer", size=2) as url:
        yield url


@pytest.fixture
async def scheduler(pooler: str) -> AsyncIterator[Database]:
    async with opened(pooler, Role.SCHEDULER) as database:
        yield database


@pytest.fixture
async def api(pooler: str) -> AsyncIterator[Database]:
    database = Database(pooler, role=Role.API)
    yield database
    await database.close()


async def test_a_replica_follows_by_polls_alone(
    pooler: str, scheduler: Database, api: Database
) -> None:
    publisher = Publisher(scheduler)
    await publisher.begin()
    start = await publisher.add("n1", "n2")
    async with Feed(api, clock=SystemClock()).listen() as wakeups:
        assert not wakeups.listening
    async with replica(pooler) as cache:
        watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
        changed = await publisher.change(1, "n1", "Running")
        await until(lambda: cache.position == changed, PATIENCE)
        gone = await publisher.retire(2)
        pages = await asyncio.gather(*(cache.list(None, LATEST) for _ in range(50)))
        assert [(one.type, *shown(one.body)) for one in await watcher.take()] == [
            ("MODIFIED", "n1", "Running", changed),
            ("MODIFIED", "n2", "Cancelled", gone - 1),
            ("DELETED", "n2", "Cancelled", gone),
        ]
        cache._pins.clear()
        assert cache._contents is not None
        cache._contents.history._drop_through(cache.position)
        before = await cache.list("default", ReadAt(Mode.EXACT, start))  # from the log

        assert {page.rev for page in pages} == {gone}
        assert [shown(e.body)[:2] for e in before.entries] == [("n1", "Queued"), ("n2", "Queued")]
        assert (cache.health.reloads, cache.health.faults) == (1, 0)


async def test_roles_settings_and_statements_stay_with_their_owner(
    pooler: str, scheduler: Database, api: Database
) -> None:  # AS-117
    pinned = SystemClock().now().replace(microsecond=0)

    async def ask(database: Database, role: str) -> None:
        for _ in range(20):
            async with database.single_reads() as connection:
                assert tuple((await connection.execute(WHO)).one()) == (role, "nodus")
            async with database.transaction() as connection:
                assert tuple((await connection.execute(WHO)).one()) == (role, "nodus")
                now = (await connection.scalars(NOW)).one()
                assert (now.microsecond == 0 and now >= pinned) is (database is scheduler)
            async with database.snapshot() as connection:
                assert tuple((await connection.execute(WHO)).one()) == (role, "nodus")

    both = (ask(scheduler, "nodus_scheduler"), ask(api, "nodus_api"))
    await asyncio.gather(*both, ask(scheduler, "nodus_scheduler"), ask(api, "nodus_api"))
    with pytest.raises(StorageFault, match="permission denied"):
        async with api.single_reads() as connection:
            await connection.execute(sa.text("SELECT key FROM nodus.runner_key"))
    stranger = await asyncpg.connect(pooler, statement_cache_size=0)
    left = await stranger.fetchrow(
        "SELECT current_user::text, current_setting('search_path'),"
        " current_setting('nodus.now', true), (SELECT count(*) FROM pg_prepared_statements),"
        " (SELECT count(*) FROM pg_listening_channels())"
    )
    await stranger.close()
    assert left is not None
    assert left[0] == "postgres"
    assert left[1] != "nodus"
    assert tuple(left)[2:] in [(None, 0, 0), ("", 0, 0)]


async def test_without_a_pooler_statements_stay_prepared(api_database: Database) -> None:
    kept = sa.text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%$1 || %'")
    asked = sa.text("SELECT :one || 'x'").bindparams(one="1")
    async with api_database.transaction() as connection:
        for _ in range(3):
            await connection.execute(asked)
        assert (await connection.scalars(kept)).one() == 1


async def test_a_snapshot_stands_while_others_write(scheduler: Database, api: Database) -> None:
    publisher = Publisher(scheduler)
    await publisher.begin()
    start = await publisher.add("n1")
    async with Feed(api, clock=SystemClock()).snapshot(timedelta(days=1)) as snapshot:
        await publisher.change(1, "n1", "Running")
        objects = [one async for piece in snapshot.objects() for one in piece]
        changes = [one async for piece in snapshot.backfill() for one in piece]

    assert snapshot.state.head == start
    assert [(one.name, one.rev) for one in objects] == [("n1", start)]
    assert [one.rev for one in changes] == [1, start]


async def test_access_is_followed_too(api: Database) -> None:
    store = AccessStore(api, SystemClock())
    snapshot = await store.load()
    assert [one.name for one in snapshot.projects] == ["default"]
    assert await store.head() == snapshot.rev


async def test_what_needs_a_session_is_refused_with_what_to_do(
    pooler: str, scheduler: Database
) -> None:
    with pytest.raises(PooledSession, match="name the server itself with --database-url"):
        async with LeaderStore(scheduler).line():
            pass
    with pytest.raises(PooledSession, match="only `nodus serve` works through a pooler"):
        await migrate.upgrade(pooler)
