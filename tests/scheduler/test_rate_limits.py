"""Suppliers are asked no more than they take, and left alone when they ask for it (SC-616)."""

from datetime import timedelta

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.world import World

from nodus_api.scheduler.buckets import Bucket
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import CallRate, RateLimited, SupplierCaps

SLOW = SupplierCaps(sync_delete=True, rate=CallRate(per_second=2.0, burst=3))


def a_bucket() -> Bucket:
    return Bucket(CallRate(per_second=2.0, burst=3))


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = a_bucket()
    assert bucket.take(5, 100.0) == 3
    assert bucket.take(1, 100.25) == 0
    assert bucket.next_token(100.25) == pytest.approx(0.25)
    assert bucket.take(5, 101.0) == 2
    assert bucket.take(5, 1000.0) == 3  # it holds no more


def test_an_emptied_bucket_gains_nothing_before_its_moment() -> None:
    bucket = a_bucket()
    bucket.empty(107.0)
    bucket.empty(104.0)  # an answer to an earlier call takes nothing back
    assert bucket.take(1, 106.0) == 0
    assert bucket.paused(106.0) == pytest.approx(1.0)
    assert bucket.next_token(106.0) == pytest.approx(1.5)
    assert bucket.take(3, 108.0) == 2
    assert bucket.paused(108.0) == 0.0
    assert bucket.next_token(110.0) == 0.0


async def a_crowd(world: World, size: int) -> None:
    """Submit as many as have room, before any is asked for."""
    world.fake.slots = size
    world.fake.offered = [an_offer(available=size)]
    for number in range(size):
        await world.submit(f"train-{number}")


async def test_creates_keep_to_the_rate(world: World) -> None:
    world.fake.caps = SLOW
    await a_crowd(world, 6)
    await world.settle()
    assert len(world.fake.creates) == 3
    assert sorted(row["tries"] for row in await world.rows(t.machines)) == [0, 0, 0, 1, 1, 1]
    passes = world.passes
    assert passes is not None
    assert await passes.until_next() == pytest.approx(0.5)  # then the loop makes its next pass
    await world.settle(1)
    assert len(world.fake.creates) == 5
    await world.settle(1)
    assert len(world.fake.creates) == len(set(world.fake.creates)) == 6
    assert passes.loop.calls.token_in() is None


async def test_one_refusal_for_the_rate_holds_the_others_back(world: World) -> None:
    """Field case D21: the pause asked for is kept, and no Attempt fails by it."""
    await a_crowd(world, 6)
    world.fake.refusals = [RateLimited("slow down", timedelta(seconds=7))]
    await world.settle()
    assert len(world.fake.creates) == 1
    await world.submit("later")
    await world.settle(6)
    assert len(world.fake.creates) == 1
    await world.settle(2)
    assert len(world.fake.machines) == 6
    stages = sorted(one["status"]["progress"]["stage"] for one in await world.all_documents())
    assert stages == ["Pending"] + ["Starting"] * 6  # one more than there is room for
    assert {row["state"] for row in await world.rows(t.machines)} == {"Granted"}
    (stats,) = await world.rows(t.offering_stats)
    assert stats["failures_in_row"] == 0


async def test_creates_never_starve_deletes(world: World) -> None:
    world.fake.caps = SLOW
    await a_crowd(world, 1)
    await world.settle()
    (handle,) = [one.handle for one in world.fake.machines.values()]
    await a_crowd(world, 6)
    world.fake.refusals = [RateLimited("slow down", timedelta(minutes=1))]
    await world.settle()
    await world.ask("delete", "train-0")
    await world.settle(1)
    assert [one.handle for one in world.fake.deleted.values()] == [handle]


async def test_a_delete_waits_for_the_pause_of_deletes(world: World) -> None:
    await a_crowd(world, 2)
    world.fake.slots = 3
    world.fake.offered = [an_offer(available=3)]
    await world.settle()
    world.fake.delete_refusals = [RateLimited("slow down", timedelta(seconds=7))]
    for number in range(2):
        await world.ask("delete", f"train-{number}")
    await world.settle()
    await world.settle(6)
    assert world.fake.deleted == {}
    await world.submit("another")  # which is another kind of call
    await world.settle()
    assert len(world.fake.machines) == 3
    await world.settle(2)
    await world.settle(2)
    assert len(world.fake.deleted) == 2
