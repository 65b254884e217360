"""Schedules of drills, and the commands that they give (SC-630)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.engine import Database
from nodus_api.storage.statements import database_now

ASKED_BY = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSchedule:
    """How often a project is drilled, and by what; `next_at` is None before the first time."""

    project: str
    trigger: str
    per_hour: Decimal
    seed: int
    next_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTurn:
    """One schedule under lock in a fenced transaction."""

    connection: AsyncConnection
    now: datetime
    schedule: DrillSchedule

    async def candidates(self, stages: Sequence[str]) -> list[str]:
        """Return the names of the project's Attempts that can be drilled. Uses `attempts_live`."""
        work = t.attempt_work.c
        query = (
            sa.select(t.attempts.c.name)
            .join(t.attempt_work, work.attempt == t.attempts.c.no)
            .where(t.attempts.c.deletion_proven.is_(None), t.attempts.c.finished.is_(None))
            .where(t.attempts.c.project == self.schedule.project)
            .where(t.attempts.c.stage.in_(stages))
            .where(work.drain_cause.is_(None), work.drill.is_(None))
        )
        return list((await self.connection.execute(query)).scalars())

    async def ask(self, name: str, body: Mapping[str, Any], key: str) -> None:
        """Ask for the drill of an Attempt, once a key. Unique index of `key`."""
        row = {
            "key": key,
            "project": self.schedule.project,
            "verb": "drill",
            "target": name,
            "body": dict(body),
            "asked_by": ASKED_BY,
        }
        insert = postgresql.insert(t.commands).values(row)
        await self.connection.execute(insert.on_conflict_do_nothing(index_elements=["key"]))

    async def put_off(self, until: datetime) -> None:
        """Write when the schedule's next turn is. Primary key."""
        schedules = t.drill_schedules
        await self.connection.execute(
            sa.update(schedules)
            .where(schedules.c.project == self.schedule.project)
            .values(next_at=until)
        )


@cache
def due_schedules() -> sa.Select[Any]:
    """The projects whose turn has come, in their order."""
    schedules = t.drill_schedules.c
    return (
        sa.select(schedules.project)
        .where(sa.or_(schedules.next_at.is_(None), schedules.next_at <= database_now))
        .order_by(schedules.project)
    )


async def read_schedules(
    connection: AsyncConnection, project: str | None = None
) -> list[DrillSchedule]:
    """Return the schedule of one project, or of all for None, by project."""
    schedules = t.drill_schedules
    query = sa.select(schedules).order_by(schedules.c.project)
    if project is not None:
        query = query.where(schedules.c.project == project)
    return [DrillSchedule(**row) for row in (await connection.execute(query)).mappings()]


async def write_schedule(
    connection: AsyncConnection,
    *,
    project: str,
    trigger: str,
    per_hour: Decimal,
    seed: int | None,
    new_seed: int,
) -> tuple[DrillSchedule, bool]:
    """Set the schedule of a project that exists; return it, and whether it changed.

    A `seed` of None keeps that of the schedule there is, and is `new_seed` where there is none.
    What changes begins anew: its next turn is drawn by the loop. Takes the lock of its row, so
    that a turn under way is taken before or after.
    """
    asked: dict[str, Any] = {"trigger": trigger, "per_hour": per_hour}
    if seed is not None:
        asked["seed"] = seed
    row = {"project": project, "seed": new_seed} | asked
    insert = postgresql.insert(t.drill_schedules).values(row)
    upsert = insert.on_conflict_do_update(
        index_elements=["project"],
        set_=asked | {"next_at": None},
        where=sa.or_(*(t.drill_schedules.c[name] != value for name, value in asked.items())),
    ).returning(*t.drill_schedules.c)
    written = (await connection.execute(upsert)).mappings().first()
    if written is not None:
        return DrillSchedule(**written), True
    (kept,) = await read_schedules(connection, project)
    return kept, False


async def drop_schedule(connection: AsyncConnection, project: str) -> bool:
    """Take a project's schedule away; whether it had one. Primary key."""
    delete = sa.delete(t.drill_schedules).where(t.drill_schedules.c.project == project)
    return (await connection.execute(delete)).rowcount > 0


class DrillStore:
    """The door to schedules of drills, for the one loop that leads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def turn(self, token: int, project: str) -> AsyncIterator[DrillTurn | None]:
        """Open a fenced transaction over a project's schedule; None if it has none any more."""
        query = (
            sa.select(t.drill_schedules)
            .where(t.drill_schedules.c.project == project)
            .with_for_update()
        )
        async with self._database.transaction() as connection:
            now = await fence(connection, token)
            row = (await connection.execute(query)).mappings().first()
            if row is None:
                yield None
                return
            schedule = DrillSchedule(**row)
            yield DrillTurn(connection=connection, now=now, schedule=schedule)
