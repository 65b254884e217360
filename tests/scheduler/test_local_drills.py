"""Drills for real: processes that are told, killed, frozen or found unfit, and who follows them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scheduler.local_world import LocalWorld, a_local_world

from nodus_api.clock import SystemClock
from nodus_api.runner.identity import read_identity
from nodus_api.runner.session import process_stat
from nodus_api.scheduler import Scheduler
from nodus_api.scheduler.context import Pace
from nodus_api.storage import tables as t
from nodus_api.tasks import spawn

QUICK = Pace(full_pass=timedelta(seconds=0.2))


@dataclass
class Shifted:
    """The system's clock, and how far a test has moved it."""

    by: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return SystemClock().now() + self.by


@pytest.fixture
def clock() -> Shifted:
    return Shifted()


@pytest.fixture
async def local(clean_database: str, clock: Shifted) -> AsyncIterator[LocalWorld]:
    async with a_local_world(clean_database, now=clock.now) as world:
        yield world


def folder(local: LocalWorld) -> Path:
    return local.socket.parent


async def submit(local: LocalWorld, first: str) -> None:
    """Submit a Job that runs `first` in its first epoch, and is done in the next."""
    script = f"[ $NODUS_EPOCH = 1 ] || exit 0; {first}"
    await local.world.submit(template={"command": ["/bin/sh", "-c", script]})


async def drill(local: LocalWorld, trigger: str, **body: Any) -> None:
    name = (await local.world.documents())["0/1"]["metadata"]["name"]
    await local.world.ask("drill", name, kind=None, trigger=trigger, **body)


def both_ended(local: LocalWorld) -> Callable[[], Awaitable[bool]]:
    """Whether both epochs are over, and their machines proven gone.

    The second may come to its end before the first one's machine is proven gone.
    """

    async def look() -> bool:
        documents = await local.world.documents()
        return all(
            "deletionProvenTime" in documents.get(which, {}).get("status", {}).get("timings", {})
            for which in ("0/1", "0/2")
        )

    return look


def drilled(local: LocalWorld, text: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return any(row["drill"] == text for row in await local.world.rows(t.attempt_work))

    return look


async def assert_lost_by_drill(local: LocalWorld, reason: str) -> dict[str, Any]:
    """The first epoch is lost by the drill, the second succeeded, and nothing was counted."""
    documents = await local.world.documents()
    first, second = documents["0/1"]["status"], documents["0/2"]["status"]
    assert (first["phase"], first["reason"]) == ("Failed", reason)
    assert first["interruption"]["trigger"] == "Drill"
    assert second["phase"] == "Succeeded"
    (slot,) = await local.world.rows(t.slots)
    assert (slot["replacements"], slot["retries_used"], slot["backoff_k"]) == (0, 0, 0)
    assert (slot["lost_in_a_row"], slot["lost_candidates"]) == (0, [])
    return dict(first)


def alive(pid: int) -> bool:
    stat = process_stat(pid)
    return stat is not None and stat.alive


async def test_a_machine_is_reclaimed_though_the_scheduler_died(local: LocalWorld) -> None:
    pid = folder(local) / "pid"
    await submit(local, f"trap : TERM; echo $$ > {pid}; while :; do sleep 0.05; done")
    async with local.scheduling(pace=QUICK):

        async def runs() -> bool:
            return pid.exists() and pid.read_text().endswith("\n")

        await local.until(runs)
        await local.until(local.stage_is("Running"))
        await drill(local, "preemption", noticeSeconds=8)

        async def drains() -> bool:
            works = await local.world.rows(t.attempt_work)
            return any(row["drain_cause"] == "Drill/Preempted" for row in works)

        async def drains_or_is_gone() -> bool:
            return await drains() or await local.stage_is("Lost")()

        await local.until(drains_or_is_gone)  # its program ignores SIGTERM
    program = int(pid.read_text())
    machine = min(await local.world.rows(t.machines), key=lambda row: int(row["no"]))
    runner = read_identity(folder(local) / "machines" / machine["handle"])

    async with local.scheduling(pace=QUICK):
        await local.until(both_ended(local), 60)
    first = await assert_lost_by_drill(local, "Preempted")
    assert "exitCode" not in first or first["signal"] == 9  # by the grace's end, or the reclaim
    assert not alive(program)
    assert runner is None or not alive(runner.pid)


async def test_a_program_that_its_host_stops_is_no_success(
    local: LocalWorld,
) -> None:  # T13, T15, SC-641: the host shuts down, and the program ends in good order
    ready = folder(local) / "ready"
    await submit(local, f"trap 'exit 0' TERM; touch {ready}; while :; do sleep 0.05; done")
    async with local.scheduling(pace=QUICK):
        await local.until(local.stage_is("Running"))

        async def listens() -> bool:
            return ready.exists()

        await local.until(listens)
        machine = min(await local.world.rows(t.machines), key=lambda row: int(row["no"]))
        runner = read_identity(folder(local) / "machines" / machine["handle"])
        assert runner is not None
        os.kill(runner.pid, signal.SIGTERM)
        await local.until(both_ended(local), 60)

    documents = await local.world.documents()
    first, second = documents["0/1"]["status"], documents["0/2"]["status"]
    assert (first["phase"], first["reason"], first["exitCode"]) == ("Failed", "NodeLost", 0)
    assert first["interruption"]["trigger"] == "ProviderEvidence"
    assert second["phase"] == "Succeeded"


async def test_a_frozen_runner_is_given_up_and_its_machine_deleted(
    local: LocalWorld, clock: Shifted
) -> None:  # SC-614, SC-712
    pid = folder(local) / "pid"
    await submit(local, f"echo $$ > {pid}; exec sleep 600")
    async with local.scheduling(pace=QUICK):
        await local.until(local.stage_is("Running"))
        await drill(local, "heartbeat")
        await local.until(drilled(local, "heartbeat//made"))
        (machine,) = await local.world.rows(t.machines)
        runner = read_identity(folder(local) / "machines" / machine["handle"])
        assert runner is not None

        async def frozen() -> bool:
            stat = process_stat(runner.pid)
            return stat is not None and stat.state == "T"

        await local.until(frozen)
        program = int(pid.read_text())
        assert alive(program)
        assert await local.world.stage() == "Running"
        (work,) = await local.world.rows(t.attempt_work)
        clock.by = timedelta(seconds=601)

        await local.until(both_ended(local))
    first = await assert_lost_by_drill(local, "NodeLost")
    finished = datetime.fromisoformat(first["timings"]["finishedTime"])
    begun = datetime.fromisoformat(first["timings"]["commandStartedTime"])
    assert finished == max(work["last_heartbeat"].replace(microsecond=0), begun)  # SC-015
    assert not alive(runner.pid)
    assert not alive(program)


async def test_a_killed_machine_is_found_lost(local: LocalWorld) -> None:  # scenario 41
    await submit(local, "exec sleep 600")
    async with local.scheduling(pace=QUICK):
        await local.until(local.stage_is("Running"))
        await drill(local, "node-loss")
        await local.until(both_ended(local))
    first = await assert_lost_by_drill(local, "NodeLost")
    assert first["actual"]["costUSD"] == "0.000000"  # all that ran was lost
    assert "exitCode" not in first


async def test_a_program_that_leaves_in_its_notice_is_preempted(local: LocalWorld) -> None:
    program = (  # scenario 20
        "import os, pathlib, signal, sys, time\n"
        "def leave(*_): sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        f"folder = pathlib.Path({str(folder(local))!r})\n"
        "if os.environ['NODUS_EPOCH'] == '2': sys.exit(0)\n"
        "(folder / 'ready').touch()\n"
        "while True: time.sleep(0.02)\n"
    )
    await local.world.submit(template={"command": [sys.executable, "-c", program]})
    async with local.scheduling(pace=QUICK):
        await local.until(local.stage_is("Running"))

        async def ready() -> bool:
            return (folder(local) / "ready").exists()

        await local.until(ready)
        await drill(local, "preemption", noticeSeconds=60)
        await local.until(both_ended(local))
    first = await assert_lost_by_drill(local, "Preempted")
    assert first["exitCode"] == 143


async def test_an_unfit_machine_never_starts_its_program(local: LocalWorld) -> None:  # SC-012
    started = folder(local) / "started"
    await submit(local, f"touch {started}; exec sleep 600")
    scheduler = Scheduler(local.database, local.supplier, SystemClock(), pace=QUICK)
    stop = asyncio.Event()
    task = spawn("scheduler", scheduler.run(stop))  # nobody takes reports: it stays Starting
    try:
        await local.until(local.stage_is("Starting"))
        await drill(local, "readiness")
        await local.until(drilled(local, "readiness//made"))
    finally:
        stop.set()
        await task

    async with local.scheduling(pace=QUICK):
        await local.until(both_ended(local))
    first = await assert_lost_by_drill(local, "ReadinessFailed")
    assert first["actual"]["costUSD"] == "0.000000"
    assert "commandStartedTime" not in first["timings"]
    assert not started.exists()
