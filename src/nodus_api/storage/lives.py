"""Whole lives as people want them told: an Attempt's document with what is kept beside it.

Every function reads in the caller's snapshot, so that what is told is of one moment. Archived
Attempts have their document and their ledger; decisions and checkpoints went with the rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.attempt import Cursor
from nodus_api.kernel.vocabulary import OwnerKind, Reason
from nodus_api.storage import tables as t
from nodus_api.storage.circumstances import Circumstances, read_circumstances
from nodus_api.storage.conditions import workload_named
from nodus_api.storage.last_words import last_words_of
from nodus_api.storage.statements import database_now

MOST_NAMES = 5000
"""How many names are looked through for one that was meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row of the ledger (SC-523): an interval that is charged, or covered by Nodus."""

    machine: int
    segment: str
    start: datetime
    end: datetime
    covered: bool
    usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDecision:
    """The last decision kept of an Attempt (SC-333, SC-334); `n` counts them from 1."""

    n: int
    at: datetime
    request: Mapping[str, Any]
    top: Sequence[Mapping[str, Any]]
    told: Mapping[str, Any]
    """What `kernel.explaining.Told` writes: reasons counted, classes with sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPoint:
    """A checkpoint that the Attempt committed."""

    seq: int
    committed: datetime
    size: int
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """When the runner was last heard of, and who listened (SC-614).

    `suspect_since` is None until the loop finds it silent; `leader_since` is the start of the
    latest reign, `leader_seen` the last sign of life of its leader.
    """

    last_heartbeat: datetime | None
    suspect_since: datetime | None
    leader_since: datetime | None
    leader_seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One Attempt: what clients see of it, its ledger, and what only the loop knows."""

    document: Mapping[str, Any]
    """The published document, its resourceVersion left empty."""
    archived: bool
    ledger: tuple[LedgerRow, ...]
    checkpoints: tuple[SavedPoint, ...] = ()
    decision: KeptDecision | None = None
    next_try: datetime | None = None
    start_deadline: datetime | None = None
    drain_cause: str | None = None
    hearing: Hearing | None = None
    workload_state: str | None = None
    """None where the workload's row is not asked for: of archived Attempts."""
    last_words: str | None = None
    """What its runner said of the end, of one that is read alone."""
    slot_state: str | None = None
    """Of the slot's newest epoch alone: what was decided about the slot (SC-120)."""
    circumstances: Circumstances | None = None
    """Of one that is Released, where it is read alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOwner:
    """A workload by its name; `state` may be Deleted."""

    uid: UUID
    kind: str
    name: str
    state: str
    outcome: str | None


async def read_life(connection: AsyncConnection, project: str, name: str) -> Life | None:
    """Return the Attempt of that name, archived or not, with its last decision; None if none is."""
    query = _published().where(t.attempt_objects.c.project == project)
    row = (await connection.execute(query.where(t.attempt_objects.c.name == name))).first()
    if row is None:
        archive = t.attempts_archive.c
        archived = _archived().where(archive.project == project, archive.name == name)
        latest = await connection.execute(archived.order_by(archive.finished.desc()).limit(1))
        found = latest.first()
        return None if found is None else await _around(connection, _retired(found))
    (life,) = await _lives(connection, [row], decided=True)
    said = await last_words_of(connection, row.attempt)
    return await _around(connection, replace(life, last_words=said))


async def _around(connection: AsyncConnection, life: Life) -> Life:
    """Put to a life that was Released what the cause can be told from."""
    if life.document["status"].get("reason") != Reason.RELEASED:
        return life
    return replace(life, circumstances=await read_circumstances(connection, life.document))


async def read_lives(connection: AsyncConnection, workload: UUID) -> list[Life]:
    """Return all Attempts of a workload, archived ones too, without their decisions."""
    archived = _archived().where(t.attempts_archive.c.workload == workload)
    retired = [_retired(row) for row in await connection.execute(archived)]
    query = _published().where(t.attempts.c.workload == workload).order_by(t.attempts.c.no)
    rows = (await connection.execute(query)).all()
    return retired + await _lives(connection, rows, decided=False)


async def find_owner(
    connection: AsyncConnection, project: str, kind: OwnerKind, name: str
) -> KnownOwner | None:
    """Return the workload of that name; of several the one that is not deleted, else the latest."""
    workloads = t.workloads.c
    query = (
        sa.select(workloads.uid, workloads.kind, workloads.name, workloads.state, workloads.outcome)
        .where(workloads.project == project, workloads.kind == kind.value, workloads.name == name)
        .order_by((workloads.state == "Deleted").asc(), workloads.created.desc())
        .limit(1)
    )
    row = (await connection.execute(query)).mappings().first()
    return None if row is None else KnownOwner(**row)


async def owners_of(connection: AsyncConnection, project: str) -> list[str]:
    """Return the project's workloads that are not deleted, as `kind/name`, sorted."""
    workloads = t.workloads.c
    query = (
        sa.select(sa.func.lower(workloads.kind) + "/" + workloads.name)
        .where(workloads.project == project, workload_named())
        .order_by(sa.text("1"))
        .limit(MOST_NAMES)
    )
    return list((await connection.scalars(query)).all())


async def attempt_names(connection: AsyncConnection, project: str) -> list[str]:
    """Return the names of the project's published Attempts, sorted. Unique (project, name)."""
    objects = t.attempt_objects.c
    query = sa.select(objects.name).where(objects.project == project).order_by(objects.name)
    return list((await connection.scalars(query.limit(MOST_NAMES))).all())


async def owner_of_attempt(connection: AsyncConnection, project: str, name: str) -> str | None:
    """Return the workload of a published Attempt as `kind/name`; None if there is none of it."""
    workloads, attempts = t.workloads.c, t.attempts.c
    query = (
        sa.select(sa.func.lower(workloads.kind) + "/" + workloads.name)
        .join(t.attempts, attempts.workload == workloads.uid)
        .where(attempts.project == project, attempts.name == name)
    )
    found: str | None = (await connection.scalars(query)).first()
    return found


async def projects_with_attempt(connection: AsyncConnection, name: str) -> list[str]:
    """Return the projects that have a published Attempt of that name, sorted."""
    objects = t.attempt_objects.c
    query = sa.select(objects.project).where(objects.name == name).order_by(objects.project)
    return list((await connection.scalars(query)).all())


async def project_exists(connection: AsyncConnection, project: str) -> bool:
    """Whether there is a project of that name."""
    query = sa.select(t.projects.c.name).where(t.projects.c.name == project)
    return (await connection.scalars(query)).first() is not None


async def project_names(connection: AsyncConnection) -> list[str]:
    """Return the names of all projects, sorted."""
    query = sa.select(t.projects.c.name).order_by(t.projects.c.name)
    return list((await connection.scalars(query)).all())


async def suppliers(connection: AsyncConnection) -> list[str]:
    """Return the suppliers that offer anything now, for a look at the catalog."""
    offers = t.supplier_offers.c
    query = sa.select(offers.supplier).where(offers.enabled.is_(True)).distinct()
    return sorted((await connection.scalars(query)).all())


async def database_time(connection: AsyncConnection) -> datetime:
    """Return the moment that the snapshot's statements take for now (SC-615)."""
    moment: datetime = (await connection.execute(sa.select(database_now))).scalar_one()
    return moment


def _published() -> sa.Select[Any]:
    """Published documents with what is kept beside them; joins by primary keys."""
    work = t.attempt_work.c
    return (
        sa.select(
            t.attempt_objects.c.attempt,
            t.attempt_objects.c.doc,
            t.attempts.c.workload,
            t.attempts.c.slot,
            t.attempts.c.epoch,
            work.next_try,
            work.start_deadline,
            work.drain_cause,
            work.last_heartbeat,
            work.suspect_since,
            sa.select(t.leader.c.since).scalar_subquery().label("leader_since"),
            sa.select(t.leader_heartbeat.c.at).scalar_subquery().label("leader_seen"),
            t.workloads.c.state.label("workload_state"),
            sa.case((t.slots.c.current_epoch == t.attempts.c.epoch, t.slots.c.state)).label(
                "slot_state"
            ),
        )
        .join(t.attempts, t.attempts.c.no == t.attempt_objects.c.attempt)
        .join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .join(
            t.slots,
            sa.and_(
                t.slots.c.workload == t.attempts.c.workload, t.slots.c.slot == t.attempts.c.slot
            ),
        )
        .outerjoin(t.attempt_work, work.attempt == t.attempts.c.no)
    )


def _archived() -> sa.Select[Any]:
    return sa.select(t.attempts_archive.c.doc, t.attempts_archive.c.ledger)


def _retired(row: Any) -> Life:
    return Life(
        document=json.loads(row.doc),
        archived=True,
        ledger=tuple(
            LedgerRow(
                machine=int(one["machine"]),
                segment=one["segment"],
                start=datetime.fromisoformat(one["from_ts"]),
                end=datetime.fromisoformat(one["to_ts"]),
                covered=one["covered"],
                usd=Decimal(str(one["usd"])),
            )
            for one in row.ledger
        ),
    )


async def _lives(connection: AsyncConnection, rows: Sequence[Any], *, decided: bool) -> list[Life]:
    """Put the children of published Attempts to them; by primary keys and indexes."""
    nos = [row.attempt for row in rows]
    segments, points = t.cost_segments.c, t.checkpoints.c
    ledger = sa.select(t.cost_segments).where(segments.attempt.in_(nos))
    saved = sa.select(t.checkpoints).where(
        points.workload.in_(sorted({row.workload for row in rows}))
    )
    charged = _by((one["attempt"], one) for one in await _all(connection, ledger, "machine", "seq"))
    commits = _by(
        ((one["slot"], one["epoch"]), one) for one in await _all(connection, saved, "seq")
    )
    decisions: dict[int, KeptDecision] = {}
    if decided:
        kept = sa.select(t.decisions).where(t.decisions.c.attempt.in_(nos))
        for one in await _all(connection, kept, "n"):
            decisions[one["attempt"]] = KeptDecision(
                n=one["n"],
                at=one["at"],
                request=one["request"],
                top=one["top"],
                told=_told(one["counters"]),
            )
    return [
        Life(
            document=json.loads(row.doc),
            archived=False,
            ledger=tuple(_ledger_row(one) for one in charged.get(row.attempt, ())),
            checkpoints=tuple(_saved_point(one) for one in commits.get((row.slot, row.epoch), ())),
            decision=decisions.get(row.attempt),
            next_try=row.next_try,
            start_deadline=row.start_deadline,
            drain_cause=row.drain_cause,
            hearing=Hearing(
                last_heartbeat=row.last_heartbeat,
                suspect_since=row.suspect_since,
                leader_since=row.leader_since,
                leader_seen=row.leader_seen,
            ),
            workload_state=row.workload_state,
            slot_state=row.slot_state,
        )
        for row in rows
    ]


def _told(kept: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was told with a decision; of those kept before it was, the counters alone."""
    counted = kept if "reasons" in kept else {"reasons": kept}
    return {"classes": [], "sentence": None, "relaxed": False, **counted}


async def _all(
    connection: AsyncConnection, query: sa.Select[Any], *order: str
) -> Sequence[sa.RowMapping]:
    ordered = query.order_by(*(query.selected_columns[name] for name in order))
    rows: Sequence[sa.RowMapping] = (await connection.execute(ordered)).mappings().all()
    return rows


def _by(pairs: Iterable[tuple[Any, sa.RowMapping]]) -> dict[Any, list[sa.RowMapping]]:
    found: dict[Any, list[sa.RowMapping]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


def _saved_point(row: sa.RowMapping) -> SavedPoint:
    completed, total = row["cursor_completed"], row["cursor_total"]
    return SavedPoint(
        seq=row["seq"],
        committed=row["committed"],
        size=row["bytes"],
        cursor=None if total is None else Cursor(completed=completed, total=total),
    )


def _ledger_row(row: sa.RowMapping) -> LedgerRow:
    return LedgerRow(
        machine=row["machine"],
        segment=row["segment"],
        start=row["from_ts"],
        end=row["to_ts"],
        covered=row["covered"],
        usd=row["usd"],
    )
