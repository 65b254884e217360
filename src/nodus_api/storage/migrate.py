"""Bring a database to this version's schema, and the operator's words about roles and epochs.

The revisions lie in `migrations/` of the source tree and in `nodus_api/_migrations` of the wheel.
"""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from nodus_api.storage.engine import (
    Database,
    Role,
    driver_url,
    open_connection,
)
from nodus_api.storage.errors import (
    MigrationRefused,
    StorageError,
    mask_password,
    translate,
)
from nodus_api.storage.revision import HEAD as HEAD
from nodus_api.storage.revision import check_schema as check_schema

LOCK_KEY = 7237382
PARTS = (Role.MIGRATE.value, Role.API.value, Role.SCHEDULER.value)

_INSUFFICIENT_PRIVILEGE = "42501"


def script_location() -> Path:
    """Return the folder of env.py and versions, of the source tree or of the wheel."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_migrations", package.parent.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise MigrationRefused("The migrations are missing from this installation: install it again.")


async def upgrade(url: str, *, scripts: Path | None = None) -> None:
    """Run the missing revisions in one transaction, under an advisory lock.

    Makes roles and schema first where the login may. A second run changes nothing, a failing
    revision leaves nothing behind; two processes at once go one after the other (two tasks of one
    process may not: Alembic's context is global). Raises TooOldServer, StorageUnavailable and
    MigrationRefused. `scripts` is another folder of revisions, for tests.
    """
    address = driver_url(url)
    # no pool: the session's lock and role end with it
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: open_connection(address),
        poolclass=NullPool,
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_run_alembic, scripts or script_location())
    except StorageError:
        raise
    except Exception as error:
        meant = translate(error, mask_password(address))
        if meant is None:
            raise
        if getattr(meant, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
            raise MigrationRefused(
                f"{meant}: run the output of `nodus migrate --print-roles` as an administrator."
            ) from error
        raise meant from error
    finally:
        await engine.dispose()


async def new_epoch(url: str) -> int:
    """Start a new epoch of the revision space and return its first revision.

    For a database that was cloned from a snapshot while the first one lives (storage.md section 8).
    """
    database = Database(url, role=Role.MIGRATE, pool_size=1)
    try:
        await check_schema(database)
        async with database.transaction() as connection:
            return int((await connection.scalars(sa.select(sa.func.nodus.start_epoch(True)))).one())
    finally:
        await database.close()


def print_roles(login: str, database: str) -> str:
    """Return the SQL by which an administrator prepares the roles for `login` and `database`."""
    who, where = _quote(login), _quote(database)
    return (
        "CREATE ROLE nodus_migrate LOGIN; CREATE ROLE nodus_api LOGIN; "
        "CREATE ROLE nodus_scheduler LOGIN NOINHERIT;\n"
        "GRANT nodus_migrate TO nodus_scheduler; "
        f"GRANT nodus_migrate, nodus_api, nodus_scheduler TO {who}; "
        f"GRANT CREATE ON DATABASE {where} TO {who};\n"
    )


def membership_word(connection: sa.Connection) -> str:
    """Return what `pg_has_role` calls the right to SET ROLE: 16 split it from membership."""
    info = connection.dialect.server_version_info
    return "SET" if info is not None and info >= (16,) else "MEMBER"


def _run_alembic(connection: sa.Connection, scripts: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
