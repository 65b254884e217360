"""What the loop learns of offers, in the transactions that learn it, and what it is used for."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.test_drills import CAPABLE, drill
from tests.scheduler.world import Runner, World

from nodus_api.kernel.experience import Experience, Outcome
from nodus_api.kernel.vocabulary import Market
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import MachineCondition, NoCapacity


async def learnt(world: World, market: Market = Market.ON_DEMAND) -> Experience:
    (row,) = [one for one in await world.rows(t.offering_stats) if one["market"] == market.value]
    kept = row["stats"].get("experience")
    return Experience(at=row["updated"]) if kept is None else Experience.from_json(kept)


async def teach(world: World, *outcomes: Outcome) -> None:
    """Write outcomes of this moment as if earlier machines had had them."""
    known = Experience(at=world.clock.now())
    for outcome in outcomes:
        known = known.after(outcome, world.clock.now())
    async with world.database.transaction() as connection:
        await connection.execute(
            sa.update(t.offering_stats).values(stats={"experience": known.to_json()})
        )


async def works(world: World, runner: Runner, seconds: float) -> None:
    """Let the program run for a while, and its runner say so at the end of it."""
    await world.clock.advance(seconds)
    await runner.report("heartbeat")
    await world.settle()


def counted(known: Experience) -> tuple[float, ...]:
    return tuple(
        round(one, 3)
        for one in (sum(known.grant), sum(known.boot), known.successes, known.failures)
    )


async def test_a_life_teaches_its_waits_its_success_and_its_time(world: World) -> None:  # SC-205
    runner = await world.run()
    started = await learnt(world)
    await works(world, runner, 7200)
    await runner.report("exited", exitCode=0)
    await world.settle()
    ended = await learnt(world)

    assert counted(started) == (1, 1, 1, 0)
    assert started.exposure_hours == 0.0  # it is not over
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert ended.exposure_hours == pytest.approx(7202 / 3600)
    assert ended.interruptions == 0.0
    assert sum(ended.teardown) == pytest.approx(1)
    assert ended.successes == pytest.approx(0.5 ** (7200 / 21600))  # SC-361


async def test_lost_capacity_counts_and_the_next_prediction_knows(world: World) -> None:  # SC-352
    world.supplier = FakeSupplier(world.clock, offered=[an_offer(spot="0.02")])
    runner = await world.run(
        checkpoint={"restartable": True}, placement={"interruptible": "Require"}
    )
    await works(world, runner, 36_000 - 2)
    world.fake.become(
        runner.intent.key, condition=MachineCondition.FAILED, reclaimed=True, exit=None
    )
    await world.settle()
    known = await learnt(world, Market.SPOT)

    first, second = await world.status("0/1"), await world.status("0/2")
    assert first["reason"] == "Preempted"
    assert known.interruptions == 1.0
    assert known.exposure_hours == pytest.approx(10.0, abs=0.01)
    assert known.failures == 0.0  # SC-361: λ carries it
    assert first["predicted"]["interruptionRate"] == "0.05"  # SC-351: as it was placed
    assert float(second["predicted"]["interruptionRate"]) == pytest.approx(2 / 30, abs=1e-4)


async def test_a_drill_counts_as_time_alone(world: World) -> None:  # SC-352, SC-630
    world.fake.caps = CAPABLE
    runner = await world.run(checkpoint={"restartable": True})
    await works(world, runner, 3598)
    await drill(world, "node-loss")
    await world.settle()
    world.fake.vanish(runner.intent.key)
    for _ in range(3):
        await world.settle(30)
    known = await learnt(world)

    assert (await world.status())["interruption"]["trigger"] == "Drill"
    assert (known.interruptions, round(known.failures, 3)) == (0.0, 0.0)
    assert known.exposure_hours > 0.99


async def test_a_stop_counts_as_time_alone(world: World) -> None:  # SC-352
    runner = await world.run()
    await works(world, runner, 3598)
    await world.ask("stop")
    await world.settle()
    await runner.report("exited", exitCode=143, stopAgeMs=10)
    await world.settle()
    known = await learnt(world)

    assert (await world.status())["interruption"]["trigger"] == "User"
    assert known.interruptions == 0.0
    assert known.exposure_hours == pytest.approx(1.0, abs=0.01)


async def test_a_refusal_is_a_failure_until_it_fades(world: World) -> None:  # SC-360, SC-361
    world.fake.refusals = [NoCapacity("none left")]
    await world.submit()
    await world.settle()
    known = await learnt(world)

    assert counted(known) == (0, 0, 0, 1)
    assert known.faded(known.at + timedelta(hours=6)).failures == 0.5


async def test_a_machine_that_never_registers_is_a_failure(world: World) -> None:  # SC-360
    await world.submit()
    await world.settle()
    for _ in range(21):
        await world.settle(30)
    known = await learnt(world)

    assert (await world.status())["reason"] == "StartupTimeout"
    assert known.failures == pytest.approx(1, abs=0.01)
    assert known.successes == 0.0


async def test_an_offer_that_delivers_too_seldom_comes_last(world: World) -> None:  # SC-361
    world.supplier = FakeSupplier(
        world.clock, offered=[an_offer(), an_offer("other-4c", rate="0.60")]
    )
    await world.settle()
    stats = await world.rows(t.offering_stats)
    async with world.database.transaction() as connection:
        bad = Experience(at=world.clock.now(), failures=20.0)
        await connection.execute(
            sa.update(t.offering_stats)
            .where(t.offering_stats.c.offer == stats[0]["offer"])
            .values(stats={"experience": bad.to_json()})
        )
    await world.settle(10)
    await world.submit()
    await world.settle()
    chosen: dict[str, Any] = (await world.status())["placement"]

    assert chosen["offering"] == "other-4c"
    assert [one["reason"] for one in chosen["explain"]["rejected"]] == ["Unhealthy"]


async def test_starting_lasts_as_long_as_the_class_is_known_to_need(world: World) -> None:  # SC-613
    await world.settle()
    await teach(world, *[Outcome(boot_seconds=500.0)] * 500)
    await world.settle(10)
    await world.submit()
    await world.settle()
    for _ in range(40):
        await world.settle(30)

    assert await world.stage() == "Starting"  # after 1,200 s; its boots take up to 600 s
    for _ in range(20):
        await world.settle(30)
    assert (await world.status())["reason"] == "StartupTimeout"  # at most 3 x 600 s


async def test_what_was_learnt_outlives_the_reign(world: World) -> None:  # SC-205
    await world.run()
    before = await learnt(world)
    await world.lead("another")
    await world.settle()

    assert await learnt(world) == before
    assert world.passes is not None
    catalog = await world.passes.loop.view.look(world.clock.now())
    (candidate,) = catalog.snapshot
    assert candidate.stats.successes == pytest.approx(1, abs=0.001)
