"""Which schema this version needs, and whether a database has it.

Apart from `migrate`, so that a command which only looks need not load Alembic.
"""

import sqlalchemy as sa

from nodus_api.storage.engine import Database
from nodus_api.storage.errors import SchemaMismatch

REVISIONS = ("0001", "0002", "0003", "0004")
"""Every revision that this version knows, in order."""
HEAD = REVISIONS[-1]


async def check_schema(database: Database) -> None:
    """Raise SchemaMismatch where the database is not at this version's revision."""
    version = sa.table("alembic_version", sa.column("version_num", sa.Text), schema="nodus")
    there = sa.select(sa.func.to_regclass("nodus.alembic_version").is_not(None))
    found = None
    async with database.transaction(read_only=True) as connection:
        if await connection.scalar(there):
            found = await connection.scalar(sa.select(version.c.version_num))
    if found != HEAD:
        raise SchemaMismatch(found, HEAD, known=found is None or found in REVISIONS)
