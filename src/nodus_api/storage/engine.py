"""The one way to a database session: a pool per part, in that part's role.

Every SQL statement of the product runs through `Database` (held by tests/test_seams.py).

Decision 1: each new connection does SET ROLE to its part's role where the login is a member, so
one URL serves all parts and each can do only what its part needs (AS-117). A login that is no
member stays what it is, with one warning. The pool does not ping before use: after a restart of
the server the first transaction fails as `StorageUnavailable`, the whole pool is renewed, and the
caller, who must be ready to try again anyway, does.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from nodus_api.storage.errors import (
    OLDEST_SERVER,
    StorageError,
    StorageUnavailable,
    TooOldServer,
    mask_password,
    translate,
)

log = logging.getLogger(__name__)

# generic in its stubs alone
DriverConnection: TypeAlias = "asyncpg.Connection[Any]"

CONNECT_TIMEOUT_SECONDS = 10.0

_SESSION = """
SELECT pg_has_role(session_user, r.oid, $2) AS member,
       set_config('search_path', 'nodus', false),
       set_config('default_transaction_isolation', 'read committed', false)
FROM (SELECT to_regrole($1) AS oid) r
"""
_PIN = "SELECT set_config('nodus.now', $1, false)"
_BECOME = {
    "nodus_migrate": "SET ROLE nodus_migrate",
    "nodus_api": "SET ROLE nodus_api",
    "nodus_scheduler": "SET ROLE nodus_scheduler",
}


class Role(StrEnum):
    """The database role of a part."""

    MIGRATE = "nodus_migrate"
    API = "nodus_api"
    SCHEDULER = "nodus_scheduler"


class Database:
    """A pool of connections in one role.

    `url` is a libpq-style address, a Unix socket included
    (`postgresql://user@/nodus?host=/run/dir`). `pinned_now`, for tests, is what `nodus.now()`
    answers in every transaction. All failures are `storage.errors`; connecting happens at first
    use.
    """

    def __init__(
        self,
        url: str,
        *,
        role: Role,
        pool_size: int = 5,
        pinned_now: Callable[[], datetime] | None = None,
    ) -> None:
        self._url = driver_url(url)
        self._role = role
        self._pinned_now = pinned_now
        self._warned = False
        self.where = mask_password(self._url)
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_use_lifo=True,
        )

    @contextlib.asynccontextmanager
    async def transaction(self, read_only: bool = False) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a READ COMMITTED transaction: commit at the end, else roll back.

        The isolation the feed needs to write (`lock_feed`).
        """
        async with self._session("READ COMMITTED", read_only=read_only) as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a REPEATABLE READ READ ONLY transaction: one view for all reads."""
        async with self._session("REPEATABLE READ", read_only=True) as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def single_reads(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection whose every statement is its own snapshot, without BEGIN and COMMIT.

        One round trip a read instead of three; for single SELECTs.
        """
        with self._translated():
            async with self._engine.connect() as plain:
                connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
                await self._pin(connection)
                yield connection

    @contextlib.asynccontextmanager
    async def dedicated(self) -> AsyncIterator[DriverConnection]:
        """Yield one driver connection outside the pool: for LISTEN, session locks and upkeep."""
        with self._translated():
            connection = await self._connect()
            try:
                yield connection
            finally:
                try:
                    await connection.close(timeout=2)
                except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    connection.terminate()

    async def close(self) -> None:
        """End every connection of the pool."""
        await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def _session(self, isolation: Any, *, read_only: bool) -> AsyncIterator[AsyncConnection]:
        with self._translated():
            async with self._engine.connect() as plain:
                connection = await plain.execution_options(
                    isolation_level=isolation, postgresql_readonly=read_only
                )
                await self._pin(connection)
                async with connection.begin():
                    yield connection

    async def _pin(self, connection: AsyncConnection) -> None:
        """Make `nodus.now()` answer the pinned moment on this connection, unless it does already.

        By the driver and before any transaction, so that no rollback takes it back.
        """
        if self._pinned_now is None:
            return
        moment, raw = self._pinned_now().isoformat(), await connection.get_raw_connection()
        if raw.info.get("pinned") != moment:
            driver: Any = raw.driver_connection
            await driver.execute(_PIN, moment)
            raw.info["pinned"] = moment

    @contextlib.contextmanager
    def _translated(self) -> Any:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            meant = translate(error, self.where)
            if meant is None:
                raise
            raise meant from error

    async def _connect(self) -> DriverConnection:
        connection = await open_connection(self._url)
        try:
            await self._become(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _become(self, connection: DriverConnection) -> None:
        # since 16 a membership may lack the right to SET ROLE, and has a word of its own for it
        word = "SET" if connection.get_server_version().major >= 16 else "MEMBER"
        member = await connection.fetchval(_SESSION, self._role.value, word)
        if member:
            await connection.execute(_BECOME[self._role.value])
        elif member is False and not self._warned:  # None: there is no such role before `migrate`
            self._warned = True
            log.warning(
                "the database login is no member of its part's role and keeps its own rights",
                extra={"role": self._role.value, "database": self.where},
            )


async def open_connection(url: str) -> DriverConnection:
    """Return a driver connection to a server that is new enough.

    `url` is one of `driver_url`. Raises StorageUnavailable and TooOldServer.
    """
    where = mask_password(url)
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_SECONDS)
    except (OSError, TimeoutError, ValueError, asyncpg.InterfaceError) as error:
        raise StorageUnavailable(where, str(error) or "no answer in time") from error
    except asyncpg.PostgresError as error:
        raise translate(error, where) or error from error
    version = connection.get_server_version()
    try:
        require_supported(version.major, version.minor)
    except TooOldServer:
        connection.terminate()
        raise
    return connection


def require_supported(major: int, minor: int) -> None:
    """Raise TooOldServer for a server that the schema does not run on."""
    if major < OLDEST_SERVER:
        raise TooOldServer(f"{major}.{minor}")


def driver_url(url: str) -> str:
    """Return `url` in the scheme asyncpg knows; SQLAlchemy's `postgresql+asyncpg` is understood."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme=parts.scheme.partition("+")[0]))
