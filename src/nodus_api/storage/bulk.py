"""Many rows in one statement: a batch travels as one JSON array and becomes a derived table.

One round trip a table and batch, whatever the number of rows; the statements stay Core
expressions, and each row keeps its own guard. (`executemany` sends one statement a row
and does not say how many rows each of them hit.)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

Row = Mapping[str, Any]
ROWS = "rows"


def rows_of(
    table: sa.Table, columns: Iterable[str], extra: Sequence[sa.ColumnClause[Any]] = ()
) -> Any:
    """Return the derived table `r` with those columns of `table`, filled from parameter `rows`.

    `extra` are columns that the rows carry beyond the table's own, such as a guard.
    """
    named = [sa.column(name, _plain_type(table.c[name].type)) for name in columns]
    return (
        sa.func.jsonb_to_recordset(sa.bindparam(ROWS, type_=postgresql.JSONB))
        .table_valued(*named, *extra)
        .render_derived(name="r", with_types=True)
    )


def insert_rows(table: sa.Table, columns: Sequence[str]) -> postgresql.Insert:
    """Insert all rows of parameter `rows`."""
    given = rows_of(table, columns)
    return postgresql.insert(table).from_select(
        list(columns), sa.select(*(given.c[name] for name in columns))
    )


def upsert_rows(table: sa.Table, keys: Sequence[str], columns: Sequence[str]) -> postgresql.Insert:
    """Insert all rows, or overwrite `columns` of those whose `keys` exist."""
    insert = insert_rows(table, [*keys, *columns])
    return insert.on_conflict_do_update(
        index_elements=list(keys), set_={name: insert.excluded[name] for name in columns}
    )


def update_rows(
    table: sa.Table, keys: Sequence[str], columns: Sequence[str], *, expected: str | None = None
) -> sa.Update:
    """Overwrite `columns` of the rows found by `keys`.

    With `expected`, a row is written only while that column still holds the row's
    value `expected`; the caller compares the number of rows.
    """
    guard = [] if expected is None else [sa.column("expected", _plain_type(table.c[expected].type))]
    given = rows_of(table, [*keys, *columns], guard)
    statement = sa.update(table).values({name: given.c[name] for name in columns})
    for key in keys:
        statement = statement.where(table.c[key] == given.c[key])
    if expected is not None:
        statement = statement.where(table.c[expected] == given.c.expected)
    return statement


def as_json(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the parameters of a statement over `rows`; what is left out of a row is NULL in it."""
    return {
        ROWS: [{name: value for name, value in row.items() if value is not None} for row in rows]
    }


def _plain_type(kind: Any) -> Any:
    """Return the base type of a domain, since a derived table knows no domains."""
    return kind.data_type if isinstance(kind, postgresql.DOMAIN) else kind
