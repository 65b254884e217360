"""What the runs of a workload name have taught, by family of classes (SC-352).

By name, not by uid: the next workload of that name is the next of its lineage.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.calibration import Calibration
from nodus_api.kernel.offering import Family
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t
from nodus_api.storage.bulk import as_json, rows_of, upsert_rows
from nodus_api.storage.records import Workload

KEPT = timedelta(days=90)
"""How long a name that runs no more is remembered."""

_FORGOTTEN_AT_ONCE = 100

_COLUMNS = ("ratio", "hours", "updated")
_LINEAGE = ("project", "kind", "name")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lineage:
    """All workloads that were ever submitted under one name."""

    project: str
    kind: OwnerKind
    name: str

    @classmethod
    def of(cls, workload: Workload) -> "Lineage":
        """Return the lineage of a workload."""
        return cls(project=workload.project, kind=workload.kind, name=workload.name)


Calibrations = Mapping[Lineage, Mapping[Family, Calibration]]


async def read_calibrations(
    connection: AsyncConnection, lineages: Collection[Lineage]
) -> Calibrations:
    """Return what is known of lineages; those without a run are left out. Primary key."""
    found: dict[Lineage, dict[Family, Calibration]] = {}
    if not lineages:
        return found
    asked = [
        {"project": one.project, "kind": one.kind.value, "name": one.name}
        for one in sorted(set(lineages))
    ]
    for row in (await connection.execute(_of_lineages(), as_json(asked))).mappings():
        lineage = Lineage(project=row["project"], kind=OwnerKind(row["kind"]), name=row["name"])
        family = (row["accelerator"] or None, row["count"])
        found.setdefault(lineage, {})[family] = Calibration(
            ratio=row["ratio"], hours=tuple(row["hours"])
        )
    return found


async def write_calibrations(
    connection: AsyncConnection, known: Calibrations, now: datetime
) -> None:
    """Write them in the transaction that ended the runs, and forget some that are too old."""
    rows = [
        {
            "project": lineage.project,
            "kind": lineage.kind.value,
            "name": lineage.name,
            "accelerator": accelerator or "",
            "count": count,
            "ratio": calibration.ratio,
            "hours": list(calibration.hours),
            "updated": now,
        }
        for lineage, families in sorted(known.items())
        for (accelerator, count), calibration in families.items()
    ]
    if rows:
        await connection.execute(_forget(), {"before": now - KEPT})
        await connection.execute(_upsert(), as_json(rows))


async def read_families(
    connection: AsyncConnection, offerings: Collection[str]
) -> dict[str, tuple[Family, float]]:
    """Return family and speed of classes by name, retired ones too. Primary key."""
    query = sa.select(
        *(t.offering_classes.c[name] for name in ("name", "accelerator", "count", "speed"))
    ).where(t.offering_classes.c.name.in_(sorted(offerings)))
    return {
        row["name"]: ((row["accelerator"], row["count"]), float(row["speed"]))
        for row in (await connection.execute(query)).mappings()
    }


@cache
def _of_lineages() -> sa.Select[Any]:
    asked = rows_of(t.calibrations, _LINEAGE)
    return sa.select(t.calibrations).join(
        asked, sa.and_(*(t.calibrations.c[name] == asked.c[name] for name in _LINEAGE))
    )


@cache
def _upsert() -> postgresql.Insert:
    """Write calibrations. Primary key."""
    return upsert_rows(t.calibrations, [*_LINEAGE, "accelerator", "count"], _COLUMNS)


@cache
def _forget() -> sa.Delete:
    """Delete a few of what was not written for too long. Index calibrations_updated."""
    keys = [t.calibrations.c[name] for name in (*_LINEAGE, "accelerator", "count")]
    oldest = (
        sa.select(*keys)
        .where(t.calibrations.c.updated < sa.bindparam("before", type_=t.MOMENT))
        .order_by(t.calibrations.c.updated)
        .limit(_FORGOTTEN_AT_ONCE)
    )
    return sa.delete(t.calibrations).where(sa.tuple_(*keys).in_(oldest))
