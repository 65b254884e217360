"""Workloads, their slots, and the commands that ask for them (SC-801, SC-802)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.attempt import Cursor, RestorePoint
from nodus_api.kernel.deadlines import Limits
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.bulk import as_json, upsert_rows
from nodus_api.storage.conditions import workload_named
from nodus_api.storage.engine import Database
from nodus_api.storage.records import Command, Slot, Workload
from nodus_api.storage.spending_store import Spending, read_spending
from nodus_api.storage.statements import SLOT_STATE
from nodus_api.storage.work_rows import slot_of, slot_row, workload_of, workload_row


@dataclass(frozen=True, slots=True, kw_only=True)
class OccupiedSlot:
    """A slot, the latest Attempt in it, and whether that one lives."""

    slot: Slot
    latest: int | None = None
    live: bool = False


@dataclass(slots=True, kw_only=True)
class WorkloadEdit:
    """One workload under lock in a fenced transaction; `put` and `put_slot` keep what is written.

    `workload` is None where none of that name exists.
    """

    connection: AsyncConnection
    now: datetime
    workload: Workload | None
    slots: dict[str, OccupiedSlot] = field(default_factory=dict)

    async def put(self, workload: Workload) -> None:
        """Insert or overwrite the workload. Primary key."""
        row = workload_row(workload)
        insert = postgresql.insert(t.workloads).values(
            row | {"spec": workload.spec, "kind": workload.kind.value}
        )
        moved = {name: insert.excluded[name] for name in ("spec", "state", "outcome", "ended")}
        await self.connection.execute(
            insert.on_conflict_do_update(index_elements=["uid"], set_=moved)
        )
        self.workload = workload

    async def put_slots(self, slots: Sequence[Slot]) -> None:
        """Insert or overwrite slots. Primary key."""
        if slots:
            statement = upsert_rows(t.slots, ["workload", "slot"], SLOT_STATE)
            await self.connection.execute(statement, as_json(slot_row(one) for one in slots))

    async def give_more_time(
        self,
        workload: UUID,
        *,
        to_start: timedelta,
        to_run: timedelta | None,
        session: Limits | None = None,
    ) -> None:
        """Move the limits that its live Attempts run against; `to_run` None lifts that limit.

        Of a session, `session` are the new limits of time, and this counts as a use (SC-807).

        Not of a gang in which a rank has ended: its limit is the end of the others (SC-135). Uses
        `attempts_one_live`; costs no revision.
        """
        attempts, work, rank = t.attempts.c, t.attempt_work.c, t.attempts.alias("rank")
        ending = sa.exists().where(
            rank.c.gang == attempts.gang,
            rank.c.gang_epoch == attempts.gang_epoch,
            rank.c.finished.is_not(None),
        )
        lives = sa.and_(
            attempts.no == work.attempt,
            attempts.workload == workload,
            attempts.finished.is_(None),
        )
        later: sa.ColumnElement[Any] = sa.null() if to_run is None else work.limit_at + to_run
        if session is not None and session.idle is not None:
            later = sa.literal(self.now + session.idle, t.MOMENT)
            if session.max_duration is not None:
                later = sa.func.least(attempts.command_started + session.max_duration, later)
        await self.connection.execute(
            sa.update(t.attempt_work)
            .where(lives, attempts.stage == "Running", ~ending.correlate(t.attempts))
            .values(limit_at=later)
        )
        await self.connection.execute(
            sa.update(t.attempt_work)
            .where(lives, attempts.stage.in_(("Pending", "Placing", "Acquiring")))
            .values(start_deadline=work.start_deadline + to_start)
        )

    async def answer(self, command: Command, outcome: str, message: str | None = None) -> None:
        """Record what became of a command, once. Primary key; guard: not yet applied."""
        await self.connection.execute(
            sa.update(t.commands)
            .where(t.commands.c.no == command.no, t.commands.c.applied.is_(None))
            .values(applied=self.now, outcome=outcome, message=message)
        )


class WorkloadStore:
    """The door to what is wanted, for the one loop that leads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_commands(self, limit: int) -> list[Command]:
        """Return commands that wait, in the order they were asked. Uses `commands_open`."""
        async with self._database.single_reads() as connection:
            found = (await connection.execute(_open_commands(limit))).mappings().all()
        return [_command(row) for row in found]

    async def spending(self) -> list[Spending]:
        """Return what every workload with a limit costs (SC-622)."""
        return await read_spending(self._database)

    @asynccontextmanager
    async def edit_named(
        self, token: int, *, project: str, kind: OwnerKind, name: str
    ) -> AsyncIterator[WorkloadEdit]:
        """Open a fenced transaction over the workload of that name, if it exists."""
        async with self._edit(
            token,
            sa.and_(
                t.workloads.c.project == project,
                t.workloads.c.kind == kind.value,
                t.workloads.c.name == name,
                workload_named(),
            ),
        ) as edit:
            yield edit

    @asynccontextmanager
    async def edit(self, token: int, uid: UUID) -> AsyncIterator[WorkloadEdit]:
        """Open a fenced transaction over one workload."""
        async with self._edit(token, t.workloads.c.uid == uid) as edit:
            yield edit

    async def read(self, uid: UUID) -> tuple[Workload, dict[str, OccupiedSlot]] | None:
        """Return a workload and its slots as they stand, without locks."""
        async with self._database.snapshot() as connection:
            row = (await connection.execute(_workload(), {"of": uid})).mappings().first()
            slots = await occupied_slots(connection, uid)
        return None if row is None else (workload_of(row), slots)

    async def organization(self, project: str) -> str | None:
        """Return the organization of a project; None if there is no such project."""
        async with self._database.single_reads() as connection:
            answer = await connection.execute(_organization(), {"of": project})
            found: str | None = answer.scalar()
        return found

    @asynccontextmanager
    async def _edit(self, token: int, which: sa.ColumnElement[bool]) -> AsyncIterator[WorkloadEdit]:
        query = _workloads().where(which).with_for_update(of=t.workloads)
        async with self._database.transaction() as connection:
            now = await fence(connection, token)
            row = (await connection.execute(query)).mappings().first()
            edit = WorkloadEdit(
                connection=connection, now=now, workload=workload_of(row) if row else None
            )
            if edit.workload is not None:
                edit.slots = await occupied_slots(connection, edit.workload.uid)
            yield edit


async def occupied_slots(connection: AsyncConnection, workload: UUID) -> dict[str, OccupiedSlot]:
    """Return a workload's slots by name. Keys (workload, slot) and (workload, slot, epoch)."""
    found = await connection.execute(_slots(), {"of": workload})
    return {
        row["slot"]: OccupiedSlot(slot=slot_of(row), latest=row["latest"], live=bool(row["live"]))
        for row in found.mappings()
    }


async def restore_points(connection: AsyncConnection, workload: UUID) -> dict[str, RestorePoint]:
    """Return each slot's highest committed checkpoint that is not deleted (SC-141)."""
    return {
        row.slot: RestorePoint(
            seq=row.seq,
            cursor=None
            if row.cursor_total is None
            else Cursor(completed=row.cursor_completed, total=row.cursor_total),
        )
        for row in await connection.execute(_restore_points(), {"of": workload})
    }


def _of() -> sa.BindParameter[UUID]:
    return sa.bindparam("of", type_=sa.Uuid)


@cache
def _open_commands(limit: int) -> sa.Select[Any]:
    return (
        sa.select(t.commands)
        .where(t.commands.c.applied.is_(None))
        .order_by(t.commands.c.no)
        .limit(limit)
    )


@cache
def _organization() -> sa.Select[Any]:
    name = sa.bindparam("of", type_=sa.Text)
    return sa.select(t.projects.c.organization).where(t.projects.c.name == name)


@cache
def _workloads() -> sa.Select[Any]:
    return sa.select(t.workloads, t.projects.c.organization).join(
        t.projects, t.projects.c.name == t.workloads.c.project
    )


@cache
def _workload() -> sa.Select[Any]:
    return _workloads().where(t.workloads.c.uid == _of())


@cache
def _slots() -> sa.Select[Any]:
    latest = sa.and_(
        t.attempts.c.workload == t.slots.c.workload,
        t.attempts.c.slot == t.slots.c.slot,
        t.attempts.c.epoch == t.slots.c.current_epoch,
    )
    return (
        sa.select(
            t.slots,
            t.attempts.c.no.label("latest"),
            sa.and_(t.attempts.c.no.is_not(None), t.attempts.c.finished.is_(None)).label("live"),
        )
        .outerjoin(t.attempts, latest)
        .where(t.slots.c.workload == _of())
    )


@cache
def _restore_points() -> sa.Select[Any]:
    kept = t.checkpoints.c
    later = t.checkpoints.alias("later")
    newer = sa.exists().where(
        later.c.workload == kept.workload,
        later.c.slot == kept.slot,
        later.c.seq > kept.seq,
        later.c.deleted.is_(None),
    )
    return sa.select(kept.slot, kept.seq, kept.cursor_completed, kept.cursor_total).where(
        kept.workload == _of(), kept.deleted.is_(None), ~newer
    )


def _command(row: Any) -> Command:
    return Command(
        no=row["no"],
        key=row["key"],
        project=row["project"],
        verb=row["verb"],
        kind=row["kind"],
        target=row["target"],
        body=row["body"],
        asked=row["asked"],
    )
