"""The feed: what is read is what was published, with every predecessor at hand."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
from tests.storage.scene import SCENE, Connection

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Change, Feed, FeedEpoch, FeedSnapshot, FeedState
from nodus_api.storage.revision import HEAD
from nodus_api.storage.wakeups import FEED, notify
from nodus_api.tasks import spawn

HOUR = timedelta(hours=1)


class Writer:
    """Publishes on the scene's attempts, committed, at the moment the clock says."""

    def __init__(self, connection: Connection, clock: ManualClock) -> None:
        self._connection = connection
        self._clock = clock

    async def run(self, *statements: str) -> None:
        async with self._connection.transaction():
            await self._connection.execute(
                "SELECT set_config('nodus.now', $1, true)", self._clock.now().isoformat()
            )
            for statement in statements:
                await self._connection.execute(statement)

    async def publish(self, nos: str, mark: str) -> None:
        await self.run(f"SELECT pg_temp.publish(ARRAY[{nos}], '{mark}')")


@pytest.fixture
async def writer(clean_database: str, clock: ManualClock) -> AsyncIterator[Writer]:
    connection: Connection = await asyncpg.connect(clean_database)
    await connection.execute("SET search_path = nodus")
    writer = Writer(connection, clock)
    await writer.run(SCENE)
    yield writer
    await connection.close()


@pytest.fixture
def feed(writer: Writer, api_database: Database, clock: ManualClock) -> Feed:
    return Feed(api_database, clock=clock)


def document(mark: str) -> bytes:
    head = '{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":""'
    return f'{head},"name":"{mark}"}}}}'.encode()


SELECTABLE = '{"fields": {}, "labels": {}}'


async def test_the_log_is_read_in_order_from_a_revision(feed: Feed) -> None:
    changes = await feed.read(0)

    assert [(c.rev, c.kind, c.name) for c in changes] == [
        (1, "E", None),
        (2, "A", "train-0"),
        (3, "A", "train-1"),
        (4, "A", "train-2"),
    ]
    assert changes[1] == Change(
        rev=2,
        kind="A",
        uid=UUID(int=0x101),
        project="default",
        name="train-0",
        ver=changes[1].ver,
        tx=changes[2].tx,
        sel=SELECTABLE,
        prev_sel=None,
        prev_rev=None,
        prev_doc=None,
        doc=document("first"),
    )
    assert await feed.read(2, limit=1) == changes[2:3]
    assert await feed.read(4) == []
    assert await feed.head() == 4


async def test_commits_are_told_apart(feed: Feed, writer: Writer) -> None:  # H-07
    await writer.publish("101, 102", "second")
    await writer.publish("103", "second")
    first, second, third = await feed.read(4)
    assert first.tx == second.tx
    assert second.tx < third.tx


async def test_state_is_head_edge_and_epochs(feed: Feed, writer: Writer) -> None:
    beginning = FeedEpoch(epoch=0, first_rev=1, prev_last=0)
    assert await feed.state() == FeedState(head=4, oldest=1, epochs=(beginning,))

    await writer.run("SELECT start_epoch(true)", "SELECT advance_oldest(3)")
    assert await feed.state() == FeedState(
        head=1 << 44,
        oldest=3,
        epochs=(beginning, FeedEpoch(epoch=1, first_rev=1 << 44, prev_last=4)),
    )


async def test_previous_is_the_document_before_each_kind_of_change(
    feed: Feed, writer: Writer
) -> None:  # LW-133
    await writer.publish("103", "second")
    await writer.run("SELECT retire(ARRAY[103]::bigint[], ARRAY['zip'::bytea])")

    assert await feed.previous(1) is None
    assert await feed.previous(4) is None
    assert await feed.previous(5) == document("first")
    assert await feed.previous(6) == document("second")
    assert await feed.previous(99) is None


async def test_previous_is_found_across_a_partition(feed: Feed, writer: Writer) -> None:
    await writer.run("INSERT INTO changes (rev, kind) VALUES (262144, 'E')")
    await writer.publish("101", "second")
    (_, change) = await feed.read(4)
    assert change.prev_doc == document("first")
    assert await feed.previous(262145) == document("first")


async def test_documents_are_fetched_by_revision(feed: Feed) -> None:
    assert await feed.documents([1, 2, 4, 99]) == {2: document("first"), 4: document("first")}
    assert await feed.documents([]) == {}


async def test_what_identifies_the_installation(feed: Feed) -> None:  # LW-109
    assert len(await feed.continue_key()) == 32
    assert (await feed.installation()).version == 4
    assert await feed.schema_revision() == HEAD


async def test_the_age_of_the_heartbeat_is_the_databases(
    feed: Feed, writer: Writer, clock: ManualClock
) -> None:
    await writer.run("UPDATE leader_heartbeat SET at = nodus.now()")
    await clock.advance(16)
    assert await feed.heartbeat_age() == timedelta(seconds=16)


async def load(snapshot: FeedSnapshot) -> list[tuple[str, int, bytes]]:
    return [(o.name, o.rev, o.doc) async for piece in snapshot.objects() for o in piece]


async def backfill(snapshot: FeedSnapshot) -> list[tuple[int, bytes | None]]:
    return [(c.rev, c.doc) async for piece in snapshot.backfill() for c in piece]


async def test_a_snapshot_stands_while_others_write(feed: Feed, writer: Writer) -> None:
    async with feed.snapshot(HOUR) as snapshot:
        await writer.publish("101", "second")
        objects = await load(snapshot)
        history = await backfill(snapshot)

    assert snapshot.state.head == 4
    assert objects == [
        ("train-0", 2, document("first")),
        ("train-1", 3, document("first")),
        ("train-2", 4, document("first")),
    ]
    assert [rev for rev, _ in history] == [1, 2, 3, 4]


async def test_backfill_gives_the_window_with_documents_for_its_last_75_seconds(
    feed: Feed, writer: Writer, clock: ManualClock
) -> None:
    for mark in ("a", "b", "c", "d"):  # revisions 5 to 8, at 100, 200, 300 and 400 s
        await clock.advance(100)
        await writer.publish("101", mark)
    await clock.advance(50)

    async with feed.snapshot(timedelta(seconds=250)) as snapshot:
        assert await backfill(snapshot) == [(6, None), (7, None), (8, document("d"))]
    async with feed.snapshot(timedelta(seconds=49)) as snapshot:
        assert await backfill(snapshot) == []
    async with feed.snapshot(timedelta(seconds=50)) as snapshot:
        assert await backfill(snapshot) == [(8, document("d"))]
    async with feed.snapshot(timedelta(days=1)) as snapshot:
        stubs = [c async for piece in snapshot.backfill() for c in piece][:-1]
    assert [c.rev for c in stubs] == [1, 2, 3, 4, 5, 6, 7]
    assert {c.doc for c in stubs} == {None}


async def test_backfill_begins_at_the_promised_edge_and_crosses_epochs(
    feed: Feed, writer: Writer
) -> None:
    await writer.run("SELECT start_epoch(true)")
    await writer.publish("101", "second")
    await writer.run("SELECT advance_oldest(4)")
    async with feed.snapshot(HOUR) as snapshot:
        assert [rev for rev, _ in await backfill(snapshot)] == [4, 1 << 44, (1 << 44) + 1]


async def test_pieces_hold_more_than_one_piece_of_objects(feed: Feed, writer: Writer) -> None:
    await writer.run(
        "INSERT INTO attempt_objects SELECT n + 1000, gen_random_uuid(), 'default',"
        " 'x-' || lpad(n::text, 5, '0'), 1, n, '{}', pg_temp.doc('x')"
        " FROM generate_series(1, 2500) n"
    )
    async with feed.snapshot(HOUR) as snapshot:
        pieces = [len(piece) async for piece in snapshot.objects()]
    assert pieces == [1000, 1000, 503]


async def test_a_publish_wakes_the_reader(clean_database: str) -> None:
    api = Database(clean_database, role=Role.API)
    scheduler = Database(clean_database, role=Role.SCHEDULER)
    async with Feed(api, clock=SystemClock()).listen() as wakeups:
        assert not await wakeups.wait(0.01)
        for _ in range(3):  # many are one
            await notify(scheduler, FEED)
        assert await wakeups.wait(5)
    await api.close()
    await scheduler.close()


async def test_notifications_between_waits_are_one_wake_up(
    feed: Feed, scheduler_database: Database, clock: ManualClock
) -> None:
    async with feed.listen() as wakeups:
        wakeups.notify()
        wakeups.notify()
        assert await wakeups.wait(60)
        waiting = spawn("wait", wakeups.wait(60))
        while not waiting.done():
            await clock.advance(60)
        assert not waiting.result()


async def test_a_lost_listener_waits_out_its_poll_and_the_next_one_works(
    feed: Feed, clean_database: str, clock: ManualClock
) -> None:
    admin = await asyncpg.connect(clean_database)
    async with feed.listen() as wakeups:
        ended = await admin.fetchval(
            "SELECT bool_and(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%'"
        )
        waiting = spawn("wait", wakeups.wait(0.25))
        while not waiting.done():
            await clock.advance(0.25)
        assert not waiting.result()
        assert not wakeups.alive
    async with feed.listen() as wakeups:
        assert wakeups.alive
    await admin.close()
    assert ended
