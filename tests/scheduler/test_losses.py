"""Capacity that is lost: evidence, silence, and the epoch that takes over."""

from datetime import timedelta

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import Ambiguous, ExitRecord, MachineCondition


async def test_a_machine_that_failed_is_replaced(world: World) -> None:  # T15, SC-120 rule 3
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.clock.advance(60)
    await runner.report("heartbeat")
    await world.settle(20)
    world.fake.become(
        runner.intent.key, condition=MachineCondition.FAILED, ended_at=world.clock.now()
    )
    await world.settle(5)

    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "NodeLost")
    assert first["interruption"] == {
        "trigger": "ProviderEvidence",
        "time": "2026-01-01T00:01:22Z",
        "lostSeconds": 80,
    }
    assert first["actual"]["segments"]["runningUSD"] == "0.001334"
    assert await world.stage("0/2") == "Starting"  # SC-121: the first loss waits 0 s
    (slot,) = await world.rows(t.slots)
    assert (slot["replacements"], slot["retries_used"]) == (1, 0)
    assert [one["offering"] for one in slot["lost_candidates"]] == ["cpu-1c-4g-other"]

    runner = await world.start("0/2")
    first = await world.status("0/1")
    assert first["interruption"]["recoverySeconds"] == 7  # SC-016
    second = await world.status("0/2")
    assert second["timings"]["restoreSeconds"] == second["timings"]["bootSeconds"]  # SC-140
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


@pytest.mark.parametrize("code", [0, 143])
async def test_a_program_that_its_host_stopped_is_replaced(
    world: World, code: int
) -> None:  # T13 to T15, SC-641: the host shuts down, and the program saves and ends in good order
    runner = await world.run()
    await runner.report("exited", exitCode=code, signal=None, oom=False, stopAgeMs=200)
    await world.settle()

    first = await world.status("0/1")
    assert (first["phase"], first["reason"], first["exitCode"]) == ("Failed", "NodeLost", code)
    assert first["interruption"]["trigger"] == "ProviderEvidence"
    assert first["actual"]["segments"].get("coveredByNodus", []) in ([], ["Teardown"])
    assert await world.stage("0/2") == "Starting"
    (slot,) = await world.rows(t.slots)
    assert (slot["replacements"], slot["retries_used"]) == (1, 0)
    await check(world)


async def test_a_machine_that_its_host_stopped_before_the_start_is_replaced(
    world: World,
) -> None:  # T12
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("exited", exitCode=None, signal=None, error=None, stopAgeMs=0)
    await world.settle()

    first = await world.status("0/1")
    assert (first["reason"], first["interruption"]["trigger"]) == ("NodeLost", "ProviderEvidence")
    assert first["actual"]["costUSD"] == "0.000000"
    assert await world.stage("0/2") == "Starting"
    await check(world)


async def test_a_reclaimed_spot_machine_is_preempted(world: World) -> None:  # scenario 21, SC-012
    world.fake.offered = [an_offer(spot="0.02")]
    await world.submit(placement={"interruptible": "Require"})
    await world.settle()
    runner = await world.start()
    await world.clock.advance(58)
    await runner.report("heartbeat")
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED, reclaimed=True)
    await world.settle(5)
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "Preempted")
    assert first["placement"]["interruptible"] is True
    assert first["interruption"]["trigger"] == "ProviderEvidence"
    assert first["actual"]["segments"]["runningUSD"] == "0.000322"  # 58 s at 0.02
    await check(world)


@pytest.mark.parametrize(
    ("in_a_row", "policy", "interruptible"),
    [(4, "Allow", True), (5, "Allow", False), (5, "Require", True)],
)
async def test_a_slot_that_spot_gets_nowhere_goes_on_demand(
    world: World, in_a_row: int, policy: str, interruptible: bool
) -> None:  # SC-122
    world.fake.offered = [an_offer(spot="0.02", available=0)]
    await world.submit(placement={"interruptible": policy})
    await world.settle()
    assert await world.stage() == "Pending"
    async with world.database.transaction() as connection:
        await connection.execute(sa.update(t.slots).values(lost_in_a_row=in_a_row))
    world.fake.offered = [an_offer(spot="0.02")]
    await world.settle(60)

    assert (await world.status())["placement"]["interruptible"] is interruptible


async def test_a_machine_that_died_while_nobody_looked_ends_at_its_last_sign_of_life(
    world: World,
) -> None:  # SC-008, SC-015: the supplier does not know when
    runner = await world.run()
    await world.clock.advance(60)
    await runner.report("heartbeat")
    await world.settle()
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.clock.advance(3600)
    await world.lead("next")
    await world.settle()

    lost = await world.status("0/1")
    assert (lost["reason"], lost["interruption"]["trigger"]) == ("NodeLost", "ProviderEvidence")
    assert lost["interruption"]["lostSeconds"] == 60
    assert lost["actual"]["segments"]["runningUSD"] == "0.001000"  # 60 s at 0.06
    await check(world)


async def test_a_replacement_lost_before_its_start_costs_nothing(
    world: World,
) -> None:  # scenario 27
    """Scenario 27. Given a replacement, when it is lost before its start, then its Restore is
    covered; epoch 3; recoverySeconds of epoch 1 is set by epoch 3's start."""
    await world.submit()
    await world.settle()
    runner = await world.start("0/1")
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    second = await world.runner("0/2")
    await second.report("registered", checks={})
    await world.settle(30)
    world.fake.become(second.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    lost = await world.status("0/2")
    assert lost["reason"] == "NodeLost"
    assert lost["actual"]["costUSD"] == "0.000000"
    assert lost["actual"]["segments"]["coveredByNodus"] == ["Restore"]
    assert "recoverySeconds" not in (await world.status("0/1"))["interruption"]
    await world.settle(25)  # SC-121: the second loss within ten minutes waits 20 s
    await world.start("0/3")
    recovered = [(await world.status(f"0/{k}"))["interruption"] for k in (1, 2)]
    assert [one["recoverySeconds"] for one in recovered] == [5 + 30 + 5 + 25 + 2, 25 + 2]  # SC-016
    await check(world)


async def test_a_machine_missing_once_is_not_lost(world: World) -> None:  # SC-612, scenario 39
    await world.submit()
    await world.settle()
    runner = await world.start()
    machines, world.fake.machines = world.fake.machines, {}
    await world.settle(5)
    await world.settle(5)
    world.fake.machines = machines
    await world.settle(5)
    assert await world.stage() == "Running"

    world.fake.vanish(runner.intent.key)
    for _ in range(3):
        assert await world.stage() == "Running"
        await world.settle(5)
    await world.settle(0)
    assert (await world.status())["reason"] == "NodeLost"


async def test_an_answer_without_any_machine_is_an_outage(world: World) -> None:  # scenario 39
    """Scenario 39. Given a supplier whose list returns an empty page, when machines are
    observed, then nobody is declared lost, nothing is proven."""
    await world.submit(completions=2)
    await world.settle()
    await world.start("0/1")
    await world.start("1/1")
    machines, world.fake.machines = world.fake.machines, {}
    for _ in range(4):
        await world.settle(5)
    world.fake.machines = machines
    await world.settle(5)
    stages = [one["status"]["progress"]["stage"] for one in await world.all_documents()]
    assert stages == ["Running", "Running"]


async def test_a_new_leader_asks_before_it_gives_up_a_silent_machine(
    world: World,
) -> None:  # SC-614
    await world.submit()
    await world.settle()
    await world.start()
    for _ in range(5):
        await world.settle(25)  # silent for 125 s, and the supplier vouches for it
    passes = await world.lead("next")  # a short gap: nobody's silence is forgiven
    await passes.step("deadlines")
    assert await world.stage() == "Running"
    await world.settle()
    assert await world.stage() == "Running"

    async def away(handles: object) -> object:
        raise Ambiguous("no answer")

    world.fake.observe = away  # type: ignore[method-assign, assignment]  # the supplier's API is down
    await world.settle(31)
    assert (await world.status())["reason"] == "NodeLost"


async def test_starting_is_counted_from_the_grant(world: World) -> None:  # SC-613
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    (key,) = world.fake.machines
    begun = world.clock.now()
    await world.settle(290)  # it ran for long before we could see it
    world.fake.become(key, condition=MachineCondition.RUNNING, billing_start=begun)
    await world.settle(5)
    status = await world.status()
    assert status["timings"]["billingStartTime"] == "2026-01-01T00:00:00Z"  # SC-503
    await world.settle(599)
    assert await world.stage() == "Starting"
    await world.settle(1)
    assert (await world.status())["reason"] == "StartupTimeout"


async def test_a_machine_that_dies_before_its_program_costs_nothing(world: World) -> None:
    await world.submit()  # T12, SC-520
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await world.settle(30)
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    status = await world.status("0/1")
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert status["interruption"]["lostSeconds"] == 0
    assert status["actual"]["costUSD"] == "0.000000"
    assert status["actual"]["segments"]["coveredByNodus"] == ["Boot"]
    await check(world)


async def test_the_end_is_read_from_the_machine_if_no_report_came(world: World) -> None:
    await world.submit()  # SC-644: T10, then the end, in one transaction
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await world.settle(60)
    assert await world.stage() == "Starting"
    world.fake.become(
        runner.intent.key,
        condition=MachineCondition.GONE,
        exit=ExitRecord(
            at=world.clock.now(), exit_code=0, signal=None, started_age=50.0, exit_age=10.0
        ),
    )
    await world.settle(0)
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["timings"]["commandStartedTime"] == "2026-01-01T00:00:10Z"
    assert status["timings"]["finishedTime"] == "2026-01-01T00:00:50Z"
    await check_quiet(world)


async def test_queued_reports_come_before_evidence(world: World) -> None:  # SC-014, SC-606
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.clock.advance(5)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    passes = world.passes
    assert passes is not None
    await passes.step("observe")
    await passes.loop.calls.settled()
    await passes.step("observe")
    assert await world.stage() == "Running"
    await world.settle()
    assert (await world.status())["phase"] == "Succeeded"


async def test_a_machine_that_never_registers_is_given_up(world: World) -> None:  # scenario 11
    await world.submit()
    await world.settle()
    for _ in range(20):
        await world.settle(30)
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "StartupTimeout")
    assert first["interruption"]["trigger"] == "StartupTimeout"
    assert first["actual"]["costUSD"] == "0.000000"
    assert await world.stage("0/2") == "Pending"  # SC-360: its offer rests
    (stats,) = await world.rows(t.offering_stats)
    assert stats["failures_in_row"] == 1
    await world.settle(36)  # 30 s, at most 20 % more
    assert await world.stage("0/2") == "Starting"
    await check(world)


async def test_failed_readiness_checks_cost_nothing(world: World) -> None:  # scenario 12
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={"failed": ["7 of 8 accelerators"]})
    await world.settle(1)
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "ReadinessFailed")
    assert first["actual"]["costUSD"] == "0.000000"
    (stats,) = await world.rows(t.offering_stats)
    assert stats["failures_in_row"] == 1  # SC-360


async def test_checks_that_fail_right_after_a_question_to_start_end_it(world: World) -> None:
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("canStart")  # the scheduler was away: it hears all of it at once
    await runner.report("registered", checks={"failed": ["7 of 8 accelerators"]})
    await world.settle(1)
    assert (await world.status("0/1"))["reason"] == "ReadinessFailed"
    lease = min(await world.rows(t.leases), key=lambda row: int(row["machine"]))
    assert lease["won"] is False  # P-05: nobody was told to start
    await world.settle(60)  # the class rests after its failure (SC-360)
    assert await world.stage("0/2") == "Starting"
    await check(world)


async def test_silence_is_borne_while_the_supplier_vouches(
    world: World,
) -> None:  # scenarios 24, 25
    """Scenarios 24 and 25. Given heartbeats that stop while the supplier says running, when
    they return after 90 s, or stay away for 600 s, then nothing happens; or HeartbeatLoss, the
    machine deleted, charged to the last beat."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    for _ in range(3):
        await world.settle(30)
    assert (await world.rows(t.attempt_work))[0]["suspect_since"] is not None
    await runner.report("heartbeat")
    await world.settle(1)
    assert (await world.rows(t.attempt_work))[0]["suspect_since"] is None

    last = world.clock.now() - timedelta(seconds=1)
    for _ in range(19):
        await world.settle(30)
    await world.settle(29)
    assert await world.stage() == "Running"
    await world.settle(1)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert status["interruption"]["trigger"] == "HeartbeatLoss"
    assert status["timings"]["finishedTime"] == f"{last:%Y-%m-%dT%H:%M:%SZ}"  # SC-015
    assert status["actual"]["segments"]["coveredByNodus"] == ["Teardown"]
    assert len(world.fake.deleted) == 1
    await check(world)


async def test_the_longest_run_is_bounded(world: World) -> None:  # DeadlineExceeded
    await world.submit(limits={"maxDurationSeconds": 60})
    await world.settle()
    runner = await world.start()
    await world.settle(58)
    assert await world.stage() == "Running"
    await runner.report("heartbeat")
    await world.settle(2)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert (await world.workload())["outcome"] == "DeadlineExceeded"
    await check_quiet(world)


@pytest.mark.parametrize("after", [{"maxDurationSeconds": 90}, {}])
async def test_a_longer_run_may_be_allowed_while_it_runs(
    world: World, after: dict[str, int]
) -> None:  # SC-802: limits go up
    runner = await world.run(limits={"maxDurationSeconds": 60})
    raised = await world.submit(limits=after)
    await world.settle(58)
    assert await world.outcome(raised) == "Applied"
    await runner.report("heartbeat")
    await world.settle(30)
    assert await world.stage() == "Running"
    await runner.report("heartbeat")
    await world.settle(2)
    assert await world.stage() == ("Failed" if after else "Running")


async def test_a_longer_wait_may_be_allowed_while_it_waits(world: World) -> None:  # SC-802, T8
    world.fake.slots = 0
    await world.submit(limits={"startDeadlineSeconds": 60})
    await world.settle()
    raised = await world.submit(limits={"startDeadlineSeconds": 90})
    await world.settle(58)
    assert await world.outcome(raised) == "Applied"
    await world.settle(30)
    assert await world.stage() == "Pending"
    await world.settle(3)
    assert (await world.status())["reason"] == "NoCapacity"
    await check_quiet(world)


async def test_a_long_absence_of_leaders_costs_nobody_his_limit(world: World) -> None:  # SC-614
    await world.submit()
    await world.settle()
    await world.start()
    await world.submit("second")
    await world.settle()
    limits = {row["attempt"]: row["limit_at"] for row in await world.rows(t.attempt_work)}
    await world.clock.advance(1000)
    await world.lead()
    moved = {row["attempt"]: row["limit_at"] for row in await world.rows(t.attempt_work)}
    shifts = {moved[no] - limit for no, limit in limits.items() if limit is not None}
    assert shifts == {timedelta(seconds=1060)}
    await world.settle()
    stages = {one["status"]["progress"]["stage"] for one in await world.all_documents()}
    assert stages == {"Running", "Starting"}
