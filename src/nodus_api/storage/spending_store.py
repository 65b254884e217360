"""What Attempts under a limit of money cost: a read over whole workloads, nothing is locked.

A limit is the workload's, however many Attempts share it (SC-522), so no batch sees enough of
one to tell whether it is reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from nodus_api.kernel.attempt import Drain
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import reads
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_rows import drain_of
from nodus_api.storage.engine import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """A live Attempt that costs money, at its machine's locked rate."""

    no: int
    rate_usd_per_hour: Decimal
    billed_until: datetime
    """The end of what its ledger holds; the start of its clock before that."""
    increment: timedelta
    drain: Drain | None
    """The stop that stands, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A workload with a limit: what it was charged, and all its Attempts that cost money."""

    workload: UUID
    kind: OwnerKind
    spec: Mapping[str, Any]
    charged_usd: Decimal
    """Over all Attempts, archived ones too."""
    spenders: tuple[Spender, ...]
    """In rising `no`: the newest last."""


async def read_spending(database: Database) -> list[Spending]:
    """Return every workload with maxCostUSD that costs money (SC-622)."""
    async with database.snapshot() as connection:
        rows = (await connection.execute(spenders())).mappings().all()
        if not rows:
            return []
        given = {"nos": [row["no"] for row in rows]}
        found = await connection.execute(reads.charged_by_workload(), given)
        charged = {row.uid: row.charged for row in found}
    several: dict[UUID, list[Spender]] = {}
    for row in rows:
        several.setdefault(row["workload"], []).append(_spender(row))
    workloads = {row["workload"]: row for row in rows}
    return [
        Spending(
            workload=uid,
            kind=OwnerKind(workloads[uid]["kind"]),
            spec=workloads[uid]["spec"],
            charged_usd=charged[uid],
            spenders=tuple(its_own),
        )
        for uid, its_own in several.items()
    ]


def _spender(row: sa.RowMapping) -> Spender:
    return Spender(
        no=row["no"],
        rate_usd_per_hour=row["rate"],
        billed_until=row["billed_until"],
        increment=timedelta(seconds=row["billing_increment_seconds"]),
        drain=drain_of(row),
    )


@cache
def spenders() -> sa.Select[Any]:
    """Live Attempts of limited workloads with the machine that is billed (SC-342).

    Of two machines the winner, else the first granted. Uses `attempts_live`, the key
    (attempt, machine) of leases, and that of the ledger.
    """
    leases, machines, segments = t.leases.c, t.machines.c, t.cost_segments.c
    until = (
        sa.select(sa.func.max(segments.to_ts))
        .where(segments.attempt == t.attempts.c.no, segments.machine == machines.no)
        .correlate(t.attempts, t.machines)
        .scalar_subquery()
    )
    return (
        sa.select(
            t.attempts.c.no,
            t.attempts.c.workload,
            t.workloads.c.kind,
            t.workloads.c.spec,
            leases.rate,
            t.supplier_offers.c.billing_increment_seconds,
            t.attempt_work.c.drain_cause,
            t.attempt_work.c.drain_signalled,
            t.attempt_work.c.drain_deadline,
            sa.func.coalesce(until, t.attempts.c.billing_start).label("billed_until"),
        )
        .ext(postgresql.distinct_on(t.attempts.c.no))
        .join(t.attempt_work, t.attempt_work.c.attempt == t.attempts.c.no)
        .join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .join(t.leases, leases.attempt == t.attempts.c.no)
        .join(t.machines, machines.no == leases.machine)
        .join(t.supplier_offers, t.supplier_offers.c.no == machines.offer)
        .where(t.attempts.c.deletion_proven.is_(None), t.attempts.c.finished.is_(None))
        .where(t.attempts.c.billing_start.is_not(None), machines.billing_start.is_not(None))
        .where(t.workloads.c.spec["limits"].has_key("maxCostUSD"))
        .order_by(
            t.attempts.c.no,
            leases.won.desc(),
            sa.func.coalesce(machines.granted, machines.requested),
            machines.no,
        )
    )
