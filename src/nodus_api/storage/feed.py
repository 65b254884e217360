"""The change feed: every change in one order, and the objects as they stand.

All that readers see of storage. The order is the log's (`changes.rev`, the resourceVersion); a
reader checks that each row is `last + 1` or an epoch's marker, and applies whole commits (`tx`).
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.clock import Clock, give_way
from nodus_api.storage.driver import Deadline, ShortRead
from nodus_api.storage.engine import Database
from nodus_api.storage.migrated import again_if_migrated
from nodus_api.storage.tables import (
    attempt_objects,
    changes,
    feed,
    feed_epochs,
    installation,
    leader_heartbeat,
)
from nodus_api.storage.wakeups import FEED, Wakeups, listen

PIECE = 1000
DOCUMENT_WINDOW = timedelta(seconds=75)
HISTORY_TIMEOUT = timedelta(seconds=20)
"""How long a statement that walks old history, or stands in for a cache, may take (LW-198)."""

ANSWER_SECONDS = 4.0
"""How long the server may say nothing before it counts as out of reach; a poll comes on top."""


class Change(NamedTuple):
    """One row of the log; its fields in the order of the columns that are read.

    `kind` is A (added), M (modified), D (deleted; `doc` is the last document) or E (an epoch's
    marker, without object). `sel` and `prev_sel` are JSON text, `prev_sel` None where unchanged.
    `prev_doc` is there only where the previous version lies in another partition. A back-filled
    row older than the document window has neither document.
    """

    rev: int
    kind: str
    uid: UUID | None
    project: str | None
    name: str | None
    ver: int | None
    tx: int
    sel: str | None
    prev_sel: str | None
    prev_rev: int | None
    prev_doc: bytes | None
    doc: bytes | None


class StoredObject(NamedTuple):
    """One object as it stands: its document with the resourceVersion still empty, and `rev`."""

    uid: UUID
    project: str
    name: str
    rev: int
    sel: str
    doc: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEpoch:
    """One stretch of history; of the one before it, the revisions up to `prev_last` count."""

    epoch: int
    first_rev: int
    prev_last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """The log's newest revision, the oldest that is promised, and the epochs in order."""

    head: int
    oldest: int
    epochs: tuple[FeedEpoch, ...]


class FeedSnapshot:
    """Objects and recent changes in one view of the database, at `state.head`.

    Read `objects()` to its end before `backfill()`: they share one connection.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        state: FeedState,
        window: timedelta,
        deadline: Deadline,
    ) -> None:
        """`deadline` watches over the connection, and is renewed with each piece."""
        self._connection = connection
        self._window = window
        self._deadline = deadline
        self.state = state

    async def objects(
        self, project: str | None = None, name: str | None = None
    ) -> AsyncIterator[list[StoredObject]]:
        """Give every object, in pieces, by project and name; or one project's, or one of it."""
        async for piece in self._pieces(read_objects(project, name)):
            yield list(map(StoredObject._make, piece))

    async def backfill(self, documents: timedelta = DOCUMENT_WINDOW) -> AsyncIterator[list[Change]]:
        """Give the window's changes up to the head in order, in pieces.

        Rows older than `documents` come without documents.
        """
        now = (await self._connection.scalars(sa.select(sa.func.nodus.now()))).one()
        first = await self._first_since(now - self._window, self.state.oldest)
        whole = await self._first_since(now - min(documents, self._window), first)
        for statement in (
            read_stubs(first, whole - 1),
            read_changes(whole - 1).where(changes.c.rev <= self.state.head),
        ):
            async for piece in self._pieces(statement):
                yield list(map(Change._make, piece))

    async def _pieces(
        self, statement: sa.Select[Any]
    ) -> AsyncIterator[Sequence[sa.Row[tuple[Any, ...]]]]:
        self._deadline.again()
        async with self._connection.stream(statement) as rows:
            async for piece in rows.partitions(PIECE):
                self._deadline.again()
                yield piece

    async def _first_since(self, moment: datetime, low: int) -> int:
        """Return the first revision from `low` on whose row is of `moment` or later, else head + 1.

        By bisection over the primary key: `at` follows the order, and has no index of its own.
        """
        high = self.state.head + 1
        while low < high:
            middle = (low + high) // 2
            row = (await self._connection.execute(read_moment(middle))).one_or_none()
            self._deadline.again()
            if row is None or row.at >= moment:
                high = middle
            else:
                low = row.rev + 1
        return low


class Feed:
    """The log and the objects of one database; `clock` times the waits of `listen`.

    Raises `storage.errors`; StorageUnavailable is the one to expect.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        history_timeout: timedelta = HISTORY_TIMEOUT,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`answer_seconds` is how long the server may say nothing before it is out of reach."""
        self._database = database
        self._clock = clock
        self._history_timeout = history_timeout
        self._answer_seconds = answer_seconds

    @again_if_migrated
    async def state(self) -> FeedState:
        """Return head, edge and epochs, of one moment."""
        async with self._database.single_reads(deadline=self._deadline()) as connection:
            return await _state(connection)

    @again_if_migrated
    async def head(self) -> int:
        """Return the newest revision: one indexed read, one round trip."""
        rows = await self._database.read(_HEAD, deadline=self._deadline())
        return int(rows[0][0])

    @again_if_migrated
    async def read(self, after: int, *, limit: int = PIECE) -> list[Change]:
        """Return the rows after revision `after` in order, at most `limit`.

        A full piece may end inside a commit.
        """
        rows = await self._database.read(_NEXT, after=after, most=limit, deadline=self._deadline())
        return list(map(Change._make, rows))

    @contextlib.asynccontextmanager
    async def snapshot(self, window: timedelta) -> AsyncIterator[FeedSnapshot]:
        """Open one view of the database: its objects, and the changes of the last `window`."""
        deadline = self._deadline()
        async with self._database.snapshot(deadline=deadline) as connection:
            yield FeedSnapshot(connection, await _state(connection), window, deadline)

    @contextlib.asynccontextmanager
    async def standing(self) -> AsyncIterator[FeedSnapshot]:
        """Open one view of the objects, without changes before.

        Its reads raise StorageTimeout when they take longer than `history_timeout`, and
        StatementOutdated once after a migration: who reads begins again (`again_if_migrated`).
        """
        deadline = self._deadline(walks=True)
        async with self._database.snapshot(deadline=deadline) as connection:
            await self._bound(connection)
            yield FeedSnapshot(connection, await _state(connection), timedelta(0), deadline)

    @again_if_migrated
    async def first_changes(
        self, after: int, upto: int, project: str | None
    ) -> tuple[int, list[Change]]:
        """Return the log's promised edge, and the first change of each object above `after`.

        Only changes up to `upto`, of one project or of all, in any order and without documents.
        The edge is read after the rows: if it is not above `after + 1`, no row was missing.
        Raises StorageTimeout when it takes longer than `history_timeout`.
        """
        async with self._database.transaction(
            read_only=True, deadline=self._deadline(walks=True)
        ) as connection:
            await self._bound(connection)
            rows = await connection.execute(read_first_changes(after, upto, project))
            found: list[Change] = []
            for piece in rows.partitions(PIECE):
                found.extend(map(Change._make, piece))
                await give_way()
            return (await _state(connection)).oldest, found

    @again_if_migrated
    async def documents(self, revs: Sequence[int]) -> dict[int, bytes]:
        """Return the documents of those of `revs` that the log still has."""
        rows = await self._database.read(_DOCUMENTS, revs=list(revs), deadline=self._deadline())
        return {row["rev"]: row["doc"] for row in rows}

    @again_if_migrated
    async def previous(self, rev: int) -> bytes | None:
        """Return the object's document before the change at `rev`; None if there was none.

        None too if the log has lost `rev`. While it has it, it has the predecessor (`prev_rev`,
        `prev_doc`: storage.md section 5).
        """
        rows = await self._database.read(_PREVIOUS, rev=rev, deadline=self._deadline())
        return rows[0][0] if rows else None

    async def continue_key(self) -> bytes:
        """Return the installation's key of continue tokens."""
        return bytes(await self._one(sa.select(installation.c.continue_key)))

    async def installation(self) -> UUID:
        """Return the installation's id."""
        found: UUID = await self._one(sa.select(installation.c.id))
        return found

    async def schema_revision(self) -> str:
        """Return the migration the database is at."""
        version = sa.table("alembic_version", sa.column("version_num", sa.Text), schema="nodus")
        return str(await self._one(sa.select(version.c.version_num)))

    async def heartbeat_age(self) -> timedelta:
        """Return how long ago the leader wrote its heartbeat, by the database's clock."""
        found: timedelta = await self._one(_HEARTBEAT_AGE)
        return found

    def listen(self) -> AbstractAsyncContextManager[Wakeups]:
        """Listen for publishes, on a connection of its own."""
        return listen(self._database, FEED, self._clock)

    def _deadline(self, *, walks: bool = False) -> Deadline:
        """The server ends a walk of old history itself, and is given the time to."""
        seconds = self._history_timeout.total_seconds() if walks else 0.0
        return Deadline(seconds + self._answer_seconds)

    async def _bound(self, connection: AsyncConnection) -> None:
        milliseconds = str(int(self._history_timeout.total_seconds() * 1000))
        await connection.execute(
            sa.select(sa.func.set_config("statement_timeout", milliseconds, True))
        )

    @again_if_migrated
    async def _one(self, statement: sa.Select[Any]) -> Any:
        async with self._database.single_reads(deadline=self._deadline()) as connection:
            return (await connection.scalars(statement)).one()


def read_state() -> sa.Select[Any]:
    """Head, edge and epochs in one statement, so of one moment; a row an epoch."""
    return (
        sa.select(
            sa.select(sa.func.max(changes.c.rev)).scalar_subquery().label("head"),
            feed.c.oldest,
            feed_epochs.c.epoch,
            feed_epochs.c.first_rev,
            feed_epochs.c.prev_last,
        )
        .select_from(feed.join(feed_epochs, sa.true()))
        .order_by(feed_epochs.c.epoch)
    )


def read_head() -> sa.Select[Any]:
    """The newest revision; the primary key's last entry."""
    return sa.select(sa.func.max(changes.c.rev))


def read_changes(after: int | sa.BindParameter[int]) -> sa.Select[Any]:
    """Rows after `after` in order; the primary key, partitions pruned."""
    return (
        sa.select(*_STUB, changes.c.prev_doc, changes.c.doc)
        .where(changes.c.rev > after)
        .order_by(changes.c.rev)
    )


def read_stubs(first: int, last: int) -> sa.Select[Any]:
    """Rows from `first` to `last` in order, without their documents."""
    nothing = sa.null().cast(sa.LargeBinary)
    return (
        sa.select(*_STUB, nothing.label("prev_doc"), nothing.label("doc"))
        .where(changes.c.rev.between(first, last))
        .order_by(changes.c.rev)
    )


def read_first_changes(after: int, upto: int, project: str | None) -> sa.Select[Any]:
    """The first row of each object above `after` and not above `upto`; partitions pruned.

    It is the one whose previous version is not above `after`, or that has none: one walk of the
    rows tells it, of all, or by the index of project and revision of one project's alone.
    """
    nothing = sa.null().cast(sa.LargeBinary)
    before = sa.or_(changes.c.prev_rev.is_(None), changes.c.prev_rev <= after)
    first = [changes.c.rev > after, changes.c.rev <= upto, changes.c.uid.is_not(None), before]
    if project is not None:
        first.append(_is(changes.c.project, project))
    return sa.select(*_STUB, nothing.label("prev_doc"), nothing.label("doc")).where(*first)


def read_objects(project: str | None = None, name: str | None = None) -> sa.Select[Any]:
    """Every object, or those of a project, or of a name; by the unique key of project and name."""
    stored = attempt_objects.c
    wanted = {stored.project: project, stored.name: name}
    of_scope = [_is(column, value) for column, value in wanted.items() if value is not None]
    statement = sa.select(
        stored.uid,
        stored.project,
        stored.name,
        stored.rev,
        sa.cast(stored.sel, sa.Text).label("sel"),
        stored.doc,
    )
    return statement.where(*of_scope).order_by(stored.project, stored.name)


def _is(column: sa.Column[str], text: str) -> sa.ColumnElement[bool]:
    """Whether a column holds a text that a client made up: none holds a NUL, nor takes one."""
    return sa.false() if "\0" in text else column == text


def read_moment(rev: int) -> sa.Select[Any]:
    """The first row at or after `rev`: its revision and moment; one entry of the primary key."""
    return (
        sa.select(changes.c.rev, changes.c.at)
        .where(changes.c.rev >= rev)
        .order_by(changes.c.rev)
        .limit(1)
    )


def read_documents() -> sa.Select[Any]:
    """Documents by revision (`revs`); the primary key."""
    wanted = sa.bindparam("revs", type_=sa.ARRAY(sa.BigInteger))
    return sa.select(changes.c.rev, changes.c.doc).where(
        changes.c.rev == sa.any_(wanted), changes.c.doc.is_not(None)
    )


def read_previous() -> sa.Select[Any]:
    """The document before the change at `rev`; the primary key, twice."""
    rev = sa.bindparam("rev", type_=sa.BigInteger)
    before = changes.alias("before")
    return (
        sa.select(
            sa.case(
                (changes.c.kind == "D", changes.c.doc),
                else_=sa.func.coalesce(changes.c.prev_doc, before.c.doc),
            )
        )
        .select_from(changes.outerjoin(before, before.c.rev == changes.c.prev_rev))
        .where(changes.c.rev == rev)
    )


_STUB = (
    changes.c.rev,
    sa.cast(changes.c.kind, sa.Text).label("kind"),
    changes.c.uid,
    changes.c.project,
    changes.c.name,
    changes.c.ver,
    changes.c.tx,
    sa.cast(changes.c.sel, sa.Text).label("sel"),
    sa.cast(changes.c.prev_sel, sa.Text).label("prev_sel"),
    changes.c.prev_rev,
)


async def _state(connection: AsyncConnection) -> FeedState:
    rows = (await connection.execute(_STATE)).all()
    epochs = tuple(
        FeedEpoch(epoch=row.epoch, first_rev=row.first_rev, prev_last=row.prev_last) for row in rows
    )
    return FeedState(head=rows[0].head, oldest=rows[0].oldest, epochs=epochs)


# Asked for four times a second and more by every replica, so put together only once.
_HEAD = ShortRead.of(read_head())
_STATE = read_state()
_NEXT = ShortRead.of(
    read_changes(sa.bindparam("after", type_=sa.BigInteger)).limit(
        sa.bindparam("most", type_=sa.Integer)
    )
)
_DOCUMENTS = ShortRead.of(read_documents())
_PREVIOUS = ShortRead.of(read_previous())
_HEARTBEAT_AGE = sa.select(sa.cast(sa.func.nodus.now() - leader_heartbeat.c.at, sa.Interval))
