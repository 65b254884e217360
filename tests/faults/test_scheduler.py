"""The scheduler with its Jobs, while Postgres restarts, is cut off, is full, or refuses.

reliability.md sections 2 and 5 (F06, F09, F15, F26): no machine twice, no program started twice,
every bill true (P-01 to P-30 as the recorder checks them).
"""

import asyncio
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import asyncpg
import pytest
from tests.cli.live import Up, eventually, job
from tests.faults.proxy import Proxy
from tests.faults.stand import CLOCK, NOBODY_LEADS, metric
from tests.faults.test_refusals import ROOM_IN_THE_WAL, SETTINGS, SMALL_DISK, fill, ran
from tests.storage.scene import Connection

from nodus_api.storage.embedded import SOCKET, EmbeddedPostgres

pytestmark = pytest.mark.slow  # whole Jobs, through faults of seconds

LOST = "the lead is lost or out of reach"
HELD = "the lead is held again"
REFUSED = "the database refuses what a step does"
REPORTS = "reports cannot be kept"
CUT_OFF = "the change log cannot be read"
ACCESS_CUT_OFF = "the access tables cannot be read"
WRITES = 10.0  # the next campaign begins 2 s later
SLOW = 4
ROOM, MORE_THAN_ROOM = 128 * 1024, 300  # bytes, and Attempts that need more
PUBLISH = "nodus.publish(bigint[], bytea[], jsonb[])"


@dataclass
class Scheduling:
    """A scheduler with a server, on a Postgres behind a network of ours."""

    up: Up
    postgres: EmbeddedPostgres
    proxy: Proxy

    def submit(self, name: str, program: str, *options: str, **spec: Any) -> None:
        self.up.nodus(
            *("submit", "-f", "-", "--database-url", self.postgres.url, *options),
            stdin=job(name, program, **spec),
        )

    def ended(self, name: str) -> bool:
        phases = [one["status"]["phase"] for one in self.up.attempts(name)]
        return phases == ["Succeeded"]

    def lines(self, since: int) -> list[dict[str, Any]]:
        said = self.up.said()[since:]
        assert "Traceback" not in said, said
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def health(self, path: str) -> str:
        """Ask the scheduler for its health, as an operator does."""
        found = [one for one in self.lines(0) if one.get("for") == "health"]
        with urlopen(f"http://127.0.0.1:{found[-1]['port']}{path}", timeout=15) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture(scope="module")
def scheduling(open_folder: Path) -> Iterator[Scheduling]:
    """Both on a Postgres that has a small disk, where this user may mount one."""
    folder = open_folder / "scheduling"
    folder.mkdir(mode=0o711)
    mounted = ran("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},mode=711", "tmpfs", str(folder))
    postgres = EmbeddedPostgres(folder, settings={**SETTINGS, "max_connections": "60"})
    postgres.start()
    try:
        with Proxy(str(folder / "run" / SOCKET)) as proxy:
            url = f"postgresql://postgres@127.0.0.1:{proxy.port}/nodus"
            with Up(open_folder / "scheduled", ("--database-url", url)) as up:
                (up.root / "database-url").write_text(postgres.url)
                yield Scheduling(up, postgres, proxy)
    finally:
        postgres.stop()
        assert not mounted or ran("umount", "-l", str(folder))


@contextmanager
def through(scheduling: Scheduling, name: str) -> Iterator[int]:
    """Let a Job run through the block, and another one begin after it; yield where the log is."""
    with scheduling.up.recorded():
        scheduling.submit(f"{name}-before", "sleep 3")
        eventually(lambda: _running(scheduling, f"{name}-before"))
        log = len(scheduling.up.said())
        yield log
        over = CLOCK.monotonic()
        scheduling.submit(f"{name}-after", "exit 0", "--no-wait")
        eventually(lambda: _tried(scheduling, f"{name}-after"), 60)
        took = CLOCK.monotonic() - over
        print(f"fault table: scheduler, {name}: placed {took:.2f} s after")  # noqa: T201
        assert took < WRITES * SLOW
        eventually(lambda: scheduling.ended(f"{name}-after"), 60)
        eventually(lambda: scheduling.ended(f"{name}-before"), 60)
        assert scheduling.health("/readyz") == "ok"
        assert metric(scheduling.health("/metrics"), "nodus_scheduler_leader") == 1
    told = Counter(
        one["message"]
        for one in scheduling.lines(log)
        if one["level"] in ("warning", "error", "critical")
    )
    assert set(told) <= {LOST, REFUSED, REPORTS, CUT_OFF, ACCESS_CUT_OFF, NOBODY_LEADS}, told
    assert set(told.values()) == {1}, told


def _running(scheduling: Scheduling, name: str) -> bool:
    return [one["status"]["phase"] for one in scheduling.up.attempts(name)] == ["Running"]


def _cancelled(scheduling: Scheduling, name: str) -> bool:
    found = scheduling.up.attempts(name)
    return {one["status"]["phase"] for one in found} <= {"Cancelled", "Succeeded"}


def _tried(scheduling: Scheduling, name: str) -> bool:
    try:
        return bool(scheduling.up.attempts(name))
    except (AssertionError, OSError):  # the server comes back, too
        return False


def test_a_restart(scheduling: Scheduling) -> None:  # F09, SC-602
    with through(scheduling, "restart") as log:
        scheduling.postgres.stop()
        eventually(lambda: LOST in _messages(scheduling, log))
        scheduling.postgres.start()
    eventually(lambda: HELD in _messages(scheduling, log))  # a beat after the first pass may be
    assert _messages(scheduling, log).count(HELD) == 1


def test_a_full_disk(scheduling: Scheduling) -> None:  # F15
    disk = scheduling.postgres.log_file.parent.parent
    if not disk.is_mount():
        pytest.skip("this user may mount no small disk")
    url = scheduling.postgres.url
    with through(scheduling, "full") as log:
        execute(url, *ROOM_IN_THE_WAL)
        filler = fill(disk)
        try:
            os.truncate(filler, filler.stat().st_size - ROOM)
            scheduling.submit("wide", "exit 0", "--no-wait", completions=MORE_THAN_ROOM)
            eventually(lambda: REFUSED in _messages(scheduling, log))
            rested(2)  # passes go on, and are refused
            assert scheduling.up.attempts("wide") == []  # no half of it, and reads go on
        finally:
            filler.unlink()
        eventually(lambda: scheduling.up.attempts("wide"))
        scheduling.up.nodus("stop", "job/wide", "--database-url", url)
        eventually(lambda: _cancelled(scheduling, "wide"), 60)
    line = next(one for one in scheduling.lines(log) if one["message"] == REFUSED)
    assert re.search("No space left.*make room on the server's disk", line["cause"])


def test_a_right_is_missing(scheduling: Scheduling) -> None:
    url = scheduling.postgres.url
    with through(scheduling, "right") as log:
        execute(url, f"REVOKE EXECUTE ON FUNCTION {PUBLISH} FROM nodus_scheduler")
        try:
            scheduling.submit("right-during", "exit 0", "--no-wait")
            eventually(lambda: REFUSED in _messages(scheduling, log))
            rested(2)  # passes go on, and are refused
        finally:
            execute(url, f"GRANT EXECUTE ON FUNCTION {PUBLISH} TO nodus_scheduler")
        eventually(lambda: scheduling.ended("right-during"), 60)
    line = next(one for one in scheduling.lines(log) if one["message"] == REFUSED)
    assert re.search("permission denied.*give the role back", line["cause"])


def test_a_network_that_swallows(scheduling: Scheduling) -> None:  # F06, F26
    with through(scheduling, "cut") as log:
        scheduling.proxy.swallow()
        try:
            eventually(lambda: LOST in _messages(scheduling, log), 60)
        finally:
            scheduling.proxy.heal()
    eventually(lambda: HELD in _messages(scheduling, log))  # a beat after the first pass may be
    assert _messages(scheduling, log).count(HELD) == 1


def execute(url: str, *statements: str) -> None:
    async def run() -> None:
        connection: Connection = await asyncpg.connect(url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(run())


def rested(seconds: float) -> None:
    threading.Event().wait(seconds)


def _messages(scheduling: Scheduling, log: int) -> list[str]:
    return [one["message"] for one in scheduling.lines(log)]
