"""What is said of a program's end: kept for people, whoever wrote it (SC-640, SC-644)."""

from tests.scheduler.invariants import check
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import ExitRecord, MachineCondition

FORGED = "gone\0 \ud800\x1b[2J" + "x" * 5_000_000


async def test_forged_words_stop_no_pass_and_move_no_terminal(world: World) -> None:
    """A program may write its machine's final report itself."""
    runner = await world.run()
    told = ExitRecord(at=world.clock.now(), exit_code=3, signal=None, message=FORGED)
    world.fake.become(runner.intent.key, condition=MachineCondition.GONE, exit=told)
    await world.settle()

    assert (await world.status())["reason"] == "CustomerExit"
    [row] = [one for one in await world.rows(t.machine_events) if one["kind"] == "lastWords"]
    said = row["body"]["message"]
    assert said.startswith("gone ")
    assert said.isprintable()
    assert len(said.encode()) <= 1024
    await check(world)
