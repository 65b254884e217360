"""What was done around an Attempt that was Released: to its workload, and to its gang (SC-010).

The record keeps no cause of a release; these rows are what it can be told from.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage import tables as t


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many Attempts a workload was told to have at once, from `at` on (SC-802)."""

    at: datetime
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What stood around an Attempt; `peers` are the documents of its gang epoch, its own too."""

    peers: tuple[Mapping[str, Any], ...] = ()
    counts: tuple[Counted, ...] = ()
    """In order; the first is that of the submit."""
    state: str | None = None
    """The workload's, None where its row is gone."""
    ended: datetime | None = None


async def read_circumstances(
    connection: AsyncConnection, document: Mapping[str, Any]
) -> Circumstances:
    """Return what stood around the Attempt of a document, in the caller's snapshot."""
    workload = UUID(document["metadata"]["ownerReferences"][0]["uid"])
    row = (await connection.execute(_workload(workload))).mappings().first()
    gang = document["spec"].get("gang")
    peers = () if gang is None else await _peers(connection, workload, gang["epoch"])
    if row is None:
        return Circumstances(peers=peers)
    counts = [
        Counted(at=one.applied, count=count)
        for one in await connection.execute(_commands(row))
        if (count := _count(one.body)) is not None
    ]
    return Circumstances(peers=peers, counts=tuple(counts), state=row["state"], ended=row["ended"])


async def _peers(
    connection: AsyncConnection, workload: UUID, epoch: int
) -> tuple[Mapping[str, Any], ...]:
    archive = t.attempts_archive.c
    published = (
        sa.select(t.attempt_objects.c.doc)
        .join(t.attempts, t.attempts.c.no == t.attempt_objects.c.attempt)
        .where(t.attempts.c.workload == workload, t.attempts.c.gang_epoch == epoch)
    )
    archived = sa.select(archive.doc).where(archive.workload == workload)
    found = [
        json.loads(doc)
        for query in (published, archived)
        for doc in (await connection.scalars(query)).all()
    ]
    return tuple(one for one in found if one["spec"].get("gang", {}).get("epoch") == epoch)


def _workload(uid: UUID) -> sa.Select[Any]:
    workloads = t.workloads.c
    columns = (
        *(workloads.project, workloads.kind, workloads.name),
        *(workloads.state, workloads.created, workloads.ended),
    )
    return sa.select(*columns).where(workloads.uid == uid)


def _commands(workload: sa.RowMapping) -> sa.Select[Any]:
    """What was done by command with a workload since it was made; its name may be older."""
    commands = t.commands.c
    return (
        sa.select(commands.applied, commands.body)
        .where(
            commands.project == workload["project"],
            commands.kind == workload["kind"],
            commands.target == workload["name"],
            commands.verb.in_(("submit", "scale")),
            commands.outcome == "Applied",
            commands.applied >= workload["created"],
        )
        .order_by(commands.no)
    )


def _count(body: Mapping[str, Any]) -> int | None:
    """Return the number in a command's body: of a scale, or of a spec that was submitted."""
    spec = body.get("spec", {})
    count = body.get("count", spec.get("workers", spec.get("parallelism")))
    return None if count is None else int(count)
