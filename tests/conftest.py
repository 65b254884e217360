"""One Postgres a session, emptied on request, and a clock that tests move.

The server is the embedded one in a folder of its own, or the one NODUS_TEST_DATABASE_URL names: a
superuser's address of a database that the tests may empty.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
import uvloop
from hypothesis import settings

from nodus_api.clock import ManualClock
from nodus_api.storage import migrate
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role

pytest_plugins = ("tests.dealing", "tests.dispositions", "tests.shared")

# The same tree gives the same result; `--hypothesis-profile=search` tries others, and more of them.
settings.register_profile("each run", max_examples=40, deadline=None, derandomize=True)
settings.register_profile("search", max_examples=400, deadline=None)
settings.load_profile("each run")

EXTERNAL = "NODUS_TEST_DATABASE_URL"
MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes the folder in it
DISK = Path("/var/tmp")  # noqa: S108 - the same
START = datetime(2026, 1, 1, tzinfo=UTC)

_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'nodus'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND relname <> 'alembic_version'
ORDER BY relname
"""

_SET_NUMBERS = """
SELECT string_agg(format('SELECT setval(%L, %s, %L)', format('%I.%I', schemaname, sequencename),
  coalesce(last_value, start_value), last_value IS NOT NULL), ';')
FROM pg_sequences WHERE schemaname = 'nodus'
"""


def pytest_configure() -> None:
    """Run tests on the event loop that every command runs on.

    Not by the plugin's parameter, which begins the session's fixtures anew whenever it changes.
    """
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


@contextlib.contextmanager
def made_open_folder(*parents: Path) -> Iterator[Path]:
    """Make a folder that other accounts may traverse, in the first of `parents` that is there.

    Not in pytest's own base, which is closed to others (storage.md section 10).
    """
    parent = next((parent for parent in parents if parent.is_dir()), None)
    folder = Path(tempfile.mkdtemp(prefix="nodus-test-", dir=parent))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that other accounts may traverse, in memory where there is room."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 << 30
    with made_open_folder(*([MEMORY] if roomy else []), DISK) as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """The embedded server of the session, not migrated yet."""
    # the tests' data need not outlive a power cut
    server = EmbeddedPostgres(open_folder / "postgres", settings={"fsync": "off"})
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
async def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a migrated database, as superuser."""
    external = os.environ.get(EXTERNAL)
    url: str = external or request.getfixturevalue("postgres").url
    await migrate.upgrade(url)
    return url


class FirstRows:
    """Empties schema nodus and puts back the rows that the first migration makes.

    Numbers begin anew too: what hangs on a row's number (a jitter, say) is the same whichever
    tests ran before.

    DELETE with triggers and foreign keys off: 1 to 4 ms, where TRUNCATE takes 46 to 294.
    """

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self._empty = ""
        self._numbers = ""
        self._rows: list[tuple[str, str]] = []

    async def remember(self) -> None:
        """Keep every row that is there now."""
        found = await self._connection.fetch(_TABLES)
        names = [row["relname"] for row in found]
        self._empty = ";".join(f"DELETE FROM nodus.{name}" for name in names)  # noqa: S608 - the catalogue's names
        self._numbers = await self._connection.fetchval(_SET_NUMBERS)
        for name in names:
            read = f"SELECT to_jsonb(t)::text AS row FROM nodus.{name} t"  # noqa: S608
            self._rows += [(name, row["row"]) for row in await self._connection.fetch(read)]

    async def restore(self) -> None:
        """Make the tables as they were when remembered."""
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL session_replication_role = replica")
            await self._connection.execute(f"{self._empty};{self._numbers}")
            for name, row in self._rows:
                await self._connection.execute(
                    f"INSERT INTO nodus.{name} SELECT * "  # noqa: S608
                    f"FROM jsonb_populate_record(NULL::nodus.{name}, $1::text::jsonb)",
                    row,
                )


@pytest.fixture(scope="session")
async def first_rows(database_url: str) -> AsyncIterator[FirstRows]:
    """The keeper of the migrated database's first rows."""
    connection = await asyncpg.connect(database_url)
    rows = FirstRows(connection)
    await rows.remember()
    yield rows
    await connection.close()


@pytest.fixture
async def clean_database(database_url: str, first_rows: FirstRows) -> str:
    """The address of the migrated database, as the first migration leaves it."""
    await first_rows.restore()
    return database_url


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at the start of 2026 until a test moves it."""
    return ManualClock(START)


class SharedDatabases:
    """One pool a role for the whole session, where `nodus.now()` is the running test's clock.

    New pools for each test cost it some 0.3 s: connecting, and preparing every statement anew.
    """

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(START)
        self.by_role = {
            role: Database(
                url,
                role=role,
                plan_once=role is Role.SCHEDULER,  # as the part of that role does
                pinned_now=lambda: self.clock.now(),
            )
            for role in (Role.SCHEDULER, Role.API)
        }


@pytest.fixture(scope="session")
async def shared_databases(database_url: str) -> AsyncIterator[SharedDatabases]:
    """The pools of the session."""
    shared = SharedDatabases(database_url)
    yield shared
    for database in shared.by_role.values():
        await database.close()


@pytest.fixture
def scheduler_database(
    clean_database: str, shared_databases: SharedDatabases, clock: ManualClock
) -> Database:
    """A clean database in the scheduler's role, where `nodus.now()` is the test's clock."""
    assert clean_database
    shared_databases.clock = clock
    return shared_databases.by_role[Role.SCHEDULER]


@pytest.fixture
def api_database(
    clean_database: str, shared_databases: SharedDatabases, clock: ManualClock
) -> Database:
    """The same database in the reader's role."""
    assert clean_database
    shared_databases.clock = clock
    return shared_databases.by_role[Role.API]
