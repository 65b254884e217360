"""What the cache needs of the change feed; `storage.feed.Feed` satisfies it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol
from uuid import UUID


class Change(Protocol):
    """One row of the log (storage.md section 5)."""

    @property
    def rev(self) -> int:
        """The resourceVersion of the change."""
        ...

    @property
    def kind(self) -> str:
        """`A`dded, `M`odified, `D`eleted, or the marker of an `E`poch."""
        ...

    @property
    def uid(self) -> UUID | None:
        """The Attempt, None on a marker."""
        ...

    @property
    def project(self) -> str | None:
        """Its project, None on a marker."""
        ...

    @property
    def name(self) -> str | None:
        """Its name, None on a marker."""
        ...

    @property
    def tx(self) -> int:
        """The commit: rows of equal `tx` are applied together (H-07)."""
        ...

    @property
    def sel(self) -> str | None:
        """Labels and selectable fields after the change, as JSON text."""
        ...

    @property
    def prev_sel(self) -> str | None:
        """The same before the change, None where equal."""
        ...

    @property
    def prev_rev(self) -> int | None:
        """The revision that held the version before."""
        ...

    @property
    def doc(self) -> bytes | None:
        """The document after the change (`D`: before it), None on a stub."""
        ...


class StoredObject(Protocol):
    """One Attempt as it stands."""

    @property
    def uid(self) -> UUID:
        """The Attempt."""
        ...

    @property
    def project(self) -> str:
        """Its project."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def rev(self) -> int:
        """Its resourceVersion."""
        ...

    @property
    def sel(self) -> str:
        """Labels and selectable fields, as JSON text."""
        ...

    @property
    def doc(self) -> bytes:
        """The document, resourceVersion empty."""
        ...


class FeedEpoch(Protocol):
    """One stretch of history (storage.md section 8)."""

    @property
    def epoch(self) -> int:
        """Its number, the bits of a revision above 44."""
        ...

    @property
    def first_rev(self) -> int:
        """Its marker."""
        ...

    @property
    def prev_last(self) -> int:
        """The last revision of the epoch before that counts."""
        ...


class FeedState(Protocol):
    """Where the log begins and ends."""

    @property
    def head(self) -> int:
        """The newest revision."""
        ...

    @property
    def oldest(self) -> int:
        """The first revision that is promised to be there."""
        ...

    @property
    def epochs(self) -> Sequence[FeedEpoch]:
        """All epochs."""
        ...


class FeedSnapshot(Protocol):
    """All Attempts and the recent changes, in one snapshot of the database."""

    @property
    def state(self) -> FeedState:
        """The log as of the snapshot."""
        ...

    def objects(
        self, project: str | None = None, name: str | None = None
    ) -> AsyncIterator[Sequence[StoredObject]]:
        """Give all Attempts, in pieces; of one project, or of one name in it, where given."""
        ...

    def backfill(self) -> AsyncIterator[Sequence[Change]]:
        """Give the changes of the window up to the head, in order, in pieces."""
        ...


class Wakeups(Protocol):
    """Tells that the log may have grown."""

    @property
    def alive(self) -> bool:
        """Whether no listener was lost; if one was, listen anew."""
        ...

    @property
    def listening(self) -> bool:
        """Whether notifications come; if not, poll more often."""
        ...

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  a poll interval, not a deadline
        """Return True when notified, False after `timeout` seconds."""
        ...


class ChangeFeed(Protocol):
    """All that the cache sees of storage."""

    async def state(self) -> FeedState:
        """Return head, edge and epochs."""
        ...

    async def head(self) -> int:
        """Return the newest revision."""
        ...

    async def read(self, after: int, *, limit: int = 1000) -> Sequence[Change]:
        """Return the next rows of the log, in order."""
        ...

    def snapshot(self, window: timedelta) -> AbstractAsyncContextManager[FeedSnapshot]:
        """Open one REPEATABLE READ snapshot."""
        ...

    def standing(self) -> AbstractAsyncContextManager[FeedSnapshot]:
        """Open such a snapshot for the objects alone; its reads have a time limit."""
        ...

    async def first_changes(
        self, after: int, upto: int, project: str | None
    ) -> tuple[int, Sequence[Change]]:
        """Return the oldest revision that the log still promises, and the first change of each
        Attempt above `after` and not above `upto`, without documents, in any order.
        """
        ...

    async def documents(self, revs: Sequence[int]) -> dict[int, bytes]:
        """Return the documents of rows, of those that the log still has."""
        ...

    async def previous(self, rev: int) -> bytes | None:
        """Return the document before the change at `rev`."""
        ...

    async def continue_key(self) -> bytes:
        """Return the installation's key of continue tokens."""
        ...

    def listen(self) -> AbstractAsyncContextManager[Wakeups]:
        """Listen for changes on a connection of its own."""
        ...
