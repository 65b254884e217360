"""The rows of an installation, read back in one view: the log, the ledger, the machines.

The log and the machines are read by plain SQL, past the product's own readers. An account's
`rendered` is the product's projection of the rows that its own loader finds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.history.facts import Account, History, Ledger, Machine, Row, Segment

from nodus_api.attempts import render
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import load
from nodus_api.storage.engine import Database
from nodus_api.storage.records import AttemptRecord, Tenancy

_LOG = sa.text("""
SELECT rev, kind::text AS kind, tx::text::bigint AS tx, at, coalesce(uid::text, '') AS uid,
       coalesce(project, '') AS project, coalesce(name, '') AS name, coalesce(doc, '') AS doc
FROM nodus.changes ORDER BY rev
""")
_MACHINES = sa.text("""
SELECT m.key, m.state, a.name AS attempt FROM nodus.machines m
JOIN nodus.leases l ON l.machine = m.no JOIN nodus.attempts a ON a.no = l.attempt
ORDER BY m.no, a.no
""")
_NEWEST = sa.text("""
SELECT coalesce(max(rev), 0) AS head, coalesce(max(rev) FILTER (WHERE kind <> 'E'), 0) AS changed,
       (SELECT oldest FROM nodus.feed) AS oldest
FROM nodus.changes
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What Postgres has, in one view. A machine's state is that of its row; none is alive yet."""

    log: tuple[Row, ...]
    ledger: Ledger
    machines: tuple[Machine, ...]


async def read(database: Database) -> Kept:
    """Return the log, the ledger and the machines; `database` is in the scheduler's role."""
    async with database.snapshot() as connection:
        log = await _log(connection)
        machines = (await connection.execute(_MACHINES)).mappings()
        return Kept(
            log=log,
            ledger=await _ledger(connection, log[-1].rev if log else 0),
            machines=tuple(Machine(**row, alive=False) for row in machines),
        )


async def read_log(database: Database) -> tuple[Row, ...]:
    """Return the log alone."""
    async with database.single_reads() as connection:
        return await _log(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest revision and the newest of an object, 0 for none; the oldest one promised."""

    head: int
    changed: int
    oldest: int


async def newest(database: Database) -> Newest:
    """Return the ends of the log."""
    async with database.single_reads() as connection:
        row = (await connection.execute(_NEWEST)).mappings().one()
    return Newest(**row)


def history_of(kept: Kept, alive: Collection[str]) -> History:
    """Return the history that the rows alone tell; `alive` are the keys of machines that run."""
    return History(
        log=kept.log,
        ledgers=(kept.ledger,),
        machines=tuple(replace(one, alive=one.key in alive) for one in kept.machines),
    )


async def _log(connection: AsyncConnection) -> tuple[Row, ...]:
    return tuple(Row(**row) for row in (await connection.execute(_LOG)).mappings())


async def _ledger(connection: AsyncConnection, head: int) -> Ledger:
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


def _state(tenancy: Tenancy) -> str:
    """Return a machine's state for one of its Attempts: wiped, it is gone for that one (SC-344)."""
    return "Gone" if tenancy.lease.wiped is not None else tenancy.machine.state.value


def _account(row: dict[str, Any], record: AttemptRecord, charged: Sequence[Segment]) -> Account:
    return Account(
        uid=str(row["uid"]),
        name=row["name"],
        rev=row["rev"],
        stored=bytes(row["doc"]),
        rendered=render(record.view).doc,
        segments=tuple(charged),
        machines=tuple((one.machine.no or 0, _state(one)) for one in record.tenancies),
    )
