"""What Attempts cost: the ledger's rows, summed by segment and grouped, read in one snapshot.

The ledger is `cost_segments`, and for retired Attempts the ledger kept in the archive (SC-523).
The totals that it must add up to are read apart from it: from the documents that clients see.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.money import ZERO
from nodus_api.storage import tables as t

SEGMENTS = ("Boot", "Running", "Restore", "Teardown")
GROUPS = ("owner", "project", "offering", "segment")


@dataclass(slots=True, kw_only=True)
class CostLine:
    """One group: what was charged by segment, what Nodus covers, and the charged time."""

    group: str
    attempts: int = 0
    seconds: int = 0
    charged: dict[str, Decimal] = field(default_factory=lambda: dict.fromkeys(SEGMENTS, ZERO))
    covers: dict[str, Decimal] = field(default_factory=lambda: dict.fromkeys(SEGMENTS, ZERO))

    @property
    def covered(self) -> Decimal:
        """Return what Nodus pays, in USD; no part of the total (SC-521)."""
        return sum(self.covers.values(), ZERO)

    @property
    def paid_by_nodus(self) -> dict[str, Decimal]:
        """Return what Nodus pays by segment, those with nothing left out."""
        return {segment: usd for segment, usd in self.covers.items() if usd}

    @property
    def total(self) -> Decimal:
        """Return the sum of the charged segments, in USD."""
        return sum(self.charged.values(), ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """All groups, and what the documents say that all of it cost."""

    lines: Sequence[CostLine]
    attempts: int
    documents_total: Decimal

    @property
    def sum(self) -> CostLine:
        """Return all groups as one line."""
        return CostLine(
            group="total",
            attempts=self.attempts,
            seconds=sum(line.seconds for line in self.lines),
            charged={s: sum((one.charged[s] for one in self.lines), ZERO) for s in SEGMENTS},
            covers={s: sum((one.covers[s] for one in self.lines), ZERO) for s in SEGMENTS},
        )

    @property
    def total(self) -> Decimal:
        """Return the sum over all groups and segments, in USD."""
        return sum((line.total for line in self.lines), ZERO)

    @property
    def adds_up(self) -> bool:
        """Return whether ledger and documents agree to the micro-dollar."""
        return self.total == self.documents_total


async def read_costs(connection: AsyncConnection, *, by: str, project: str | None) -> CostTable:
    """Return the costs of one project, or of all for None, grouped by one of GROUPS.

    `connection` must be one snapshot, so that ledger and documents are of one moment.
    """
    rows = (await connection.execute(_charges(project))).all()
    lines: dict[str, CostLine] = {}
    seen: dict[str, set[Any]] = {}
    for row in rows:
        group = {
            "owner": f"{row.project}/{row.kind.lower()}/{row.owner}",
            "project": row.project,
            "offering": row.offering,
            "segment": row.segment,
        }[by]
        if group is None:
            continue  # no machine, no segment
        line = lines.setdefault(group, CostLine(group=group))
        seen.setdefault(group, set()).add(row.attempt)
        if row.segment is None:
            continue  # charged nothing, yet one of its owner's Attempts
        if row.covered:
            line.covers[row.segment] += row.usd
        else:
            line.charged[row.segment] += row.usd
            line.seconds += int(row.seconds)
    for group, attempts in seen.items():
        lines[group].attempts = len(attempts)
    total = (await connection.scalars(_documents_total(project))).one()
    return CostTable(
        lines=[lines[group] for group in sorted(lines, key=_order)],
        attempts=len({row.attempt for row in rows}),
        documents_total=total or ZERO,
    )


def _order(group: str) -> tuple[int, str]:
    """Order segments as an Attempt goes through them, all else by name."""
    return (SEGMENTS.index(group) if group in SEGMENTS else 0, group)


def _charges(project: str | None) -> sa.Select[Any]:
    """Select one row per Attempt, offering, segment and cover; segment NULL for none.

    Joins by primary keys; a sequential read of the ledger is meant, since all of it is summed.
    """
    live = sa.select(
        t.attempts.c.uid.label("attempt"),
        t.attempts.c.project,
        t.workloads.c.kind,
        t.workloads.c.name.label("owner"),
        t.machines.c.offering,
        t.cost_segments.c.segment,
        t.cost_segments.c.covered,
        t.cost_segments.c.usd,
        sa.func.extract("epoch", t.cost_segments.c.to_ts - t.cost_segments.c.from_ts).label("s"),
    ).select_from(
        t.attempts.join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .outerjoin(t.cost_segments, t.cost_segments.c.attempt == t.attempts.c.no)
        .outerjoin(t.machines, t.machines.c.no == t.cost_segments.c.machine)
    )
    entry = (
        sa.func.jsonb_to_recordset(t.attempts_archive.c.ledger)
        .table_valued(
            sa.column("machine", sa.BigInteger),
            sa.column("segment", sa.Text),
            sa.column("covered", sa.Boolean),
            sa.column("usd", sa.Numeric(18, 6)),
            sa.column("from_ts", sa.TIMESTAMP(timezone=True)),
            sa.column("to_ts", sa.TIMESTAMP(timezone=True)),
            name="entry",
        )
        .render_derived(with_types=True)
        .lateral()
    )
    archived = sa.select(
        t.attempts_archive.c.uid,
        t.attempts_archive.c.project,
        t.attempts_archive.c.workload_kind,
        t.attempts_archive.c.workload_name,
        in_document(t.attempts_archive.c.doc, "status", "placement", "offering"),
        entry.c.segment,
        entry.c.covered,
        entry.c.usd,
        sa.func.extract("epoch", entry.c.to_ts - entry.c.from_ts),
    ).select_from(t.attempts_archive.outerjoin(entry, sa.true()))  # its machines' rows are gone
    rows = sa.union_all(live, archived).subquery("rows")
    keys = [rows.c[k] for k in ("attempt", "project", "kind", "owner", "offering", "segment")]
    query = sa.select(
        *keys,
        rows.c.covered,
        sa.func.sum(rows.c.usd).label("usd"),
        sa.func.sum(rows.c.s).label("seconds"),
    ).group_by(*keys, rows.c.covered)
    if project is not None:
        query = query.where(rows.c.project == project)
    return query


def in_document(document: Any, *path: str) -> Any:
    """Return the text at a path of a stored document."""
    return sa.cast(sa.func.convert_from(document, "UTF8"), JSONB)[path].astext


def _documents_total(project: str | None) -> sa.Select[Any]:
    """Select the sum of status.actual.costUSD over published and archived documents."""

    def cost(document: Any) -> Any:
        found = in_document(document, "status", "actual", "costUSD")
        return sa.cast(found, sa.Numeric(18, 6)).label("usd")

    live = sa.select(
        t.attempt_objects.c.project,
        cost(t.attempt_objects.c.doc),
    )
    archived = sa.select(
        t.attempts_archive.c.project,
        cost(t.attempts_archive.c.doc),
    )
    rows = sa.union_all(live, archived).subquery("documents")
    query = sa.select(sa.func.sum(rows.c.usd))
    if project is not None:
        query = query.where(rows.c.project == project)
    return query
