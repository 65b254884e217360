"""Runner reports: taken in by any scheduler process, fenced by one statement (SC-125, SC-645)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage import tables as t
from nodus_api.storage.checkpoint_store import Verdict, verdict_on
from nodus_api.storage.engine import Database
from nodus_api.storage.records import Report
from nodus_api.storage.statements import bigints, database_now

ON_MACHINES = ("Acquiring", "Starting", "Running")

AT_ONCE = 256
"""So many reports of one machine are applied in one transaction; the rest waits for the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenReport:
    """A report as a runner sent it; `age` is the time since the event (SC-615)."""

    attempt: UUID
    epoch: int
    n: int
    kind: str
    age: timedelta
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the sender of a report stands: the answer is made from it.

    `current` is False if its epoch is over: a newer one lives, or this Attempt ended. `won`: its
    machine may start the program; `begun`: the program has started.
    """

    current: bool
    slot_epoch: int
    won: bool
    begun: bool
    last_seq: int
    orders: tuple[Mapping[str, Any], ...]
    verdict: Verdict | None = None
    """Of a checkpoint: whether it is committed."""


class ReportStore:
    """The door by which reports come in; it needs no leader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accept(self, token_sha256: bytes, report: GivenReport) -> Standing | None:
        """Keep a report once, if its epoch is the current one; say where the sender stands.

        None: no lease has that token. A report that was kept before, or whose `n` is not
        above the last applied one, changes nothing (SC-641). A checkpoint is kept only
        while the loop may still commit it (SC-142).
        """
        async with self._database.transaction() as connection:
            token = {"token": token_sha256}
            row = (await connection.execute(_sender(), token)).mappings().first()
            if row is None:
                return None
            same = row["uid"] == report.attempt and row["epoch"] == report.epoch
            replayed = same and report.n <= row["last_report"]
            current = same and row["current"]
            verdict = None
            if current and report.kind == "checkpoint":
                sender = _from_lease(sa.select(), token_sha256)
                verdict = await verdict_on(connection, sender, report.body)
            if current and not replayed and verdict in (None, Verdict.PENDING):
                await connection.execute(_keep(), token | _row(report))
        return Standing(
            current=current or replayed,
            slot_epoch=row["current_epoch"],
            won=row["won"],
            begun=row["begun"],
            last_seq=row["last_seq"],
            orders=tuple(row["orders"]),
            verdict=verdict,
        )


async def waiting_reports(
    connection: AsyncConnection, attempts: list[int]
) -> dict[int, list[Report]]:
    """Return the waiting reports of machines that Attempts hold, in order of n, by machine.

    Those of a Requested machine wait on, whoever brought its Attempt into the batch (SC-606).
    At most `AT_ONCE` a machine: one that floods us must not hold up the others' pass.
    """
    found: dict[int, list[Report]] = {}
    for row in (await connection.execute(_waiting(), {"nos": attempts})).mappings():
        found.setdefault(row["machine"], []).append(Report(**row))
    return found


@cache
def _waiting() -> sa.Select[Any]:
    """The first reports of each lease of the Attempts :nos. Primary key of `runner_reports`."""
    first = (
        sa.select(t.runner_reports)
        .where(
            t.runner_reports.c.machine == t.leases.c.machine,
            t.runner_reports.c.fence == t.leases.c.fence,
        )
        .order_by(t.runner_reports.c.n)
        .limit(AT_ONCE)
        .lateral("first")
    )
    return (
        sa.select(first)
        .select_from(t.leases)
        .join(first, sa.true())
        .join(t.machines, t.machines.c.no == t.leases.c.machine)
        .where(t.leases.c.attempt == sa.any_(bigints("nos")), t.machines.c.state != "Requested")
        .order_by(first.c.machine, first.c.fence, first.c.n)
    )


def _current() -> sa.ColumnElement[bool]:
    """The fence of SC-125: the lease is open, the Attempt on its machine, the epoch the slot's."""
    return sa.and_(
        sa.func.upper_inf(t.leases.c.held),
        t.attempts.c.stage.in_(ON_MACHINES),
        t.slots.c.current_epoch == t.attempts.c.epoch,
    )


def _from_lease(query: sa.Select[Any], token_sha256: Any) -> sa.Select[Any]:
    """Join a lease with its Attempt and slot. Uses the unique `token_sha256`."""
    same_slot = sa.and_(
        t.slots.c.workload == t.attempts.c.workload, t.slots.c.slot == t.attempts.c.slot
    )
    return (
        query.select_from(t.leases)
        .join(t.attempts, t.attempts.c.no == t.leases.c.attempt)
        .join(t.slots, same_slot)
        .where(t.leases.c.token_sha256 == token_sha256)
    )


@cache
def _sender() -> sa.Select[Any]:
    """Where the holder of :token stands."""
    leases = t.leases.c
    columns = (
        leases.won,
        leases.orders,
        leases.last_report,
        t.attempts.c.uid,
        t.attempts.c.epoch,
        t.slots.c.last_seq,
        t.slots.c.current_epoch,
        (t.attempts.c.stage == "Running").label("begun"),
        _current().label("current"),
    )
    return _from_lease(sa.select(*columns), _token())


def _row(report: GivenReport) -> dict[str, Any]:
    return {
        "given_n": report.n,
        "given_kind": report.kind,
        "given_age": report.age,
        "given_body": dict(report.body),
        "given_epoch": report.epoch,
    }


@cache
def _keep() -> postgresql.Insert:
    """Insert the report of `_row` by the holder of :token, where the fence still holds.

    The same (machine, fence, n) only once.
    """
    n = sa.bindparam("given_n", type_=sa.BigInteger)
    epoch = sa.bindparam("given_epoch", type_=sa.BigInteger)
    given = sa.select(
        t.leases.c.machine,
        t.leases.c.fence,
        n,
        sa.bindparam("given_kind", type_=sa.Text),
        database_now - sa.bindparam("given_age", type_=sa.Interval),
        database_now,
        sa.bindparam("given_body", type_=postgresql.JSONB),
    )
    fenced = _from_lease(given, _token()).where(
        _current(), t.attempts.c.epoch == epoch, t.leases.c.last_report < n
    )
    columns = ["machine", "fence", "n", "kind", "event_at", "received", "body"]
    return postgresql.insert(t.runner_reports).from_select(columns, fenced).on_conflict_do_nothing()


def _token() -> sa.BindParameter[bytes]:
    return sa.bindparam("token", type_=sa.LargeBinary)
