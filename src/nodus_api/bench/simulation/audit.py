"""What a simulated run must leave behind: nothing that is there unknown, unproven or miscounted.

The fleet's own truth is held against the rows, and the ledger is added up anew from its rates and
moments (P-05, P-09 to P-12, SC-505). Each finding is one sentence; a sound run has none.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.money import ZERO, cumulative_usd
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.suppliers.simulated import Fleet, truth

Row = Mapping[str, Any]
_ENDED = ("Succeeded", "Failed", "Lost", "Stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The rows that the audit reads, of one moment."""

    attempts: Sequence[Row]
    machines: Sequence[Row]
    segments: Sequence[Row]
    documents: Sequence[Row]


async def audit(database: Database, fleet: Fleet) -> tuple[str, ...]:
    """Return what is wrong after a run that has ended; `fleet` is the one it ran on."""
    async with database.single_reads() as connection:
        books = Books(
            attempts=await _all(connection, t.attempts),
            machines=await _all(connection, t.machines),
            segments=await _all(connection, t.cost_segments),
            documents=await _all(connection, t.attempt_objects),
        )
    return tuple(findings(books, fleet))


def findings(books: Books, fleet: Fleet) -> Iterator[str]:
    """Yield what is wrong, in words."""
    yield from _machines(books.machines, fleet)
    yield from _attempts(books.attempts, books.machines, books.segments)
    yield from _sums(books.segments, books.machines)
    yield from _published(books.segments, books.documents)


def _machines(rows: Sequence[Row], fleet: Fleet) -> Iterator[str]:
    """Tell what the fleet has and the rows do not, and the other way round (P-05, P-09, P-10)."""
    for key in truth.alive(fleet):
        yield f"a machine is still there: {key}"
    for twice in truth.started_twice(fleet):
        yield f"a program was started twice: {twice}"
    keys, handles = {row["key"]: row for row in rows}, {row["handle"]: row for row in rows}
    for machine in fleet.machines.values():
        row = handles.get(machine.handle) or keys.get(machine.key)
        if row is None:
            yield f"machine {machine.handle} has no row"
        elif machine.gone and row["gone"] and row["gone"] < machine.gone.replace(microsecond=0):
            yield f"machine {machine.handle} was called gone before it was"
    for row in rows:
        if row["state"] != "Gone":
            yield f"the row of machine {row['key']} says {row['state']}"
        if row["handle"] is not None and row["handle"] not in fleet.machines:
            yield f"the row of machine {row['handle']} has no machine"


def _attempts(
    attempts: Sequence[Row], machines: Sequence[Row], segments: Sequence[Row]
) -> Iterator[str]:
    """Tell which Attempts did not end, or without their deletion proven."""
    rented = {row["attempt"] for row in segments}
    if len(machines) < len(rented):
        yield f"{len(rented)} Attempts were charged for {len(machines)} machines"
    for row in attempts:
        if row["stage"] not in _ENDED:
            yield f"{row['name']} is still {row['stage']}"
        elif row["no"] in rented and row["deletion_proven"] is None:
            yield f"{row['name']} has no deletionProvenTime"


def _sums(segments: Sequence[Row], machines: Sequence[Row]) -> Iterator[str]:
    """Add each machine's clock up anew: whole seconds, its own rate, no gap (SC-505, P-11)."""
    started = {row["no"]: row["billing_start"] for row in machines}
    clocks: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in segments:
        clocks[row["attempt"], row["machine"]].append(row)
    for (attempt, machine), rows in clocks.items():
        at = begin = rows[0]["from_ts"]
        if begin != started[machine]:
            yield f"the clock of machine {machine} begins at {begin}, not {started[machine]}"
        for row in rows:
            if row["from_ts"] != at:
                yield f"a segment of Attempt {attempt} begins at {row['from_ts']}, not at {at}"
            before, after = (
                cumulative_usd(row["rate"], int((moment - begin).total_seconds()))
                for moment in (row["from_ts"], row["to_ts"])
            )
            if row["usd"] != after - before:
                yield f"a segment of Attempt {attempt} costs {row['usd']}, not {after - before}"
            at = row["to_ts"]


def _published(segments: Sequence[Row], documents: Sequence[Row]) -> Iterator[str]:
    """Compare what clients are told with the ledger's rows (P-12)."""
    charged: dict[int, Decimal] = defaultdict(lambda: ZERO)
    for row in segments:
        if not row["covered"]:
            charged[row["attempt"]] += row["usd"]
    for row in documents:
        told = Decimal(json.loads(row["doc"])["status"]["actual"]["costUSD"])
        if told != charged[row["attempt"]]:
            yield f"Attempt {row['attempt']} is told {told}, its rows say {charged[row['attempt']]}"


async def _all(connection: AsyncConnection, table: sa.Table) -> Sequence[Row]:
    query = sa.select(table).order_by(*table.primary_key.columns)
    return [dict(row) for row in (await connection.execute(query)).mappings()]
