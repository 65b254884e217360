"""The private ledger of what machines cost Nodus, whoever they served (SC-504, SC-523)."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import end
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.test_funds import beat
from tests.scheduler.world import World

from nodus_api.kernel.supplier_cost import supplier_cost
from nodus_api.storage import tables as t
from nodus_api.storage.supplier_ledger import MachineCosts, read_supplier_costs
from nodus_api.suppliers.supplier import Ambiguous

USD = Decimal
SPOT = {"placement": {"interruptible": "Require"}, "checkpoint": {"restartable": True}}


async def ledger(world: World) -> list[MachineCosts]:
    async with world.database.snapshot() as connection:
        return await read_supplier_costs(connection)


async def periods(world: World) -> list[tuple[int, int | None, Decimal]]:
    """Return the periods of the first machine, in seconds from its start."""
    found = (await ledger(world))[0].periods
    start = found[0].start
    return [
        (
            int((one.start - start).total_seconds()),
            None if one.end is None else int((one.end - start).total_seconds()),
            one.rate_usd_per_hour,
        )
        for one in found
    ]


async def test_a_spot_price_that_rises_is_nodus_loss(world: World) -> None:  # scenario 42
    """Scenario 42. Given a spot machine, when its price rises mid-run, then rateUSDPerHour and
    cost unaffected; the private ledger shows the loss."""
    offer = an_offer(rate="3.60", spot="1.80")
    world.fake.offered = [offer]
    runner = await world.run(estimate={"hours": "0.1"}, **SPOT)
    await beat(world, [runner], 600)
    world.fake.offered = [
        replace(
            offer,
            cost_spot=USD("7.20"),
            offered_class=replace(offer.offered_class, rate_spot=USD("8.00")),
        )
    ]
    await beat(world, [runner], 600)
    await end(runner)
    await world.settle(1)

    status = await world.status()
    assert status["placement"]["rateUSDPerHour"] == "1.80"
    cost = USD(status["actual"]["costUSD"])
    hours = USD(status["actual"]["hours"])
    assert abs(cost - hours * USD("1.80")) <= USD("0.000001")
    (one,) = await ledger(world)
    assert [rate for _, _, rate in await periods(world)] == [USD("1.80"), USD("7.20")]
    paid = supplier_cost(one.periods, world.clock.now(), increment=one.increment)
    assert one.charged == cost
    assert paid.usd > cost + USD("0.8")  # ten minutes at four times the rate
    await check_quiet(world)


async def test_prices_of_the_other_market_and_of_other_offers_change_nothing(
    world: World,
) -> None:
    offers = [an_offer(rate="3.60", spot="1.80"), an_offer("cpu-1c-4g-us", rate="9")]
    world.fake.offered = offers
    runner = await world.run(estimate={"hours": "0.1"}, **SPOT)
    world.fake.offered = [
        replace(offers[0], cost_on_demand=USD(5)),
        replace(offers[1], cost_on_demand=USD(11)),
    ]
    await beat(world, [runner], 60)
    assert await periods(world) == [(0, None, USD("1.80"))]


async def test_a_price_that_comes_back_makes_three_periods(world: World) -> None:
    offer = an_offer(rate="3.60")
    world.fake.offered = [offer]
    runner = await world.run(estimate={"hours": "0.1"})
    for cost in ("4.00", "3.60"):
        world.fake.offered = [replace(offer, cost_on_demand=USD(cost))]
        await beat(world, [runner], 60)
    found = await periods(world)
    assert [rate for _, _, rate in found] == [USD("3.60"), USD("4.00"), USD("3.60")]
    assert [start for start, _, _ in found[1:]] == [until for _, until, _ in found[:-1]]


async def test_a_machine_that_served_nobody_is_in_the_ledger(world: World) -> None:  # SC-523
    """Its create was ambiguous and it was given up (T6); its release finds that it was there."""
    world.fake.after = Ambiguous("lost")
    world.fake.find_error = Ambiguous("lost")
    world.fake.offered = [an_offer(rate="3.60", available=2)]
    await world.submit()
    await world.settle()
    (made,) = world.fake.machines.values()
    for _ in range(7):
        await world.settle(50)
    world.fake.find_error = None
    for _ in range(4):
        await world.settle(70)
        await check(world)

    machines = await world.rows(t.machines)
    assert machines[0]["state"] == "Gone"
    assert machines[0]["billing_start"] is None
    billed = {row["machine"] for row in await world.rows(t.cost_segments)}
    assert machines[0]["no"] not in billed
    found = {one.machine: one for one in await ledger(world)}
    (period,) = found[machines[0]["no"]].periods
    assert (period.start, period.end) == (made.billing_start, machines[0]["gone"])
    assert found[machines[0]["no"]].charged == 0


async def test_a_take_over_in_between_leaves_no_gap(world: World) -> None:  # SC-605
    offer = an_offer(rate="3.60")
    world.fake.offered = [offer]
    runner = await world.run(estimate={"hours": "0.1"})
    world.fake.offered = [replace(offer, cost_on_demand=USD("4.00"))]
    await world.lead()
    await beat(world, [runner], 60)
    await end(runner)
    await world.settle(1)
    found = await periods(world)
    assert [rate for _, _, rate in found] == [USD("3.60"), USD("4.00")]
    total = sum((until or 0) - start for start, until, _ in found)
    gone = (await world.rows(t.machines))[0]
    assert timedelta(seconds=total) == gone["gone"] - gone["billing_start"]
