"""A rank's peers in a step that one rank called for: each is moved by its own rows alone."""

from tests.scheduler.gangs import end, lose, run_gang, stages, start_gang, submit_gang
from tests.scheduler.invariants import check
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import Ambiguous


async def test_reports_of_a_machine_not_granted_yet_wait(world: World) -> None:  # SC-606 step 7
    """A peer's report brings a rank into the batch whose create is not known to have worked."""
    world.fake.after = Ambiguous("no answer")
    await submit_gang(world, 2)
    await world.settle()
    assert await stages(world, 1) == ["Acquiring", "Starting"]
    await start_gang(world, 1, 2)
    assert await stages(world, 1) == ["Running"] * 2
    assert await world.rows(t.runner_reports) == []
    await check(world)


async def test_no_rank_leaves_before_its_peers_are_billed(world: World) -> None:  # SC-520, SC-806
    """The lost rank says who pays for the teardown of the one that is released for it."""
    runners = await run_gang(world, 2)
    lose(world, runners[1])
    await world.settle(1)
    await world.ask("delete")
    await world.settle(1)
    assert await stages(world, 1) == ["Running", "Lost NodeLost"]
    world.fake.deaf_deletes = 1
    await end(runners[0], 143, stopped=True)
    await world.settle(1)
    assert await stages(world, 1) == ["Stopped Released", "Lost NodeLost"]
    await world.settle(30)

    assert await world.documents() == {}
    released, lost = sorted(await world.rows(t.attempts_archive), key=lambda row: str(row["slot"]))
    for row in (released, lost):
        teardown = [one for one in row["ledger"] if one["segment"] == "Teardown"]
        assert all(one["covered"] for one in teardown), row["reason"]
    assert [one["segment"] for one in released["ledger"]][-1] == "Teardown"
