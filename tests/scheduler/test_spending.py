"""A workload's limit of money: stopped before it, charged never above it."""

from datetime import timedelta
from decimal import Decimal

from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import lose, run_gang, stages, stop_by_order
from tests.scheduler.invariants import all_records, check_quiet
from tests.scheduler.world import World

from nodus_api.scheduler import Pace
from nodus_api.scheduler.settling import charged
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import SupplierCaps


async def test_a_job_is_stopped_before_its_limit(world: World) -> None:  # scenario 35, SC-622
    """Scenario 35. Given maxCost 5.00 at 23.60 an hour, when it runs, then Cancelled
    MaxCostReached; costUSD at most 5.00."""
    world.fake.offered = [an_offer(rate="23.60")]
    await world.submit(limits={"maxCostUSD": "5"}, estimate={"hours": "0.1"}, stopGraceSeconds=10)
    await world.settle()
    runner = await world.start()
    while await world.stage() == "Running" and not world.fake.signals:
        await world.clock.advance(30)
        await runner.report("heartbeat")
        await world.settle()
    await world.clock.advance(2)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=2000)
    await world.settle()

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "MaxCostReached")
    assert status["interruption"]["trigger"] == "Funding"
    assert Decimal("3.5") < Decimal(status["actual"]["costUSD"]) <= 5
    assert "coveredByNodus" not in status["actual"]["segments"]
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "MaxCostReached")
    await check_quiet(world)


async def test_no_retry_is_begun_that_the_limit_cannot_pay(world: World) -> None:  # SC-120 rule 2
    world.fake.offered = [an_offer(rate="23.60")]
    await world.submit(
        limits={"maxCostUSD": "5"}, estimate={"hours": "0.1"}, restart={"maxRetries": 3}
    )
    await world.settle()
    runner = await world.start()
    await world.clock.advance(740)  # 4.86 USD, of which no bill tells yet
    await runner.report("exited", exitCode=1, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert (status["reason"], status["actual"]["costUSD"]) == ("CustomerExit", "4.864222")
    assert set(await world.documents()) == {"0/1"}
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "MaxCostReached")


async def test_parallel_attempts_share_the_limit_to_the_micro_dollar(world: World) -> None:  # P-14
    world.fake.offered = [an_offer(rate="36.00")]
    await world.submit(
        completions=2, limits={"maxCostUSD": "4"}, estimate={"hours": "0.01"}, stopGraceSeconds=5
    )
    await world.settle()
    await world.start("0/1")
    await world.start("1/1")
    await world.settle(1)
    for _ in range(14):  # both ignore the stop, and the supplier is deaf for minutes
        world.fake.deaf_deletes = 10
        for which in ("0/1", "1/1"):
            await (await world.runner(which)).report("heartbeat")
        await world.settle(30)
    world.fake.deaf_deletes = 0
    await world.settle(300)
    await world.settle(300)

    spent = [charged(record) for record in await all_records(world)]
    assert 3 < sum(spent) <= 4
    documents = await world.documents()
    assert {one["status"]["reason"] for one in documents.values()} == {"MaxCostReached"}
    covered = [one["status"]["actual"]["segments"] for one in documents.values()]
    assert any("Teardown" in one.get("coveredByNodus", []) for one in covered)
    await check_quiet(world)


async def test_a_limit_is_the_workloads_whatever_a_batch_holds(world: World) -> None:  # SC-622
    """Each transaction sees one Attempt, each query one row: the sum is over all of them."""
    world.pace = Pace(batch=1, placed_at_once=1)
    world.fake.offered = [an_offer(rate="36.00")]  # 0.01 USD a second
    await world.submit(
        completions=3, limits={"maxCostUSD": "12"}, estimate={"hours": "0.01"}, stopGraceSeconds=60
    )
    await world.settle()
    runners = [await world.start(f"{slot}/1") for slot in range(3)]
    await world.clock.advance(200)  # 6 USD, and the ends would cost 5.43
    for runner in runners:
        await runner.report("heartbeat")
    await world.settle()
    assert world.fake.signals == []
    await world.clock.advance(30)
    for runner in runners:
        await runner.report("heartbeat")
    await world.settle()
    causes = await drains(world)
    assert causes == ["Funding/MaxCostReached"] * 3


async def test_a_limit_too_small_for_the_estimate_is_unplaceable(world: World) -> None:
    world.fake.offered = [an_offer(rate="23.60")]
    await world.submit(limits={"maxCostUSD": "5"}, estimate={"hours": "1"})
    await world.settle()
    status = await world.status()
    assert status["reason"] == "Unplaceable"
    assert status["placement"]["explain"]["rejected"] == [
        {"offeringClass": "cpu-1c-4g-other", "reason": "CostAboveLimit"}
    ]


async def test_money_comes_before_a_notice(world: World) -> None:  # SC-014
    """Both are visible in one pass for the first time."""
    world.fake.caps = SupplierCaps(sync_delete=True, notices=True)
    world.fake.offered = [an_offer(rate="23.60")]
    await world.submit(limits={"maxCostUSD": "5"}, estimate={"hours": "0.1"})
    await world.settle()
    runner = await world.start()
    handle = world.fake.machines[runner.intent.key].handle
    world.fake.announce(handle, world.clock.now() + timedelta(seconds=900))
    passes = await world.lead()
    await passes.step("notices")  # asks the supplier; the answer is taken up by the next pass
    await passes.loop.calls.settled()
    await world.clock.advance(700)
    await runner.report("heartbeat")
    await passes.once()
    causes = await drains(world)
    assert causes == ["Funding/MaxCostReached"]


async def test_a_limit_reached_during_a_notice_forbids_the_replacement(
    world: World,
) -> None:  # SC-013
    """The notice keeps reason and bill; the money that is left would pay another start."""
    world.fake.caps = SupplierCaps(sync_delete=True, notices=True)
    world.fake.offered = [an_offer(rate="36.00")]  # 0.01 USD a second
    await world.submit(limits={"maxCostUSD": "6"}, estimate={"hours": "0.01"}, stopGraceSeconds=60)
    await world.settle()
    runner = await world.start()
    await world.clock.advance(400)
    await runner.report("heartbeat")
    handle = world.fake.machines[runner.intent.key].handle
    world.fake.announce(handle, world.clock.now() + timedelta(seconds=60))
    await world.settle()
    await world.settle()
    assert await drains(world) == ["PreemptionNotice/Preempted"]
    await runner.report("heartbeat")
    await world.settle(30)
    assert await drains(world) == ["PreemptionNotice/Preempted/MaxCostReached"]
    (order,) = [order for _, order in world.fake.signals]
    assert order.grace == timedelta(seconds=60)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=1000)
    await world.settle()

    assert list(await world.documents()) == ["0/1"]
    status = await world.status()
    assert (status["reason"], status["interruption"]["trigger"]) == (
        "Preempted",
        "PreemptionNotice",
    )
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "MaxCostReached")
    await check_quiet(world)


async def test_a_limit_reached_while_a_gang_drains_forbids_its_restart(
    world: World,
) -> None:  # SC-013, SC-134
    world.fake.offered = [an_offer(rate="36.00")]
    runners = await run_gang(
        world, 3, limits={"maxCostUSD": "30"}, estimate={"hours": "0.01"}, stopGraceSeconds=300
    )
    await world.clock.advance(560)
    for runner in runners:
        await runner.report("heartbeat")
    lose(world, runners[1])
    await world.settle()
    await world.settle()
    assert await stages(world, 1) == ["Running", "Lost NodeLost", "Running"]
    for _ in range(9):
        for runner in (runners[0], runners[2]):
            await runner.report("heartbeat")
        await world.settle(30)
    barred = "ProviderEvidence/Released/MaxCostReached"
    assert [one for one in await drains(world) if one] == [barred] * 2
    await stop_by_order(world, runners[0], runners[2])

    assert set(await world.documents()) == {"0/1", "1/1", "2/1"}
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "MaxCostReached")
    assert {row["state"] for row in await world.rows(t.slots)} == {"Failed"}
    await check_quiet(world)


async def drains(world: World) -> list[str | None]:
    return [row["drain_cause"] for row in await world.rows(t.attempt_work)]


async def test_what_drains_costs_until_it_is_gone(world: World) -> None:  # SC-622
    """An Attempt that is being released already still needs its share of what is left."""
    world.fake.offered = [an_offer(rate="36.00")]
    await world.submit(
        completions=2, limits={"maxCostUSD": "6"}, estimate={"hours": "0.01"}, stopGraceSeconds=60
    )
    await world.settle()
    await world.start("0/1")
    await world.start("1/1")
    await world.settle(100)
    await world.ask("scale", count=1)
    await world.settle(1)
    assert len(world.fake.signals) == 1
    for which in ("0/1", "1/1"):
        await (await world.runner(which)).report("heartbeat")
    await world.settle(40)
    assert await world.stage("1/1") == "Running"  # it uses its grace
    causes = sorted(await drains(world), key=str)
    assert causes == ["/Released/MaxCostReached", "Funding/MaxCostReached"]
