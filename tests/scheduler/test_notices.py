"""Reclaims that a supplier announces: the drain, its outcome, and a notice of nothing (SC-013)."""

from datetime import timedelta
from typing import Any

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import Ambiguous, MachineCondition, SupplierCaps


@pytest.fixture
def world(world: World) -> World:
    world.fake.caps = SupplierCaps(sync_delete=True, notices=True)
    world.fake.offered = [an_offer(spot="0.02")]
    return world


async def a_spot_attempt(world: World, **spec: Any) -> Runner:
    return await world.run(placement={"interruptible": "Require"}, **spec)


def announce(world: World, runner: Runner, seconds: float) -> None:
    handle = world.fake.machines[runner.intent.key].handle
    world.fake.announce(handle, world.clock.now() + timedelta(seconds=seconds))


async def test_an_exit_after_the_notice_is_preempted(world: World) -> None:  # scenario 20
    """Scenario 20. Given a spot notice of 120 s and a checkpoint in 20 s, when the program
    exits 143 at 25 s, then Lost Preempted, not CustomerExit; lostSeconds at most 5; epoch 2
    restores that seq."""
    runner = await a_spot_attempt(world, checkpoint={"restartable": True})
    await world.settle(98)
    announce(world, runner, 120)
    await world.settle(5)
    assert await world.stage() == "Running"  # SC-013: while it drains
    ((_, order),) = world.fake.signals
    assert (order.kind, order.grace) == ("stop", timedelta(seconds=30))  # the spec's grace
    await world.settle(20)
    cursor = {"completed": 1, "total": 2}
    await runner.report(
        "checkpoint", seq=1, bytes=1, uri="file:///1", sha256="0" * 64, cursor=cursor
    )
    await world.settle(5)
    await runner.report("exited", exitCode=143, signal=None, oom=False, stopAgeMs=25_000)
    await world.settle()

    status = await world.status("0/1")
    assert (status["phase"], status["reason"], status["exitCode"]) == ("Failed", "Preempted", 143)
    assert status["interruption"]["trigger"] == "PreemptionNotice"
    assert status["interruption"]["lostSeconds"] == 5
    assert status["actual"]["segments"]["runningUSD"] == "0.000711"  # 128 s, all charged
    assert (await world.documents())["0/2"]["spec"]["restoreFrom"]["seq"] == 1
    (slot,) = await world.rows(t.slots)
    assert (slot["replacements"], len(slot["lost_candidates"])) == (1, 1)
    await check(world)


async def test_the_deadline_caps_the_grace(world: World) -> None:  # SC-013
    runner = await a_spot_attempt(world, stopGraceSeconds=60)
    announce(world, runner, 15)
    await world.settle(5)
    ((_, order),) = world.fake.signals
    assert order.grace == timedelta(seconds=10)


async def test_an_exit_before_the_signal_keeps_its_outcome(world: World) -> None:  # scenario 22
    """Scenario 22. Given a notice, when the program finishes with 0 before the signal, then
    Succeeded, no interruption."""
    runner = await a_spot_attempt(world)
    announce(world, runner, 120)
    await world.settle(5)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert "interruption" not in status
    await check_quiet(world)


async def test_a_notice_whose_order_never_arrived_is_cleared(world: World) -> None:  # scenario 23
    """Scenario 23. Given a notice whose stop order is never delivered, and no reclaim, when its
    deadline + 60 s has passed, then the machine is still ours: the Attempt goes on, the notice
    is cleared, a metric counts it."""
    runner = await a_spot_attempt(world)
    world.fake.deaf_signals = 1000
    announce(world, runner, 20)
    await world.settle(5)
    for _ in range(7):
        await world.settle(10)
        await runner.report("heartbeat")
    await world.settle(4)
    (row,) = await world.rows(t.attempt_work)
    assert row["drain_cause"] == "PreemptionNotice/Preempted"
    (lease,) = await world.rows(t.leases)
    assert lease["orders"][0]["kind"] == "stop"
    await world.settle(1)  # 60 s after the deadline, and the machine is still ours

    (row,) = await world.rows(t.attempt_work)
    assert row["drain_cause"] is None
    (lease,) = await world.rows(t.leases)
    assert lease["orders"] == []  # nobody is told to stop any more
    assert world.passes is not None
    cleared = world.passes.loop.metrics.notices.labels(outcome="cleared")
    assert cleared._value.get() == 1
    for _ in range(3):  # the supplier tells it still: it came to nothing
        await world.settle(10)
        await runner.report("heartbeat")
    await runner.report("exited", exitCode=3, signal=None, oom=False)
    await world.settle()
    assert (await world.status())["reason"] == "CustomerExit"
    await check_quiet(world)


async def test_a_reclaim_after_its_notice_is_preempted(world: World) -> None:  # SC-012
    runner = await a_spot_attempt(world)
    announce(world, runner, 20)
    await world.settle(5)
    await world.settle(20)
    world.fake.become(
        runner.intent.key,
        condition=MachineCondition.FAILED,
        reclaimed=True,
        ended_at=world.clock.now(),
    )
    await world.settle(5)
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == (
        "Preempted",
        "PreemptionNotice",
    )


async def test_a_delivered_notice_without_an_exit_ends_after_its_overtime(
    world: World,
) -> None:  # SC-013
    runner = await a_spot_attempt(world)
    announce(world, runner, 20)
    await world.settle(5)
    await world.settle(34)
    assert await world.stage() == "Running"
    await world.settle(1)
    assert (await world.status("0/1"))["reason"] == "Preempted"


async def test_a_notice_before_the_start_ends_at_once(world: World) -> None:  # SC-012
    await world.submit(placement={"interruptible": "Require"})
    await world.settle()
    runner = await world.runner()
    announce(world, runner, 30)
    await world.settle(5)
    status = await world.status("0/1")
    assert (status["reason"], status["interruption"]["trigger"]) == (
        "Preempted",
        "PreemptionNotice",
    )
    assert status["actual"]["costUSD"] == "0.000000"
    assert await world.stage("0/2") == "Starting"


async def test_a_users_stop_comes_first_and_the_notice_only_hurries_it(world: World) -> None:
    runner = await a_spot_attempt(world, stopGraceSeconds=60)  # SC-013, SC-014
    await world.ask("stop")
    announce(world, runner, 15)
    await world.settle(5)
    (row,) = await world.rows(t.attempt_work)
    assert row["drain_cause"] == "User/Stopped"
    await world.settle(5)
    (row,) = await world.rows(t.attempt_work)
    assert row["drain_deadline"] == world.clock.now() + timedelta(seconds=5)
    await runner.report("exited", exitCode=143, signal=None, oom=False, stopAgeMs=1)
    await world.settle()
    assert (await world.status())["reason"] == "Stopped"


async def test_a_stop_after_the_notice_only_forbids_the_replacement(world: World) -> None:
    runner = await a_spot_attempt(world)  # SC-013
    announce(world, runner, 60)
    await world.settle(5)
    await world.ask("stop")
    await world.settle(1)
    await runner.report("exited", exitCode=143, signal=None, oom=False, stopAgeMs=1)
    await world.settle()
    documents = await world.documents()
    assert list(documents) == ["0/1"]
    assert documents["0/1"]["status"]["reason"] == "Preempted"
    assert (await world.workload())["state"] == "Stopped"
    await check_quiet(world)


async def test_a_new_leader_goes_on_with_the_drain(world: World) -> None:  # SC-605
    runner = await a_spot_attempt(world)
    announce(world, runner, 60)
    await world.settle(5)
    await world.lead("next")
    await world.settle(5)
    (row,) = await world.rows(t.attempt_work)
    assert row["drain_deadline"] == world.clock.now() + timedelta(seconds=25)  # as it was
    await runner.report("exited", exitCode=0, signal=None, oom=False, stopAgeMs=1)
    await world.settle()
    assert (await world.status("0/1"))["reason"] == "Preempted"


async def test_a_supplier_that_cannot_be_asked_is_asked_again(world: World) -> None:
    runner = await a_spot_attempt(world)
    announce(world, runner, 60)
    told = world.fake.notices

    def away() -> object:
        raise Ambiguous("no answer")

    world.fake.notices = away  # type: ignore[method-assign, assignment]  # the supplier's API is down
    await world.settle(5)
    assert world.fake.signals == []
    world.fake.notices = told  # type: ignore[method-assign]
    await world.settle(5)
    assert len(world.fake.signals) == 1


async def test_a_supplier_without_notices_is_not_asked(world: World) -> None:
    runner = await a_spot_attempt(world)
    world.fake.caps = SupplierCaps(sync_delete=True)
    announce(world, runner, 60)
    await world.settle(5)
    assert world.fake.signals == []
