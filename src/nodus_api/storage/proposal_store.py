"""Checkpoints of ranks that wait for the other ranks of their gang (SC-142).

They are rows of `machine_events`, kind checkpoint: at most one a machine, gone once the gang has
committed together or its epoch ends.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.attempt import Cursor
from nodus_api.storage import tables as t
from nodus_api.storage.bulk import Row, as_json, insert_rows
from nodus_api.storage.records import AttemptRecord, Proposal
from nodus_api.storage.statements import bigints

KIND = "checkpoint"


async def proposals_of(connection: AsyncConnection, nos: Sequence[int]) -> dict[int, Proposal]:
    """Return what waits of those Attempts, by `no`. Keys (attempt, machine) and (machine, no)."""
    found = await connection.execute(_waiting(), {"nos": list(nos)})
    return {row["attempt"]: _proposal(row) for row in found.mappings()}


async def write_proposals(
    connection: AsyncConnection, changes: Iterable[tuple[AttemptRecord, AttemptRecord]]
) -> None:
    """Write what began to wait, delete what waits no more."""
    moved = [(b.proposal, a.proposal) for b, a in changes if b.proposal != a.proposal]
    gone = [before.machine for before, _ in moved if before is not None]
    if gone:
        await connection.execute(_drop(), {"machines": gone})
    rows = [_row(after) for _, after in moved if after is not None]
    if rows:
        await connection.execute(_keep(), as_json(rows))


def waits(seq: int) -> sa.Exists:
    """Whether a checkpoint of that seq waits on the machine of a lease. Key (machine, no)."""
    events = t.machine_events.c
    return sa.exists().where(
        events.machine == t.leases.c.machine,
        events.kind == KIND,
        events.body["seq"].as_integer() == seq,
    )


@cache
def _waiting() -> sa.Select[Any]:
    events = t.machine_events.c
    return (
        sa.select(t.leases.c.attempt, events.machine, events.at, events.body)
        .join(t.machine_events, events.machine == t.leases.c.machine)
        .where(t.leases.c.attempt == sa.any_(bigints("nos")), events.kind == KIND)
        .where(sa.func.upper_inf(t.leases.c.held))
    )


@cache
def _keep() -> postgresql.Insert:
    return insert_rows(t.machine_events, ["machine", "at", "kind", "body"])


@cache
def _drop() -> sa.Delete:
    return sa.delete(t.machine_events).where(
        t.machine_events.c.machine == sa.any_(bigints("machines")),
        t.machine_events.c.kind == KIND,
    )


def _proposal(row: Row) -> Proposal:
    body = row["body"]
    cursor = body["cursor"]
    return Proposal(
        machine=row["machine"],
        seq=body["seq"],
        size=body["bytes"],
        uri=body["uri"],
        sha256=bytes.fromhex(body["sha256"]),
        cursor=None if cursor is None else Cursor(completed=cursor[0], total=cursor[1]),
        at=row["at"],
    )


def _row(one: Proposal) -> Row:
    cursor = one.cursor
    return {
        "machine": one.machine,
        "at": one.at,
        "kind": KIND,
        "body": {
            "seq": one.seq,
            "bytes": one.size,
            "uri": one.uri,
            "sha256": one.sha256.hex(),
            "cursor": None if cursor is None else [cursor.completed, cursor.total],
        },
    }
