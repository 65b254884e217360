"""The rows of a running installation, read back: the log, the ledger, the machines.

The log and the machines are read by plain SQL, past the product's own readers. An account's
`rendered` is the product's projection of the rows that its own loader finds; both are of one view
of the database.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.history.facts import Account, Ledger, Row, Segment

from nodus_api.attempts import render
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import load
from nodus_api.storage.engine import Database
from nodus_api.storage.records import AttemptRecord

_LOG = """
SELECT rev, kind::text AS kind, tx::text::bigint AS tx, at, coalesce(uid::text, '') AS uid,
       coalesce(project, '') AS project, coalesce(name, '') AS name, coalesce(doc, '') AS doc
FROM nodus.changes ORDER BY rev
"""
_MACHINES = """
SELECT m.key, m.state, a.name FROM nodus.machines m
JOIN nodus.leases l ON l.machine = m.no JOIN nodus.attempts a ON a.no = l.attempt ORDER BY m.no
"""
_HEAD = "SELECT max(rev) FROM nodus.changes"


async def read_log(connection: "asyncpg.Connection[asyncpg.Record]") -> tuple[Row, ...]:
    """Return the whole log, in order."""
    return tuple(Row(**row) for row in await connection.fetch(_LOG))


async def read_head(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """Return the newest revision."""
    found: int = await connection.fetchval(_HEAD)
    return found


async def read_last_change(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """Return the newest revision of an object, 0 if there never was one."""
    found: int | None = await connection.fetchval(f"{_HEAD} WHERE kind <> 'E'")
    return found or 0


async def read_machines(
    connection: "asyncpg.Connection[asyncpg.Record]",
) -> list[tuple[str, str, str]]:
    """Return key, state and Attempt of every machine that an Attempt in the API was given."""
    return [(row["key"], row["state"], row["name"]) for row in await connection.fetch(_MACHINES)]


async def read_ledger(database: Database) -> Ledger:
    """Return all accounts in one view of the database. `database` is in the scheduler's role."""
    async with database.snapshot() as connection:
        head = (await connection.scalars(sa.select(sa.func.max(t.changes.c.rev)))).one()
        found = [dict(row) for row in await _all(connection, t.attempt_objects)]
        charged: dict[int, list[Segment]] = {row["attempt"]: [] for row in found}
        for row in await _all(connection, t.cost_segments):
            charged.setdefault(row["attempt"], []).append(_segment(row))
        records = await load(connection, sorted(row["attempt"] for row in found))
    return Ledger(
        head=head,
        accounts=tuple(
            _account(row, records[row["attempt"]], charged[row["attempt"]]) for row in found
        ),
    )


async def _all(connection: AsyncConnection, table: sa.Table) -> Sequence[sa.RowMapping]:
    query = sa.select(table).order_by(*table.primary_key.columns)
    return (await connection.execute(query)).mappings().all()


def _segment(row: sa.RowMapping) -> Segment:
    return Segment(
        machine=row["machine"],
        segment=row["segment"],
        start=row["from_ts"],
        end=row["to_ts"],
        covered=row["covered"],
        usd=row["usd"],
    )


def _account(row: dict[str, Any], record: AttemptRecord, charged: Sequence[Segment]) -> Account:
    return Account(
        uid=str(row["uid"]),
        name=row["name"],
        rev=row["rev"],
        stored=bytes(row["doc"]),
        rendered=render(record.view).doc,
        segments=tuple(charged),
        machines=tuple((one.machine.no or 0, one.machine.state.value) for one in record.tenancies),
    )
