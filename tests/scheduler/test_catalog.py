"""What placement knows of what is on offer, and of what it is asked to restore."""

import logging
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.test_checkpointing import a_runner, lose, save
from tests.scheduler.world import World

from nodus_api.scheduler.catalog import Catalog
from nodus_api.storage import tables as t
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.suppliers.supplier import MachineCondition, NoCapacity, SupplierOffer


def elsewhere(offer: SupplierOffer, *, vcpus: int, rate: str) -> SupplierOffer:
    """Return another offer of the same class, of other size and price."""
    offered = replace(
        offer.offered_class, vcpus=Decimal(vcpus), rate_on_demand=Decimal(rate), form=None
    )
    return replace(offer, offered_class=offered, region="elsewhere", cost_on_demand=Decimal(rate))


async def test_spot_is_taken_for_what_it_is_before_it_has_a_history(
    world: World,
) -> None:  # SC-352
    world.supplier = FakeSupplier(world.clock, offered=[an_offer(spot="0.02")])
    await world.submit(checkpoint={"restartable": True}, placement={"profile": "Cost"})
    await world.settle()

    status = await world.status()
    assert status["placement"]["interruptible"] is True
    assert status["predicted"]["interruptionRate"] == "0.05"


async def test_on_demand_is_hardly_ever_lost(world: World) -> None:  # SC-352
    await world.submit()
    await world.settle()

    assert (await world.status())["predicted"]["interruptionRate"] == "0.001"


@pytest.mark.parametrize("turned", [False, True])
async def test_a_class_promises_what_each_of_its_offers_keeps(
    world: World, turned: bool
) -> None:  # SC-204, SC-208
    here = an_offer()
    several = [here, elsewhere(here, vcpus=3, rate="0.05")]
    world.supplier = FakeSupplier(world.clock, offered=several[::-1] if turned else several)
    await world.settle()

    (kept,) = await world.rows(t.offering_classes)
    assert (kept["vcpus"], kept["rate_on_demand"]) == (1, Decimal("0.05"))
    assert len(await world.rows(t.supplier_offers)) == 2


async def test_one_name_for_two_kinds_is_not_believed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one = an_offer()
    other = replace(one, region="elsewhere", offered_class=replace(one.offered_class, arch="arm64"))
    world.supplier = FakeSupplier(world.clock, offered=[one, other])
    with caplog.at_level(logging.ERROR):
        await world.submit()
        await world.settle()

    assert await world.stage() == "Pending"
    assert await world.rows(t.offering_classes) == []
    assert "what the supplier offers is not believed" in caplog.messages


async def test_a_restore_takes_as_long_as_its_checkpoint_is_large(world: World) -> None:  # SC-301
    runner = await a_runner(world)
    await save(world, runner, 1, bytes=5_000_000_000, cursor={"completed": 1, "total": 10})
    await lose(world, "0/1")

    asked = [row["request"]["restoreSeconds"] for row in await world.rows(t.decisions)]
    assert asked == [60.0, 10.0]  # 500 MB/s; the first had nothing to restore


async def seen(world: World) -> tuple[Catalog, Catalog]:
    """Return the catalog as the loop brings it up to date, and as it is put together anew."""
    assert world.passes is not None
    loop, now = world.passes.loop, world.clock.now()
    view = await loop.view.look(now)
    fresh = CatalogStore(world.database, world.supplier.name)
    return view, Catalog.of(*await fresh.load(), now)


def rooms(catalog: Catalog) -> list[Any]:
    """Return what must be of this moment: of waits and health, 10 s more or less do not show."""
    return [
        (one.key, s.available, s.largest_available, s.backoff_until, s.credentials_refused)
        for one in catalog.snapshot
        for s in [one.stats]
    ]


async def test_what_is_brought_up_to_date_is_as_what_is_put_together(
    world: World,
) -> None:  # SC-205, SC-371
    """Through a life with a refusal, a loss and an end, at every step."""
    world.supplier = FakeSupplier(
        world.clock, offered=[an_offer(spot="0.02"), an_offer("cpu-2c-8g-us", rate="0.09")]
    )
    world.fake.refusals = [NoCapacity("none left")]
    await world.submit(checkpoint={"restartable": True})
    steps = 0

    async def compare() -> None:
        nonlocal steps
        view, anew = await seen(world)
        assert view.offers == anew.offers
        assert rooms(view) == rooms(anew)
        assert view.classes == anew.classes
        steps += 1

    for seconds in (0, 1, 2, 40):
        await world.settle(seconds)
        await compare()
    runner = await world.start()
    await compare()
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    for seconds in (3, 3, 15):
        await world.settle(seconds)
        await compare()
    runner = await world.start("0/2")
    await compare()
    await runner.report("exited", exitCode=0)
    await world.settle(1)
    await compare()
    assert steps == 10


async def test_the_catalog_is_put_together_once_a_change(world: World) -> None:  # SC-370
    await world.settle()
    assert world.passes is not None
    view = world.passes.loop.view
    first = await view.look(world.clock.now())
    (bucket,) = first.snapshot.families.values()
    again = await view.look(world.clock.now())
    assert again.snapshot.families[None, 0] is bucket  # nothing was indexed again
    assert again.snapshot.id == first.snapshot.id

    async with world.database.transaction() as connection:  # an operator drains it
        await connection.execute(sa.update(t.offering_classes).values(enabled=False))
    drained = await view.look(world.clock.now())

    assert [one.offering.enabled for one in drained.snapshot] == [False]
    assert drained.snapshot.id != first.snapshot.id


async def test_what_a_step_takes_lies_over_the_catalog(world: World) -> None:  # SC-371
    await world.settle()
    catalog, _ = await seen(world)
    (candidate,) = catalog.snapshot
    offer = catalog.choose(candidate.key, world.clock.now())
    assert offer is not None

    taken = catalog
    for _ in range(4):
        taken = taken.after_taking(candidate.key, offer)

    assert taken.choose(candidate.key, world.clock.now()) is None
    assert taken.snapshot.available(candidate) == 0
    assert catalog.choose(candidate.key, world.clock.now()) == offer  # it is as it was
    assert taken.offers is catalog.offers
