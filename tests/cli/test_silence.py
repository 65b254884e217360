"""`nodus explain` of an Attempt whose runner fell silent (SC-614)."""

from datetime import timedelta

import pytest
from tests.cli.told_lives import facts_of, told
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import World

from nodus_api.clock import ManualClock
from nodus_api.metav1.times import format_time
from nodus_api.storage.engine import Database
from nodus_api.suppliers.supplier import Ambiguous


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> World:
    return World(scheduler_database, clock, FakeSupplier(clock))


def after(world: World, seconds: float) -> str:
    """Return the time so many seconds from now."""
    return format_time(world.clock.now() + timedelta(seconds=seconds))


async def test_a_silence_is_named_with_its_start_and_its_ends(world: World) -> None:
    runner = await world.run()
    await world.settle(20)
    await runner.report("heartbeat")
    await world.settle()
    heard, soon, late = after(world, 0), after(world, 120), after(world, 600)
    await world.settle(60)
    assert "silence" not in await facts_of(world)

    await world.settle(30)
    assert (await facts_of(world))["silence"] == {
        "lastHeardTime": heard,
        "seconds": 90,
        "lostIfNotVouchedTime": soon,
        "lostTime": late,
    }
    assert (
        f"Nothing was heard of its runner since {heard} (90s).\n"
        f"  given up as lost at {late}, after 10 minutes of silence if its machine is said to run,"
        f" else at {soon}, after 2 minutes\n"
    ) in await told(world)

    for _ in range(9):
        await world.settle(30)
    assert (await facts_of(world))["silence"] == {
        "lastHeardTime": heard,
        "seconds": 360,
        "lostTime": late,
    }
    assert (
        f"Nothing was heard of its runner since {heard} (6m).\n"
        f"  its machine is said to run, so it is given up as lost at {late},"
        " after 10 minutes of silence\n"
    ) in await told(world)

    await runner.report("heartbeat")
    await world.settle(1)
    assert "silence" not in await facts_of(world)
    assert "Nothing was heard" not in await told(world)


@pytest.mark.parametrize("vouched", [True, False])
async def test_the_told_end_is_the_one_that_comes(world: World, *, vouched: bool) -> None:
    await world.run()

    async def away(handles: object) -> object:
        raise Ambiguous("no answer")

    if not vouched:
        world.fake.observe = away  # type: ignore[method-assign, assignment]  # its API is down
    for _ in range(3):
        await world.settle(25)
    told_end = (await facts_of(world))["silence"]["lostTime" if vouched else "lostIfNotVouchedTime"]
    while format_time(world.clock.now()) < told_end:
        assert await world.stage() == "Running"  # what was lost stays so: long steps miss nothing
        await world.settle(30 if after(world, 40) < told_end else 5)
    await world.settle(5)
    assert (await world.status())["interruption"]["trigger"] == "HeartbeatLoss"
    assert "silence" not in await facts_of(world)


async def test_a_time_without_a_scheduler_is_not_counted(world: World) -> None:
    await world.run()
    heard = after(world, 0)
    for _ in range(4):
        await world.settle(30)
    seen = after(world, 0)
    await world.clock.advance(300)
    assert (await facts_of(world))["silence"] == {
        "lastHeardTime": heard,
        "seconds": 420,
        "noSchedulerSinceTime": seen,
    }
    assert (
        f"since {heard} (7m).\n"
        f"  no scheduler has been at work since {seen}; silence counts from its return\n"
    ) in await told(world)

    await world.lead("next")
    since, late = after(world, 0), after(world, 600)
    for seconds in (0, 30, 30, 30, 30):  # not yet suspected again, and then suspected
        await world.settle(seconds)
        silence = (await facts_of(world))["silence"]
        assert (silence["countedFromTime"], silence["lostTime"]) == (since, late)
    assert (
        f"  silence counts from {since}, when a scheduler came back after a time without one\n"
        in await told(world)
    )


async def test_a_short_change_of_leaders_forgives_nothing(world: World) -> None:
    await world.run()
    for _ in range(4):
        await world.settle(30)
    before = (await facts_of(world))["silence"]["lostTime"]
    await world.lead("next")
    await world.settle(5)
    silence = (await facts_of(world))["silence"]
    assert ("countedFromTime" in silence, silence["lostTime"]) == (False, before)
