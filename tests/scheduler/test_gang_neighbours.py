"""A rank's peers in a step that one rank called for: each is moved by its own rows alone."""

import sqlalchemy as sa
from tests.scheduler.gangs import end, lose, register, run_gang, stages, start_gang, submit_gang
from tests.scheduler.invariants import check
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import Ambiguous, MachineCondition


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


async def test_a_rank_that_waited_for_its_peers_has_time_to_start(world: World) -> None:
    """Its own limit passed while it waited at the barrier (SC-133, SC-613)."""
    world.fake.slow = {1}
    await submit_gang(world, 2)
    await world.settle()
    (first,) = await register(world, "0/1")
    for _ in range(8):
        await first.report("heartbeat")
        await world.settle(30)
    key = (await world.runner("1/1")).intent.key
    world.fake.become(key, condition=MachineCondition.RUNNING)
    for _ in range(13):
        await first.report("heartbeat")
        await world.settle(30)
    assert await stages(world, 1) == ["Starting"] * 2  # 631 s and 391 s after the grants
    await start_gang(world, 1, 2)
    assert await stages(world, 1) == ["Running"] * 2


async def test_a_gang_that_registered_and_never_starts_is_given_up(world: World) -> None:
    world.fake.slow = {1}  # SC-613
    await submit_gang(world, 2)
    await world.settle()
    await register(world, "0/1")
    await world.settle(200)
    key = (await world.runner("1/1")).intent.key
    world.fake.become(key, condition=MachineCondition.RUNNING)
    await world.settle(3)
    await register(world, "1/1")
    await world.settle(420)
    assert await stages(world, 1) == ["Starting"] * 2
    await world.settle(180)
    assert await stages(world, 1) == ["Lost StartupTimeout", "Stopped Released"]


async def test_the_suppliers_word_bills_no_rank_whose_runner_has_spoken(
    world: World,
) -> None:  # SC-508
    await submit_gang(world, 2)
    await world.settle()
    await register(world, "0/1")
    for _ in range(5):
        await world.settle(25)

    heard, silent = [(await world.status(which))["actual"]["costUSD"] for which in ("0/1", "1/1")]
    assert heard == "0.000000"
    assert silent > "0.001000"


async def test_a_bill_is_not_written_for_a_peers_sake(world: World) -> None:  # SC-508
    """Every write is a watch event: at most one a minute an Attempt, in gangs too."""
    runners = await run_gang(world, 2)
    await world.settle(30)
    await runners[1].report("heartbeat")
    await world.settle(28)
    written = {row["attempt"]: row["rev"] for row in await world.rows(t.attempt_objects)}
    await runners[0].report("heartbeat")
    async with world.database.transaction() as connection:  # rank 1's bill is a second old
        await connection.execute(
            sa.update(t.attempt_work)
            .where(t.attempt_work.c.attempt == max(written))
            .values(accrued=world.clock.now())
        )
    await world.settle(10)
    changed = [
        row["attempt"]
        for row in await world.rows(t.attempt_objects)
        if row["rev"] != written[row["attempt"]]
    ]
    assert changed == [min(written)]
