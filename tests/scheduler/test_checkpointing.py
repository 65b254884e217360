"""Checkpoints on the server's side: committed in order, once, by the epoch that may (SC-142)."""

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import sqlalchemy as sa
from tests.scheduler.invariants import check
from tests.scheduler.world import Runner, World

from nodus_api.kernel.vocabulary import Stage
from nodus_api.scheduler.listening import unix_socket
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.reports import PATH, RETRY_MS, ReportServer
from nodus_api.storage import tables as t
from nodus_api.storage.errors import StorageConflict
from nodus_api.storage.records import AttemptRecord, Commit
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.supplier import ExitRecord, MachineCondition, MachineIntent
from nodus_api.tasks import spawn

SHA = "ab" * 32
OTHER = "cd" * 32
RESTARTABLE = {"checkpoint": {"restartable": True}}
PENDING = {"orders": [], "retryMs": RETRY_MS}


@dataclass
class Line:
    """One runner's connection to a report server."""

    client: httpx.AsyncClient
    intent: MachineIntent
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(100))

    async def propose(
        self, seq: int, sha256: str = SHA, *, n: int | None = None, **fields: Any
    ) -> tuple[int, dict[str, Any]]:
        body = {
            "attempt": str(self.intent.attempt_uid),
            "epoch": self.intent.epoch,
            "n": next(self.numbers) if n is None else n,
            "kind": "checkpoint",
            "ageMs": 0,
            "seq": seq,
            "bytes": 7,
            "uri": f"file:///store/0/{self.intent.epoch}/{seq}",
            "sha256": sha256,
        } | fields
        headers = {"Authorization": f"Bearer {self.intent.token}"}
        answer = await self.client.post(PATH, content=json.dumps(body), headers=headers)
        return answer.status_code, answer.json()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    folder, stop = Path(tempfile.mkdtemp(prefix="nodus-")), asyncio.Event()

    async def wake() -> None:
        return

    server = ReportServer(
        ReportStore(world.database),
        wake=wake,
        metrics=LoopMetrics(),
        new_id=lambda: UUID(int=1),
    )
    serving = spawn("reports", server.serve([unix_socket(folder / "s")], stop))
    transport = httpx.AsyncHTTPTransport(uds=str(folder / "s"), retries=5)
    async with httpx.AsyncClient(transport=transport, base_url="http://runner") as client:
        yield client
    stop.set()
    await serving
    shutil.rmtree(folder)


async def a_runner(world: World, **spec: Any) -> Runner:
    """Return the runner of a Job whose program runs."""
    await world.submit(**(RESTARTABLE | spec))
    await world.settle()
    return await world.start()


async def lose(world: World, which: str) -> None:
    """Take an Attempt's machine away, and let its replacement be acquired."""
    intent = (await world.runner(which)).intent
    world.fake.become(intent.key, condition=MachineCondition.FAILED)
    await world.settle(1)


async def save(world: World, runner: Runner, seq: int, **fields: Any) -> None:
    body: dict[str, Any] = {"seq": seq, "bytes": 7, "uri": f"file:///{seq}", "sha256": SHA}
    await runner.report("checkpoint", **(body | fields))
    await world.settle()


async def test_a_checkpoint_is_visible_once_it_is_answered(
    world: World, client: httpx.AsyncClient
) -> None:  # SC-142, SC-645
    runner = await a_runner(world)
    line = Line(client, runner.intent)

    first = await line.propose(1, cursor={"completed": 120, "total": 1000})
    assert first == (200, PENDING)
    assert await world.rows(t.checkpoints) == []
    assert (await world.status())["checkpoints"] == {"count": 0}

    await world.settle(1)
    again = await line.propose(1, cursor={"completed": 120, "total": 1000})
    assert again == (200, {"orders": [], "committed": 1})
    (row,) = await world.rows(t.checkpoints)
    told = ("slot", "seq", "epoch", "bytes", "uri", "cursor_completed", "cursor_total", "deleted")
    assert [row[name] for name in told] == [
        *("0", 1, 1, 7, "file:///store/0/1/1", 120, 1000, None),
    ]
    assert row["sha256"].hex() == SHA
    assert (await world.status())["checkpoints"] == {"count": 1, "lastSeq": 1}
    assert [slot["last_seq"] for slot in await world.rows(t.slots)] == [1]


async def test_a_replay_is_answered_alike_and_changes_nothing(
    world: World, client: httpx.AsyncClient
) -> None:  # SC-142
    line = Line(client, (await a_runner(world)).intent)
    await line.propose(1, n=100)
    await line.propose(1, n=101)
    await world.settle(1)
    await line.propose(2, n=102)
    await world.settle(1)
    before = await world.rows(t.checkpoints)

    answers = [await line.propose(seq, n=n) for seq in (1, 2) for n in (100, 101, 102, 103)]
    await world.settle(1)

    assert answers == [(200, {"orders": [], "committed": seq}) for seq in (1, 2) for _ in range(4)]
    assert await world.rows(t.checkpoints) == before
    assert (await world.status())["checkpoints"] == {"count": 2, "lastSeq": 2}


@pytest.mark.parametrize(
    ("seq", "sha256"), [(1, OTHER), (4, SHA), (4, OTHER)], ids=["other bytes", "hole", "hole 2"]
)
async def test_out_of_sequence_is_a_conflict(
    world: World, client: httpx.AsyncClient, seq: int, sha256: str
) -> None:  # SC-142
    line = Line(client, (await a_runner(world)).intent)
    for one in (1, 2):
        await line.propose(one)
        await world.settle()

    status, body = await line.propose(seq, sha256)
    await world.settle()

    assert (status, body["reason"]) == (409, "Conflict")
    assert body["details"]["causes"] == [
        {"reason": "OutOfSequence", "field": "lastSeq", "message": "2"}
    ]
    assert len(await world.rows(t.checkpoints)) == 2
    assert await world.stage() == "Running"


async def test_a_checkpoint_may_follow_one_that_waits(
    world: World, client: httpx.AsyncClient
) -> None:
    line = Line(client, (await a_runner(world)).intent)
    assert await line.propose(1) == (200, PENDING)
    assert await line.propose(2, OTHER) == (200, PENDING)
    assert (await line.propose(4))[0] == 409

    await world.settle(1)

    assert [row["seq"] for row in await world.rows(t.checkpoints)] == [1, 2]
    assert (await world.status())["checkpoints"] == {"count": 2, "lastSeq": 2}
    assert await line.propose(2, OTHER) == (200, {"orders": [], "committed": 2})


async def test_repeats_while_nobody_leads_are_kept_once(
    world: World, client: httpx.AsyncClient
) -> None:  # SC-645
    line = Line(client, (await a_runner(world)).intent)

    answers = [await line.propose(1) for _ in range(5)]

    assert answers == [(200, PENDING)] * 5
    assert len(await world.rows(t.runner_reports)) == 1
    assert await line.propose(1, OTHER) == (200, PENDING)
    await world.settle(1)
    assert (await line.propose(1))[1].get("committed") == 1
    assert (await line.propose(1, OTHER))[0] == 409


async def test_an_old_epoch_commits_nothing(
    world: World, client: httpx.AsyncClient
) -> None:  # SC-125, SC-126
    old = Line(client, (await a_runner(world)).intent)
    await old.propose(1)
    await world.settle(1)
    await lose(world, "0/1")
    assert await world.stage("0/2") == "Starting"

    for sha256 in (SHA, OTHER):
        for seq in (1, 2):
            status, body = await old.propose(seq, sha256)
            assert (status, body["reason"]) == (409, "StaleEpoch")
    await world.settle(1)

    assert [(row["epoch"], row["seq"]) for row in await world.rows(t.checkpoints)] == [(1, 1)]


async def test_what_waits_when_the_epoch_ends_is_not_committed(world: World) -> None:  # SC-125
    runner = await a_runner(world)
    await runner.report("exited", exitCode=0)
    await runner.report("checkpoint", seq=1, bytes=7, uri="file:///1", sha256=SHA)
    await world.settle(1)
    assert await world.rows(t.checkpoints) == []
    assert await world.rows(t.runner_reports) == []


async def test_the_statement_itself_refuses_a_wrong_seq_and_an_old_epoch(world: World) -> None:
    runner = await a_runner(world)
    await save(world, runner, 1)
    passes = world.passes
    assert passes is not None
    store, token = passes.loop.attempts, passes.loop.reign.token
    numbers = [row["no"] for row in await world.rows(t.attempts)]

    async def refused(*, seq: int, after: int, epoch: int) -> bool:
        async with world.database.transaction() as connection:
            await connection.execute(sa.update(t.slots).values(current_epoch=epoch))
        try:
            async with store.batch(token, numbers) as batch:
                (record,) = batch.records.values()
                batch.put(committing(record, seq=seq, after=after))
        except StorageConflict as error:
            return error.constraint == "checkpoints_guard"
        return False

    assert await refused(seq=2, after=1, epoch=2)
    assert await refused(seq=1, after=0, epoch=1)
    assert await refused(seq=3, after=2, epoch=1)
    assert [row["seq"] for row in await world.rows(t.checkpoints)] == [1]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"seq": 0}, "seq"),
        ({"seq": "1"}, "seq"),
        ({"bytes": -1}, "bytes"),
        ({"uri": ""}, "uri"),
        ({"uri": "file:///a\0"}, "uri"),
        ({"sha256": "AB" * 32}, "sha256"),
        ({"cursor": {"completed": 3, "total": 2}}, "cursor"),
        ({"cursor": {"completed": 3}}, "cursor.total"),
    ],
)
async def test_a_malformed_proposal_names_its_field(
    world: World, client: httpx.AsyncClient, fields: dict[str, Any], field: str
) -> None:  # SC-641
    line = Line(client, (await a_runner(world)).intent)
    status, body = await line.propose(**({"seq": 1} | fields))
    assert status == 400
    assert f"the report's {field} is wrong" in body["message"]


@pytest.mark.parametrize("by", ["report", "machine"])
async def test_an_end_that_tells_of_the_start_tells_what_was_restored(
    world: World, by: str
) -> None:  # SC-644, T10: the report of the start is lost
    first = await a_runner(world)
    await save(world, first, 1)
    await lose(world, "0/1")
    second = await world.runner("0/2")
    await second.report("registered", checks={}, pullMs=0)
    await second.report("canStart")
    await world.settle(5)

    if by == "report":
        body = {"exitCode": 0, "signal": None, "startAgeMs": 4000, "restoreBytes": 7}
        await second.report("exited", age=1.0, **body)
    else:
        exit_ = ExitRecord(
            at=world.clock.now(),
            exit_code=0,
            signal=None,
            started_age=4.0,
            exit_age=1.0,
            restored_bytes=7,
        )
        world.fake.become(second.intent.key, condition=MachineCondition.GONE, exit=exit_)
    await world.settle()

    status = await world.status("0/2")
    assert status["phase"] == "Succeeded"
    assert status["checkpoints"] == {"count": 0, "restoreBytes": 7}
    await check(world)


async def test_a_replacement_goes_on_from_the_last_commit(world: World) -> None:  # SC-140, SC-141
    runner = await a_runner(world)
    await save(world, runner, 1, cursor={"completed": 100, "total": 1000})
    await world.settle(10)
    await save(world, runner, 2, cursor={"completed": 200, "total": 1000}, uri="file:///two")
    await world.settle(5)
    await runner.report("heartbeat")
    await lose(world, "0/1")

    documents = await world.documents()
    assert documents["0/2"]["spec"]["restoreFrom"] == {
        "seq": 2,
        "cursor": {"completed": 200, "total": 1000},
    }
    assert documents["0/1"]["status"]["interruption"]["lostSeconds"] == 5  # SC-016
    restore = (await world.runner("0/2")).intent.incarnation.restore
    assert restore is not None
    assert (restore.seq, restore.completed, restore.total) == (2, 200, 1000)
    assert (restore.uri, restore.sha256) == ("file:///two", SHA)

    second = await world.runner("0/2")
    await second.report("registered", checks={}, pullMs=0)
    await world.settle(1)
    await second.report("canStart")
    await world.settle()
    await second.report("started", restoreBytes=7)
    await world.settle()
    standing = await second.report("canStart")
    assert standing is not None
    assert standing.last_seq == 2  # the runner counts on from here
    await save(world, second, 3)

    assert (await world.status("0/2"))["checkpoints"] == {
        "count": 1,
        "lastSeq": 3,
        "restoreBytes": 7,
    }
    rows = await world.rows(t.checkpoints)
    assert {row["seq"]: row["prev"] for row in rows} == {1: None, 2: 1, 3: 2}


async def test_a_job_that_is_not_restartable_gets_no_cursor(world: World) -> None:  # SC-141
    runner = await a_runner(world, checkpoint={"restartable": False})
    await save(world, runner, 1, cursor={"completed": 100, "total": 1000})
    await lose(world, "0/1")
    assert (await world.documents())["0/2"]["spec"]["restoreFrom"] == {"seq": 1}


async def test_an_unavailable_checkpoint_is_passed_over(world: World) -> None:  # SC-141
    runner = await a_runner(world)
    await save(world, runner, 1, cursor={"completed": 100, "total": 1000})
    await save(world, runner, 2, cursor={"completed": 200, "total": 1000})
    await lose(world, "0/1")
    second = await world.runner("0/2")
    await second.report("registered", checks={}, pullMs=0)
    await world.settle(1)

    await second.report("exited", exitCode=None, error="CheckpointUnavailable", message="gone")
    await world.settle(1)
    await world.settle(15)  # SC-121: the backoff of a failure

    documents = await world.documents()
    ended = documents["0/2"]["status"]
    assert (ended["phase"], ended["reason"]) == ("Failed", "CheckpointUnavailable")
    assert documents["0/3"]["spec"]["restoreFrom"]["seq"] == 1
    rows = {row["seq"]: row["deleted"] for row in await world.rows(t.checkpoints)}
    assert rows[1] is None
    assert rows[2] is not None
    assert documents["0/1"]["status"]["checkpoints"] == {"count": 2, "lastSeq": 2}


async def test_the_loss_of_a_checkpoint_may_touch_an_epoch_long_over(world: World) -> None:
    runner = await a_runner(world)  # SC-141
    await save(world, runner, 1)
    await lose(world, "0/1")
    await world.start("0/2")
    await lose(world, "0/2")
    await world.settle(30)  # SC-121: the second loss in ten minutes waits
    third = await world.runner("0/3")
    await third.report("registered", checks={}, pullMs=0)
    await world.settle(1)

    await third.report("exited", exitCode=None, error="CheckpointUnavailable", message="gone")
    await world.settle(1)

    assert (await world.status("0/3"))["reason"] == "CheckpointUnavailable"
    assert [row["deleted"] is not None for row in await world.rows(t.checkpoints)] == [True]


async def test_the_loop_itself_leaves_a_hole_and_a_loser_alone(world: World) -> None:  # SC-142
    runner = await a_runner(world)
    body = {"bytes": 7, "uri": "file:///x", "sha256": SHA}
    (lease,) = await world.rows(t.leases)
    now = world.clock.now()
    kept = [
        {
            "machine": lease["machine"],
            "fence": lease["fence"],
            "n": n,
            "kind": "checkpoint",
            "event_at": now,
            "received": now,
            "body": body | {"seq": seq},
        }
        for n, seq in ((101, 3), (102, 1), (103, 1), (104, 3), (105, 2))
    ]
    async with world.database.transaction() as connection:
        await connection.execute(sa.insert(t.runner_reports), kept)
    await world.settle()
    assert [row["seq"] for row in await world.rows(t.checkpoints)] == [1, 2]
    assert await world.stage() == "Running"
    async with world.database.transaction() as connection:
        await connection.execute(sa.update(t.leases).values(won=False))
        await connection.execute(sa.insert(t.runner_reports), [kept[0] | {"n": 106}])
    await world.settle()
    assert len(await world.rows(t.checkpoints)) == 2
    async with world.database.transaction() as connection:
        await connection.execute(sa.update(t.leases).values(won=True))
    assert (await runner.report("heartbeat", n=107)) is not None


async def test_a_commit_obeys_the_order_to_save(world: World) -> None:  # SC-641
    runner = await a_runner(world)
    stop = {"kind": "stop", "graceMs": 1000}
    async with world.database.transaction() as connection:
        orders = [{"kind": "checkpointNow"}, stop]
        await connection.execute(sa.update(t.leases).values(orders=orders))
    standing = await runner.report("heartbeat")
    assert standing is not None
    assert standing.orders == ({"kind": "checkpointNow"}, stop)

    await save(world, runner, 1)

    standing = await runner.report("heartbeat")
    assert standing is not None
    assert standing.orders == (stop,)


async def test_the_interval_is_the_spec_s_or_young_s(world: World) -> None:  # SC-144
    await world.submit("given", checkpoint={"restartable": True, "intervalSeconds": 90})
    await world.submit("chosen", checkpoint={"restartable": True}, estimate={"hours": "0.5"})
    await world.submit("none")
    await world.settle()
    told = {}
    for name in ("given", "chosen", "none"):
        interval = (await world.runner_of(name)).intent.incarnation.checkpoint_interval
        told[name] = None if interval is None else interval.total_seconds()
    assert told["given"] == 90
    assert told["none"] is None
    assert told["chosen"] == 1800  # the work: √(2δ/λ) is more


async def test_the_interval_is_no_longer_than_what_is_left(world: World) -> None:  # SC-144
    runner = await a_runner(world, estimate={"hours": "0.5"})
    await save(world, runner, 1, cursor={"completed": 90, "total": 100})
    await lose(world, "0/1")
    interval = (await world.runner("0/2")).intent.incarnation.checkpoint_interval
    assert interval is not None
    assert interval.total_seconds() == 180


def committing(record: AttemptRecord, *, seq: int, after: int) -> AttemptRecord:
    """Return the record as a decision would leave it that committed `seq` after `after`."""
    commit = Commit(
        seq=seq,
        after=after,
        size=7,
        uri="file:///x",
        sha256=bytes(32),
        cursor=None,
        committed=record.attempt.queued,
    )
    return replace(record, commits=(commit,))


async def test_progress_resets_the_backoff(world: World) -> None:  # SC-121
    runner = await a_runner(world, restart={"maxRetries": 5})
    async with world.database.transaction() as connection:
        await connection.execute(sa.update(t.slots).values(backoff_k=4))
    await save(world, runner, 1)
    await runner.report("exited", exitCode=3)
    await world.settle()
    (slot,) = await world.rows(t.slots)
    assert slot["backoff_k"] == 1
    assert await world.stage("0/1") == Stage.FAILED
