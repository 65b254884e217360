"""What placement knows of what is on offer, and of what it is asked to restore."""

import logging
from dataclasses import replace
from decimal import Decimal

import pytest
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.test_checkpointing import a_runner, lose, save
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import SupplierOffer


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
