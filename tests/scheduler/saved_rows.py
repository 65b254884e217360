"""All rows of schema nodus: kept, put back, and told apart by what they mean.

A sweep that tries a hundred faults in one moment of a life begins a hundred times at that moment's
rows instead of living up to it; and stops where its rows mean what the reference's mean, since what
follows from equal rows is equal (SC-605).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

_TABLES = """
SELECT relname, string_agg(attname, ', ' ORDER BY attnum) AS columns
FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relnamespace = 'nodus'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND relname <> 'alembic_version' AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
GROUP BY relname ORDER BY relname
"""
_NAMED_BY = {
    "attempts": "uid",
    "machines": "key",
    "supplier_offers": "instance_type",
    "commands": "key",
    "orphans": "handle",
}
_NUMBERS = {"attempt": "attempts", "machine": "machines", "offer": "supplier_offers"}
_UNCOMPARED = {
    "leader",  # every process has a token of its own
    "leader_heartbeat",
    "feed",
    "changes",  # the log's versions leap with each leader; `tests.history` holds it to the rows
    "project_feed",
    "decisions",  # when an Attempt is placed anew it is decided anew
}
_VOLATILE = {
    "rev",
    "ver",
    "updated",  # when offers were asked for last
    "needs_offering",  # the constraint that an Attempt on a machine has a placement
    "placed",
}


@dataclass(frozen=True)
class SavedRows:
    """The rows of one moment, table by table, as JSON."""

    text: Mapping[str, str]

    def meaning(self) -> Rows:
        """Return the rows that anything may still follow from, and what they mean.

        Numbers become names. An Attempt whose machines are proven gone is over; what it came to
        is compared by its document.
        """
        found = {name: json.loads(text) for name, text in self.text.items()}
        over = {row["no"] for row in found.get("attempts", ()) if row["deletion_proven"]}
        gone = {row["no"] for row in found.get("machines", ()) if row["state"] == "Gone"}
        found = {
            name: [row for row in rows if not _inert(name, row, over, gone)]
            for name, rows in found.items()
        }
        names = {
            table: {row["no"]: row[column] for row in found[table]}
            for table, column in _NAMED_BY.items()
            if table in found
        }
        return {
            name: sorted((_meant(name, row, names) for row in rows), key=_ordered)
            for name, rows in found.items()
            if rows and name not in _UNCOMPARED
        }


def _inert(table: str, row: Mapping[str, Any], over: set[int], gone: set[int]) -> bool:
    attempt = row["no"] if table == "attempts" else row.get("attempt")
    machine = row["no"] if table == "machines" else row.get("machine")
    return attempt in over or (machine in gone and table != "cost_segments")


def _meant(
    table: str, row: Mapping[str, Any], names: Mapping[str, Mapping[int, str]]
) -> Mapping[str, Any]:
    kept = {name: value for name, value in row.items() if name not in _VOLATILE}
    if table in names:
        del kept["no"]
    for column, target in _NUMBERS.items():
        if isinstance(kept.get(column), int):
            kept[column] = names[target][kept[column]]
    return kept


def _ordered(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


class RowKeeper:
    """Reads and writes all rows as superuser, past triggers and foreign keys."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self._columns: dict[str, str] = {}

    async def save(self) -> SavedRows:
        if not self._columns:
            found = await self._connection.fetch(_TABLES)
            self._columns = {row["relname"]: row["columns"] for row in found}
        query = " UNION ALL ".join(
            f"SELECT '{name}' AS name, jsonb_agg(to_jsonb(t))::text AS rows FROM nodus.{name} t"  # noqa: S608 - the catalogue's names
            for name in self._columns
        )
        found = await self._connection.fetch(query)
        return SavedRows({row["name"]: row["rows"] for row in found if row["rows"]})

    async def restore(self, saved: SavedRows) -> None:
        empty = ";".join(f"DELETE FROM nodus.{name}" for name in self._columns)  # noqa: S608
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL session_replication_role = replica")
            await self._connection.execute(empty)
            for name, text in saved.text.items():
                columns = self._columns[name]
                await self._connection.execute(
                    f"INSERT INTO nodus.{name} ({columns}) "  # noqa: S608
                    f"OVERRIDING SYSTEM VALUE SELECT {columns} FROM "
                    f" jsonb_populate_recordset(NULL::nodus.{name}, $1::text::jsonb)",
                    text,
                )
