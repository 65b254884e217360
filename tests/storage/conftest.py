"""The same schema on both supported servers: the embedded one and PostgreSQL 15."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from tests.storage.logins import in_database
from tests.storage.scene import SCENE, Connection

from nodus_api.storage import migrate
from nodus_api.storage.embedded import EmbeddedPostgres

OLDEST = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture(scope="session")
def postgres15(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A server of the oldest supported version, where the system has its binaries."""
    if not (OLDEST / "postgres").exists():
        pytest.skip("PostgreSQL 15 is not installed on this machine")
    server = EmbeddedPostgres(open_folder / "pg15", binaries=OLDEST, settings={"fsync": "off"})
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
async def oldest_url(postgres15: EmbeddedPostgres) -> str:
    """The address of a migrated database of the oldest supported version."""
    await migrate.upgrade(postgres15.url)
    return postgres15.url


@pytest.fixture(scope="session", params=["database_url", "oldest_url"], ids=["newest", "oldest"])
def either_url(request: pytest.FixtureRequest) -> str:
    """A migrated database of each supported server, as superuser."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(scope="session")
async def superuser(either_url: str) -> AsyncIterator[Connection]:
    """One superuser's connection a server, to a migrated database that nobody commits to."""
    async with fresh_database(either_url, "nodus_scene") as url:
        await migrate.upgrade(url)
        connection = await asyncpg.connect(url)
        await connection.execute("SET search_path = nodus")
        yield connection
        await connection.close()


@pytest.fixture
async def scene(superuser: Connection) -> AsyncIterator[Connection]:
    """The scene of scene.py in the scheduler's role, rolled back afterwards."""
    transaction = superuser.transaction()
    await transaction.start()
    try:
        await superuser.execute("SET LOCAL ROLE nodus_scheduler")
        await superuser.execute(SCENE)
        yield superuser
    finally:
        await transaction.rollback()


@pytest.fixture
async def empty_url(either_url: str) -> AsyncIterator[str]:
    """A database without schema nodus, beside the migrated one."""
    async with fresh_database(either_url, "nodus_empty") as url:
        yield url


@pytest.fixture(scope="session")
async def migrated_template(either_url: str) -> AsyncIterator[str]:
    """The name of a migrated database that others are copied from: a third of the time."""
    async with fresh_database(either_url, "nodus_template") as url:
        await migrate.upgrade(url)
        yield "nodus_template"


@pytest.fixture
async def own_url(either_url: str, migrated_template: str) -> AsyncIterator[str]:
    """A migrated database of the test's own, whose tables may come and go."""
    async with fresh_database(either_url, "nodus_own", template=migrated_template) as url:
        yield url


@contextlib.asynccontextmanager
async def fresh_database(url: str, name: str, template: str = "template1") -> AsyncIterator[str]:
    """Make a database beside that of `url`, and drop it at the end."""
    admin = await asyncpg.connect(url)
    await admin.execute(f"DROP DATABASE IF EXISTS {name}")
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield in_database(url, name)
    await admin.execute(f"DROP DATABASE {name}")
    await admin.close()
