"""The cache against the database at one revision: equal, or found out and mended (G11)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.watchcache.conftest import following, running, until
from tests.watchcache.feed_log import FeedLog, document
from tests.watchcache.published import Publisher

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import Feed
from nodus_api.storage.feed_digest import FeedDigests
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.digest import Digester, digests_of
from nodus_api.watchcache.digest_check import MISMATCH, OK, SKIPPED, ConsistencyCheck
from nodus_api.watchcache.entry import Entry, Selection, finished
from nodus_api.watchcache.errors import StateTooOld

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
values = st.dictionaries(texts, texts)


@pytest.fixture
async def publisher(scheduler_database: Database) -> Publisher:
    made = Publisher(scheduler_database)
    await made.begin()
    return made


@pytest.fixture
async def cache(
    publisher: Publisher, api_database: Database, clock: ManualClock
) -> AsyncIterator[AttemptCache]:
    feed = Feed(api_database, clock=clock)
    async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as made:
        yield made


@pytest.fixture
def check(cache: AttemptCache, api_database: Database, clock: ManualClock) -> ConsistencyCheck:
    return check_of(cache, api_database, clock)


def check_of(cache: AttemptCache, database: Database, clock: ManualClock) -> ConsistencyCheck:
    return ConsistencyCheck(
        cache,
        FeedDigests(database).snapshot,
        clock=clock,
        chance=lambda: 1.0,
        every=timedelta(minutes=5),
    )


async def compared(check: ConsistencyCheck) -> str:
    """Compare, again where there was nothing to compare at that moment; return how it went."""
    async with asyncio.timeout(10):
        while (result := await check.check()) == SKIPPED:  # noqa: ASYNC110  nothing tells it
            await asyncio.sleep(0.001)
    return result


async def loaded_again(cache: AttemptCache, clock: ManualClock) -> None:
    """Let the pause before the load pass, and the load come."""
    async with asyncio.timeout(10):
        while cache.loads < 2:
            await clock.advance(0.25)
            await asyncio.sleep(0.001)


def flip(entry: Entry) -> None:
    """Change one bit of a document in memory, as bad memory does (F24)."""
    assert entry.body is not None
    at = entry.body.index(b'"phase"') + 10
    entry.body = b"%b%c%b" % (entry.body[:at], entry.body[at] ^ 1, entry.body[at + 1 :])


async def test_the_cache_is_what_the_database_has(
    cache: AttemptCache, check: ConsistencyCheck, publisher: Publisher
) -> None:  # G11
    await publisher.add(*(f"n{number}" for number in range(1, 8)))
    assert await compared(check) == OK  # the cache comes up to the head by itself
    await publisher.change(2, "n2", "Running")
    await publisher.retire(1)
    assert await compared(check) == OK
    assert check.results == {OK: 2, MISMATCH: 0, SKIPPED: 0}


async def test_a_cache_that_went_on_is_compared_as_it_was(
    cache: AttemptCache, check: ConsistencyCheck, publisher: Publisher, api_database: Database
) -> None:  # G11: at an equal revision
    await publisher.add("n1", "n2")
    async with FeedDigests(api_database).snapshot() as view:
        await publisher.change(1, "n1", "Running")
        await publisher.add("n3")
        await publisher.retire(2)
        assert (await cache.list(None, LATEST)).rev > view.head
        pieces = await cache.pieces_at(view.head)
        assert await digests_of(pieces, SystemClock()) == await view.projects()


async def test_a_flipped_byte_is_found_and_mended(
    cache: AttemptCache,
    check: ConsistencyCheck,
    publisher: Publisher,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:  # F24, G11
    await publisher.add("n1", "n2", "n3")
    before = await cache.list(None, LATEST)
    watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, before.rev), False))
    sound = [entry.body for entry in before.entries]
    flip(before.entries[1])
    assert [entry.body for entry in (await cache.list(None, CACHED)).entries] != sound

    with caplog.at_level(logging.WARNING):
        assert await compared(check) == MISMATCH
    assert watcher.over
    await loaded_again(cache, clock)

    assert [entry.body for entry in (await cache.list(None, LATEST)).entries] == sound
    assert await compared(check) == OK
    assert check.results == {OK: 1, MISMATCH: 1, SKIPPED: 0}
    (told,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert told.getMessage() == "the watch cache differs from the database, loading anew"
    assert told.__dict__["projects"] == ["default"]
    assert cache.health.faults == 0  # the log was right


async def test_a_wrong_selection_is_found_too(
    cache: AttemptCache, check: ConsistencyCheck, publisher: Publisher, clock: ManualClock
) -> None:  # F24: what selectors are held against
    await publisher.add("n1", "n2")
    first, _ = (await cache.list(None, LATEST)).entries
    first.selection = Selection(first.selection.labels, {"status.phase": "Failed"})
    assert await compared(check) == MISMATCH
    await loaded_again(cache, clock)
    assert await compared(check) == OK


async def test_an_entry_too_few_is_found(
    cache: AttemptCache, check: ConsistencyCheck, publisher: Publisher
) -> None:
    await publisher.add("n1", "n2")
    await cache.list(None, LATEST)
    assert cache._contents is not None
    project = cache._contents._projects["default"]
    project.edit("n2", None)
    await publisher.add("n3")
    assert await compared(check) == MISMATCH


async def test_a_forged_gap_is_found_and_history_begins_after_it(
    cache: AttemptCache,
    check: ConsistencyCheck,
    publisher: Publisher,
    clock: ManualClock,
    database_url: str,
) -> None:  # F23, LW-123, H-18
    start = await publisher.add("n1")
    await cache.list(None, LATEST)
    watcher = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
    superuser = await asyncpg.connect(database_url)
    async with superuser.transaction():
        await superuser.execute("SET LOCAL session_replication_role = replica")
        await superuser.execute(
            "UPDATE nodus.attempt_objects SET rev = rev + 2;"
            "INSERT INTO nodus.changes (rev, kind, uid, project, name, ver, sel, prev_rev, doc) "
            "SELECT rev, 'M', uid, project, name, ver, sel, rev - 2, doc FROM nodus.attempt_objects"
        )
    await superuser.close()
    await loaded_again(cache, clock)

    assert cache.health.faults == 1
    assert watcher.over
    with pytest.raises(StateTooOld):
        await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start), False))
    after = await cache.watch(None, WatchFrom(ReadAt(Mode.EXACT, start + 1), False))
    assert [one.rev for one in await after.take()] == [start + 2]
    assert (await cache.list(None, LATEST)).rev == start + 2
    assert await compared(check) == OK


async def test_it_runs_by_the_clock(
    cache: AttemptCache, check: ConsistencyCheck, publisher: Publisher, clock: ManualClock
) -> None:  # G11: every five minutes
    running = spawn("check", check.run())
    await asyncio.sleep(0)  # it sleeps
    await clock.advance(299)
    assert sum(check.results.values()) == 0
    await clock.advance(1)
    await until(lambda: check.results[OK] == 1)
    await end(running)


async def test_without_a_database_nothing_is_compared(
    log: FeedLog, clock: ManualClock, publisher: Publisher, api_database: Database
) -> None:
    """Against a head that this cache never reaches, and before the load."""
    await publisher.add("n1")
    async with following(log, clock) as cache:
        late = check_of(cache, api_database, clock)
        assert cache.position == 1
        waiting = spawn("check", late.check())
        async with asyncio.timeout(10):
            while not waiting.done():
                await clock.advance(0.25)
                await asyncio.sleep(0.001)
        assert waiting.result() == SKIPPED
    cold = AttemptCache(log, clock=clock, chance=lambda: 0.5)
    assert await check_of(cold, api_database, clock).check() == SKIPPED


@settings(max_examples=10, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.dictionaries(texts, texts), st.dictionaries(texts, texts)),
        min_size=1,
        max_size=20,
    )
)
async def test_any_text_is_spelled_as_postgres_spells_it(
    rows: Sequence[tuple[dict[str, str], dict[str, str]]], database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        given = [orjson.dumps({"labels": a, "fields": b}).decode() for a, b in rows]
        told = await connection.fetch(
            "SELECT t::jsonb::text AS text FROM unnest($1::text[]) t", given
        )
    finally:
        await connection.close()
    assert [Digester().spelled(Selection(a, b)) for a, b in rows] == [row["text"] for row in told]


def test_each_part_of_an_attempt_counts() -> None:
    def made(**change: object) -> Entry:
        doc = document(UUID(int=1), "p", "n", {"a": "b"}, {"c": "d"}, 0)
        values = {
            "project": "p",
            "name": "n",
            "uid": UUID(int=1),
            "rev": 7,
            "selection": Selection({"a": "b"}, {"c": "d"}),
            "body": finished(doc, 7),
        } | change
        return Entry(**values)  # type: ignore[arg-type]  # by name

    body = made().body or b""
    others = (
        made(name="m"),
        made(uid=UUID(int=2)),
        made(rev=8, body=body.replace(b'"7"', b'"8"')),
        made(selection=Selection({"a": "b"}, {})),
        made(body=body.replace(b"Queued", b"Queuee")),
    )
    found = {Digester().of(one) for one in (made(), *others)}
    assert len(found) == 1 + len(others)
    assert Digester().of(made()) == Digester().of(made())
