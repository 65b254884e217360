"""Losses made on purpose: asked for, made once, told as drills, and counted nowhere (SC-630)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import at_epoch, lose, run_gang, stages, stop_by_order
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import (
    Ambiguous,
    FaultInjection,
    MachineCondition,
    SupplierCaps,
)

CAPABLE = SupplierCaps(sync_delete=True, inject=True, notices=True)
NOTHING_COUNTED = {
    "retries_used": 0,
    "replacements": 0,
    "backoff_k": 0,
    "nodus_failures": 0,
    "lost_in_a_row": 0,
    "lost_candidates": [],
}


@pytest.fixture
def world(world: World) -> World:
    world.fake.caps = CAPABLE
    return world


async def name_of(world: World, which: str) -> str:
    return str((await world.documents())[which]["metadata"]["name"])


async def drill(world: World, trigger: str, which: str = "0/1", **body: Any) -> int:
    """Ask for a drill, as the command line does."""
    name = await name_of(world, which)
    return await world.ask("drill", name, kind=None, trigger=trigger, **body)


async def answer(world: World, command: int) -> tuple[str, str | None]:
    (row,) = [one for one in await world.rows(t.commands) if one["no"] == command]
    return row["outcome"], row["message"]


async def drill_row(world: World) -> tuple[str | None, Any]:
    """Return what is written of the first Attempt's drill."""
    row = min(await world.rows(t.attempt_work), key=lambda one: int(one["attempt"]))
    return row["drill"], row["drill_at"]


def kinds(world: World) -> list[str]:
    return [fault.kind for _, fault in world.fake.injections]


async def assert_counted_nowhere(world: World) -> None:
    (slot,) = await world.rows(t.slots)
    assert {name: slot[name] for name in NOTHING_COUNTED} == NOTHING_COUNTED
    for stats in await world.rows(t.offering_stats):  # nor against the candidate
        assert (stats["failures_in_row"], stats["backoff_until"]) == (0, None)


async def test_a_node_loss_drill_is_lost_like_a_real_one(world: World) -> None:  # scenario 41
    """Scenario 41. Given a running Attempt, when it is drilled with node-loss, then Lost
    NodeLost, trigger Drill; Boot, lost time and Teardown covered; λ unchanged."""
    runner = await world.run(checkpoint={"restartable": True})
    await world.settle(20)
    await runner.report(
        "checkpoint",
        seq=1,
        bytes=4,
        uri="file:///1",
        sha256="0" * 64,
        cursor={"completed": 1, "total": 4},
    )
    await world.settle(10)
    command = await drill(world, "node-loss")
    await world.settle()
    assert await answer(world, command) == ("Applied", None)
    handle = world.fake.machines[runner.intent.key].handle
    assert world.fake.injections == [(handle, FaultInjection(kind="node-loss"))]
    assert await world.stage() == "Running"  # until the supplier's word

    await runner.report("heartbeat")
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)

    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "NodeLost")
    assert (first["interruption"]["trigger"], first["interruption"]["lostSeconds"]) == ("Drill", 10)
    segments = first["actual"]["segments"]
    assert segments["coveredByNodus"] == ["Boot", "Running", "Teardown"]  # SC-520
    assert segments["bootUSD"] == "0.000000"
    assert segments["runningUSD"] == "0.000334"  # 20 s at 0.06: up to the checkpoint
    second = (await world.documents())["0/2"]
    assert second["spec"]["restoreFrom"]["seq"] == 1
    assert second["status"]["progress"]["stage"] == "Starting"  # at once: SC-121 waits for none
    await assert_counted_nowhere(world)

    runner = await world.start("0/2")
    second = await world.status("0/2")
    assert second["timings"]["restoreSeconds"] == second["timings"]["bootSeconds"]
    assert (await world.status("0/1"))["interruption"]["recoverySeconds"] == 7
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    assert (await world.workload())["state"] == "Succeeded"
    assert len(world.fake.injections) == 1
    await check_quiet(world)


async def test_a_drill_covers_the_teardown(world: World) -> None:  # SC-520
    runner = await world.run()
    await world.settle(58)
    await drill(world, "node-loss")
    await world.settle()
    world.fake.deaf_deletes = 1
    await runner.report("heartbeat")
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    await world.settle(9)
    status = await world.status("0/1")
    assert status["timings"]["teardownSeconds"] == 5 + 9
    assert status["actual"]["costUSD"] == "0.000000"  # all of it was lost
    covered = status["actual"]["segments"]["coveredByNodus"]
    assert covered == ["Boot", "Running", "Teardown"]
    await check(world)


async def test_a_node_loss_drill_in_starting_costs_nothing(world: World) -> None:  # SC-012
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await world.settle(30)
    await drill(world, "node-loss")
    await world.settle()
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == ("NodeLost", "Drill")
    assert status["actual"]["costUSD"] == "0.000000"
    assert await world.stage("0/2") == "Starting"
    await assert_counted_nowhere(world)


async def test_a_preemption_drill_drains_with_its_notice(world: World) -> None:  # SC-013
    runner = await world.run(checkpoint={"restartable": True})
    await world.settle(20)
    command = await drill(world, "preemption", noticeSeconds=10)
    await world.settle()
    assert await answer(world, command) == ("Applied", None)
    assert await world.stage() == "Running"
    ((handle, order),) = world.fake.signals
    assert (order.kind, order.grace) == ("stop", timedelta(seconds=10))  # capped by the notice
    assert world.fake.injections == [
        (handle, FaultInjection(kind="preemption", notice=timedelta(seconds=10)))
    ]
    await world.settle(4)
    sha = "0" * 64
    await runner.report("checkpoint", seq=1, bytes=4, uri="file:///1", sha256=sha)
    await world.settle(1)
    await runner.report("exited", exitCode=143, signal=None, oom=False, stopAgeMs=5000)
    await world.settle()

    status = await world.status("0/1")
    assert (status["phase"], status["reason"], status["exitCode"]) == ("Failed", "Preempted", 143)
    assert status["interruption"]["trigger"] == "Drill"
    assert status["interruption"]["lostSeconds"] == 1
    assert status["actual"]["segments"]["runningUSD"] == "0.000400"  # 24 s of 25
    assert (await world.documents())["0/2"]["spec"]["restoreFrom"]["seq"] == 1
    await assert_counted_nowhere(world)
    await check(world)


async def test_a_preemption_drill_without_an_exit_ends_by_the_reclaim(world: World) -> None:
    runner = await world.run()
    await world.settle(20)
    await drill(world, "preemption", noticeSeconds=10)
    await world.settle()
    await world.settle(10)
    world.fake.become(
        runner.intent.key,
        condition=MachineCondition.FAILED,
        reclaimed=True,
        ended_at=world.clock.now(),
    )
    await world.settle(5)
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == ("Preempted", "Drill")
    assert status["interruption"]["lostSeconds"] == 30
    await assert_counted_nowhere(world)


async def test_a_preemption_drill_without_a_notice(world: World) -> None:  # SC-012
    runner = await world.run()
    await drill(world, "preemption", noticeSeconds=0)
    await world.settle()
    assert world.fake.signals == []
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED, reclaimed=True)
    await world.settle(5)
    status = await world.status("0/1")  # on demand, and yet the reason is the simulated loss's
    assert (status["reason"], status["interruption"]["trigger"]) == ("Preempted", "Drill")


async def test_a_heartbeat_drill_waits_as_long_as_a_real_silence(world: World) -> None:  # SC-614
    runner = await world.run()
    await world.settle(20)
    await runner.report("heartbeat")
    await world.settle()
    last = world.clock.now()
    await drill(world, "heartbeat")
    await world.settle()
    assert kinds(world) == ["heartbeat"]
    for _ in range(19):
        await world.settle(30)
    await world.settle(29)
    assert await world.stage() == "Running"
    await world.settle(2)
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == ("NodeLost", "Drill")
    assert status["timings"]["finishedTime"] == f"{last:%Y-%m-%dT%H:%M:%SZ}"  # SC-015
    assert len(world.fake.deleted) == 1
    await assert_counted_nowhere(world)
    await check(world)


async def test_a_silence_stays_the_drills_through_a_time_without_a_leader(world: World) -> None:
    await world.run()
    await drill(world, "heartbeat")
    for _ in range(19):
        await world.settle(30)
    await world.clock.advance(100)
    await world.lead("next")  # SC-614: silence counts from here
    for _ in range(20):
        await world.settle(30)
    assert await world.stage() == "Running"
    await world.settle(1)
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == ("NodeLost", "Drill")
    await assert_counted_nowhere(world)


async def test_a_runner_that_speaks_again_ends_its_drill(world: World) -> None:  # scenario 25
    runner = await world.run()
    await drill(world, "heartbeat")
    for _ in range(5):
        await world.settle(30)
    assert (await drill_row(world))[0] == "heartbeat//made"
    await runner.report("heartbeat")
    await world.settle(1)
    assert await drill_row(world) == (None, None)
    assert await world.stage() == "Running"


async def test_a_readiness_drill_fails_the_checks(world: World) -> None:  # SC-012
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={}, pullMs=0)
    await world.settle(1)
    command = await drill(world, "readiness")
    await world.settle()
    assert await answer(world, command) == ("Applied", None)
    assert kinds(world) == ["readiness"]
    await runner.report("registered", checks={"failed": ["unfit"]}, pullMs=0)
    await world.settle()
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == ("ReadinessFailed", "Drill")
    assert status["actual"]["costUSD"] == "0.000000"
    assert await world.stage("0/2") == "Starting"
    await assert_counted_nowhere(world)


async def test_a_readiness_drill_that_came_too_late_is_void(world: World) -> None:
    await world.submit()
    await world.settle()
    await drill(world, "readiness")
    await world.settle()
    runner = await world.start()
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)  # a real loss, of a program that runs
    status = await world.status("0/1")
    assert status["interruption"]["trigger"] == "ProviderEvidence"


async def test_a_loss_after_the_drill_is_void_is_a_real_one(world: World) -> None:  # SC-630
    runner = await world.run()
    await drill(world, "node-loss")
    await world.settle()
    text, since = await drill_row(world)
    assert (text, since) == ("node-loss//made", world.clock.now())
    for _ in range(4):
        await world.settle(30)
        await runner.report("heartbeat")
    await world.settle()
    assert await drill_row(world) == (None, None)
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    status = await world.status("0/1")
    assert status["interruption"]["trigger"] == "ProviderEvidence"
    (slot,) = await world.rows(t.slots)
    assert slot["replacements"] == 1


async def test_an_exit_before_the_loss_keeps_its_outcome(world: World) -> None:  # SC-014
    runner = await world.run()
    await drill(world, "preemption", noticeSeconds=30)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status("0/1")
    assert status["phase"] == "Succeeded"
    assert "interruption" not in status
    await check_quiet(world)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "heartbeat in Starting": ("heartbeat", {}, "it is Starting: a heartbeat drill is for one that"),
    "unknown": ("flood", {}, "is no trigger of a drill: use one of preemption, node-loss"),
    "missing": (None, {}, "is no trigger of a drill"),
    "notice of another": ("node-loss", {"noticeSeconds": 5}, "comes without a notice"),
    "long notice": ("preemption", {"noticeSeconds": 3601}, "0 s to 1 h"),
    "no number": ("preemption", {"noticeSeconds": "soon"}, "whole seconds"),
    "half a second": ("preemption", {"noticeSeconds": 0.5}, "whole seconds"),
    "no notice that a row could hold": ("preemption", {"noticeSeconds": 10**30}, "0 s to 1 h"),
    "a list for a trigger": (["preemption"], {}, "is no trigger of a drill"),
    "negative notice": ("preemption", {"noticeSeconds": -1}, "0 s to 1 h"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_drill_that_cannot_be_is_refused(world: World, case: str) -> None:  # SC-012
    trigger, body, said = REFUSED[case]
    await world.submit()
    await world.settle()
    command = await world.ask(
        "drill", await name_of(world, "0/1"), kind=None, trigger=trigger, **body
    )
    await world.settle()
    outcome, message = await answer(world, command)
    assert outcome == "Refused"
    assert said in (message or "")
    assert (await drill_row(world), world.fake.injections) == ((None, None), [])


async def test_a_drill_of_nothing_is_not_found(world: World) -> None:
    command = await world.ask("drill", "nothing-0-e1-aaaaa", kind=None, trigger="node-loss")
    await world.settle()
    assert await answer(world, command) == (
        "NotFound",
        "there is no such Attempt in project default",
    )


async def test_a_drill_is_refused_before_and_after_the_machine(world: World) -> None:
    world.fake.offered = [an_offer(available=0)]
    await world.submit()
    await world.settle()
    early = await drill(world, "node-loss")
    await world.settle()
    world.fake.offered = None
    await world.settle(60)
    runner = await world.start()
    readiness = await drill(world, "readiness")
    await world.settle()
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    late = await drill(world, "node-loss")
    await world.settle()
    answers = [await answer(world, one) for one in (early, readiness, late)]
    assert [outcome for outcome, _ in answers] == ["Refused"] * 3
    said = [message or "" for _, message in answers]
    assert "it is Pending" in said[0]
    assert "readiness is checked before" in said[1]
    assert "it has ended (Succeeded)" in said[2]
    assert world.fake.injections == []


async def test_one_drill_at_a_time(world: World) -> None:
    await world.run()
    await drill(world, "heartbeat")
    second = await drill(world, "node-loss")
    await world.settle()
    outcome, message = await answer(world, second)
    assert outcome == "Refused"
    assert "a heartbeat drill of it is under way since 00:00:02 UTC" in (message or "")


async def test_a_drill_of_what_stops_is_refused(world: World) -> None:
    await world.run()
    await world.ask("stop")
    await world.settle()
    command = await drill(world, "node-loss")
    await world.settle()
    outcome, message = await answer(world, command)
    assert outcome == "Refused"
    assert "being stopped already" in (message or "")


@pytest.mark.parametrize(
    ("missing", "body", "said"),
    [
        ("inject", {}, "cannot make faults on purpose"),
        ("notices", {"noticeSeconds": 30}, "announces no reclaims"),
    ],
)
async def test_a_supplier_that_cannot_is_not_asked(
    world: World, missing: str, body: dict[str, Any], said: str
) -> None:
    await world.run()
    world.fake.caps = replace(CAPABLE, **{missing: False})  # type: ignore[arg-type]  # flags
    command = await drill(world, "preemption", **body)
    await world.settle()
    outcome, message = await answer(world, command)
    assert (outcome, said in (message or "")) == ("Refused", True)
    assert world.fake.injections == []


# crashes, and a supplier that answers badly --------------------------------------------------


async def test_a_crash_before_the_fault_loses_no_drill(world: World) -> None:  # SC-605, SC-607
    runner = await world.run()
    await drill(world, "node-loss")
    passes = world.passes
    assert passes is not None
    await passes.step("intake")
    assert (await drill_row(world))[0] == "node-loss//"  # written, and nothing is called yet
    assert world.fake.injections == []

    await world.lead("next")
    await world.settle()
    assert kinds(world) == ["node-loss"]
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    assert (await world.status("0/1"))["interruption"]["trigger"] == "Drill"


async def test_a_fault_repeated_after_a_crash_names_the_same_machine(world: World) -> None:
    runner = await world.run()
    handle = world.fake.machines[runner.intent.key].handle
    await drill(world, "node-loss")
    passes = world.passes
    assert passes is not None
    for step in ("intake", "drill"):
        await passes.step(step)
    await passes.loop.calls.settled()
    assert [one for one, _ in world.fake.injections] == [handle]  # and nobody takes the answer up

    await world.lead("next")
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle()
    await world.settle(5)
    assert {one for one, _ in world.fake.injections} == {handle}
    assert (await world.status("0/1"))["interruption"]["trigger"] == "Drill"
    count = len(world.fake.injections)
    await world.start("0/2")
    await world.settle(30)
    assert len(world.fake.injections) == count  # the successor is left alone
    assert await world.stage("0/2") == "Running"


async def test_a_fault_that_was_asked_for_once_is_not_made_again(world: World) -> None:
    await world.run()
    await drill(world, "heartbeat")
    await world.settle()
    await world.lead("next")
    for _ in range(3):
        await world.settle(10)
    assert kinds(world) == ["heartbeat"]


@pytest.mark.parametrize("when", ["before_inject", "after_inject"])
async def test_a_call_that_failed_is_repeated(world: World, when: str) -> None:  # SC-617
    await world.run()
    setattr(world.fake, when, Ambiguous("no answer"))
    await drill(world, "preemption", noticeSeconds=30)
    await world.settle()
    noticed = when == "after_inject"  # the notice came, and says as much as the lost answer
    assert (await drill_row(world))[0] == f"preemption/30/{'made' if noticed else ''}"
    await world.settle(2)
    assert (await drill_row(world))[0] == "preemption/30/made"
    assert set(kinds(world)) == {"preemption"}
    assert len(world.fake.announced) == 1


async def test_a_stop_before_the_fault_takes_the_drill_back(world: World) -> None:  # SC-014
    runner = await world.run()
    world.fake.before_inject = Ambiguous("no answer")
    await drill(world, "node-loss")
    await world.settle()
    await world.ask("stop")
    await world.settle(2)
    assert world.fake.injections == []
    await runner.report("exited", exitCode=143, signal=None, oom=False, stopAgeMs=1)
    await world.settle()
    assert (await world.status("0/1"))["interruption"]["trigger"] == "User"


async def test_a_time_without_a_leader_does_not_make_a_drill_void(world: World) -> None:  # SC-614
    runner = await world.run()
    await drill(world, "node-loss")
    await world.settle()
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.clock.advance(1000)
    await world.lead("next")
    await world.settle()
    await world.settle(5)
    assert (await world.status("0/1"))["interruption"]["trigger"] == "Drill"


async def test_a_drill_of_a_rank_hits_its_machine_alone(world: World) -> None:  # SC-134, SC-630
    runners = await run_gang(world, 2)
    handle = world.fake.machines[runners[1].intent.key].handle
    command = await drill(world, "node-loss", "1/1")
    await world.settle()
    assert await answer(world, command) == ("Applied", None)
    assert world.fake.injections == [(handle, FaultInjection(kind="node-loss"))]
    asked = {row["attempt"]: row["drill"] for row in await world.rows(t.attempt_work)}
    assert [asked[no] for no in sorted(asked)] == [None, "node-loss//made"]

    lose(world, runners[1])
    await world.settle()
    await stop_by_order(world, runners[0])
    assert await stages(world, 1) == ["Stopped Released", "Lost NodeLost"]
    ends = [(await world.status(which))["interruption"]["trigger"] for which in at_epoch(1, 2)]
    assert ends == ["Drill", "Drill"]
    for slot in await world.rows(t.slots):
        assert {name: slot[name] for name in NOTHING_COUNTED} == NOTHING_COUNTED
    await check(world)


async def test_a_drill_outside_its_project_is_not_found(world: World) -> None:
    await world.run()
    async with world.database.transaction() as connection:
        row = {"name": "other", "organization": "default"}
        await connection.execute(t.projects.insert().values(row))
    name = await name_of(world, "0/1")
    async with world.database.transaction() as connection:
        await connection.execute(
            t.commands.insert().values(
                key="elsewhere",
                project="other",
                verb="drill",
                target=name,
                body={"trigger": "node-loss"},
                asked_by="test",
            )
        )
    await world.settle()
    outcomes = {row["key"]: row["outcome"] for row in await world.rows(t.commands)}
    assert outcomes["elsewhere"] == "NotFound"
    assert world.fake.injections == []
