"""All rows of schema nodus: kept, put back, and told apart by what they mean.

A sweep that tries a hundred faults in one moment of a life begins a hundred times at that moment's
rows instead of living up to it; and stops where its rows mean what the reference's mean, since what
follows from equal rows is equal (SC-605).
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_SET_NUMBERS = """
SELECT string_agg(format('SELECT setval(%L, %s, %L)', format('%I.%I', schemaname, sequencename),
  coalesce(last_value, start_value), last_value IS NOT NULL), ';')
FROM pg_sequences WHERE schemaname = 'nodus'
"""
_WRITTEN = "SELECT pg_current_wal_insert_lsn()::text || pg_current_snapshot()::text"
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
    "attempts_archive",  # over for good: compared by its document, its ledger with the truth
}
_VOLATILE = {
    "rev",
    "ver",
    "updated",  # when offers were asked for last
    "needs_offering",  # the constraint that an Attempt on a machine has a placement
    "placed",
    "archived_usd",  # what is charged depends on when a machine was proven gone
}


@dataclass(frozen=True)
class SavedRows:
    """The rows of one moment, table by table, as JSON."""

    text: Mapping[str, str]
    numbers: str = ""
    """The statement that makes new rows' numbers go on from there."""

    def meaning(self) -> Rows:
        """Return the rows that anything may still follow from, and what they mean.

        Numbers become names. An Attempt whose machines are proven gone is over; what it came to
        is compared by its document.
        """
        found = {name: json.loads(text) for name, text in self.text.items()}
        over = {row["no"] for row in found.get("attempts", ()) if row["deletion_proven"]}
        gone = {row["no"] for row in found.get("machines", ()) if row["state"] == "Gone"}
        names = {
            table: {row["no"]: row[column] for row in found[table]}
            for table, column in _NAMED_BY.items()
            if table in found
        }
        found = {
            name: [row for row in rows if not _inert(name, row, over, gone)]
            for name, rows in found.items()
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
        self._parts: dict[str, str | None] = {}

    async def prepare(self) -> None:
        if not self._columns:
            found = await self._connection.fetch(_TABLES)
            self._columns = {row["relname"]: row["columns"] for row in found}

    async def fingerprint(self) -> str:
        """Return what tells all committed rows from others, but for their transactions' numbers."""
        await self.prepare()
        try:
            self._parts = await self._parts_of(self._columns)
        except asyncpg.LockNotAvailableError:  # a transaction that is open makes a partition of it
            others = [name for name in self._columns if name != "attempts_archive"]
            self._parts = self._parts | await self._parts_of(others)
        return json.dumps(self._parts, sort_keys=True)

    async def _parts_of(self, names: Iterable[str]) -> dict[str, str | None]:
        one = (
            "SELECT '{0}' AS name, md5(string_agg(part, '' ORDER BY part)) AS part FROM "
            "(SELECT md5((to_jsonb(t) - 'tx')::text) AS part FROM nodus.{0} t) p"
        )
        found = await self._connection.fetch(" UNION ALL ".join(one.format(name) for name in names))
        return {row["name"]: row["part"] for row in found}

    async def numbers(self) -> str:
        found: str = await self._connection.fetchval(_SET_NUMBERS)
        return found

    async def save(self) -> SavedRows:
        await self.prepare()
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
            await self._connection.execute(f"{empty};{saved.numbers}")
            for name, text in saved.text.items():
                columns = self._columns[name]
                await self._connection.execute(
                    f"INSERT INTO nodus.{name} ({columns}) "  # noqa: S608
                    f"OVERRIDING SYSTEM VALUE SELECT {columns} FROM "
                    f" jsonb_populate_recordset(NULL::nodus.{name}, $1::text::jsonb)",
                    text,
                )


class Onlooker:
    """Looks at the committed rows while the event loop of the looked at stands still."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection = self._wait(asyncpg.connect(url))
        self._wait(self._connection.execute("SET lock_timeout = '20ms'"))
        self._keeper = RowKeeper(self._connection)
        self._looked_at = ""
        self._seen = ""

    def fingerprint(self) -> str:
        """Return what the rows are told from others by; looked at anew if anything was written."""
        return str(self._wait(self._look()))

    async def _look(self) -> str:
        written: str = await self._connection.fetchval(_WRITTEN)
        if written != self._looked_at:
            self._seen, self._looked_at = await self._keeper.fingerprint(), written
        return self._seen

    def close(self) -> None:
        self._wait(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextlib.contextmanager
def an_onlooker(url: str) -> Iterator[Onlooker]:
    onlooker = Onlooker(url)
    yield onlooker
    onlooker.close()
