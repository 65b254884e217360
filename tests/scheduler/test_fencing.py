"""Old tokens, old epochs, old reports: nothing of theirs lands."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.invariants import check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.scheduler.intents import token_hash
from nodus_api.storage import statements
from nodus_api.storage import tables as t
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.report_store import GivenReport, _keep, _row


async def test_a_deposed_leader_writes_nothing(
    world: World,
) -> None:  # P-27, SC-127, SC-602, scenario 40
    old = await world.lead("old")
    new = await world.lead("new")
    assert new.loop.reign.token == old.loop.reign.token + 1
    await world.submit()
    with pytest.raises(FencedOff):
        await old.once()
    with pytest.raises(FencedOff):
        await LeaderStore(world.database).beat(old.loop.reign.token)
    assert await world.documents() == {}
    await world.settle()
    assert await world.stage() == "Starting"
    await world.ask("stop")
    with pytest.raises(FencedOff):
        await old.once()
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 1


async def test_a_stale_epoch_changes_no_row(world: World) -> None:  # P-06, scenario 26, SC-125
    """Scenario 26. Given epoch 2 live, when the old epoch's runner reports a checkpoint, then
    409 and 0 rows (that it kills its program: tests/runner)."""
    await world.submit(restart={"maxRetries": 1})
    await world.settle()
    old = await world.start("0/1")
    await old.report("exited", exitCode=1, signal=None, oom=False)
    await world.settle()
    await world.settle(13)
    await world.start("0/2")
    before = await _everything(world)
    for kind in ("heartbeat", "checkpoint", "started", "exited"):
        standing = await old.report(kind, exitCode=0)
        assert standing is not None
        assert not standing.current
        assert standing.slot_epoch == 2
    await world.settle()
    assert await _everything(world) == before
    assert await world.stage("0/2") == "Running"


async def test_an_unknown_token_has_no_standing(world: World) -> None:
    await world.submit()
    await world.settle()
    runner = await world.runner()
    stranger = Runner(world.database, replace(runner.intent, token="guess"))  # noqa: S106 - a wrong one
    assert await stranger.report("registered") is None
    assert await world.rows(t.runner_reports) == []


async def test_a_replayed_report_changes_nothing(world: World) -> None:  # P-07, SC-641
    await world.submit()
    await world.settle()
    runner = await world.start()
    for n in range(1, 5):
        standing = await runner.report("registered", n=n)
        assert standing is not None
        assert standing.current
    before = await _everything(world)
    await world.settle()
    assert await _everything(world) == before

    await world.clock.advance(9)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await runner.report("exited", n=runner.n, exitCode=5, signal=None, oom=False)
    await world.settle()
    assert (await world.status())["exitCode"] == 0
    standing = await runner.report("exited", n=runner.n, exitCode=5)
    assert standing is not None
    assert standing.current  # the answer was lost; the report was not
    await check_quiet(world)


async def test_what_slipped_in_again_is_skipped_by_the_loop(world: World) -> None:  # SC-641
    """A standby may insert a repeat just while the leader applies and deletes the first."""
    await world.submit()
    await world.settle()
    await world.start()
    (lease,) = await world.rows(t.leases)
    again = {"machine": lease["machine"], "fence": 1, "n": 1, "kind": "exited"}
    times = {"event_at": world.clock.now(), "received": world.clock.now()}
    async with world.database.transaction() as connection:
        row = again | times | {"body": {"exitCode": 5}}
        await connection.execute(sa.insert(t.runner_reports).values(row))
    await world.settle()
    assert await world.stage() == "Running"
    assert await world.rows(t.runner_reports) == []


async def test_the_insert_of_a_report_is_fenced_itself(world: World) -> None:  # SC-125, SC-641
    """Whatever was read before, the one statement that inserts looks again."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    intent = runner.intent
    (lease,) = await world.rows(t.leases)

    async def inserted(n: int, *after: sa.Update, epoch: int = 1) -> int:
        given = GivenReport(
            attempt=intent.attempt_uid,
            epoch=epoch,
            n=n,
            kind="heartbeat",
            age=timedelta(0),
            body={},
        )
        given_row = {"token": token_hash(intent.token)} | _row(given)
        return await _rows_hit(world, _keep(), *after, given=given_row)

    next_n = lease["last_report"] + 1
    assert await inserted(next_n) == 1
    assert await inserted(next_n - 1) == 0
    assert await inserted(next_n, epoch=2) == 0
    for overtaken in _OVERTAKEN:
        assert await inserted(next_n, overtaken) == 0


async def test_the_start_cas_looks_again(world: World) -> None:  # SC-341, T10
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await world.settle()
    (lease,) = await world.rows(t.leases)
    of = {f"of_{name}": lease[name] for name in ("machine", "attempt", "fence")}
    win = statements.win_start()
    assert await _rows_hit(world, win, given=of) == 1
    assert await _rows_hit(world, win, given=of | {"of_fence": 2}) == 0
    for overtaken in _OVERTAKEN:
        assert await _rows_hit(world, win, overtaken, given=of) == 0


async def test_a_start_is_not_granted_to_who_did_not_register(world: World) -> None:  # T9, T10
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("canStart")
    await world.settle()
    assert [row["won"] for row in await world.rows(t.leases)] == [False]


async def test_a_start_is_granted_to_one_machine_alone(world: World) -> None:  # P-05, SC-341
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    for _ in range(3):
        await runner.report("canStart")
    await world.settle()
    leases = await world.rows(t.leases)
    assert [row["won"] for row in leases] == [True]


async def test_a_start_without_a_grant_counts_for_nothing(world: World) -> None:  # T10, SC-341
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("started")
    await world.settle()
    assert await world.stage() == "Starting"
    assert world.passes is not None
    dropped = world.passes.loop.metrics.registry.get_sample_value(
        "nodus_scheduler_dropped_events_total", {"event": "started"}
    )
    assert dropped == 1
    await runner.report("exited", exitCode=0, signal=None, oom=False, startAgeMs=1)
    await world.settle()
    status = await world.status()
    assert (status["reason"], "commandStartedTime" in status["timings"]) == ("InternalError", False)


async def test_a_runner_that_gives_up_while_it_asks_is_heard(world: World) -> None:  # T11, SC-341
    """While no leader is there, a runner may register, ask and end: one pass hears it all."""
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await runner.report("exited", exitCode=None, signal=None, oom=False, error="StartFailed")
    await world.settle()
    assert (await world.status())["reason"] == "StartFailed"
    assert [row["won"] for row in await world.rows(t.leases)] == [False]
    await check_quiet(world)


async def test_no_start_counts_before_its_grant_is_told(world: World) -> None:  # T10, SC-341
    """What comes in one pass with the question cannot rest on the answer."""
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await runner.report("started")
    await world.settle()
    assert await world.stage() == "Starting"
    assert [row["won"] for row in await world.rows(t.leases)] == [True]
    await runner.report("canStart")
    await runner.report("exited", exitCode=0, signal=None, oom=False, startAgeMs=1)
    await world.settle()
    assert await world.stage() == "Succeeded"


async def test_no_start_is_granted_once_a_stop_is_ordered(world: World) -> None:
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await world.ask("stop")
    await runner.report("canStart")
    await world.settle()
    assert [row["won"] for row in await world.rows(t.leases)] == [False]
    standing = await runner.report("canStart")
    assert standing is not None
    assert not standing.current


async def test_the_runners_token_is_stored_as_a_hash(world: World) -> None:  # SC-125
    await world.submit()
    await world.settle()
    token = (await world.runner()).intent.token
    query = sa.text(
        "SELECT count(*) FROM nodus.leases l, nodus.machines m WHERE l::text || m::text LIKE :found"
    )
    async with world.database.transaction(read_only=True) as connection:
        found = await connection.execute(query, {"found": f"%{token}%"})
        assert found.scalar_one() == 0


_OVERTAKEN = (
    sa.update(t.slots).values(current_epoch=2),
    sa.update(t.attempts).values(
        stage="Failed", reason="InternalError", finished=sa.func.nodus.now(), exit_code=None
    ),
    sa.update(t.leases).values(
        held=sa.func.tstzrange(sa.func.lower(t.leases.c.held), sa.text("'infinity'"))
    ),
)
"""Each ends what a runner may still believe in: its epoch, its Attempt, its lease."""


async def _rows_hit(
    world: World,
    statement: sa.Executable,
    *before: sa.Update,
    given: dict[str, Any] | None = None,
) -> int:
    """Return how many rows a statement writes after others; nothing of it stays."""
    async with world.database.transaction() as connection:
        for one in before:
            await connection.execute(one)
        done = await connection.execute(statement, given)
        await connection.rollback()
    return int(done.rowcount)


async def _everything(world: World) -> dict[str, list[object]]:
    """Return all rows that a report could change, but for the loop's own clock."""
    tables = (t.attempts, t.slots, t.machines, t.checkpoints, t.cost_segments, t.attempt_objects)
    return {
        table.name: sorted(map(repr, await world.rows(table)), key=str) for table in tables
    }  # fmt: skip
