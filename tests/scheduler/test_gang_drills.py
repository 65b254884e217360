"""A drill of one rank: the machine that it names is hit, and the gang's restart is the drill's."""

from tests.scheduler.gangs import run_gang, save_together, stages, start_gang, stop_by_order
from tests.scheduler.invariants import check
from tests.scheduler.test_drills import CAPABLE, answer, drill
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import MachineCondition


async def test_a_drill_of_a_rank_hits_that_rank_alone(world: World) -> None:  # SC-630, SC-134
    world.fake.caps = CAPABLE
    runners = await run_gang(world, 3)
    await save_together(world, runners, 1)
    command = await drill(world, "node-loss", "1/1")
    await world.settle(1)

    assert await answer(world, command) == ("Applied", None)
    handles = [handle for handle, _ in world.fake.injections]
    assert handles == [world.fake.machines[runners[1].intent.key].handle]
    world.fake.become(runners[1].intent.key, condition=MachineCondition.FAILED)
    await world.settle(1)
    await stop_by_order(world, runners[0], runners[2])
    await world.settle(5)

    assert await stages(world, 1) == ["Stopped Released", "Lost NodeLost", "Stopped Released"]
    for rank in range(3):
        status = await world.status(f"{rank}/1")
        assert status["interruption"]["trigger"] == "Drill"
        assert status["actual"]["segments"]["teardownUSD"] == "0.000000"
    slots = {row["slot"]: row for row in await world.rows(t.slots)}
    counted = [(row["replacements"], row["retries_used"]) for row in slots.values()]
    assert counted == [(0, 0)] * 3  # a drill counts nowhere (SC-120)
    await start_gang(world, 2, 3)
    restored = [(await world.documents())[f"{rank}/2"]["spec"]["restoreFrom"] for rank in range(3)]
    assert [one["seq"] for one in restored] == [1, 1, 1]
    await check(world)
