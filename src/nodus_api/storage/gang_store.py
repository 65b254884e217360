"""What the loop asks of gangs beyond a batch: who belongs together, and how epochs began."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage import tables as t
from nodus_api.storage.statements import bigints


@dataclass(frozen=True, slots=True, kw_only=True)
class GangEpoch:
    """One epoch of a gang, and how many ranks it has."""

    gang: str
    epoch: int
    size: int


async def gangs_of(connection: AsyncConnection, nos: Sequence[int]) -> dict[int, GangEpoch]:
    """Return the gang epochs of those Attempts that belong to one. Primary key."""
    found = await connection.execute(_gangs(), {"nos": list(nos)})
    return {row.no: GangEpoch(gang=row.gang, epoch=row.epoch, size=row.size) for row in found}


async def starts_of(
    connection: AsyncConnection, workload: UUID, slot: str, *, most: int
) -> list[tuple[int, datetime | None]]:
    """Return a slot's latest epochs, at most `most`, oldest first, and when each one's program
    started; None if it never did. Key (workload, slot, epoch).
    """
    query = (
        sa.select(t.attempts.c.epoch, t.attempts.c.command_started)
        .where(t.attempts.c.workload == workload, t.attempts.c.slot == slot)
        .order_by(t.attempts.c.epoch.desc())
        .limit(most)
    )
    found = [(row.epoch, row.command_started) for row in await connection.execute(query)]
    return found[::-1]


@cache
def _gangs() -> sa.Select[Any]:
    attempts = t.attempts.c
    return sa.select(
        attempts.no,
        attempts.gang,
        attempts.gang_epoch.label("epoch"),
        attempts.gang_size.label("size"),
    ).where(attempts.no == sa.any_(bigints("nos")), attempts.gang.is_not(None))
