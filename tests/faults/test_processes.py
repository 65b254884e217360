"""Replicas and writers die, stand still, or have no memory left: what clients see of it.

reliability.md sections 2 and 5 (F01 to F04, F30). What becomes of the scheduler's own work is held
by tests/scheduler/test_failpoints.py (G3).
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.cli.live import environment, eventually
from tests.faults.dying_writers import AT_ONCE, BEFORE, FIRST_SLOT, UNANSWERED
from tests.faults.stand import CLOCK, Fault, Replica, Stand, fault
from tests.faults.test_postgres import ACCESS_CUT_OFF, CUT_OFF
from tests.history.recording import ALL

from nodus_api.out_of_memory import EXIT_CODE

pytestmark = pytest.mark.slow  # a process for each statement


RESUMED = 3.0  # F01, in seconds
CAUGHT_UP = 2.0  # F02
SLOW = 5
PAUSE = 4.0
LITTLE = 2 * 1024 * 1024  # bytes
OUT_OF_MEMORY = "out of memory: this process ends, to be started again"


@contextmanager
def crowd(replica: Replica) -> Iterator[None]:
    """Open connections and requests until nobody answers."""
    over = threading.Event()

    def ask() -> None:
        held = []
        while not over.is_set():
            connection = replica.connection()
            with suppress(OSError):
                connection.request("GET", "/openapi/v3", headers={"Connection": "keep-alive"})
                held.append(connection)
            over.wait(0.01)
        for connection in held:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def other(stand: Stand) -> Iterator[Replica]:
    """A second replica, for clients to go to."""
    replica = stand.another()
    replica.start()
    yield replica
    replica.stop()


def goes_on(seen: Fault, since: float) -> float:
    """Wait until the watch shows what was committed after a moment; return how long it took."""
    seen.stand.load.first(since)
    head = int(seen.metric("apiserver_watch_cache_resource_version"))
    eventually(lambda: seen.recorder.position >= head)
    return CLOCK.monotonic() - since


async def test_a_replica_killed_under_watches(stand: Stand, other: Replica) -> None:  # F01
    first = stand.replica
    with fault(stand) as seen:
        os.kill(first.pid, signal.SIGKILL)
        killed = CLOCK.monotonic()
        stand.replica = other
        took = stand.report["replica killed, watch goes on"] = goes_on(seen, killed)
        assert took < RESUMED * SLOW
        first.start()
        stand.report["replica killed, ready again"] = CLOCK.monotonic() - killed
        stand.replica = first
        assert {one.status for one in seen.onlooker.told} <= {200, 0}


async def test_a_replica_that_stands_still(stand: Stand) -> None:  # F02, H-13
    with fault(stand) as seen:
        os.kill(stand.replica.pid, signal.SIGSTOP)
        await CLOCK.sleep(PAUSE)
        written = stand.load.wrote[-1]
        assert written > seen.began  # there is something to catch up with
        os.kill(stand.replica.pid, signal.SIGCONT)
        seconds = seen.over(f"replica paused {PAUSE:g} s")
        assert {one.status for one in seen.onlooker.of("/readyz")} <= {200, 0}
        seen.told_once(perhaps=[CUT_OFF, ACCESS_CUT_OFF])  # whose answers came too late
    assert max(seconds.values()) < CAUGHT_UP * SLOW


async def test_a_replica_out_of_memory(stand: Stand, other: Replica) -> None:  # F30
    first = stand.replica
    with fault(stand) as seen:
        limit = first.memory() + LITTLE
        resource.prlimit(first.pid, resource.RLIMIT_AS, (limit, limit))
        began = CLOCK.monotonic()
        with crowd(first):
            eventually(lambda: first.ended() is not None, 60)
        stand.replica = other
        took = stand.report["out of memory, watch goes on"] = goes_on(seen, began)
        assert took < RESUMED * SLOW
        said = [one for one in first.lines(seen.log) if one["level"] in ("error", "critical")]
        assert [one["message"] for one in said] == [OUT_OF_MEMORY]
        assert "Traceback" not in first.said()[seen.log :]
        assert first.ended() == EXIT_CODE
        first.start()
        stand.replica = first


async def test_a_writer_killed_at_every_statement(stand: Stand) -> None:  # F03, F04, H-03, H-07
    with fault(stand) as seen:
        writers = await asyncio.to_thread(die_at_each_statement, stand.postgres.url)
        seconds = seen.over("writer killed at each statement")
        listed = json.loads(stand.get(ALL)[2])["items"]
        head = int(seen.metric("apiserver_watch_cache_resource_version"))
        eventually(lambda: seen.recorder.position >= head)
        watched = seen.recorder.shown()
        seen.told_once()
    assert max(seconds.values()) < 5  # readers were never held up (F04: 250 ms)

    for way in (BEFORE, UNANSWERED):
        ats = [one["at"].partition(" ")[0] for one in writers if one["way"] == way]
        assert ats[:5] == ["begin", "slots", "attempts", "SELECT", "commit"]  # SELECT publish(…)
        assert ats[-1] == ""  # the one that lived
    for one in writers:
        there = [item for item in listed if item["spec"]["slot"] in one["slots"]]
        assert len(there) in (0, AT_ONCE), one
        if one["way"] == BEFORE or one["at"] not in ("commit", ""):
            assert bool(there) is committed(one), one
        revs = sorted(int(item["metadata"]["resourceVersion"]) for item in there)
        assert revs == [revs[0] + n for n in range(len(revs))]  # of one commit
    written = {item["spec"]["slot"] for item in listed if int(item["spec"]["slot"]) >= FIRST_SLOT}
    assert {slot for slot in watched if int(slot) >= FIRST_SLOT} == written


def die_at_each_statement(url: str) -> list[dict[str, Any]]:
    done = subprocess.run(  # noqa: S603 -- ours
        [sys.executable, "-m", "tests.faults.dying_writers", url],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def committed(one: dict[str, Any]) -> bool:
    """Whether the writer was past its COMMIT: the sixth statement begins the notification."""
    return bool(one["number"] > 4)
