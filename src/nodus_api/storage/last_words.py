"""What a runner said of its program's end beside exit code and signal (SC-640, SC-644).

Rows of `machine_events`, kind lastWords: at most one an Attempt, gone with its machine's row. The
API has no field for them (SC-009a); people read them by `nodus explain`.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage import tables as t
from nodus_api.storage.bulk import as_json, insert_rows
from nodus_api.storage.records import AttemptRecord

KIND = "lastWords"


async def write_last_words(
    connection: AsyncConnection, changes: Iterable[tuple[AttemptRecord, AttemptRecord]]
) -> None:
    """Write what was said of the ends that a batch heard."""
    rows = [
        {
            "machine": words.machine,
            "at": words.at,
            "kind": KIND,
            "body": {"attempt": record.no, "message": words.message},
        }
        for _, record in changes
        if (words := record.last_words) is not None
    ]
    if rows:
        await connection.execute(_keep(), as_json(rows))


async def last_words_of(connection: AsyncConnection, attempt: int) -> str | None:
    """Return what was said of an Attempt's end; None for nothing. Keys of leases and events."""
    found: str | None = (await connection.scalars(_said(), {"no": attempt})).first()
    return found


@cache
def _said() -> sa.Select[Any]:
    events, no = t.machine_events.c, sa.bindparam("no", type_=sa.BigInteger)
    return (
        sa.select(events.body["message"].astext)
        .join(t.leases, t.leases.c.machine == events.machine)
        .where(t.leases.c.attempt == no, events.kind == KIND)
        .where(events.body["attempt"].as_integer() == no)
        .limit(1)
    )


@cache
def _keep() -> postgresql.Insert:
    return insert_rows(t.machine_events, ["machine", "at", "kind", "body"])
