"""Losses made on purpose and ranks that live together, as the API serves them.

SC-012, SC-130 to SC-135, SC-520, SC-630. Ranks are `0/1` and `1/1`, and `0/2` and `1/2` once they
started again. Where a replacement follows at once, its machine is held until it is let come.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.goldens_live.golden import compare
from tests.goldens_live.live_world import LiveWorld, taken_slots

from nodus_api.runner.files import LOG
from nodus_api.runner.identity import read_identity, read_spawned
from nodus_api.runner.session import kill_members, process_stat
from nodus_api.storage import tables as t

pytestmark = pytest.mark.slow  # real processes and what happens to them
ROOM_FOR_TWO_EPOCHS = pytest.mark.parametrize("live", [{"slots": 4}], indirect=True)
GANG_PROGRAM = Path(__file__).parent.parent / "scheduler" / "gang_program.py"
LEAVING_PROGRAM = Path(__file__).with_name("leaving_program.py")


# drills ---------------------------------------------------------------------------------------


async def test_drill_kills_the_machine_of_a_program(live: LiveWorld) -> None:  # scenario 41
    await saving(live)
    await live.close_door()
    await drill(live, "node-loss")
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-node-loss-running")


async def test_drill_kills_the_machine_before_the_start(live: LiveWorld) -> None:  # T12
    await live.world.submit(template={"command": ["true"]})
    await live.until_stage("Starting")
    await live.pass_time(20)
    await drill(live, "node-loss")
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-node-loss-starting")


async def test_drill_tells_a_program_that_saves_and_leaves(live: LiveWorld) -> None:
    """Scenario 20: what it did after its last checkpoint is lost, and that is 3 s."""
    command = [sys.executable, str(LEAVING_PROGRAM), str(live.folder)]
    await live.world.submit(
        template={"command": command}, checkpoint={"restartable": True}, stopGraceSeconds=300
    )
    await live.begin()
    await live.until(exists(live.folder / "ready"))
    await live.run(40)
    live.host.creating.clear()
    await drill(live, "preemption", noticeSeconds=600)

    async def saved() -> bool:
        status = (await live.attempt())["status"]
        return bool(status["checkpoints"]["count"] == 1)

    await live.until_served(saved)
    assert (await live.attempt())["status"]["phase"] == "Running"  # SC-013
    await live.pass_time(3)
    live.go("leave")
    await live.finish(stage="Lost", following=("0/2", "Acquiring"))
    await let_come(live, "0/2")
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-preemption-notice")


async def test_drill_tells_a_machine_before_the_start(live: LiveWorld) -> None:  # T12
    await live.world.submit(template={"command": ["true"]})
    await live.until_stage("Starting")
    await live.pass_time(20)
    await drill(live, "preemption", noticeSeconds=600)
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-preemption-starting")


async def test_drill_takes_the_machine_without_a_notice(live: LiveWorld) -> None:
    await live.world.submit(template=live.waits("exit 0"))
    await live.begin()
    await live.run(40)
    await live.close_door()
    await drill(live, "preemption")
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    live.go()
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-preemption")


async def test_drill_silences_the_runner(live: LiveWorld) -> None:  # SC-015, SC-614
    await saving(live)
    await drill(live, "heartbeat")
    runner = await live.runner()

    async def frozen() -> bool:
        stat = process_stat(runner)
        return stat is not None and stat.state == "T" and await made(live)

    await live.until(frozen)
    await live.close_door()
    await live.pass_time(601)
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-heartbeat")


async def test_drill_finds_a_machine_unfit_that_was_ready(live: LiveWorld) -> None:
    """It passed its checks, fails the next ones, and what it reports of both arrives at once."""
    await live.world.submit(template={"command": ["true"]})
    await live.until_stage("Starting")
    log = await live.machine() / LOG
    await live.until(says(log, "the report server is away"))
    await live.pass_time(20)
    await drill(live, "readiness")
    await live.until(says(log, "the machine is not as promised"))
    await live.until(lambda: made(live))
    live.host.creating.clear()
    await live.open_door()
    await live.finish(stage="Lost", following=("0/2", "Acquiring"))
    await let_come(live, "0/2")
    await goes_on(live)
    await counted_nowhere(live)
    await compare(live, "drill-readiness")


# gangs ----------------------------------------------------------------------------------------


async def test_gang_succeeds(live: LiveWorld) -> None:  # SC-130, SC-133, SC-135
    await submit_gang(live, "exit 0")
    await start_gang(live)
    await live.run(100)
    live.go()
    await live.finish(stage="Succeeded", following=("1/1", "Succeeded"), also=["1/1"])
    assert await outcome(live) == ("Succeeded", None)
    await compare(live, "gang-succeeded")


async def test_gang_ends_without_a_late_rank(live: LiveWorld) -> None:  # SC-135
    await submit_gang(live, "[ $NODUS_RANK = 0 ] && exit 0; exec sleep 600")
    await start_gang(live)
    await live.run(40)
    live.go()
    await live.finish(stage="Succeeded")
    await live.run(55)
    await live.finish("1/1", "Stopped")
    assert await outcome(live) == ("Succeeded", None)
    await compare(live, "gang-late-rank")


@ROOM_FOR_TWO_EPOCHS
async def test_gang_loses_a_rank(live: LiveWorld) -> None:  # scenario 30, SC-134, SC-141
    await saving_gang(live)
    live.host.creating.clear()
    await kill_machine(live, "1")
    await again_from_the_same_seq(live)
    await compare(live, "gang-node-lost")


@ROOM_FOR_TWO_EPOCHS
async def test_gang_is_drilled(live: LiveWorld) -> None:  # SC-003, SC-520: any Drill
    await saving_gang(live)
    live.host.creating.clear()
    await drill(live, "node-loss", "1/1")
    await again_from_the_same_seq(live)
    await counted_nowhere(live)
    await compare(live, "gang-drilled")


async def test_gang_fails_with_a_rank(live: LiveWorld) -> None:  # SC-120, SC-520
    await submit_gang(live, "[ $NODUS_RANK = 1 ] && exit 3; exec sleep 600")
    await start_gang(live)
    await live.run(40)
    live.go()
    await live.finish("1/1", "Failed", following=("0/1", "Stopped"), also=["0/1"])
    assert await outcome(live) == ("Failed", "CustomerExit")
    await compare(live, "gang-customer-exit")


async def test_gang_is_tried_again_with_a_rank(live: LiveWorld) -> None:  # SC-121, SC-134
    script = "[ $NODUS_GANG_EPOCH = 2 ] && exit 0; [ $NODUS_RANK = 1 ] && exit 3; exec sleep 600"
    await submit_gang(live, script, restart={"maxRetries": 1})
    await start_gang(live)
    await live.run(40)
    live.go()
    await live.finish("1/1", "Failed", following=("0/2", "Pending"), also=["0/1"])
    await live.close_door()
    await live.pass_time(15)  # 10 s and a fifth at most
    await both(live, 2, "Starting")
    await live.pass_time(20)
    await live.open_door()
    await live.finish("0/2", "Succeeded", following=("1/2", "Succeeded"), also=["1/2"])
    assert await outcome(live) == ("Succeeded", None)
    await compare(live, "gang-customer-exit-retried")


async def test_gang_is_stopped(live: LiveWorld) -> None:  # T17
    await submit_gang(live, "exit 0")
    await start_gang(live)
    await live.run(40)
    await live.ask("stop")
    await live.finish(stage="Stopped", following=("1/1", "Stopped"), also=["1/1"])
    assert await outcome(live) == ("Stopped", None)
    await compare(live, "gang-stopped")


async def test_gang_waits_for_room(live: LiveWorld) -> None:  # SC-009a, SC-009b, SC-131
    async with taken_slots(live, "first"):
        await submit_gang(live, "exit 0")

        async def wait() -> bool:
            found = [(await live.attempt(which)).get("metadata", {}) for which in ("0/1", "1/1")]
            told = [one.get("annotations", {}).get("nodus.dev/waiting-for") for one in found]
            return told == ["Gang", "Gang"]

        await live.until_served(wait)
        await compare(live, "gang-waiting", ended=False)
        await live.pass_time(30)
        await live.looked()
    await start_gang(live)
    live.go()
    await live.finish(stage="Succeeded", following=("1/1", "Succeeded"), also=["1/1"])
    await compare(live, "gang-waited")


@ROOM_FOR_TWO_EPOCHS
async def test_gang_never_starts(live: LiveWorld) -> None:  # SC-133, SC-134, SC-520
    """Rank 1 never registers; rank 0 waits for it, and is not late itself."""
    await submit_gang(live, "exit 0")
    live.go()
    await both(live, 1, "Starting")
    frozen = await runner_of(live, "1")
    os.kill(frozen, signal.SIGSTOP)

    async def stopped() -> bool:
        stat = process_stat(frozen)
        return stat is not None and stat.state == "T"

    await live.until(stopped)
    await live.pass_time(20)
    await live.open_door()

    async def registered() -> bool:
        return "registeredTime" in (await live.attempt())["status"]["timings"]

    await live.until_served(registered)
    await live.close_door()
    await live.pass_time(580)
    await live.finish("1/1", "Lost", following=("0/2", "Pending"), also=["0/1"])
    await live.pass_time(60)  # the class rests after its failure (SC-360)
    await both(live, 2, "Starting")
    await live.pass_time(15)
    await live.open_door()
    await live.finish("0/2", "Succeeded", following=("1/2", "Succeeded"), also=["1/2"])
    await compare(live, "gang-never-started")


# how ------------------------------------------------------------------------------------------


async def saving(live: LiveWorld) -> None:
    """Bring a program to 40 s after its start, let it save there, and run on for 30 s."""
    spec = live.saves()
    spec["template"] = after_go(live, spec["template"]["command"])
    await live.world.submit(**spec)
    await live.begin()
    await live.run(40)
    live.go()
    await live.hanging()
    await live.run(30)


def after_go(live: LiveWorld, command: list[str]) -> dict[str, Any]:
    """Return a template whose program becomes `command` once it may go."""
    template = live.waits('exec "$@"')
    template["command"] += ["sh", *command]
    return template


async def drill(live: LiveWorld, trigger: str, which: str = "0/1", **body: Any) -> None:
    name = (await live.attempt(which))["metadata"]["name"]
    await live.ask("drill", name, kind=None, trigger=trigger, **body)


async def made(live: LiveWorld) -> bool:
    """Whether a drill's fault is known to be made."""
    return any(
        (row["drill"] or "").endswith("/made") for row in await live.world.rows(t.attempt_work)
    )


async def counted_nowhere(live: LiveWorld) -> None:  # SC-120, SC-630
    for slot in await live.world.rows(t.slots):
        counted = (slot["replacements"], slot["retries_used"], slot["backoff_k"])
        assert counted == (0, 0, 0)
        assert (slot["lost_in_a_row"], slot["lost_candidates"]) == (0, [])


async def goes_on(live: LiveWorld) -> None:
    """Let the replacement boot for 10 s, and come to its end."""
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", "Succeeded")


async def let_come(live: LiveWorld, *which: str) -> None:
    """Let the machines come that were held; their runners do not reach the scheduler yet."""
    await live.close_door()
    live.host.creating.set()
    for one in which:
        await live.until_stage("Starting", one)


async def submit_gang(live: LiveWorld, script: str, **spec: Any) -> None:
    await live.world.submit(template=live.waits(script), completions=2, gang=True, **spec)


async def both(live: LiveWorld, epoch: int, stage: str) -> None:
    for rank in range(2):
        await live.until_stage(stage, f"{rank}/{epoch}")


async def start_gang(live: LiveWorld) -> None:
    await both(live, 1, "Starting")
    await live.pass_time(20)
    await live.open_door()
    await both(live, 1, "Running")


async def saving_gang(live: LiveWorld) -> None:
    """Bring both ranks to 40 s after their start, let them save there, and run on for 30 s."""
    command = [sys.executable, str(GANG_PROGRAM), str(live.folder), "5", "3"]
    await live.world.submit(
        template=after_go(live, command),
        completions=2,
        gang=True,
        checkpoint={"restartable": True},
    )
    await start_gang(live)
    await live.run(40)
    live.go()
    for rank in range(2):
        await live.until(exists(live.folder / f"hanging-{rank}"))
    await live.run(30)


async def again_from_the_same_seq(live: LiveWorld) -> None:
    """Let the ranks end: the healthy one's machine is taken at once, the other comes 5 s later."""

    async def at_the_door() -> bool:
        return "registeredTime" in (await live.attempt("0/2")).get("status", {}).get("timings", {})

    await live.until_stage("Lost", "1/1")
    await live.until_served(at_the_door)
    await live.until_stage("Acquiring", "1/2")
    await live.finish(stage="Stopped", also=["1/1"])
    await let_come(live, "1/2")
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", "Succeeded", following=("1/2", "Succeeded"), also=["1/2"])
    assert await outcome(live) == ("Succeeded", None)


async def outcome(live: LiveWorld) -> tuple[str, str | None]:
    workload = await live.world.workload()
    return workload["state"], workload["outcome"]


async def kill_machine(live: LiveWorld, slot: str) -> None:
    """Kill everything of a slot's machine from outside, its runner first."""
    runner = await runner_of(live, slot)
    os.kill(runner, signal.SIGKILL)
    kill_members(runner)


async def runner_of(live: LiveWorld, slot: str) -> int:
    """Return the pid of the runner of a slot's only machine."""
    slots = {row["no"]: row["slot"] for row in await live.world.rows(t.attempts)}
    of = {row["machine"]: slots[row["attempt"]] for row in await live.world.rows(t.leases)}
    machines = await live.world.rows(t.machines)
    (handle,) = [str(row["handle"]) for row in machines if of[row["no"]] == slot]
    directory = live.host.root / handle
    identity = read_identity(directory) or read_spawned(directory)
    assert identity is not None
    return identity.pid


def exists(path: Path) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await asyncio.to_thread(path.exists)

    return look


def says(log: Path, words: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return words in await asyncio.to_thread(log.read_text)

    return look
