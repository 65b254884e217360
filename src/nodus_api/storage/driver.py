"""Connections of the driver: how one is opened, and what notices that its server is gone.

A transaction pooler (PgBouncer and its kind) between is known by the process number that it invents
for its clients.
"""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import sqlalchemy as sa
from asyncpg.prepared_stmt import PreparedStatement
from sqlalchemy.dialects.postgresql import asyncpg as dialect

from nodus_api.storage.errors import (
    OLDEST_SERVER,
    PooledSession,
    StorageUnavailable,
    TooOldServer,
    mask_password,
    translate,
)

CONNECT_TIMEOUT_SECONDS = 4.0
"""How long a host may take to give a session; of several hosts each."""

_KEEPALIVE = {  # a peer that is gone is noticed within 5 s, also by a connection that only listens
    "TCP_KEEPIDLE": 2,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 4000,  # milliseconds
}

_READERS = 4
_DIALECT: Any = dialect.dialect()  # type: ignore[no-untyped-call]
_numbers = itertools.count()  # of statements


class Link(asyncpg.Connection):
    """A driver connection that notices when its peer is gone.

    `pooled` says that a pooler stands between: each transaction may be another session's.
    """

    __slots__ = ("_kept", "pinned", "pooled")

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.pooled = False
        self.pinned: str | None = None  # what nodus.now() answers, where a test says so
        self._kept: dict[ShortRead, PreparedStatement[asyncpg.Record]] = {}
        _keep_alive(transport.get_extra_info("socket"))

    async def prepare(self, query: str, *, name: str | None = None, **more: Any) -> Any:
        """Prepare a statement: behind a pooler without a name, so sent anew with each use."""
        if not self.pooled:
            name = name or f"nodus_{next(_numbers)}"
        return await super().prepare(query, name=name or "", **more)

    async def read(self, short: "ShortRead", given: Mapping[str, Any]) -> list[asyncpg.Record]:
        """Return the rows of a short read, which stays prepared unless a pooler is between."""
        values = [given.get(name, short.given.get(name)) for name in short.names]
        if self.pooled:
            return await self.fetch(short.text, *values)
        prepared = self._kept.get(short)
        if prepared is None:
            prepared = self._kept[short] = await self.prepare(short.text)
        try:
            return await prepared.fetch(*values)
        except asyncpg.InvalidCachedStatementError:
            self._kept.clear()
            raise


DriverConnection: TypeAlias = Link


@dataclass(frozen=True, slots=True, eq=False)
class ShortRead:
    """A statement in the driver's own words: for what is asked many times a second.

    To make a statement of SQLAlchemy ready and its rows takes 0.25 ms of CPU each time, several
    times what the driver takes for a few rows.
    """

    text: str
    names: tuple[str, ...]
    """Of its parameters, in their order."""
    given: Mapping[str, Any]
    """Values that the statement itself has."""

    @classmethod
    def of(cls, statement: sa.Select[*tuple[Any, ...]]) -> "ShortRead":
        """Compile a statement, whose IN lists must be arrays, its parameters as the driver's.

        Raises TypeError for a column whose values SQLAlchemy would make others of: cast it.
        """
        for column in statement.selected_columns:
            impl = column.type.dialect_impl(_DIALECT)
            if impl.result_processor(_DIALECT, None) is not None:
                raise TypeError(f"a short read gives {column} as the driver does: cast it")
        compiled: Any = statement.compile(dialect=_DIALECT)
        given = {}
        for name, bind in compiled.binds.items():
            process = bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT)
            given[name] = bind.value if bind.value is None or not process else process(bind.value)
        return cls(str(compiled), tuple(compiled.positiontup or ()), given)


class Deadline:
    """How long the server may say nothing: then the connection is closed, and the wait for it ends.

    Closed, not cancelled: cancelling asks the server, which may be what does not answer.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` are real ones, counted from the block's begin and from each `again`."""
        self.seconds = seconds
        self.passed = False
        self._driver: DriverConnection | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, driver: DriverConnection) -> None:
        """Watch over a connection."""
        self._driver = driver
        self.again()

    def again(self) -> None:
        """Count anew: the server has said something."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(self.seconds, self._pass)

    def end(self) -> None:
        """Count no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        if self._driver is not None:
            self._driver.terminate()


class Readers:
    """A few connections for short reads: opened as needed, the one used last is lent first."""

    def __init__(self, connect: Callable[[], Awaitable[DriverConnection]], where: str) -> None:
        """`where` names the server in errors."""
        self._connect = connect
        self._where = where
        self._idle: list[DriverConnection] = []
        self._closings = 0
        self._places = asyncio.Semaphore(_READERS)

    @contextlib.asynccontextmanager
    async def lent(self, deadline: Deadline | None) -> AsyncIterator[DriverConnection]:
        """Lend a connection, watched over by `deadline`; the driver's errors pass through.

        Raises StorageUnavailable where none can be had in time.
        """
        async with self._places:
            try:
                async with asyncio.timeout(None if deadline is None else deadline.seconds):
                    link = self._open_one() or await self._connect()
            except TimeoutError as error:
                raise StorageUnavailable(self._where, "no connection in time") from error
            if deadline is not None:
                deadline.begin(link)
            closings = self._closings
            try:
                yield link
            except BaseException as error:
                if not _only_refused(error):
                    link.terminate()  # it ends, or an answer may still be on the way
                raise
            finally:
                if deadline is not None:
                    deadline.end()
                if link.is_closed():
                    self._drop()  # the others likely met the same end
                elif closings != self._closings:
                    link.terminate()
                else:
                    self._idle.append(link)

    async def close(self) -> None:
        """End the connections; one that is in use when it is given back."""
        self._closings += 1
        while self._idle:
            link = self._idle.pop()
            try:
                await link.close(timeout=2)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                link.terminate()

    def _open_one(self) -> DriverConnection | None:
        while self._idle:
            link = self._idle.pop()
            if not link.is_closed():
                return link
        return None

    def _drop(self) -> None:
        for link in self._idle:
            link.terminate()
        self._idle.clear()


def _only_refused(error: BaseException) -> bool:
    """Whether the server refused a statement, and its session goes on."""
    return isinstance(error, asyncpg.PostgresError) and error.severity_en == "ERROR"


async def open_connection(url: str, *, pooled: bool = False) -> DriverConnection:
    """Return a driver connection to a server that is new enough.

    `url` is one of `driver_url`; of several hosts the first that `target_session_attrs` allows.
    Raises StorageUnavailable and TooOldServer, and PooledSession behind a transaction pooler unless
    `pooled`.
    """
    where = mask_password(url)
    try:
        connection: DriverConnection = await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT_SECONDS,
            connection_class=Link,
            statement_cache_size=0,  # SQLAlchemy keeps its own; a pooler must not meet names
        )
    except (
        OSError,
        TimeoutError,
        ValueError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    ) as error:
        raise StorageUnavailable(where, str(error) or "no answer in time") from error
    except asyncpg.PostgresError as error:
        raise translate(error, where) or error from error
    try:
        await _check_server(connection, where, pooled=pooled)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _check_server(connection: DriverConnection, where: str, *, pooled: bool) -> None:
    version = connection.get_server_version()
    require_supported(version.major, version.minor)
    try:
        connection.pooled = await connection.fetchval(
            "SELECT pg_backend_pid() <> $1",
            connection.get_server_pid(),
            timeout=CONNECT_TIMEOUT_SECONDS,
        )
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise StorageUnavailable(where, str(error) or "no answer in time") from error
    except asyncpg.PostgresError as error:
        raise translate(error, where) or error from error
    if connection.pooled and not pooled:
        raise PooledSession(where)


def _keep_alive(connected: socket.socket | None) -> None:
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def require_supported(major: int, minor: int) -> None:
    """Raise TooOldServer for a server that the schema does not run on."""
    if major < OLDEST_SERVER:
        raise TooOldServer(f"{major}.{minor}")


def driver_url(url: str) -> str:
    """Return `url` in the scheme asyncpg knows; SQLAlchemy's `postgresql+asyncpg` is understood."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme=parts.scheme.partition("+")[0]))
