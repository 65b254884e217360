"""A server whose Postgres is migrated, or restarted, under its lists and watches.

A real `nodus serve` over TLS, on a Postgres of its own.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import orjson
import pytest
from tests.apiserver.raw import connected, request
from tests.clients.site import Site, running, until
from tests.history.checking import WIRE
from tests.history.together import together

from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.migrate import downgrade, script_location, upgrade
from nodus_api.storage.revision import HEAD
from nodus_api.tasks import end, spawn

pytestmark = pytest.mark.slow  # a Postgres and a server of its own

V1 = "/apis/nodus.dev/v1"
ALL, ONE = f"{V1}/attempts", f"{V1}/namespaces/default/attempts"
CLOCK = SystemClock()

NEXT_REVISION = '''
"""A revision after the ones of this version, as a newer version brings it."""

from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    op.execute("ALTER TABLE nodus.changes ADD COLUMN note text")
    op.execute("ALTER TABLE nodus.attempt_objects ADD COLUMN note text NOT NULL DEFAULT ''")


def downgrade() -> None:
    op.execute("ALTER TABLE nodus.attempt_objects DROP COLUMN note")
    op.execute("ALTER TABLE nodus.changes DROP COLUMN note")
'''
WIDER = (  # of columns that the server reads all the time
    "ALTER TABLE nodus.changes ALTER COLUMN name TYPE varchar",
    "ALTER TABLE nodus.attempt_objects ALTER COLUMN name TYPE varchar",
    "ALTER TABLE nodus.tokens ALTER COLUMN username TYPE varchar",
    "ALTER TABLE nodus.access_changes ALTER COLUMN what TYPE varchar",
)


@pytest.fixture(scope="module")
async def site(open_folder: Path) -> AsyncIterator[Site]:
    folder = open_folder / "changes"
    folder.mkdir(mode=0o711)
    async with running(folder, []) as made:
        yield made


@dataclass
class Told:
    """What one watch said, on one connection."""

    events: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.events[-1][2] if self.events else 0


@dataclass(frozen=True)
class Refusal:
    """An answer while Postgres is away."""

    code: int
    retry_after: str
    status: Any


async def watch(site: Site, target: str, told: Told) -> None:
    """Note the events of one stream; it must not end."""
    async with connected(site.port, site.context) as connection:
        connection.writer.write(request("GET", target, token=site.tokens["test"]))
        assert (await connection.head()).status == 200
        rest = b""
        while True:
            chunk = await connection.chunk()
            assert chunk, "the watch ended"
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(orjson.loads, lines):
                found = event["object"]["metadata"]
                rev = int(found["resourceVersion"])
                told.events.append((event["type"], found["name"], rev))


@asynccontextmanager
async def asked_all_the_time(
    ask: Callable[[], Awaitable[None]], seconds: float = 0.1
) -> AsyncIterator[None]:
    """Ask on and on, with a pause of so many seconds."""

    async def on_and_on() -> None:
        while True:
            await ask()
            await CLOCK.sleep(seconds)

    asking = spawn("asking", on_and_on())
    try:
        yield
        assert not asking.done(), asking.exception()
    finally:
        await end(asking)


@asynccontextmanager
async def watched(site: Site, since: int) -> AsyncIterator[list[Told]]:
    """Watch all, one project, and a selection; the streams go on to the end.

    Beside them a recorder, whose history is held against the log.
    """
    running = quote("status.phase=Running")
    targets = (
        f"{ALL}?watch=1&resourceVersion={since}",
        f"{ONE}?watch=1&resourceVersion={since}",
        f"{ALL}?watch=1&resourceVersion={since}&fieldSelector={running}",
    )
    told = [Told() for _ in targets]
    streams = [
        spawn("watch", watch(site, target, one)) for target, one in zip(targets, told, strict=True)
    ]
    try:
        with together((site,), checkers=WIRE):
            yield told
        for stream in streams:
            assert not stream.done(), stream.exception()
    finally:
        for stream in streams:
            await end(stream)


async def commits(site: Site, count: int) -> int:
    """Make some changes, by connections that know the schema as it is; returns the head."""
    await site.lives.database.close()
    site.lives.database = Database(site.postgres.url, role=Role.SCHEDULER)
    for _ in range(count):
        await site.lives.step()
    async with site.lives.database.dedicated() as connection:
        return int(await connection.fetchval("SELECT max(rev) FROM nodus.changes"))


async def all_told(site: Site, told: list[Told], since: int, head: int) -> None:
    """Each watch says what the log says, no more, on the connection that it began with."""
    everything, project, phase = told
    await until(lambda: everything.last == head, lambda: f"{everything.last} of {head}")
    assert [rev for _, _, rev in everything.events] == list(range(since + 1, head + 1))
    names = {(name, rev) for _, name, rev in everything.events}
    for one in (project, phase):
        revs = [rev for _, _, rev in one.events]
        assert revs == sorted(set(revs))
        assert {(name, rev) for _, name, rev in one.events} <= names


async def test_a_migration_under_a_running_server(site: Site, tmp_path: Path) -> None:
    """Field case C12: no request fails, and the watches stay."""
    scripts = tmp_path / "migrations"
    await asyncio.to_thread(shutil.copytree, script_location(), scripts)
    since = int(site.json(ALL)["metadata"]["resourceVersion"])
    old = f"{ONE}?resourceVersion={since}&resourceVersionMatch=Exact"
    statuses: list[int] = []
    streams: list[int] = []

    async def ask() -> None:
        targets = (ALL, f"{ONE}?limit=5", "/api/v1/namespaces", old)
        statuses.extend([(await asyncio.to_thread(site.get, target))[0] for target in targets])

    async def begin() -> None:
        target = f"{ALL}?watch=1&resourceVersion={since}&timeoutSeconds=1"
        streams.append((await asyncio.to_thread(site.get, target))[0])

    changes = (
        upgrade_to_the_next(site, scripts),
        *(widened(site, text) for text in WIDER),
        downgrade(site.postgres.url, HEAD, scripts=scripts),
    )
    async with watched(site, since) as told, asked_all_the_time(ask), asked_all_the_time(begin):
        head = since
        for change in changes:
            await commits(site, 2)
            answers, ends = len(statuses) + 10, len(streams) + 2
            await change
            head = await commits(site, 2)
            await until(
                lambda answers=answers, ends=ends: (  # type: ignore[misc]
                    len(statuses) >= answers and len(streams) >= ends
                ),
                lambda: "answers, and watches that ended, after a change of the schema",
            )
        await all_told(site, told, since, head)

    assert set(statuses) == {200}
    assert set(streams) == {200}


async def upgrade_to_the_next(site: Site, scripts: Path) -> None:
    text = NEXT_REVISION.format(head=HEAD)
    await asyncio.to_thread((scripts / "versions" / "later.py").write_text, text)
    await upgrade(site.postgres.url, scripts=scripts)


async def widened(site: Site, text: str) -> None:
    owner = await asyncpg.connect(site.postgres.url)
    await owner.execute(text)
    await owner.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_of_postgres_under_a_running_server(site: Site, mode: str) -> None:
    """Field case C14: 503 while it is away, then all by itself; the watches stay."""
    since = int(site.json(ALL)["metadata"]["resourceVersion"])
    good: list[float] = []
    away: list[Refusal] = []

    async def ask() -> None:
        status, headers, body = await asyncio.to_thread(site.get, ONE)
        if status == 200:
            good.append(CLOCK.monotonic())
        else:
            away.append(Refusal(status, headers.get("retry-after", ""), orjson.loads(body)))

    async with watched(site, since) as told, asked_all_the_time(ask, 0.2):
        await commits(site, 3)
        await stopped(site, mode)
        await until(lambda: len(away) >= 3, lambda: "it is told that Postgres is away")
        await site.start_postgres()
        ready = CLOCK.monotonic()
        head = await commits(site, 3)
        await until(lambda: good[-1] > ready, lambda: "it answers again")
        await all_told(site, told, since, head)

    for one in away:
        seconds = one.status["details"]["retryAfterSeconds"]
        assert (one.code, one.status["reason"]) == (503, "ServiceUnavailable")
        assert one.retry_after == str(seconds)
        assert seconds > 0


async def stopped(site: Site, mode: str) -> None:
    if mode == "fast":
        await site.stop_postgres()
        return
    postmaster = await asyncio.to_thread(site.postgres.start)  # the one that runs
    os.kill(postmaster, signal.SIGQUIT)  # what `pg_ctl stop -m immediate` sends
    await until(lambda: not site.postgres.alive(), lambda: "Postgres is gone")
