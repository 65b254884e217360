"""Reads whose columns a migration gives other types between two of them (field case C12)."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from nodus_api.clock import ManualClock
from nodus_api.storage.access_store import AccessStore
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StatementOutdated
from nodus_api.storage.feed import Feed, read_changes

COLUMNS = ("changes.name", "access_changes.what", "tokens.username")


async def retyped(url: str, to: str) -> None:
    owner = await asyncpg.connect(url)
    for column in COLUMNS:
        table, name = column.split(".")
        await owner.execute(f"ALTER TABLE nodus.{table} ALTER COLUMN {name} TYPE {to}")
    await owner.close()


@pytest.fixture
async def database(clean_database: str) -> AsyncIterator[Database]:
    """A pool of its own, whose one connection keeps its statements prepared."""
    made = Database(clean_database, role=Role.API, pool_size=1)
    yield made
    await made.close()
    await retyped(clean_database, "text")


async def test_a_read_runs_again(
    database: Database, clean_database: str, clock: ManualClock
) -> None:
    feed, access = Feed(database, clock=clock), AccessStore(database, clock)
    before = (await feed.read(0), await access.changes(0), await access.load())
    await retyped(clean_database, "varchar")

    assert (await feed.read(0), await access.changes(0), await access.load()) == before


async def test_without_that_it_would_be_refused_once(
    database: Database, clean_database: str
) -> None:
    async def read() -> int:
        async with database.single_reads() as connection:
            return len((await connection.execute(read_changes(0))).all())

    before = await read()
    await retyped(clean_database, "varchar")

    with pytest.raises(StatementOutdated):
        await read()
    assert await read() == before
