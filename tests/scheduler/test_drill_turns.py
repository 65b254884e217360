"""Schedules of drills: the same seed, the same drills; each is a command like another (SC-630)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import MachineCondition, SupplierCaps


@pytest.fixture
def world(world: World) -> World:
    world.fake.caps = SupplierCaps(sync_delete=True, inject=True, notices=True)
    return world


async def schedule(world: World, **given: Any) -> None:
    row = {
        "project": "default",
        "trigger": "node-loss",
        "per_hour": Decimal(60),
        "seed": 7,
    } | given
    async with world.database.transaction() as connection:
        await connection.execute(sa.insert(t.drill_schedules).values(row))


async def turns(world: World) -> list[Mapping[str, Any]]:
    return [row for row in await world.rows(t.commands) if row["verb"] == "drill"]


async def running(world: World, slots: int) -> list[str]:
    await world.submit(completions=slots)
    await world.settle()
    for slot in range(slots):
        await world.start(f"{slot}/1")
    return sorted(one["metadata"]["name"] for one in await world.all_documents())


async def test_a_schedule_drills_an_attempt_and_goes_on(world: World) -> None:
    names = await running(world, 3)
    await schedule(world)
    await world.settle()
    assert await turns(world) == []  # the first turn is drawn, not taken
    (row,) = await world.rows(t.drill_schedules)
    first = row["next_at"]
    wait = (first - world.clock.now()).total_seconds()
    await world.settle(wait - 1)
    assert await turns(world) == []
    await world.settle(1)

    (turn,) = await turns(world)
    assert turn["target"] in names
    assert (turn["outcome"], turn["asked_by"]) == ("Applied", "schedule")
    ((handle, fault),) = world.fake.injections
    assert fault.kind == "node-loss"
    (row,) = await world.rows(t.drill_schedules)
    assert row["next_at"] > first
    key = next(key for key, one in world.fake.machines.items() if one.handle == handle)
    world.fake.become(key, condition=MachineCondition.FAILED)
    await world.settle(5)
    lost = [one for one in await world.all_documents() if one["status"]["phase"] == "Failed"]
    assert [one["metadata"]["name"] for one in lost] == [turn["target"]]
    assert lost[0]["status"]["interruption"]["trigger"] == "Drill"


async def test_a_preemption_turn_has_the_usual_notice(world: World) -> None:
    await running(world, 1)
    await schedule(world, trigger="preemption", next_at=world.clock.now())
    await world.settle()
    (turn,) = await turns(world)
    assert turn["body"] == {"trigger": "preemption", "noticeSeconds": 30}
    assert len(world.fake.signals) == 1


async def test_a_turn_without_an_attempt_passes(world: World) -> None:
    await world.submit()
    await world.settle()  # Starting: its heartbeats cannot fail yet
    await schedule(world, trigger="heartbeat", next_at=world.clock.now())
    await world.settle()
    assert await turns(world) == []
    (row,) = await world.rows(t.drill_schedules)
    assert row["next_at"] > world.clock.now()


async def test_turns_that_nobody_took_are_not_made_up_for(world: World) -> None:
    await running(world, 4)
    await schedule(world, per_hour=Decimal(3600), next_at=world.clock.now())
    await world.settle(600)
    assert len(await turns(world)) == 1
    await world.settle(0)
    (row,) = await world.rows(t.drill_schedules)
    assert row["next_at"] > world.clock.now()


async def test_a_long_absence_begins_the_schedule_anew(world: World) -> None:
    await running(world, 1)
    await schedule(world, per_hour=Decimal(3600), next_at=world.clock.now())
    await world.clock.advance(10_000)
    await world.settle()
    (row,) = await world.rows(t.drill_schedules)
    assert row["next_at"] > world.clock.now()
    assert len(await turns(world)) <= 1


async def test_a_crash_after_the_turn_asks_for_one_drill(world: World) -> None:
    await running(world, 2)
    await schedule(world, next_at=world.clock.now())
    passes = await world.lead("next")
    await passes.step("drill turns")
    assert len(await turns(world)) == 1
    await world.lead("third")
    await world.settle()
    assert len(await turns(world)) == 1
    assert len(world.fake.injections) == 1


async def test_a_schedule_of_no_known_trigger_harms_no_other(world: World) -> None:
    await running(world, 1)
    async with world.database.transaction() as connection:
        row = {"name": "other", "organization": "default"}
        await connection.execute(t.projects.insert().values(row))
    await schedule(world, next_at=world.clock.now())
    await schedule(world, project="other", trigger="flood", next_at=world.clock.now())
    await world.settle()
    assert len(await turns(world)) == 1
