"""A fleet with fewer machines than Attempts that want one: full, but never asked for more."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.gangs import submit_gang
from tests.scheduler.invariants import check
from tests.scheduler.world import World

from nodus_api.scheduler import Pace
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


async def test_a_supplier_that_owes_machines_has_none(world: World) -> None:
    """It counts what it does not know of; its offers are read all the same."""
    world.supplier = FakeSupplier(world.clock, offered=[an_offer(available=-2)])
    await world.submit()
    await world.settle()

    assert [row["available"] for row in await world.rows(t.offering_stats)] == [0]
    assert await world.stage() == "Pending"


async def test_projects_take_turns_and_the_oldest_comes_first(world: World) -> None:  # SC-371
    """Of three that one project asked for first, the two oldest share the room with another's."""
    world.pace = Pace(placed_at_once=3)
    world.supplier = FakeSupplier(world.clock, offered=[an_offer(available=0)])
    async with world.database.transaction() as connection:
        await connection.execute(t.projects.insert().values(name="other", organization="default"))
    for name in ("first", "second", "third"):
        await world.submit(name)
        await world.settle(1)
    await world.submit("late")
    async with world.database.transaction() as connection:
        late = t.commands.c.target == "late"
        await connection.execute(t.commands.update().where(late).values(project="other"))
    await world.settle(1)
    world.supplier.offered = [an_offer(available=3)]
    await world.settle(10)

    stages = {
        one["metadata"]["ownerReferences"][0]["name"]: one["status"]["progress"]["stage"]
        for one in await world.all_documents()
    }
    assert stages == {
        "first": "Starting",
        "second": "Starting",
        "third": "Pending",
        "late": "Starting",
    }
    await check(world)


async def test_a_gang_comes_before_singles_of_its_age_and_after_older_ones(
    world: World,
) -> None:  # SC-371, P-30
    """The room that it needs is not kept for it: what is younger may take what it cannot use."""
    world.supplier = FakeSupplier(world.clock, offered=[an_offer(available=0)])
    await world.submit("older")
    await world.settle(1)
    await world.submit("single")
    await submit_gang(world, 3, "gang")
    await world.settle(1)
    await world.submit("younger")
    await world.settle(1)
    world.supplier.offered = [an_offer(available=4)]
    await world.settle(10)

    stages: dict[str, set[str]] = {}
    for one in await world.all_documents():
        owner = one["metadata"]["ownerReferences"][0]["name"]
        stages.setdefault(owner, set()).add(one["status"]["progress"]["stage"])
    assert stages == {
        "older": {"Starting"},
        "gang": {"Starting"},
        "single": {"Pending"},
        "younger": {"Pending"},
    }
    await check(world)
