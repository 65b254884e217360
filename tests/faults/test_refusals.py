"""Postgres runs, and refuses: no room on its disk, no connection left, no right.

reliability.md sections 2 and 5 (F15, F16), storage.md section 6 ("Behind or cut off").
"""

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest
from tests.cli.live import eventually
from tests.faults.load import LOAD
from tests.faults.stand import CACHED, CLOCK, FRESH, Stand, fault
from tests.faults.test_postgres import (
    ACCESS_CUT_OFF,
    CUT_OFF,
    FOLLOWED,
    assert_in_time,
    assert_told_the_truth,
)
from tests.storage.scene import Connection

from nodus_api.storage.embedded import EmbeddedPostgres

pytestmark = pytest.mark.slow  # each fault lasts seconds

TABLES = "nodus.changes, nodus.feed, nodus.attempt_objects"
SMALL_DISK = "192m"
SETTINGS = {"fsync": "off", "max_connections": "20", "min_wal_size": "64MB", "max_wal_size": "64MB"}
ROOM_IN_THE_WAL = (
    *("SELECT pg_logical_emit_message(true, 'test', '')", "SELECT pg_switch_wal()") * 3,
    "CHECKPOINT",
)
"""Leaves three segments to be used again: a log without room would end the server."""
FULL = {"reads": 10.0, "writes": 10.0, "watch": 10.0}  # F15
CONNECTED = {"reads": 3.0, "writes": 1.0, "watch": 3.0}  # F16, and the pause between two tries


def ran(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


@pytest.fixture(scope="module")
def own_postgres(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A server on a small disk, where this user may mount one, with few connections."""
    folder = open_folder / "refusals"
    folder.mkdir(mode=0o711)
    mounted = ran("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},mode=711", "tmpfs", str(folder))
    server = EmbeddedPostgres(folder, settings=SETTINGS)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert not mounted or ran("umount", "-l", str(folder))


def fill(disk: Path) -> Path:
    """Fill a disk to the last byte; return the file that does."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


async def test_a_full_disk(stand: Stand) -> None:  # F15
    if not stand.root.is_mount():
        pytest.skip("this user may mount no small disk")
    with fault(stand) as seen:
        connection: Connection = await asyncpg.connect(stand.postgres.url)
        for statement in ROOM_IN_THE_WAL:
            await connection.execute(statement)
        await connection.close()
        filler = fill(stand.root)
        try:
            refused = len(stand.load.refused)
            eventually(lambda: len(stand.load.refused) > refused + 5)
            since = CLOCK.monotonic()
            seen.onlooker.first(CACHED, 200, since)
            seen.onlooker.first(FRESH, 200, since)  # reads go on
        finally:
            filler.unlink()
        seconds = seen.over("disk full")
        assert "No space left on device" in stand.load.refused[refused]
        assert {one.status for one in seen.onlooker.of("/livez")} == {200}
        assert {one.status for one in seen.onlooker.of("/readyz")} == {200}
        seen.told_once(perhaps=[CUT_OFF, ACCESS_CUT_OFF])
    assert_in_time(seconds, FULL)


@asynccontextmanager
async def all_connections_taken(stand: Stand) -> AsyncIterator[None]:
    """Take every connection that there is, those of the server too; the load keeps its own."""
    admin: Connection = await asyncpg.connect(stand.postgres.url)
    taken: list[Connection] = []
    others = (
        "FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> $1 "
        "AND pid <> ALL($2::int[])"
    )
    try:
        while True:
            with suppress(asyncpg.TooManyConnectionsError):
                while True:
                    taken.append(await asyncpg.connect(stand.postgres.url))
            mine = [one.get_server_pid() for one in (admin, *taken)]
            if not await admin.fetchval(f"SELECT count(*) {others}", LOAD, mine):
                break
            await admin.fetch(f"SELECT pg_terminate_backend(pid) {others}", LOAD, mine)
        yield
    finally:
        for one in (*taken, admin):
            one.terminate()


async def test_no_connection_left(stand: Stand) -> None:  # F16
    with fault(stand) as seen:
        async with all_connections_taken(stand):
            since = CLOCK.monotonic()
            eventually(lambda: CUT_OFF in seen.lines("warning"))
            seen.onlooker.first(FRESH, 503, since)
            seen.onlooker.first(CACHED, 200, since)
            assert stand.load.first(since)
            until = CLOCK.monotonic()
        seconds = seen.over("no connection left")
        assert_told_the_truth(seen, since, until)
        seen.told_once(CUT_OFF, perhaps=[ACCESS_CUT_OFF])
    assert_in_time(seconds, CONNECTED)


async def test_a_right_is_missing(stand: Stand) -> None:
    owner: Connection = await asyncpg.connect(stand.postgres.url)
    try:
        with fault(stand) as seen:
            await owner.execute("REVOKE SELECT ON " + TABLES + " FROM nodus_api")  # noqa: S608
            try:
                since = CLOCK.monotonic()
                eventually(lambda: CUT_OFF in seen.lines("warning"))
                seen.onlooker.first(FRESH, 503, since)
                seen.onlooker.first(CACHED, 200, since)
                until = CLOCK.monotonic()
            finally:
                await owner.execute("GRANT SELECT ON " + TABLES + " TO nodus_api")
            seconds = seen.over("a right missing")
            assert_told_the_truth(seen, since + 1, until)
            seen.told_once(CUT_OFF)
            assert seen.lines("info").count(FOLLOWED) == 1
            cause = next(
                one["cause"] for one in stand.replica.lines(seen.log) if one["message"] == CUT_OFF
            )
            assert "permission denied" in cause
            assert "give the role back what the migrations granted it" in cause
    finally:
        await owner.close()
    assert_in_time(seconds, CONNECTED)
