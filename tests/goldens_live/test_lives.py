"""Every reason and every trigger that can happen on `local`, as the API serves it (SC-010, SC-012).

Each test brings real processes to one end and compares all Attempts of that life with a reviewed
body. What no body here shows is listed in `NOT_HERE` with the reason why.
"""

import json
import re
import shutil
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.goldens_live.golden import BODIES, compare
from tests.goldens_live.live_world import LiveWorld, taken_slots

from nodus_api.kernel.vocabulary import Reason, Trigger
from nodus_api.runner.files import CHANNEL
from nodus_api.storage import tables as t
from nodus_api.suppliers.local import memory_groups

pytestmark = pytest.mark.slow  # real processes and what happens to them
GIB = 1024**3
ASKS_FOR_400_MIB = f"{sys.executable} -c 'held = bytearray(400 << 20)'"

NOT_HERE: dict[str, str] = {
    Trigger.PREEMPTION_NOTICE: "unreachable: only a drill reclaims a local machine, and a notice "
    "that a drill asked for says Drill (SC-630)",
    Reason.IMAGE_PULL_FAILED: "unreachable: the image is ignored and nothing is pulled (SC-713)",
    Reason.RESTORE_FAILED: "unreachable: a program's restore step is part of the program, and it "
    "can tell of its failure by its exit code alone",
    Reason.UNFUNDED: "unreachable: funds are not controlled yet, every hold succeeds",
}
"""Reasons and triggers without a body. A body that comes removes its line: a test holds that."""


async def runs(live: LiveWorld, seconds: int, **spec: Any) -> None:
    """Submit a Job, and let its first Attempt run so long."""
    await live.world.submit(**spec)
    await live.begin()
    await live.run(seconds)


async def ends(live: LiveWorld, stage: str = "Failed") -> None:
    """Let a running program go on to its end, and its machine be gone 5 s later."""
    live.go()
    await live.finish(stage=stage)


async def test_succeeded(live: LiveWorld) -> None:  # scenario 1
    await runs(live, 100, template=live.waits("exit 0"))
    await ends(live, "Succeeded")
    await compare(live, "succeeded")


async def test_customer_exit_by_a_code(live: LiveWorld) -> None:  # scenario 15
    await runs(live, 40, template=live.waits("exit 3"))
    await ends(live)
    await compare(live, "customer-exit-code")


async def test_customer_exit_137_by_its_own_word(live: LiveWorld) -> None:  # SC-009
    await runs(
        live, 40, template=live.waits("exit 137"), resources={"vcpus": 1, "memoryGiB": "0.0625"}
    )
    await ends(live)
    await compare(live, "customer-exit-137")


async def test_customer_exit_by_a_signal(live: LiveWorld) -> None:  # scenario 16
    await runs(live, 40, template=live.waits("kill -SEGV $$"))
    await ends(live)
    await compare(live, "customer-exit-signal")


memory_limited = pytest.mark.skipif(
    memory_groups.base() is None, reason="no writable cgroup v1 memory group on this machine"
)


@memory_limited
async def test_customer_exit_after_a_child_ran_out_of_memory(live: LiveWorld) -> None:  # SC-009
    program = f"{ASKS_FOR_400_MIB}; [ $? = 137 ] && exit 3; exit 99"
    await runs(
        live, 40, template=live.waits(program), resources={"vcpus": 1, "memoryGiB": "0.0625"}
    )
    await ends(live)
    await compare(live, "customer-exit-killed-child")


@memory_limited
async def test_out_of_memory(live: LiveWorld) -> None:  # scenario 17, SC-713
    await runs(
        live,
        40,
        template=live.waits(f"exec {ASKS_FOR_400_MIB}"),
        resources={"vcpus": 1, "memoryGiB": "0.0625"},
    )
    await ends(live)
    await compare(live, "out-of-memory")


async def test_deadline_exceeded(live: LiveWorld) -> None:
    await runs(live, 60, template=live.waits("exit 0"), limits={"maxDurationSeconds": 60})
    await live.finish()
    await compare(live, "deadline-exceeded")


async def test_start_failed(live: LiveWorld) -> None:
    await live.world.submit(template={"command": ["/no/such/program"]})
    await live.until_stage("Starting")
    await live.pass_time(20)
    await live.open_door()
    await live.finish()
    await compare(live, "start-failed")


async def test_a_failed_program_is_tried_again(live: LiveWorld) -> None:  # scenario 18
    await live.world.submit(
        template=live.waits("[ $NODUS_EPOCH = 2 ] || exit 1; exit 0"), restart={"maxRetries": 1}
    )
    await live.begin()
    await live.run(40)
    live.go()
    await live.finish(following=("0/2", "Pending"))
    await live.pass_time(15)  # 10 s and a fifth at most (SC-121)
    await live.finish("0/2", "Succeeded")
    await compare(live, "customer-exit-retried")


async def test_a_job_is_decided_for_its_siblings(live: LiveWorld) -> None:  # scenario 19, SC-802
    script = "[ $NODUS_SLOT = 1 ] || exit 42; exec sleep 600"
    rules = [{"exitCodes": [42], "action": "FailJob"}]
    await live.world.submit(
        template=live.waits(script),
        completions=2,
        stopGraceSeconds=10,
        restart={"maxRetries": 3, "rules": rules},
    )
    await live.until_stage("Starting", "1/1")
    await live.begin()
    await live.until_stage("Running", "1/1")
    await live.run(40)
    live.go()
    await live.finish(following=("1/1", "Stopped"), also=["1/1"])
    await compare(live, "released-job-decided")


async def test_fewer_are_wanted(live: LiveWorld) -> None:  # SC-802
    await live.world.submit(template=live.waits("exit 0"), completions=2)
    await live.until_stage("Starting", "1/1")
    await live.begin()
    await live.until_stage("Running", "1/1")
    await live.run(40)
    await live.ask("scale", count=1)
    await live.finish("1/1", "Stopped")
    await live.run(20)
    live.go()
    await live.finish(stage="Succeeded", following=("1/2", "Succeeded"), also=["1/2"])
    await compare(live, "released-scaled-down")


async def test_unplaceable(live: LiveWorld) -> None:  # scenario 2
    await live.world.submit(
        template={"command": ["true"]}, resources={"accelerators": ["h100"], "count": 1}
    )
    await live.until_stage("Failed")
    await compare(live, "unplaceable")


async def test_no_capacity(live: LiveWorld) -> None:  # scenario 3
    async with taken_slots(live, "first", "second"):
        await live.world.submit(template={"command": ["true"]})
        await live.until_waiting()
        await live.pass_time(3600)
        await live.until_stage("Failed")
        await compare(live, "no-capacity")


async def test_stopped_while_it_waits(live: LiveWorld) -> None:  # scenario 31
    async with taken_slots(live, "first", "second"):
        await live.world.submit(template={"command": ["true"]})
        await live.until_waiting()
        await live.pass_time(30)
        await live.ask("stop")
        await live.until_stage("Stopped")
        await compare(live, "stopped-queued")


async def test_stopped_before_its_program_started(live: LiveWorld) -> None:  # T17
    await live.world.submit(template=live.waits("exit 0"))
    await live.until_stage("Starting")
    await live.claimed()
    await live.pass_time(20)
    await live.ask("stop")
    await live.finish(stage="Stopped")
    await compare(live, "stopped-provisioning")


async def test_stopped_while_it_runs(live: LiveWorld) -> None:  # T17
    await live.world.submit(template={"command": ["sleep", "600"]})
    await live.begin()
    await live.run(40)
    await live.ask("stop")
    await live.finish(stage="Stopped")
    await compare(live, "stopped-running")


async def test_suspended_and_resumed(live: LiveWorld) -> None:  # scenario 33, SC-806
    await live.world.submit(**live.saves())
    await live.begin()
    await live.hanging()
    await live.run(60)
    await live.ask("suspend")
    await live.finish(stage="Stopped")
    await live.close_door()
    await live.pass_time(3600)
    await live.ask("resume")
    await live.until_stage("Starting", "0/2")
    await live.pass_time(15)
    await live.open_door()
    await live.finish("0/2", "Succeeded")
    await compare(live, "suspended-resumed")


async def test_the_cost_limit_is_reached(live: LiveWorld) -> None:  # scenario 35, SC-622
    await live.world.submit(
        template={"command": ["sleep", "600"]},
        limits={"maxCostUSD": "2.00"},
        estimate={"hours": "0.01"},
        stopGraceSeconds=10,
    )
    await live.begin()
    for _ in range(30):
        await live.run(10)
        await live.looked()
        if (await live.attempt())["status"]["phase"] != "Running":
            break
    await live.finish(stage="Stopped")
    (one,) = await live.served()
    assert Decimal(one["status"]["actual"]["costUSD"]) <= Decimal(2)
    await compare(live, "max-cost-reached")


async def test_the_machine_is_killed_under_a_program(live: LiveWorld) -> None:  # SC-140, T15
    await live.world.submit(**live.saves())
    await live.begin()
    await live.hanging()
    await live.run(60)
    await live.close_door()
    await live.kill_machine()
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", "Succeeded")
    await compare(live, "node-lost-running")


async def test_the_machine_is_killed_before_the_start(live: LiveWorld) -> None:  # T12
    await live.world.submit(template={"command": ["true"]})
    await live.until_stage("Starting")
    await live.pass_time(20)
    await live.kill_machine()
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", "Succeeded")
    await compare(live, "node-lost-starting")


async def test_a_replacement_is_lost_before_it_starts(live: LiveWorld) -> None:  # scenario 27
    await live.world.submit(**live.saves())
    await live.begin()
    await live.hanging()
    await live.run(60)
    await live.close_door()
    await live.kill_machine()
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await live.pass_time(10)
    await live.kill_machine()
    await live.finish("0/2", "Lost", following=("0/3", "Pending"))
    await live.pass_time(60)
    await live.until_stage("Starting", "0/3")
    await live.pass_time(15)
    await live.open_door()
    await live.finish("0/3", "Succeeded")
    await compare(live, "node-lost-twice")


async def test_the_runner_falls_silent(live: LiveWorld) -> None:  # scenario 24
    await live.world.submit(**live.saves())
    await live.begin()
    await live.hanging()
    await live.run(60)
    await live.freeze()
    await live.close_door()
    await live.pass_time(601)
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", "Succeeded")
    await compare(live, "heartbeat-loss")


async def test_the_runner_never_registers(live: LiveWorld) -> None:  # scenario 11
    await live.world.submit(template={"command": ["true"]})
    await live.until_stage("Starting")
    await live.freeze()
    await live.pass_time(600)
    await live.finish(stage="Lost", following=("0/2", "Pending"))
    await live.pass_time(60)  # the class rests after its failure (SC-360)
    await live.until_stage("Starting", "0/2")
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", "Succeeded")
    await compare(live, "startup-timeout")


@pytest.mark.parametrize("live", [{"slots": 1}], indirect=True)
async def test_the_machine_lacks_the_disk_it_promised(live: LiveWorld) -> None:  # scenario 12
    """A slot has its part of the disk, of which others have taken some."""
    disk = shutil.disk_usage(live.folder)
    asked = disk.total // GIB
    if disk.free >= asked * GIB:
        pytest.skip("nothing of this disk is taken, so that no promise of it can be broken")
    await live.world.submit(
        template={"command": ["true"]},
        resources={"vcpus": 1, "diskGiB": str(asked)},
        restart={"maxReplacements": 1},
    )
    await live.until_stage("Starting")
    await live.pass_time(20)
    await live.open_door()
    await live.finish(stage="Lost", following=("0/2", "Pending"))
    await live.pass_time(60)  # its only offer rests (SC-360)
    await live.finish("0/2", "Lost")
    await compare(live, "readiness-failed")


async def test_the_checkpoint_is_spoilt(live: LiveWorld) -> None:  # SC-141
    await live.world.submit(**live.saves())
    await live.begin()
    await live.hanging()
    await live.run(60)
    last = max(await live.world.rows(t.checkpoints), key=lambda row: int(row["seq"]))
    spoil(Path(last["uri"].removeprefix("file://")))
    await live.close_door()
    await live.kill_machine()
    await live.finish(stage="Lost", following=("0/2", "Starting"))
    await live.pass_time(10)
    await live.open_door()
    await live.finish("0/2", following=("0/3", "Pending"))
    await live.pass_time(60)
    await live.finish("0/3", "Succeeded")
    await compare(live, "checkpoint-unavailable")


async def test_the_runner_cannot_do_its_part(live: LiveWorld) -> None:
    """The folder of the program's channel cannot be made: a file is in its place."""
    await live.world.submit(template={"command": ["true"]})
    await live.until_stage("Starting")
    (await live.machine()).joinpath(CHANNEL).write_text("in the way")
    await live.pass_time(20)
    await live.open_door()
    await live.finish(following=("0/2", "Pending"))
    await live.pass_time(60)
    await live.finish("0/2", "Succeeded")
    await compare(live, "internal-error")


def spoil(checkpoint: Path) -> None:
    (checkpoint / "sum.json").write_text("{}")


def test_every_reason_and_trigger_is_shown_or_accounted_for() -> None:  # SC-010, SC-012
    shown: set[str] = set()
    for path in BODIES.glob("*.json"):
        for one in json.loads(path.read_text()):
            status = one["status"]
            shown |= {status.get("reason"), status.get("interruption", {}).get("trigger")}
    every = {*(reason.value for reason in Reason), *(trigger.value for trigger in Trigger)}

    assert every - shown == set(NOT_HERE)
    assert shown - {None} <= every


def test_every_body_is_compared_by_a_test() -> None:
    tests = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    compared = [
        name for test in tests for name in re.findall(r'compare\(live, "([a-z0-9-]+)"', test)
    ]

    assert sorted(compared) == sorted(path.stem for path in BODIES.glob("*.json"))
