"""A rank's peers in a step that one rank called for: each is moved by its own rows alone."""

from tests.scheduler.gangs import stages, start_gang, submit_gang
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
