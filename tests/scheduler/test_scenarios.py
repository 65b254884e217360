"""Scenarios of scheduler.md section 9 that need more than one rule: each from its begin to its end.

The others stand with the rules that they are about; `test_book` knows where each one is.
"""

from decimal import Decimal
from typing import Any

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import (
    at_epoch,
    lose,
    run_gang,
    save_together,
    stages,
    start_gang,
    stop_by_order,
)
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.kernel.money import cumulative_usd
from nodus_api.storage import tables as t
from nodus_api.storage.errors import FencedOff
from nodus_api.suppliers.supplier import MachineCondition, SupplierCaps

SAVED: dict[str, Any] = {"seq": 1, "bytes": 4, "uri": "file:///1", "sha256": "0" * 64}
TWO = [an_offer("cpu-1c-4g-us"), an_offer("cpu-1c-4g-eu", rate="0.07")]


async def is_gone(world: World, which: str) -> dict[str, Any]:
    """Let the machine of an ended Attempt be proven gone, some seconds later."""
    world.fake.deaf_deletes = 0
    for _ in range(40):
        status = await world.status(which)
        if "deletionProvenTime" in status["timings"]:
            return status
        await world.settle(1)
    raise AssertionError(f"{which} is never proven gone")


async def test_a_stuck_boot_is_lost_and_tried_elsewhere(world: World) -> None:
    """Scenario 11. Given a boot that is stuck, when 600 s have passed, then Lost StartupTimeout;
    Boot and Teardown covered; epoch 2 on another candidate."""
    world.fake.offered = list(TWO)
    world.fake.deaf_deletes = 1000
    await world.submit()
    await world.settle()
    for _ in range(19):
        await world.settle(30)
    await world.settle(29)
    assert await world.stage() == "Starting"
    await world.settle(1)
    assert await world.stage() == "Lost"
    status = await is_gone(world, "0/1")
    assert (status["phase"], status["reason"]) == ("Failed", "StartupTimeout")
    assert status["interruption"]["trigger"] == "StartupTimeout"
    assert status["actual"]["costUSD"] == "0.000000"
    assert status["actual"]["segments"]["coveredByNodus"] == ["Boot", "Teardown"]
    assert await world.stage("0/2") == "Starting"
    places = [(await world.status(f"0/{epoch}"))["placement"]["offering"] for epoch in (1, 2)]
    assert places == ["cpu-1c-4g-us", "cpu-1c-4g-eu"]
    await check(world)


async def test_a_machine_that_lacks_a_gpu_is_nodus_to_pay(world: World) -> None:
    """Scenario 12. Given 7 of 8 GPUs visible, when readiness is checked, then Lost ReadinessFailed;
    health falls; the offer backs off; cost 0."""
    world.fake.offered = list(TWO)
    world.fake.deaf_deletes = 1000
    await world.submit()
    await world.settle(5)
    runner = await world.runner()
    await runner.report("registered", checks={"failed": ["7 of 8 accelerators"]})
    await world.settle(1)
    first = await is_gone(world, "0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "ReadinessFailed")
    assert first["interruption"]["trigger"] == "ReadinessFailed"
    assert "commandStartedTime" not in first["timings"]
    assert first["actual"]["costUSD"] == "0.000000"
    bad = [row for row in await world.rows(t.offering_stats) if row["failures_in_row"]]
    assert len(bad) == 1
    assert bad[0]["stats"]["experience"]["failures"] > 0  # SC-361
    assert bad[0]["backoff_until"] is not None  # SC-360
    assert (await world.status("0/2"))["placement"]["offering"] == "cpu-1c-4g-eu"
    await check(world)


async def test_a_reclaim_without_notice_costs_the_work_since_the_last_commit(world: World) -> None:
    """Scenario 21. Given spot reclaimed without notice, when evidence comes, then Lost Preempted
    ProviderEvidence; lostSeconds since the last commit."""
    world.fake.offered = [an_offer(spot="0.02")]
    runner = await world.run(
        placement={"interruptible": "Require"}, checkpoint={"restartable": True}
    )
    await world.settle(40)
    await runner.report("checkpoint", **SAVED, cursor={"completed": 1, "total": 2})
    await world.settle(17)
    await runner.report("heartbeat")
    await world.settle()
    world.fake.become(
        runner.intent.key,
        condition=MachineCondition.FAILED,
        reclaimed=True,
        ended_at=world.clock.now(),
    )
    await world.settle(5)
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "Preempted")
    assert first["interruption"]["trigger"] == "ProviderEvidence"
    assert first["interruption"]["lostSeconds"] == 17
    second = (await world.documents())["0/2"]
    assert second["spec"]["restoreFrom"] == {"seq": 1, "cursor": {"completed": 1, "total": 2}}
    await check(world)


async def test_a_gang_that_loses_a_rank_restarts_as_one(world: World) -> None:
    """Scenario 30. Given a gang of 4 running, when rank 1 is lost, then rank 1 Failed NodeLost,
    others Cancelled Released; 4 new Attempts, gang.epoch 2, same seq, 3 with warmReuse."""
    world.fake.caps = SupplierCaps(sync_delete=True, warm=True)
    world.fake.slots = 10
    half = {"completed": 1, "total": 2}
    runners = await run_gang(world, 4, checkpoint={"restartable": True})
    await save_together(world, runners, 1, cursor=half)
    lose(world, runners[1])
    await world.settle(1)
    await stop_by_order(world, runners[0], runners[2], runners[3])
    await world.settle(1)

    documents = await world.documents()
    ended = [documents[which]["status"] for which in at_epoch(1, 4)]
    released = ("Cancelled", "Released")
    assert [(one["phase"], one["reason"]) for one in ended] == [
        released, ("Failed", "NodeLost"), released, released,
    ]  # fmt: skip
    assert {one["interruption"]["trigger"] for one in ended} == {"ProviderEvidence"}
    begun = [documents[which] for which in at_epoch(2, 4)]
    assert len(documents) == 8
    assert [one["spec"]["gang"]["epoch"] for one in begun] == [2] * 4
    assert [one["spec"]["restoreFrom"] for one in begun] == [{"seq": 1, "cursor": half}] * 4
    reused = [one["status"]["placement"]["warmReuse"] for one in begun]
    assert sorted(reused) == [False, True, True, True]
    await start_gang(world, 2, 4)
    assert await stages(world, 2) == ["Running"] * 4
    await check(world)


async def test_a_stop_while_acquiring_is_billed_from_the_grant(world: World) -> None:
    """Scenario 32. Given a stop while Acquiring, create called, when the grant arrives later, then
    Acquiring until the grant; T7 and T17 in one transaction; Boot charged 0 to a few s; machine
    deleted, proven; Cancelled."""
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    await world.ask("stop")
    await world.settle(20)
    assert await world.stage() == "Acquiring"
    (key,) = world.fake.machines
    world.fake.become(key, condition=MachineCondition.RUNNING, billing_start=world.clock.now())
    before = len(await world.rows(t.changes))
    world.fake.deaf_deletes = 1
    await world.settle(4)
    assert await world.stage() == "Stopped"
    assert len(await world.rows(t.changes)) == before + 1  # nobody sees it Starting
    status = await is_gone(world, "0/1")
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    rate = Decimal(status["placement"]["rateUSDPerHour"])
    assert status["actual"]["segments"]["bootUSD"] == f"{cumulative_usd(rate, 4):.6f}"
    assert "coveredByNodus" not in status["actual"]["segments"]
    await check_quiet(world)


async def test_what_is_suspended_goes_on_after_an_hour(world: World) -> None:
    """Scenario 33. Given a running Attempt, when it is suspended and resumed after 1 h, then
    Cancelled Suspended; epoch 2 with restoreFrom; segment Restore."""
    runner = await world.run(checkpoint={"restartable": True})
    await world.settle(30)
    await runner.report("checkpoint", **SAVED, cursor={"completed": 3, "total": 4})
    await world.settle(1)
    await world.ask("suspend")
    await world.settle(1)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=1)
    await world.settle()
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Cancelled", "Suspended")
    await world.settle(3600)
    assert set(await world.documents()) == {"0/1"}
    await world.ask("resume")
    await world.settle()
    runner = await world.start("0/2")
    await world.settle(10)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    second = (await world.documents())["0/2"]
    assert second["spec"]["restoreFrom"] == {"seq": 1, "cursor": {"completed": 3, "total": 4}}
    segments = second["status"]["actual"]["segments"]
    assert segments["bootUSD"] == "0.000000"  # SC-502
    assert Decimal(segments["restoreUSD"]) > 0
    assert second["status"]["timings"]["restoreSeconds"] == 2
    await check_quiet(world)


@pytest.mark.parametrize("late", [True, False])
async def test_a_leader_that_was_cut_off_makes_no_second_machine(world: World, late: bool) -> None:
    """Scenario 40. Given a leader partitioned from Postgres with its create on the way, when a
    standby has taken over and the old leader resumes, then its writes are refused; no duplicate
    machine, whether its create arrives before or after the other's."""
    await world.submit()
    old = await world.lead("old")
    for name in ("intake", "fill", "offers"):
        await old.step(name)
    await old.loop.calls.settled()
    for name in ("offers", "place", "request"):
        await old.step(name)
    if not late:
        await old.loop.calls.settled()
    await world.lead("new")
    await world.settle(3)
    await old.loop.calls.settled()
    for _ in range(2):
        with pytest.raises(FencedOff):
            await old.once()
    await world.settle(40)
    assert len(set(world.fake.creates)) == len(world.fake.machines) == 1
    assert await world.stage() == "Starting"
    (machine,) = await world.rows(t.machines)
    assert machine["state"] == "Granted"
    await world.start()
    await check(world)
