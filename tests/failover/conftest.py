"""Copies of the session's server, and caches that follow them."""

import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
from tests.failover.servers import Server, copy_of
from tests.watchcache.conftest import running

from nodus_api.clock import SystemClock
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import ANSWER_SECONDS, Feed
from nodus_api.watchcache import AttemptCache

_number = itertools.count()


@dataclass(frozen=True)
class Pair:
    """A primary and its standby, both running."""

    primary: Server
    standby: Server


@pytest.fixture
def pair(clean_database: str, postgres: EmbeddedPostgres, open_folder: Path) -> Iterator[Pair]:
    """Two servers, as the first migration left the session's, with streaming replication."""
    assert clean_database
    root = open_folder / f"pair-{next(_number)}"
    root.mkdir(mode=0o711)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root)
        primary = copy_of(postgres, root / "a")
        stack.callback(primary.stop)
        primary.start()
        standby = copy_of(primary, root / "b", follows=True)
        stack.callback(standby.stop)
        standby.start()
        yield Pair(primary, standby)


@asynccontextmanager
async def opened(url: str, role: Role) -> AsyncIterator[Database]:
    """A pool of its own, whose clock shows whole seconds, as the scheduler writes them."""
    database = Database(
        url, role=role, pinned_now=lambda: SystemClock().now().replace(microsecond=0)
    )
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def replica(
    url: str, *, answer_seconds: float = ANSWER_SECONDS
) -> AsyncIterator[AttemptCache]:
    """A cache of its own on a database, which follows."""
    clock = SystemClock()
    async with opened(url, Role.API) as database:
        feed = Feed(database, clock=clock, answer_seconds=answer_seconds)
        async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as cache:
            yield cache


async def head_of(url: str) -> int:
    """Return the newest revision of a server, asked on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT max(rev) FROM nodus.changes"))
    finally:
        await connection.close()
