"""Which Attempts may be retired: a table of slots, written past the loop, and what is found."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.conftest import START

from nodus_api.storage.engine import Database
from nodus_api.storage.retirement import RetirementStore

WORKLOAD = UUID(int=1)
HOUR = timedelta(hours=1)

Row = dict[str, Any]


def failed(epoch: int, **more: Any) -> Row:
    """Return an Attempt that ended long ago, never started, its machine proven gone."""
    given: Row = {"epoch": epoch, "stage": "Failed", "reason": "NoCapacity", "proven": True}
    return given | more


def live(epoch: int, *, started: bool = False) -> Row:
    return {"epoch": epoch, "stage": "Running" if started else "Pending", "started": started}


def superseded(*rows: Row) -> list[Row]:
    return [*({**row, "next": row["epoch"] + 1} for row in rows[:-1]), rows[-1]]


async def write(
    url: str, rows: Sequence[Row], *, state: str, slot: str, gang: bool, age: timedelta
) -> None:
    """Write one workload with one slot and its Attempts, numbered by their epochs."""
    connection: Any = await asyncpg.connect(url)
    await connection.execute("SET session_replication_role = replica; SET search_path = nodus")
    ended = None if state in ("Active", "Suspended") else "now"
    await connection.execute(
        "INSERT INTO workloads (uid, project, kind, name, spec, state, created)"
        " VALUES ($1, 'default', 'Job', 'train', $2, $3, now())",
        *(WORKLOAD, json.dumps({"ended": ended}), state),
    )
    await connection.execute(
        "INSERT INTO slots (workload, slot, state, current_epoch) VALUES ($1, '0', $2, $3)",
        *(WORKLOAD, slot, max(row["epoch"] for row in rows)),
    )
    for row in rows:
        epoch = row["epoch"]
        over = row["stage"] not in ("Pending", "Running")
        rank = ("g", epoch, 0, 1) if gang else (None, None, None, None)
        await connection.execute(
            "INSERT INTO attempts (no, uid, project, name, workload, slot, epoch, superseded_by,"
            " stage, reason, queued, acquired, billing_start, registered, command_started,"
            " finished, deletion_proven, gang, gang_epoch, gang_rank, gang_size)"
            " OVERRIDING SYSTEM VALUE"
            " SELECT $1::int, gen_random_uuid(), 'default', 'train-' || $1::int, $2, '0', $1::int,"
            " $3, $4, $5,"
            " at, CASE WHEN $6 THEN at END, CASE WHEN $6 THEN at END, CASE WHEN $6 THEN at END,"
            " CASE WHEN $6 THEN at END, CASE WHEN $7 THEN at END, CASE WHEN $8 THEN at END,"
            " $9, $10, $11, $12"
            " FROM (SELECT $13::timestamptz AS at) t",
            *(epoch, WORKLOAD, row.get("next"), row["stage"], row.get("reason")),
            *(row.get("started", False), over, over and row["proven"]),
            *rank,
            START - age,
        )
        if "recovers" in row:
            await connection.execute(
                "INSERT INTO interruptions (attempt, at, trigger, lost_seconds, recovery_seconds)"
                " VALUES ($1, now(), 'HeartbeatLoss', 0, $2)",
                *(epoch, row["recovers"]),
            )
        if row.get("leased"):
            await connection.execute(
                "INSERT INTO leases (machine, attempt, fence, role, held, rate, token_sha256)"
                " VALUES ($1, $1, 1, 'first', tstzrange(now(), now() + interval '1 s'), 1, $2)",
                *(epoch, bytes([epoch]) * 32),
            )
    await connection.close()


LOST = {"stage": "Lost", "reason": "NodeLost", "started": True}

CASES: dict[str, tuple[list[Row], str, str, bool, list[int]]] = {
    "a workload that is over": ([failed(1)], "Failed", "Failed", False, [1]),
    "a deleted one": ([failed(1)], "Deleted", "Stopped", False, [1]),
    "a decided slot of one that goes on": ([failed(1)], "Active", "Failed", False, [1]),
    "the predecessor of an epoch to come": ([failed(1)], "Active", "Open", False, []),
    "of a suspended one": ([failed(1)], "Suspended", "Suspended", False, []),
    "of one without funds": ([failed(1)], "Active", "Unfunded", False, []),
    "earlier epochs": (
        superseded(failed(1), failed(2), live(3, started=True)), "Active", "Open", False, [1, 2],
    ),
    "while the next has not started": (
        superseded(failed(1), failed(2), live(3)), "Active", "Open", False, [],
    ),
    "though it is deleted": (superseded(failed(1), live(2)), "Deleted", "Open", False, []),
    "a recovery that is open": (
        superseded(failed(1, recovers=None, **LOST), failed(2)), "Active", "Open", False, [],
    ),
    "a recovery that is known": (
        superseded(failed(1, recovers=5, **LOST), failed(2)), "Active", "Open", False, [1],
    ),
    "a recovery that never comes": (
        superseded(failed(1, recovers=None, **LOST), failed(2)), "Failed", "Failed", False, [1, 2],
    ),
    "a deletion that is not proven": (
        [failed(1, proven=False, leased=True)], "Failed", "Failed", False, [],
    ),
    "no machine, so nothing to prove": ([failed(1, proven=False)], "Failed", "Failed", False, [1]),
    "lower epochs first": (
        superseded(failed(1, proven=False, leased=True), failed(2)), "Failed", "Failed", False, [],
    ),
    "the gang epochs that count in a row": (
        superseded(*(failed(epoch) for epoch in range(1, 13))), "Active", "Open", True, [1, 2],
    ),
    "a gang rank that is decided": ([failed(1)], "Active", "Succeeded", True, []),
    "a gang that is over": ([failed(1)], "Failed", "Failed", True, [1]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
async def test_what_may_go(
    scheduler_database: Database, clean_database: str, case: str
) -> None:  # SC-806, SC-016, SC-105, SC-132, storage.md 5
    rows, state, slot, gang, gone = CASES[case]
    await write(clean_database, rows, state=state, slot=slot, gang=gang, age=3 * HOUR)
    store = RetirementStore(scheduler_database)

    assert await store.expired(2 * HOUR, 100) == gone
    assert await store.expired(4 * HOUR, 100) == []
    assert await store.excess(0, 100) == gone
    assert await store.excess(len(rows), 100) == []
    assert await store.expired(2 * HOUR, 1) == gone[:1]
    deleted = state == "Deleted"
    assert await store.deleted([WORKLOAD], 100) == (gone if deleted else [])
    assert await store.deleted_workloads() == ([WORKLOAD] if deleted else [])
    assert await store.still_there([WORKLOAD, UUID(int=2)]) == {WORKLOAD}


async def test_the_oldest_beyond_the_number_kept(
    scheduler_database: Database, clean_database: str
) -> None:
    rows = superseded(*(failed(epoch) for epoch in range(1, 6)))
    await write(clean_database, rows, state="Failed", slot="Failed", gang=False, age=HOUR)

    assert await RetirementStore(scheduler_database).excess(3, 100) == [1, 2]


async def test_nothing_is_forgotten_while_an_attempt_is_there(
    scheduler_database: Database, clean_database: str
) -> None:  # SC-141
    await write(clean_database, [failed(1)], state="Deleted", slot="Failed", gang=False, age=HOUR)
    store = RetirementStore(scheduler_database)
    assert await store.forgotten([WORKLOAD, UUID(int=2)]) == []
    connection: Any = await asyncpg.connect(clean_database)
    await connection.execute("SET session_replication_role = replica")
    await connection.execute("DELETE FROM nodus.attempts")
    assert await store.forgotten([]) == []
    assert await store.forgotten([WORKLOAD, UUID(int=2)]) == [WORKLOAD]
    await connection.execute(
        "INSERT INTO nodus.checkpoints (workload, slot, seq, epoch, bytes, uri, sha256, committed)"
        " VALUES ($1, '0', 1, 1, 1, 'file:///x', $2, now())",
        *(WORKLOAD, bytes(32)),
    )
    assert await store.forgotten([]) == [WORKLOAD]
    await connection.execute("UPDATE nodus.workloads SET state = 'Stopped'")
    assert await store.forgotten([WORKLOAD]) == []
    await connection.close()
