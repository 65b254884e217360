"""States of before from the log, as far back as it is asked: 262,144 changes, in their numbers."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import asyncpg
import orjson
import pytest
from tests.storage.conftest import fresh_database
from tests.storage.scene import Connection
from tests.watchcache.conftest import running, until

from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Change, Feed
from nodus_api.storage.migrate import upgrade
from nodus_api.watchcache import AttemptCache, Page, Window
from nodus_api.watchcache.consistency import Mode, ReadAt
from nodus_api.watchcache.errors import StateTooOld
from nodus_api.watchcache.past import FARTHEST

pytestmark = pytest.mark.slow  # a log of 264,000 changes

OBJECTS = 1000
PROJECTS = 10  # of 100 each
CHANGES = FARTHEST + 2000
FIRST = 2  # the first change; 1 is the first epoch's marker
HEAD = FIRST + CHANGES - 1
CLOCK = SystemClock()

# change n is one of object n % OBJECTS; each object's first is its A
FILL = f"""
INSERT INTO changes (rev, kind, uid, project, name, ver, at, tx, sel, prev_rev, prev_doc, doc)
SELECT n + {FIRST}, CASE WHEN n < {OBJECTS} THEN 'A' ELSE 'M' END::"char",
  lpad(to_hex(n % {OBJECTS}), 32, '0')::uuid, 'p' || n % {PROJECTS},
  'n' || lpad((n % {OBJECTS})::text, 4, '0'), 1 + n / {OBJECTS},
  nodus.now() - interval '30 minutes', (1000 + n)::text::xid8, '{{"labels":{{}},"fields":{{}}}}',
  CASE WHEN n >= {OBJECTS} THEN n + {FIRST} - {OBJECTS} END,
  CASE WHEN n >= {OBJECTS} AND (n + {FIRST}) >> 18 <> (n + {FIRST} - {OBJECTS}) >> 18
    THEN pg_temp.doc(n - {OBJECTS}) END,
  pg_temp.doc(n)
FROM generate_series(0, {CHANGES} - 1) n;
INSERT INTO attempt_objects (attempt, uid, project, name, ver, rev, sel, doc)
SELECT row_number() OVER (), uid, project, name, ver, rev, sel, doc
FROM changes WHERE rev > {HEAD - OBJECTS};
"""  # noqa: S608
DOC = """
CREATE FUNCTION pg_temp.doc(n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
SELECT convert_to('{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":"",'
  || '"name":"n' || lpad((n % 1000)::text, 4, '0') || '"},"n":' || n || '}', 'UTF8') $$
"""


class Counting(Feed):
    """Notes what is asked of the log."""

    walks: int = 0
    asked: tuple[int, ...] = ()

    async def first_changes(
        self, after: int, upto: int, project: str | None
    ) -> tuple[int, list[Change]]:
        self.walks += 1
        return await super().first_changes(after, upto, project)

    async def documents(self, revs: Sequence[int]) -> dict[int, bytes]:
        self.asked += tuple(revs)
        return await super().documents(revs)


@pytest.fixture(scope="module")
async def long_log(database_url: str) -> AsyncIterator[str]:
    async with fresh_database(database_url, "nodus_long") as url:
        await upgrade(url)
        owner: Connection = await asyncpg.connect(url)
        await owner.execute("SET search_path = nodus")
        await owner.execute(DOC)
        await owner.execute(FILL)
        await owner.execute("ANALYZE changes")
        await owner.close()
        yield url


@pytest.fixture
async def feed(long_log: str) -> AsyncIterator[Counting]:
    database = Database(long_log, role=Role.API)
    yield Counting(database, clock=CLOCK)
    await database.close()


@pytest.fixture
async def cache(feed: Counting) -> AsyncIterator[AttemptCache]:
    made = AttemptCache(
        feed, clock=CLOCK, chance=lambda: 0.5, window=Window(stubs=timedelta(minutes=5))
    )
    async with running(made):
        assert (made.position, made.size, made.history_size) == (HEAD, OBJECTS, 0)
        yield made


def expected(rev: int, project: str | None, limit: int = 0) -> list[tuple[str, int, int]]:
    """Name, revision and number of each object at `rev`, by the arithmetic of the log."""
    last = rev - FIRST
    found = []
    for number in range(OBJECTS):
        n = last - (last - number) % OBJECTS  # its newest change that is not above
        if n >= 0 and project in (None, f"p{n % PROJECTS}"):
            found.append((f"p{n % PROJECTS}", f"n{number:04}", n + FIRST, n))
    return [(name, at, n) for _, name, at, n in sorted(found)][: limit or None]


def shown(page: Page) -> list[tuple[str, int, int]]:
    found = []
    for entry in page.entries:
        one = orjson.loads(entry.body or b"")
        found.append((one["metadata"]["name"], int(one["metadata"]["resourceVersion"]), one["n"]))
    return found


@pytest.mark.parametrize("project", [None, "p7"])
async def test_262144_changes_back_and_not_one_more(
    cache: AttemptCache, feed: Counting, project: str | None
) -> None:  # storage.md section 6
    farthest = HEAD - FARTHEST
    page = await cache.list(project, ReadAt(Mode.EXACT, farthest))
    assert shown(page) == expected(farthest, project)
    assert feed.walks == 1
    for rev in (farthest - 1, 2000, 1):
        with pytest.raises(StateTooOld):
            await cache.list(project, ReadAt(Mode.EXACT, rev))
    assert feed.walks == 1  # it is not even asked


async def test_a_page_fetches_its_own_documents_and_the_next_one_the_same_state(
    cache: AttemptCache, feed: Counting
) -> None:
    rev = HEAD - 100_000
    everything = expected(rev, None)
    read: list[tuple[str, int, int]] = []
    start = None
    for pages in range(1, 4):
        page = await cache.list(None, ReadAt(Mode.EXACT, rev), limit=10, start=start)
        read += shown(page)
        assert feed.asked == tuple(at for _, at, _ in read)  # 10 a page
        assert feed.walks == 1  # the order found is kept
        assert (page.more, page.remaining) == (True, OBJECTS - 10 * pages)
        last = page.entries[-1]
        start = (last.project, f"{last.name}\0")
    assert read == everything[:30]


async def test_the_first_of_each_partition_has_its_predecessor_at_hand(
    feed: Counting,
) -> None:  # storage.md section 5, prev_doc: so that the edge may move to any partition
    edge = 1 << 18
    for rev in (edge, edge + OBJECTS - 1):
        before = rev - OBJECTS
        assert await feed.previous(rev) == (await feed.documents([before]))[before]


async def test_the_distance_goes_on_in_the_next_epoch(
    cache: AttemptCache, long_log: str
) -> None:  # storage.md section 8; last: it changes the log
    owner: Connection = await asyncpg.connect(long_log)
    marker = await owner.fetchval("SELECT nodus.start_epoch(true)")
    await owner.close()
    await until(lambda: cache.position == marker, 30)
    farthest = HEAD - FARTHEST + 1  # the marker is a row too
    assert shown(await cache.list("p7", ReadAt(Mode.EXACT, farthest))) == expected(farthest, "p7")
    with pytest.raises(StateTooOld):
        await cache.list("p7", ReadAt(Mode.EXACT, farthest - 1))
