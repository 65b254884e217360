"""A fleet with fewer machines than Attempts that want one: full, but never asked for more."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.invariants import check
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import SupplierOffer


@dataclass
class SlowToAnswer(FakeSupplier):
    """Counts its free machines when it is asked, and says so when it is let."""

    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def offers(self) -> Sequence[SupplierOffer]:
        counted = await super().offers()
        await self.may_answer.wait()
        return counted


async def test_a_late_answer_does_not_offer_what_was_taken_meanwhile(
    world: World,
) -> None:  # SC-371
    supplier = SlowToAnswer(world.clock, slots=2)
    world.supplier = supplier
    supplier.may_answer.set()
    await world.settle()
    passes = world.passes
    assert passes is not None

    supplier.may_answer.clear()
    await world.clock.advance(11)
    await passes.once()  # asks: both machines are free
    await world.clock.advance(1)
    await world.submit("first")
    while not supplier.creates:
        await passes.once()
    await passes.loop.calls.creates.settled()
    await passes.once()
    await world.clock.advance(1)
    supplier.may_answer.set()
    await world.submit("second", completions=2)
    await world.settle()

    assert len(supplier.creates) == 2
    (stats,) = await world.rows(t.offering_stats)
    assert (stats["failures_in_row"], stats["backoff_until"]) == (0, None)  # SC-360
    stages = sorted(one["status"]["progress"]["stage"] for one in await world.all_documents())
    assert stages == ["Pending", "Starting", "Starting"]
    await check(world)


async def test_both_markets_of_an_offer_share_its_machines(world: World) -> None:  # SC-371
    """The third of three finds neither market with room, and waits; no step fails of it."""
    supplier = FakeSupplier(world.clock, offered=[an_offer(available=2, spot="0.02")])
    world.supplier = supplier
    await world.submit(completions=3, checkpoint={"restartable": True})
    await world.settle()

    stages = sorted(one["status"]["progress"]["stage"] for one in await world.all_documents())
    assert stages == ["Pending", "Starting", "Starting"]
    assert len(supplier.creates) == 2
    assert world.passes is not None
    failed = world.passes.loop.metrics.failed_items.labels(step="place")
    assert failed._value.get() == 0
    (waiting,) = [one for one in await world.all_documents() if one["spec"]["slot"] == "2"]
    assert waiting["metadata"]["annotations"]["nodus.dev/waiting-for"] == "Capacity"
