"""tables.py says what the catalogue says, column by column, on both servers."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from tests.storage.scene import Connection

from nodus_api.storage import tables

_CATALOGUE = """
SELECT c.relname AS table, a.attname AS column,
  format_type(CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE a.atttypid END,
              CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END) AS type,
  a.attnotnull AS required,
  CASE WHEN a.attidentity = 'a' THEN 'identity' WHEN a.attgenerated = 's' THEN 'generated'
       WHEN a.atthasdef THEN 'defaulted' ELSE 'given' END AS origin,
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
          AND a.attnum = ANY (i.indkey)) AS key
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = 'nodus'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relname <> 'alembic_version'
"""


def origin(column: sa.Column[object]) -> str:
    if column.identity is not None:
        return "identity"
    if column.server_onupdate is not None:
        return "generated"
    return "defaulted" if column.server_default is not None else "given"


def described() -> set[tuple[str, str, str, bool, str, bool]]:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call] # untyped in SQLAlchemy
    return {
        (
            table.name,
            column.name,
            column.type.compile(dialect).lower().replace(", ", ","),
            not column.nullable,
            origin(column),
            column.primary_key,
        )
        for table in tables.metadata.tables.values()
        for column in table.columns
    }


async def test_every_column_is_described_as_it_is(superuser: Connection) -> None:
    rows = await superuser.fetch(_CATALOGUE)
    there = {tuple(row) for row in rows}
    assert described() - there == set()
    assert there - described() == set()
