"""The rows of a running installation, read back: the log, the ledger, the machines.

The log and the machines are read by plain SQL, past the product's own readers. An account's
`rendered` is the product's projection of the rows that its own loader finds; both are of one view
of the database.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import sqlalchemy as sa

from nodus_api.attempts import render
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import load
from nodus_api.storage.engine import Database
from nodus_api.storage.records import AttemptRecord
from tests.history.facts import Account, Ledger, Row, Segment

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
        rows = (await connection.execute(sa.select(t.attempt_objects))).mappings().all()
        segments = (
            (
                await connection.execute(
                    sa.select(t.cost_segments).order_by(*t.cost_segments.primary_key.columns)
                )
            )
            .mappings()
            .all()
        )
        records = await load(connection, sorted(row["attempt"] for row in rows))
    return Ledger(
        head=head,
        accounts=tuple(_account(row, records[row["attempt"]], segments) for row in rows),
    )


def _account(
    row: Mapping[str, Any], record: AttemptRecord, segments: Sequence[Mapping[str, Any]]
) -> Account:
    return Account(
        uid=str(row["uid"]),
        name=row["name"],
        rev=row["rev"],
        stored=bytes(row["doc"]),
        rendered=render(record.view).doc,
        stage=record.attempt.stage.value,
        segments=tuple(
            Segment(
                machine=one["machine"],
                segment=one["segment"],
                start=one["from_ts"],
                end=one["to_ts"],
                covered=one["covered"],
                usd=one["usd"],
            )
            for one in segments
            if one["attempt"] == row["attempt"]
        ),
        machines=tuple((one.machine.no or 0, one.machine.state.value) for one in record.tenancies),
    )
