"""Commands, workloads and slots, as the loop reads and writes them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from nodus_api.kernel.attempt import Cursor, RestorePoint
from nodus_api.kernel.vocabulary import OwnerKind, WorkloadState
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.records import Slot, Workload
from nodus_api.storage.workload_store import WorkloadStore, restore_points

UID = UUID("0190c7a2-0000-7000-8000-000000000001")
TRAIN = Workload(
    uid=UID,
    project="default",
    organization="default",
    kind=OwnerKind.JOB,
    name="train",
    spec={"completions": 2, "limits": {"maxCostUSD": "5"}},
    created=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
async def token(scheduler_database: Database) -> int:
    return (await LeaderStore(scheduler_database).take_over("test")).token


async def _submitted(database: Database, token: int, *slots: str) -> WorkloadStore:
    store = WorkloadStore(database)
    async with store.edit(token, UID) as edit:
        assert edit.workload is None
        await edit.put(TRAIN)
        await edit.put_slots([Slot(workload=UID, slot=name) for name in slots])
    return store


async def _command(database: Database, **fields: Any) -> None:
    row = {
        "key": "k1",
        "project": "default",
        "verb": "stop",
        "kind": "Job",
        "target": "train",
        "body": {},
        "asked_by": "ada",
    }
    async with database.transaction() as connection:
        await connection.execute(sa.insert(t.commands).values(row | fields))


async def test_a_workload_is_found_by_its_name(scheduler_database: Database, token: int) -> None:
    store = await _submitted(scheduler_database, token, "0", "1")
    async with store.edit_named(token, project="default", kind=OwnerKind.JOB, name="train") as edit:
        assert edit.workload == TRAIN
        assert sorted(edit.slots) == ["0", "1"]
        assert not any(one.live for one in edit.slots.values())
    async with store.edit_named(
        token, project="default", kind=OwnerKind.BUILD, name="train"
    ) as edit:
        assert edit.workload is None


async def test_a_deleted_workload_frees_its_name(scheduler_database: Database, token: int) -> None:
    store = await _submitted(scheduler_database, token, "0")  # SC-806
    async with store.edit(token, UID) as edit:
        await edit.put(replace(TRAIN, state=WorkloadState.DELETED, ended=edit.now))
    async with store.edit_named(token, project="default", kind=OwnerKind.JOB, name="train") as edit:
        assert edit.workload is None
    found = await store.read(UID)
    assert found is not None
    assert found[0].state is WorkloadState.DELETED


async def test_commands_come_in_order_and_are_answered_once(
    scheduler_database: Database, token: int
) -> None:  # SC-801
    await _command(scheduler_database, key="first", verb="submit", body={"spec": {"a": 1}})
    await _command(scheduler_database, key="second")
    store = WorkloadStore(scheduler_database)
    first, second = await store.open_commands(10)
    assert (first.verb, first.body, second.verb) == ("submit", {"spec": {"a": 1}}, "stop")
    async with store.edit(token, UID) as edit:
        await edit.answer(first, "Applied")
    async with store.edit(token, UID) as edit:
        await edit.answer(first, "Refused", "too late")
    assert [one.key for one in await store.open_commands(10)] == ["second"]
    async with scheduler_database.transaction(read_only=True) as connection:
        query = sa.select(t.commands.c.outcome, t.commands.c.message).order_by(t.commands.c.no)
        assert (await connection.execute(query)).all() == [("Applied", None), (None, None)]


async def test_an_old_token_edits_nothing(scheduler_database: Database, token: int) -> None:
    store = await _submitted(scheduler_database, token, "0")  # SC-602
    await LeaderStore(scheduler_database).take_over("another")
    with pytest.raises(FencedOff):
        async with store.edit(token, UID):
            pytest.fail("a deposed leader got an edit")


async def test_a_slot_restores_its_highest_kept_checkpoint(
    scheduler_database: Database, token: int
) -> None:  # SC-141
    await _submitted(scheduler_database, token, "0", "1")
    made = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "workload": UID,
            "slot": "0",
            "seq": seq,
            "epoch": 1,
            "bytes": 1,
            "uri": "file:///checkpoint",
            "sha256": bytes(32),
            "cursor_completed": 10 * seq,
            "cursor_total": 100,
            "committed": made,
            "deleted": made if seq == 3 else None,
        }
        for seq in (1, 2, 3)
    ]
    async with scheduler_database.transaction() as connection:
        await connection.execute(sa.insert(t.checkpoints), rows)
        found = await restore_points(connection, UID)
    assert found == {"0": RestorePoint(seq=2, cursor=Cursor(completed=20, total=100))}


async def test_a_project_has_an_organization(scheduler_database: Database) -> None:
    store = WorkloadStore(scheduler_database)
    assert await store.organization("default") == "default"
    assert await store.organization("nowhere") is None
