"""`nodus explain` of how far a program is, as its last checkpoint tells (SC-142, SC-641)."""

from typing import Any

import pytest
from tests.cli.told_lives import SHA, facts_of, told
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import Runner, World

from nodus_api.clock import ManualClock
from nodus_api.metav1.times import format_time
from nodus_api.storage.engine import Database
from nodus_api.suppliers.supplier import MachineCondition


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> World:
    return World(scheduler_database, clock, FakeSupplier(clock))


async def save(world: World, runner: Runner, seq: int, **cursor: Any) -> str:
    """Let a program save, and return when."""
    await world.settle(10)
    at = format_time(world.clock.now())
    uri = f"file:///s/0/1/{seq}"
    await runner.report("checkpoint", seq=seq, bytes=7, uri=uri, sha256=SHA, **cursor)
    await world.settle()
    return at


async def test_the_last_checkpoint_tells_how_far_the_program_is(world: World) -> None:
    runner = await world.run(checkpoint={"restartable": True})
    assert "lastCheckpoint" not in await facts_of(world)
    assert "checkpoint" not in await told(world)

    await save(world, runner, 1, cursor={"completed": 15, "total": 60})
    at = await save(world, runner, 2, cursor={"completed": 30, "total": 60})
    saved = {"seq": 2, "committedTime": at, "cursor": {"completed": 30, "total": 60}}
    assert (await facts_of(world))["lastCheckpoint"] == saved
    line = f"\nIts last checkpoint is 2, at 30 of 60, committed at {at}.\n"
    assert line in await told(world)

    world.fake.become(
        runner.intent.key, condition=MachineCondition.FAILED, ended_at=world.clock.now()
    )
    await world.settle(15)
    assert (await facts_of(world))["lastCheckpoint"] == saved
    assert "Its last checkpoint is" not in await told(world)
    await world.start("0/2")
    second = await told(world, "0/2")
    assert "slot 0, epoch 2, goes on from checkpoint 2 at 30 of 60\n" in second
    assert "Its last checkpoint" not in second  # this epoch saved nothing yet


async def test_a_checkpoint_without_a_cursor_is_told_by_its_number(world: World) -> None:
    runner = await world.run()
    at = await save(world, runner, 1)
    assert (await facts_of(world))["lastCheckpoint"] == {"seq": 1, "committedTime": at}
    assert f"Its last checkpoint is 1, committed at {at}.\n" in await told(world)
