"""What suppliers' clocks tell: never trusted beyond what can be, and counted (SC-006, SC-615)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.suppliers.supplier import (
    DeletionObservation,
    ExitRecord,
    MachineCondition,
    MachineIntent,
    MachineView,
)


def counted(world: World, of: str) -> float:
    assert world.passes is not None
    metrics = world.passes.loop.metrics
    return float(metrics.skewed.labels(of=of)._value.get())


def clamped(world: World, event: str) -> float:
    assert world.passes is not None
    return float(world.passes.loop.metrics.clamped.labels(event=event)._value.get())


def telling_starts(world: World, off: float) -> None:
    """Let the supplier tell starts of billing by a clock that is off."""
    create = world.fake.create

    async def created(intent: MachineIntent) -> MachineView:
        view = await create(intent)
        return replace(view, billing_start=world.clock.now() + timedelta(seconds=off))

    world.fake.create = created  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("off", "skews", "clamps"), [(-120, 1, 1), (-4, 0, 1), (0, 0, 0), (4, 0, 0), (120, 1, 0)]
)
async def test_a_start_of_billing_lies_between_the_request_and_now(
    world: World, off: float, skews: int, clamps: int
) -> None:  # SC-503, SC-615, SC-006
    telling_starts(world, off)
    await world.submit()
    await world.settle()

    timings = (await world.status())["timings"]
    assert timings["billingStartTime"] == timings["acquiredTime"]
    assert counted(world, "billing") == skews
    assert clamped(world, "CapacityGranted") == clamps
    await check(world)


@pytest.mark.parametrize(("off", "skews"), [(-120, 1), (-2, 0), (120, 1)])
async def test_a_loss_lies_between_the_last_sign_of_life_and_now(
    world: World, off: float, skews: int
) -> None:  # SC-015, SC-615
    runner = await world.run()
    await world.clock.advance(60)
    await runner.report("heartbeat")
    await world.settle()
    world.fake.become(
        runner.intent.key,
        condition=MachineCondition.FAILED,
        ended_at=world.clock.now() + timedelta(seconds=off),
    )
    await world.settle(5)

    lost = (await world.status("0/1"))["interruption"]["lostSeconds"]
    assert lost == (65 if off > 0 else 60)
    assert counted(world, "loss") == skews
    await check(world)


@pytest.mark.parametrize(("off", "skews"), [(0, 0), (120, 1)])
async def test_an_exit_does_not_lie_ahead(world: World, off: float, skews: int) -> None:  # SC-615
    runner = await world.run()
    await world.clock.advance(60)
    at = world.clock.now() + timedelta(seconds=off)
    told = ExitRecord(at=at, exit_code=0, signal=None, started_age=60.0)
    world.fake.become(runner.intent.key, condition=MachineCondition.GONE, exit=told)
    await world.settle()

    status = await world.status()
    assert (status["phase"], status["timings"]["finishedTime"]) == (
        "Succeeded",
        f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ}",
    )
    assert counted(world, "exit") == skews


@pytest.mark.parametrize(("off", "skews", "clamps"), [(-5, 0, 1), (0, 0, 0), (120, 1, 0)])
async def test_a_deletion_lies_between_the_end_and_now(
    world: World, off: float, skews: int, clamps: int
) -> None:  # SC-503, example 9 of section 5
    prove = world.fake.prove_deleted

    async def proven(handle: str) -> DeletionObservation:
        look = await prove(handle)
        return replace(look, at=world.clock.now() + timedelta(seconds=off))

    world.fake.prove_deleted = proven  # type: ignore[method-assign]
    runner = await world.run()
    await world.clock.advance(60)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()

    timings = (await world.status())["timings"]
    assert timings["deletionProvenTime"] == timings["finishedTime"]
    assert counted(world, "deletion") == skews
    assert clamped(world, "DeletionProven") == clamps
    await check_quiet(world)
