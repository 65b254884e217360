"""Bring a database to this version's schema, and the operator's words about roles and epochs.

The revisions lie in `migrations/` of the source tree and in `nodus_api/_migrations` of the wheel.
"""

import re
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from nodus_api.storage.driver import driver_url, open_connection
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import (
    MigrationRefused,
    StorageContention,
    StorageError,
    mask_password,
    translate,
)
from nodus_api.storage.revision import HEAD as HEAD
from nodus_api.storage.revision import REVISIONS
from nodus_api.storage.revision import check_schema as check_schema

LOCK_KEY = 7237382
PARTS = (Role.MIGRATE.value, Role.API.value, Role.SCHEDULER.value)

_TRIES = 10
_INSUFFICIENT_PRIVILEGE = "42501"
_UNKNOWN = re.compile(
    r"Can't locate revision identified by '([^']+)'|No such revision or branch '([^']+)'"
)


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
    process may not: Alembic's context is global). Where whoever reads and writes meanwhile is in
    the way (a lock for more than 3 s, a deadlock), it lets them pass and begins anew, up to ten
    times. Raises TooOldServer, StorageUnavailable, StorageContention and MigrationRefused.
    `scripts` is another folder of revisions, for tests.
    """
    await _patiently(url, scripts, lambda config: command.upgrade(config, "head"))


async def downgrade(url: str, to: str, *, scripts: Path | None = None) -> None:
    """Take back the revisions after `to`, for a version before this one; as `upgrade` otherwise.

    MigrationRefused where `to` is no revision before the database's, or has no way back.
    """
    await _patiently(url, scripts, lambda config: command.downgrade(config, to))


async def _patiently(url: str, scripts: Path | None, act: Callable[[Config], None]) -> None:
    for left in reversed(range(_TRIES)):
        try:
            await _run(url, scripts or script_location(), act)
        except StorageContention:
            if not left:
                raise
        else:
            return


async def _run(url: str, scripts: Path, act: Callable[[Config], None]) -> None:
    address = driver_url(url)
    # no pool: the session's lock and role end with it
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: open_connection(address),
        poolclass=NullPool,
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_run_alembic, scripts, act)
    except StorageError:
        raise
    except CommandError as error:
        raise MigrationRefused(_meaning(error)) from error
    except NotImplementedError as error:
        raise MigrationRefused(f"This revision cannot be taken back: {error}.") from error
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


def _run_alembic(connection: sa.Connection, scripts: Path, act: Callable[[Config], None]) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    act(config)


def _meaning(error: CommandError) -> str:
    """Say what Alembic's refusal means; its own words name no way out."""
    found = _UNKNOWN.search(str(error))
    if found is None:
        return f"The schema cannot be brought there: {error}."
    return (
        f"This version knows no schema {found[1] or found[2]}: if the database is there, a newer"
        " version has migrated it, so run that one. The schemas known here:"
        f" {', '.join(REVISIONS)}."
    )


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
