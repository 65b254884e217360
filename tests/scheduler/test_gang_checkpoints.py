"""A gang commits together, and goes on from the same seq on every rank (SC-141, SC-142)."""

from typing import Any

import pytest
from tests.scheduler.gangs import (
    SHA,
    end,
    lose,
    propose,
    register,
    run_gang,
    save_together,
    stages,
    start_gang,
    stop_by_order,
)
from tests.scheduler.invariants import check
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.storage.checkpoint_store import Verdict

RESTARTABLE = {"checkpoint": {"restartable": True}}
HALF = {"completed": 50, "total": 100}


async def committed(world: World) -> list[tuple[str, int, int]]:
    rows = await world.rows(t.checkpoints)
    return sorted((row["slot"], row["seq"], row["epoch"]) for row in rows)


async def test_a_checkpoint_waits_for_every_rank(world: World) -> None:  # SC-142
    runners = await run_gang(world, 3, **RESTARTABLE)
    for runner in runners[:2]:
        assert await propose(runner, 1) is Verdict.PENDING
    await world.settle(1)
    assert await committed(world) == []
    assert len(await world.rows(t.machine_events)) == 2
    for runner in runners[:2]:  # who asks again is told to wait, and adds nothing
        assert await propose(runner, 1) is Verdict.KEPT
    assert await world.rows(t.runner_reports) == []
    assert await propose(runners[0], 1, "cd" * 32) is Verdict.REFUSED

    await propose(runners[2], 1)
    await world.settle(1)
    assert await committed(world) == [("0", 1, 1), ("1", 1, 1), ("2", 1, 1)]
    assert await world.rows(t.machine_events) == []
    for runner in runners:
        assert await propose(runner, 1) is Verdict.COMMITTED
    documents = await world.documents()
    assert all(
        one["status"]["checkpoints"] == {"count": 1, "lastSeq": 1} for one in documents.values()
    )
    last = max(await world.rows(t.changes), key=lambda row: int(row["rev"]))
    together = [row for row in await world.rows(t.changes) if row["tx"] == last["tx"]]
    assert len(together) == 3  # in one transaction
    assert {row["last_seq"] for row in await world.rows(t.slots)} == {1}
    await check(world)


async def test_what_waits_survives_the_scheduler(world: World) -> None:  # SC-142, SC-605
    runners = await run_gang(world, 2)
    await propose(runners[0], 1, cursor=HALF)
    await world.settle(1)
    await world.lead()
    await propose(runners[1], 1)
    await world.settle(1)
    assert await committed(world) == [("0", 1, 1), ("1", 1, 1)]
    kept = {row["slot"]: row["cursor_completed"] for row in await world.rows(t.checkpoints)}
    assert kept == {"0": 50, "1": None}


async def test_every_rank_goes_on_from_the_same_seq(world: World) -> None:  # P-24, scenario 30
    runners = await run_gang(world, 3, **RESTARTABLE)
    await save_together(world, runners, 1, cursor=HALF)
    await save_together(world, runners, 2, cursor=HALF)
    await propose(runners[0], 3)
    await world.settle(1)
    lose(world, runners[1])
    await world.settle(1)
    assert await world.rows(t.machine_events) == []  # what waited is dropped
    assert await propose(runners[0], 3) is Verdict.REFUSED
    assert await propose(runners[2], 3) is Verdict.REFUSED
    await stop_by_order(world, runners[0], runners[2])
    await world.settle(5)

    documents = await world.documents()
    for rank in range(3):
        assert documents[f"{rank}/2"]["spec"]["restoreFrom"] == {"seq": 2, "cursor": HALF}
    second = await start_gang(world, 2, 3)
    restores = [runner.intent.incarnation.restore for runner in second]
    assert [(one.seq, one.uri) for one in restores if one] == [
        (2, f"file:///store/{rank}/1/2") for rank in range(3)
    ]
    await save_together(world, second, 3)
    assert ("1", 3, 2) in await committed(world)
    await check(world)


async def test_a_rank_that_ended_ends_the_saving(world: World) -> None:  # SC-142
    runners = await run_gang(world, 2)
    await propose(runners[1], 1)
    await end(runners[0])
    await world.settle(1)
    assert await world.rows(t.machine_events) == []
    assert await propose(runners[1], 1) is Verdict.REFUSED
    assert await world.rows(t.runner_reports) == []
    await end(runners[1])
    await world.settle(5)
    assert (await world.workload())["state"] == "Succeeded"


@pytest.mark.parametrize(("between", "seq"), [(0, 1), (1, 1), (-1, None)])
async def test_what_all_ranks_saved_before_one_ended_counts(
    world: World, between: int, seq: int | None
) -> None:  # SC-142: also if one pass hears of all of it; -1: the other rank saved later
    runners = await run_gang(world, 2, **RESTARTABLE)
    await runners[0].report("checkpoint", **a_checkpoint(0), age=5)
    await runners[0].report("exited", exitCode=3, signal=None, oom=False, age=3)
    await runners[1].report("checkpoint", **a_checkpoint(1), age=3 + between)
    await world.settle()

    assert await stages(world, 1) == ["Failed CustomerExit", "Running"]
    wanted = [] if seq is None else [("0", seq, 1), ("1", seq, 1)]
    assert await committed(world) == wanted
    assert {row["last_seq"] for row in await world.rows(t.slots)} == {seq or 0}
    documents = await world.documents()
    counts = [documents[f"{rank}/1"]["status"]["checkpoints"]["count"] for rank in range(2)]
    assert counts == [seq or 0] * 2
    await check(world)


def a_checkpoint(rank: int) -> dict[str, Any]:
    return {"seq": 1, "bytes": 7, "uri": f"file:///store/{rank}/1/1", "sha256": SHA}


async def test_ranks_save_while_they_are_stopped(world: World) -> None:  # SC-013, SC-142
    runners = await run_gang(world, 2)
    await world.ask("suspend")
    await world.settle(1)
    await save_together(world, runners, 1)
    await stop_by_order(world, *runners)
    await world.ask("resume")
    await world.settle(1)
    documents = await world.documents()
    assert [documents[f"{rank}/2"]["spec"]["restoreFrom"]["seq"] for rank in range(2)] == [1, 1]


async def test_a_checkpoint_lost_on_one_rank_is_lost_on_all(world: World) -> None:  # SC-141
    runners = await run_gang(world, 3, **RESTARTABLE)
    await save_together(world, runners, 1)
    await save_together(world, runners, 2)
    lose(world, runners[0])
    await world.settle(1)
    await stop_by_order(world, *runners[1:])
    await world.settle(5)
    second = await register(world, "0/2", "1/2", "2/2")
    for runner in (second[0], second[2]):  # the barrier is open: these two run already
        await runner.report("canStart")
    await world.settle(1)
    for runner in (second[0], second[2]):
        await runner.report("started", restoreBytes=7)
    await world.settle(1)
    await second[1].report("exited", error="CheckpointUnavailable")
    await world.settle(1)
    await stop_by_order(world, second[0], second[2])
    await world.settle(30)

    assert await stages(world, 2) == [
        "Stopped Released", "Failed CheckpointUnavailable", "Stopped Released",
    ]  # fmt: skip
    kept: dict[int, set[Any]] = {}
    for row in await world.rows(t.checkpoints):
        kept.setdefault(row["seq"], set()).add(row["deleted"] is None)
    assert kept == {1: {True}, 2: {False}}
    documents = await world.documents()
    assert [documents[f"{rank}/3"]["spec"]["restoreFrom"]["seq"] for rank in range(3)] == [1] * 3
    covered = (await world.status("0/2"))["actual"]["segments"]["coveredByNodus"]
    assert covered == ["Teardown"]  # SC-520: a restart after a fault of Nodus
    await check(world)
