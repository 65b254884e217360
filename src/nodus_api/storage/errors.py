"""What can go wrong between us and Postgres, each said with what to do next.

Errors of asyncpg and SQLAlchemy stop here: `translate` turns them into these, and nothing above
`storage` catches a driver's exception. None of them knows HTTP.
"""

import re

import asyncpg
import sqlalchemy as sa

OLDEST_SERVER = 15

_URL_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):[^/?#]*@")
_QUERY_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*")

# SQLSTATE classes and codes that mean "no session to be had", whoever is to blame
_UNAVAILABLE_CLASSES = frozenset({"08", "28", "3D"})
_UNAVAILABLE_CODES = frozenset({"53300", "57P01", "57P02", "57P03"})
_CANCELLED = "57014"
_CONTENTION_CODES = frozenset({"40001", "40P01", "55P03"})

# what the driver says of a connection that cannot be used, any more or yet
_OF_THE_LINK = asyncpg.InterfaceError | asyncpg.InternalClientError

# what the server will not do for anybody until an operator has acted, and what that is
_REMEDIES = {
    "25006": "it is read-only: name the primary with --database-url",
    "42501": "give the role back what the migrations granted it",
    "53100": "make room on the server's disk, then it goes on by itself",
    "53200": "the server is out of memory",
    "58030": "the server cannot read or write its files: see its log",
    "XX001": "the server's data is damaged: see its log",
    "XX002": "an index of the server is damaged: see its log",
}


class StorageError(Exception):
    """Any failure of storage; its text is one sentence an operator can act on."""


class StorageUnavailable(StorageError):
    """No session with the server can be had, or the one in use was lost."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__(
            f"PostgreSQL at {where} cannot be reached ({cause}): check that it runs, and that "
            "--database-url or NODUS_DATABASE_URL names its host, port, user and database."
        )


class StorageConflict(StorageError):
    """A row broke a unique key, foreign key, CHECK or exclusion; `constraint` is its name.

    `constraint` is the column's name for a NOT NULL.
    """

    def __init__(self, constraint: str, message: str) -> None:
        super().__init__(f"{message} ({constraint})")
        self.constraint = constraint


class StorageContention(StorageError):
    """A deadlock, serialisation failure or lock timeout: try the whole transaction again."""


class StatementOutdated(StorageContention):
    """A prepared statement's result has other types since a migration; the next try is right."""


class StorageFault(StorageError):
    """The server refused a statement for another reason; `sqlstate` is its code."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{message} (SQLSTATE {sqlstate})")
        self.sqlstate = sqlstate


class StorageTimeout(StorageFault):
    """A statement met its time limit, or was cancelled."""


class StorageRefused(StorageFault):
    """The server does this for nobody now: no room, no right, a standby. Trying less is no use."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(sqlstate, f"{message}; {_REMEDIES[sqlstate]}")


class FencedOff(StorageError):
    """The leader's token is no longer the one in table `leader`: somebody else leads."""


class SchemaMismatch(StorageError):
    """The database's schema is not the one this version was built for.

    `known` says whether the one found is older than the one wanted; else a newer version made it.
    """

    def __init__(self, found: str | None, wanted: str, *, known: bool = True) -> None:
        if not known:
            super().__init__(
                f"The database is at schema {found}, which this version does not know, it needs"
                f" {wanted}: a newer version has migrated it, so run that one."
            )
        else:
            has = f"is at schema {found}" if found else "has no schema of Nodus API"
            super().__init__(
                f"The database {has}, this version needs {wanted}: run `nodus migrate`."
            )
        self.found = found
        self.wanted = wanted


class TooOldServer(StorageError):
    """The server is older than the oldest version we support."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"The server is PostgreSQL {version}, but Nodus API needs {OLDEST_SERVER} or newer: "
            "upgrade the server, or leave --database-url out of `nodus up` to use the embedded one."
        )


class PooledSession(StorageError):
    """A transaction pooler stands before the server where a session of one's own is needed."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"PostgreSQL at {where} is behind a connection pooler, which keeps no session: name "
            "the server itself with --database-url; only `nodus serve` works through a pooler."
        )


class MigrationRefused(StorageError):
    """The login may not prepare roles and schema; the text says what is missing."""


class DataDirectoryRefused(StorageError):
    """The embedded server cannot live in the data directory given; the text says why."""


class EmbeddedServerFailed(StorageError):
    """The embedded server could not be made, started or stopped; the text quotes it."""


def mask_password(url: str) -> str:
    """Return a database URL fit for a log or a message: a password in it becomes `***`."""
    return _QUERY_PASSWORD.sub("password=***", _URL_PASSWORD.sub(r"\1:***@", url))


def translate(error: BaseException, where: str) -> StorageError | None:
    """Return the storage error that a driver's `error` means, or None if it is not the driver's.

    `where` names the server in messages, password masked. OSError and TimeoutError are not taken:
    inside a transaction they are somebody else's, and `engine` knows those of connecting.
    """
    if isinstance(error, sa.exc.DBAPIError):
        inner = error.orig.__cause__ if error.orig is not None else None
        if isinstance(inner, asyncpg.PostgresError | _OF_THE_LINK):
            return translate(inner, where)
        if error.connection_invalidated:
            return StorageUnavailable(where, "the connection was lost")
        return StorageFault("XX000", _first_line(error.orig or error))
    if isinstance(error, sa.exc.TimeoutError):
        return StorageUnavailable(where, "every connection of the pool is in use")
    if isinstance(error, asyncpg.PostgresError):
        return _from_server(error, where)
    if isinstance(error, _OF_THE_LINK):
        return StorageUnavailable(where, _first_line(error))
    return None


def _from_server(error: asyncpg.PostgresError, where: str) -> StorageError:
    code = error.sqlstate or "XX000"
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return StatementOutdated(_first_line(error))
    if code[:2] in _UNAVAILABLE_CLASSES or code in _UNAVAILABLE_CODES:
        return StorageUnavailable(where, _first_line(error))
    if code in _CONTENTION_CODES:
        return StorageContention(_first_line(error))
    if code.startswith("23"):
        return StorageConflict(
            error.constraint_name or error.column_name or code, _first_line(error)
        )
    if code == _CANCELLED:
        return StorageTimeout(code, _first_line(error))
    if code in _REMEDIES:
        return StorageRefused(code, _first_line(error))
    return StorageFault(code, _first_line(error))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
