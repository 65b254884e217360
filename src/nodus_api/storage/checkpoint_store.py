"""Committed checkpoints: what makes one visible, what takes it back, and what is known of one.

The row is the checkpoint; bytes without one do not exist (SC-126). The loop alone writes rows; the
functions here build its statements, and read for those who answer runners (SC-142).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage import tables as t
from nodus_api.storage.bulk import Row, rows_of
from nodus_api.storage.proposal_store import waits
from nodus_api.storage.records import AttemptRecord
from nodus_api.storage.statements import bigints

COLUMNS = (
    "workload", "slot", "seq", "attempt", "epoch", "bytes", "uri", "sha256",
    "cursor_completed", "cursor_total", "committed",
)  # fmt: skip


class Verdict(StrEnum):
    """Where a proposed checkpoint stands (SC-142)."""

    COMMITTED = "Committed"
    """It is the slot's, with that seq and that checksum; a replay is told so again."""
    PENDING = "Pending"
    """It may be committed: nothing has that seq yet, and what comes before it is here."""
    KEPT = "Kept"
    """The same, and the loop has its report already: a repeat adds nothing."""
    REFUSED = "Refused"
    """It never will be: another one has that seq, one before it is missing, or a rank of the
    sender's gang has ended, so that not every rank can have one more.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a checkpoint lies, its SHA-256 in hex, and its size."""

    uri: str
    sha256: str
    size_bytes: int


@cache
def commit() -> sa.Executable:
    """Insert checkpoints, in order of seq; answers the maker of each.

    Guards: the slot is at the Attempt's epoch (SC-125) and at the seq `after`, which the
    first of its commits follows, and the Attempt is on its machine; fewer rows answered
    than given means that another writer was first. Keys (workload, slot) and `no`; the
    rows of the Attempts are locked already.
    """
    given = rows_of(t.checkpoints, COLUMNS, [sa.column("after", sa.BigInteger)])
    same_slot = sa.and_(
        t.slots.c.workload == given.c.workload,
        t.slots.c.slot == given.c.slot,
        t.slots.c.current_epoch == given.c.epoch,
        t.slots.c.last_seq == given.c.after,
    )
    on_machine = sa.and_(
        t.attempts.c.no == given.c.attempt,
        t.attempts.c.epoch == given.c.epoch,
        t.attempts.c.finished.is_(None),
    )
    chosen = (
        sa.select(*(given.c[name] for name in COLUMNS))
        .join(t.slots, same_slot)
        .join(t.attempts, on_machine)
        .where(given.c.seq > given.c.after)
        .order_by(given.c.seq)
    )
    return (
        postgresql.insert(t.checkpoints)
        .from_select(list(COLUMNS), chosen)
        .returning(t.checkpoints.c.attempt)
    )


def commit_rows(record: AttemptRecord) -> list[Row]:
    """Return the rows of a record's commits, each with its guard."""
    attempt = record.attempt
    return [
        {
            "workload": attempt.workload,
            "slot": attempt.slot,
            "seq": one.seq,
            "after": one.after,
            "attempt": record.no,
            "epoch": attempt.epoch,
            "bytes": one.size,
            "uri": one.uri,
            "sha256": one.sha256,
            "cursor_completed": one.cursor.completed if one.cursor else None,
            "cursor_total": one.cursor.total if one.cursor else None,
            "committed": one.committed,
        }
        for one in record.commits
    ]


@cache
def lose() -> sa.Executable:
    """Mark checkpoints as deleted, once; answers their makers. Primary key (SC-141)."""
    given = rows_of(t.checkpoints, ["workload", "slot", "seq", "deleted"])
    return (
        sa.update(t.checkpoints)
        .where(t.checkpoints.c.workload == given.c.workload)
        .where(t.checkpoints.c.slot == given.c.slot, t.checkpoints.c.seq == given.c.seq)
        .where(t.checkpoints.c.deleted.is_(None))
        .values(deleted=given.c.deleted)
        .returning(t.checkpoints.c.attempt)
    )


def lost_row(record: AttemptRecord, at: datetime) -> Row:
    """Return which checkpoint a record could not be restored from."""
    attempt = record.attempt
    seq = attempt.restore.seq if attempt.restore else None
    return {"workload": attempt.workload, "slot": attempt.slot, "seq": seq, "deleted": at}


async def restore_sources(connection: AsyncConnection, nos: Sequence[int]) -> dict[int, Stored]:
    """Return what Attempts go on from, by `no`; none if it is deleted. Primary keys."""
    kept = t.checkpoints.c
    same = sa.and_(
        kept.workload == t.attempts.c.workload,
        kept.slot == t.attempts.c.slot,
        kept.seq == t.attempts.c.restore_seq,
    )
    query = (
        sa.select(t.attempts.c.no, kept.uri, kept.sha256, kept.bytes)
        .join(t.checkpoints, same)
        .where(t.attempts.c.no == sa.any_(bigints("nos")), kept.deleted.is_(None))
    )
    found = await connection.execute(query, {"nos": list(nos)})
    return {
        row.no: Stored(uri=row.uri, sha256=row.sha256.hex(), size_bytes=row.bytes) for row in found
    }


async def verdict_on(
    connection: AsyncConnection, sender: sa.Select[Any], body: Mapping[str, Any]
) -> Verdict:
    """Return where a checkpoint stands; `sender` joins the lease with its Attempt and slot.

    Keys (workload, slot, seq), (machine, fence), (machine, no) and `attempts_gang`.
    """
    seq, sha256 = int(body["seq"]), bytes.fromhex(body["sha256"])
    kept, waiting = t.checkpoints.c, t.runner_reports.c
    queued = sa.exists().where(
        waiting.machine == t.leases.c.machine,
        waiting.fence == t.leases.c.fence,
        waiting.kind == "checkpoint",
    )
    before = queued.where(waiting.body["seq"].as_integer() == seq - 1)
    itself = queued.where(
        waiting.body["seq"].as_integer() == seq,
        waiting.body["sha256"].as_string() == body["sha256"],
    )
    kept_for_gang = waits(seq)
    kept_itself = kept_for_gang.where(
        t.machine_events.c.body["sha256"].as_string() == body["sha256"]
    )
    query = (
        sender.outerjoin(
            t.checkpoints,
            sa.and_(
                kept.workload == t.attempts.c.workload,
                kept.slot == t.attempts.c.slot,
                kept.seq == seq,
            ),
        )
        .add_columns(t.slots.c.last_seq, t.leases.c.won, kept.sha256)
        .add_columns(before.correlate(t.leases).label("follows"))
        .add_columns(itself.correlate(t.leases).label("waits"))
        .add_columns(kept_for_gang.correlate(t.leases).label("another"))
        .add_columns(kept_itself.correlate(t.leases).label("kept"))
        .add_columns(_gang_is_over().label("over"))
    )
    row = (await connection.execute(query)).one()
    if row.sha256 is not None:
        return Verdict.COMMITTED if row.sha256 == sha256 else Verdict.REFUSED
    next_seq = row.last_seq + 1
    if row.over:
        return Verdict.REFUSED
    if row.waits or row.kept:
        return Verdict.KEPT
    if row.another:
        return Verdict.REFUSED
    if row.won and (seq == next_seq or (seq > next_seq and row.follows)):
        return Verdict.PENDING
    return Verdict.REFUSED


def _gang_is_over() -> sa.ColumnElement[bool]:
    """Whether a rank of the Attempt's gang epoch has ended. Uses `attempts_gang`."""
    rank = t.attempts.alias("rank")
    ended = sa.exists().where(
        rank.c.gang == t.attempts.c.gang,
        rank.c.gang_epoch == t.attempts.c.gang_epoch,
        rank.c.finished.is_not(None),
    )
    return ended.correlate(t.attempts)
