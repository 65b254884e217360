"""The one way to a database session: a pool per part, in that part's role.

Every SQL statement of the product runs through `Database` (held by tests/test_seams.py).

Decision 1: each new connection does SET ROLE to its part's role where the login is a member, so
one URL serves all parts and each can do only what its part needs (AS-117). A login that is no
member stays what it is, with one warning. The pool does not ping before use: after a restart of
the server the first transaction fails as `StorageUnavailable`, the whole pool is renewed, and the
caller, who must be ready to try again anyway, does.

Decision 2: behind a transaction pooler (PgBouncer and its kind) nothing may be left on a session
that somebody else gets next: role and search path are set in each transaction, statements are
never kept prepared, and what needs a session of its own is refused (`PooledSession`).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from enum import StrEnum
from typing import Any

import asyncpg
import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from nodus_api.storage.driver import (
    Deadline,
    DriverConnection,
    Readers,
    ShortRead,
    driver_url,
    open_connection,
)
from nodus_api.storage.errors import (
    PooledSession,
    StorageError,
    StorageUnavailable,
    mask_password,
    translate,
)
from nodus_api.storage.json_text import json_text

log = logging.getLogger(__name__)

# since 16 a membership may lack the right to SET ROLE, and has a word of its own for it
_SESSION = """
SELECT pg_has_role(session_user, to_regrole($1)::oid, CASE
    WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
"""
# what is read is small and indexed: compiling it, where a guess of its cost is high, only delays it
_SETTINGS = """
SET search_path = nodus;
SET jit = off;
SET default_transaction_isolation = 'read committed';
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
"""
_PLAN_ONCE = "SET plan_cache_mode = force_generic_plan;"
_PIN = "SELECT set_config('nodus.now', $1, false)"


class Role(StrEnum):
    """The database role of a part."""

    MIGRATE = "nodus_migrate"
    API = "nodus_api"
    SCHEDULER = "nodus_scheduler"


class Database:
    """A pool of connections in one role.

    `url` is a libpq-style address, a Unix socket included
    (`postgresql://user@/nodus?host=/run/dir`). `plan_once` is for whoever repeats a few large
    statements, as the loop does: to plan one takes several times as long as to run it.
    `pinned_now`, for tests, is what `nodus.now()` answers in every transaction. All failures are
    `storage.errors`; connecting happens at first use.
    """

    def __init__(
        self,
        url: str,
        *,
        role: Role,
        pool_size: int = 5,
        plan_once: bool = False,
        pinned_now: Callable[[], datetime] | None = None,
    ) -> None:
        self._url = driver_url(url)
        self._role = role
        self._pinned_now = pinned_now
        self._plan_once = plan_once
        self._warned = False
        self.where = mask_password(self._url)
        self._written = 0
        self._member = False
        self._readers = Readers(self._connect, self.where)
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_use_lifo=True,
            json_serializer=json_text,
            json_deserializer=orjson.loads,
        )

    @property
    def written(self) -> int:
        """How many transactions that may have written have ended, one way or the other."""
        return self._written

    @contextlib.asynccontextmanager
    async def transaction(
        self, read_only: bool = False, *, deadline: Deadline | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a READ COMMITTED transaction: commit at the end, else roll back.

        The isolation the feed needs to write (`lock_feed`). Where `deadline` passes, the block
        ends as StorageUnavailable.
        """
        try:
            async with self._session("READ COMMITTED", read_only, deadline) as connection:
                yield connection
        finally:
            self._written += not read_only

    @contextlib.asynccontextmanager
    async def snapshot(self, *, deadline: Deadline | None = None) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a REPEATABLE READ READ ONLY transaction: one view for all reads."""
        async with self._session("REPEATABLE READ", True, deadline) as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def single_reads(
        self, *, deadline: Deadline | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """Yield a connection whose every statement is its own snapshot, without BEGIN and COMMIT.

        One round trip a read instead of three; for single SELECTs.
        """
        async with self._connected(deadline) as (plain, driver):
            if driver.pooled:
                async with self._begun(plain, driver, "READ COMMITTED") as connection:
                    yield connection
            else:
                connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
                await self._pin_of_pool(connection, driver)
                yield connection

    async def read(
        self, short: ShortRead, *, deadline: Deadline | None = None, **given: Any
    ) -> list[asyncpg.Record]:
        """Return the rows of one short statement, its own snapshot; `given` are its parameters.

        On one of a few connections beside the pool, whose ways would take longer than the read.
        """
        with self._translated(deadline):
            async with self._readers.lent(deadline) as driver:
                if not driver.pooled:
                    await self._pin(driver)
                    return await driver.read(short, given)
                async with driver.transaction():
                    await driver.read(ShortRead.of(self._begin_pooled()), {})
                    return await driver.read(short, given)

    @contextlib.asynccontextmanager
    async def dedicated(self) -> AsyncIterator[DriverConnection]:
        """Yield one driver connection outside the pool: for LISTEN, session locks and upkeep.

        Raises PooledSession behind a transaction pooler, where no session is anybody's own.
        """
        with self._translated():
            connection = await self._connect()
            try:
                if connection.pooled:
                    raise PooledSession(self.where)
                yield connection
            except BaseException:
                connection.terminate()  # a farewell to a server that is silent would take its time
                raise
            try:
                await connection.close(timeout=2)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    async def close(self) -> None:
        """End every connection that is not in use."""
        await self._engine.dispose()
        await self._readers.close()

    @contextlib.asynccontextmanager
    async def _session(
        self, isolation: Any, read_only: bool, deadline: Deadline | None
    ) -> AsyncIterator[AsyncConnection]:
        async with (
            self._connected(deadline) as (plain, driver),
            self._begun(plain, driver, isolation, read_only) as connection,
        ):
            yield connection

    @contextlib.asynccontextmanager
    async def _connected(
        self, deadline: Deadline | None
    ) -> AsyncIterator[tuple[AsyncConnection, DriverConnection]]:
        """Take a connection of the pool, watched over by `deadline`, whose errors are ours."""
        with self._translated(deadline):
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(None if deadline is None else deadline.seconds):
                        plain = await stack.enter_async_context(self._engine.connect())
                except TimeoutError as error:
                    raise StorageUnavailable(self.where, "no connection in time") from error
                driver: Any = (await plain.get_raw_connection()).driver_connection
                if deadline is not None:
                    stack.callback(deadline.end)
                    deadline.begin(driver)
                yield plain, driver

    @contextlib.asynccontextmanager
    async def _begun(
        self,
        plain: AsyncConnection,
        driver: DriverConnection,
        isolation: Any,
        read_only: bool = False,
    ) -> AsyncIterator[AsyncConnection]:
        connection = await plain.execution_options(
            isolation_level=isolation, postgresql_readonly=read_only
        )
        if not driver.pooled:
            await self._pin_of_pool(connection, driver)
        async with connection.begin():
            if driver.pooled:
                await connection.execute(self._begin_pooled())
            yield connection

    def _begin_pooled(self) -> sa.Select[Any]:
        """What a session of our own keeps, for one transaction alone."""
        settings = {"search_path": "nodus", "jit": "off"}
        if self._member:
            settings["role"] = self._role.value
        if self._pinned_now is not None:
            settings["nodus.now"] = self._pinned_now().isoformat()
        return sa.select(*(sa.func.set_config(*item, True) for item in settings.items()))

    async def _pin(self, driver: DriverConnection) -> None:
        """Make `nodus.now()` answer the pinned moment on this connection, unless it does already.

        By the driver and before any transaction, so that no rollback takes it back.
        """
        if self._pinned_now is None:
            return
        moment = self._pinned_now().isoformat()
        if driver.pinned != moment:
            await driver.execute(_PIN, moment)
            driver.pinned = moment

    async def _pin_of_pool(self, connection: AsyncConnection, driver: DriverConnection) -> None:
        if self._pinned_now is not None and driver.is_closed():
            await connection.invalidate()  # the pool learns of its own statements only
            raise StorageUnavailable(self.where, "the connection was lost")
        await self._pin(driver)

    @contextlib.contextmanager
    def _translated(self, deadline: Deadline | None = None) -> Any:
        try:
            yield
        except StorageError as error:
            self._explain(deadline, error)
            raise
        except Exception as error:
            meant = translate(error, self.where)
            if meant is None:
                raise
            self._explain(deadline, error)
            raise meant from error

    def _explain(self, deadline: Deadline | None, error: Exception) -> None:
        """Raise what happened where the connection was closed because the server said nothing."""
        if deadline is not None and deadline.passed:
            cause = f"no answer within {deadline.seconds:g} s"
            raise StorageUnavailable(self.where, cause) from error

    async def _connect(self) -> DriverConnection:
        connection = await open_connection(self._url, pooled=True)
        try:
            await self._become(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _become(self, connection: DriverConnection) -> None:
        member = await connection.fetchval(_SESSION, self._role.value)
        self._member = bool(member)
        if not connection.pooled:
            plan = _PLAN_ONCE if self._plan_once else ""
            become = f"SET ROLE {self._role.value}" if member else ""
            await connection.execute(_SETTINGS + plan + become)
        if member is False and not self._warned:  # None: there is no such role before `migrate`
            self._warned = True
            log.warning(
                "the database login is no member of its part's role and keeps its own rights",
                extra={"role": self._role.value, "database": self.where},
            )
