"""Quotas of projects, classes that are open to some, and classes that are drained (SC-310)."""

from decimal import Decimal

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import end, submit_gang
from tests.scheduler.test_filters import CPU, a_gpu
from tests.scheduler.world import World

from nodus_api.scheduler import Pace
from nodus_api.storage import tables as t
from nodus_api.storage.allowance_store import AllowanceStore


async def allow(world: World, accelerator: str, most: int | None) -> None:
    assert await AllowanceStore(world.database).set_quota("default", accelerator, most)


async def stages(world: World) -> list[str]:
    return [
        one["status"]["progress"]["stage"] for _, one in sorted((await world.documents()).items())
    ]


async def waits(world: World, which: str) -> tuple[str, str]:
    notes = (await world.documents())[which]["metadata"]["annotations"]
    return notes["nodus.dev/waiting-for"], notes["nodus.dev/waiting-message"]


@pytest.mark.parametrize("batch", [1, 100])
async def test_a_quota_bounds_what_a_project_has_at_once(world: World, batch: int) -> None:
    """Row 16, SC-371: in one transaction as in several; the number that missed is told."""
    world.pace = Pace(batch=batch)
    await allow(world, "cpu", 2)
    await world.submit(completions=3)
    await world.settle()
    assert await stages(world) == ["Starting", "Starting", "Pending"]
    assert await waits(world, "2/1") == (
        "Quota",
        f"1 class tried: {CPU} is over the quota (asked for 1 cpu, 0 left)",
    )
    (quota,) = (await AllowanceStore(world.database).read()).quotas["default"]
    assert (quota.most, quota.used, quota.left) == (2, 2, 0)


async def test_it_goes_on_when_something_ends(world: World) -> None:
    """What is not proven gone still counts; who waits for Quota is woken when it is."""
    await allow(world, "cpu", 1)
    await world.submit(completions=2)
    await world.settle()
    runner = await world.start()
    world.fake.deaf_deletes = 20
    await end(runner)
    for _ in range(3):
        await world.settle(11)
        assert await stages(world) == ["Succeeded", "Pending"]
    world.fake.deaf_deletes = 0
    await world.settle(300)
    assert await stages(world) == ["Succeeded", "Starting"]


async def test_a_raised_quota_wakes_nobody_up_late(world: World) -> None:
    await allow(world, "cpu", 0)
    await world.submit()
    await world.settle()
    assert await stages(world) == ["Pending"]
    await allow(world, "cpu", None)
    await world.settle(10)
    assert await stages(world) == ["Starting"]
    assert (await AllowanceStore(world.database).read()).quotas == {}


async def test_accelerators_are_counted_by_name(world: World) -> None:
    """A machine takes its whole count; other names and other projects are not touched."""
    world.fake.offered = [a_gpu("h100-sxm-80g-x4-us", count=4), an_offer()]
    await allow(world, "h100", 7)
    await world.submit(
        completions=2, resources={"accelerators": ["h100"], "count": 4}, parallelism=2
    )
    await world.submit("other")
    await world.settle()
    found = [
        one["status"]["progress"]["stage"]
        for one in await world.all_documents()
        if one["metadata"]["labels"]["nodus.dev/job"] == "train"
    ]
    assert sorted(found) == ["Pending", "Starting"]
    (quota,) = (await AllowanceStore(world.database).read()).quotas["default"]
    assert (quota.used, quota.left) == (4, 3)


async def test_a_gang_needs_the_quota_of_all_ranks(world: World) -> None:  # SC-130
    await allow(world, "cpu", 2)
    await submit_gang(world, 3)
    await world.settle()
    assert await stages(world) == ["Pending"] * 3
    assert (await waits(world, "0/1"))[0] == "Quota"
    await allow(world, "cpu", 3)
    await world.settle(10)
    assert await stages(world) == ["Starting"] * 3


async def test_a_wait_for_quota_does_not_count_to_the_start_deadline(world: World) -> None:  # T8
    await allow(world, "cpu", 0)
    await world.submit(limits={"startDeadlineSeconds": 60})
    await world.settle()
    for _ in range(20):
        await world.settle(10)
    assert await stages(world) == ["Pending"]


async def test_a_class_that_is_open_to_others_is_unplaceable(world: World) -> None:  # row 9
    store = AllowanceStore(world.database)
    await world.settle()
    async with world.database.transaction() as connection:
        await connection.execute(sa.insert(t.projects).values(name="lab"))
    assert await store.restrict(CPU, ["lab"]) is None
    await world.submit()
    await world.settle()
    status = await world.status()
    assert status["reason"] == "Unplaceable"
    assert status["placement"]["explain"]["rejected"] == [
        {"offeringClass": CPU, "reason": "NotEntitled"}
    ]
    assert await store.restrict(CPU, ["lab", "default"]) is None
    await world.submit("second")
    await world.settle()
    assert len(world.fake.machines) == 1


async def test_what_is_not_there_is_named_and_changes_nothing(world: World) -> None:
    store = AllowanceStore(world.database)
    await world.settle()
    assert await store.restrict("h100-none", ["default"]) == "h100-none"
    assert await store.restrict(CPU, ["default", "nowhere"]) == "nowhere"
    assert (await store.read()).open_to == {}
    assert not await store.enable("h100-none", enabled=False)
    assert not await store.set_quota("nowhere", "h100", 1)


async def test_a_drained_class_keeps_what_runs_and_takes_nothing_new(world: World) -> None:
    """Row 15: transient, so who asks for it waits; an answer of offers does not open it."""
    store = AllowanceStore(world.database)
    await world.submit("train")
    await world.settle()
    await store.enable(CPU, enabled=False)
    await world.submit("second")
    await world.settle()
    await world.settle(20)
    found = {one["metadata"]["name"][:5]: one for one in await world.all_documents()}
    assert found["train"]["status"]["progress"]["stage"] == "Starting"
    second = found["secon"]
    assert second["status"]["placement"]["explain"]["rejected"][0]["reason"] == "Disabled"
    message = second["metadata"]["annotations"]["nodus.dev/waiting-message"]
    assert f"{CPU} is closed by an operator" in message
    await store.enable(CPU, enabled=True)
    await world.settle(10)
    assert len(world.fake.machines) == 2


async def test_machines_of_several_sizes_add_up(world: World) -> None:
    world.fake.offered = [a_gpu("h100-sxm-80g-x4-us", count=4), a_gpu(rate_on_demand=Decimal(1))]
    await allow(world, "h100", 7)
    await world.submit("four", resources={"accelerators": ["h100"], "count": 4})
    await world.settle()
    await world.submit("ones", resources={"accelerators": ["h100"], "count": 1}, completions=3)
    await world.submit("more", resources={"accelerators": ["h100"], "count": 1})
    await world.settle()
    (quota,) = (await AllowanceStore(world.database).read()).quotas["default"]
    assert (quota.used, quota.left) == (7, 0)
    assert len(world.fake.machines) == 4
