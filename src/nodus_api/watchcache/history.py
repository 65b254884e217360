"""The recent changes in order, for watches and for states of a moment ago.

Events stand in one ring and, the same objects, in a list per project. For 75 s (or 256 MB) an event
holds its documents; then it is a stub, whose documents the log still has, until the window ends.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from uuid import UUID

from nodus_api.watchcache.entry import Entry, Selection

_rev_of = attrgetter("rev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How much history one replica keeps (storage.md section 6)."""

    stubs: timedelta = timedelta(minutes=5)
    """How far back a watch may start."""

    documents: timedelta = timedelta(seconds=75)
    """For how long events keep their documents; also the least that stubs are kept."""

    document_bytes: int = 256 * 1024 * 1024
    """At most so many bytes of superseded documents."""

    events: int = 1_000_000
    """At most so many events, save those of the last 75 s."""


class Event:
    """One committed change; `body` and `prev_body` are None once it is a stub."""

    __slots__ = (
        "body", "kind", "name", "prev_body", "prev_rev",
        "prev_selection", "project", "rev", "selection", "uid",
    )  # fmt: skip

    def __init__(
        self,
        *,
        rev: int,
        kind: str,
        uid: UUID,
        project: str,
        name: str,
        selection: Selection,
        body: bytes | None,
        prev_rev: int | None,
        prev_selection: Selection,
        prev_body: bytes | None,
    ) -> None:
        """`kind` is A, M or D; a D's `body` is None and its last state is the previous one."""
        self.rev = rev
        self.kind = kind
        self.uid = uid
        self.project = project
        self.name = name
        self.selection = selection
        self.body = body
        self.prev_rev = prev_rev
        self.prev_selection = prev_selection
        self.prev_body = prev_body

    def after(self) -> Entry | None:
        """Return the Attempt as it stood after this change, None where it was gone."""
        if self.kind == "D":
            return None
        return Entry(
            project=self.project,
            name=self.name,
            uid=self.uid,
            rev=self.rev,
            selection=self.selection,
            body=self.body,
        )

    def before(self) -> Entry | None:
        """Return the Attempt as it stood before this change, None where it did not exist."""
        if self.prev_rev is None:
            return None
        return Entry(
            project=self.project,
            name=self.name,
            uid=self.uid,
            rev=self.prev_rev,
            selection=self.prev_selection,
            body=self.prev_body,
        )


class EventLog:
    """Events in rising revision, appended at the end, dropped at the front."""

    __slots__ = ("_events", "_start", "dropped")

    def __init__(self, dropped: int) -> None:
        """`dropped`: changes up to this revision are not here."""
        self._events: list[Event] = []
        self._start = 0
        self.dropped = dropped

    def __len__(self) -> int:
        """Return how many events are kept."""
        return len(self._events) - self._start

    def append(self, event: Event) -> None:
        """Add the newest event."""
        self._events.append(event)

    def oldest(self) -> Event | None:
        """Return the first event kept."""
        return self.at(0) if len(self) else None

    def drop_oldest(self) -> Event:
        """Take the first event out."""
        event = self.at(0)
        self.dropped = event.rev
        # nobody looks before _start, and a quiet project's list would hold it for long
        self._events[self._start] = None  # type: ignore[call-overload]
        self._start += 1
        # the dead front is cut off once it is half of the list: O(1) a drop, on average
        if self._start > 1024 and self._start * 2 > len(self._events):
            del self._events[: self._start]
            self._start = 0
        return event

    def after(self, rev: int, limit: int | None = None) -> Sequence[Event]:
        """Return the events whose revision is above `rev`, at most `limit`."""
        at = bisect_right(self._events, rev, lo=self._start, key=_rev_of)
        return self._events[at:] if limit is None else self._events[at : at + limit]

    def first_after(self, rev: int) -> Event | None:
        """Return the first event above `rev`."""
        at = bisect_right(self._events, rev, lo=self._start, key=_rev_of) - self._start
        return self.at(at) if at < len(self) else None

    def at(self, index: int) -> Event:
        """Return the event at `index`, counted from the first kept."""
        return self._events[self._start + index]


class History:
    """The ring and the lists per project."""

    def __init__(self, window: Window, floor: int) -> None:
        """`floor` is the oldest revision from which every later change is here."""
        self._window = window
        self._ring = EventLog(floor)
        self._projects: dict[str, EventLog] = {}
        self._born = floor
        self._marks: deque[tuple[float, int]] = deque()
        self._document_marks: deque[tuple[float, int]] = deque()
        self._with_documents = 0  # how many of the newest events of the ring may hold documents
        self._document_bytes = 0

    def __len__(self) -> int:
        """Return how many events are kept."""
        return len(self._ring)

    @property
    def floor(self) -> int:
        """The oldest revision that a watch or an exact read may name."""
        return self._ring.dropped

    @property
    def document_bytes(self) -> int:
        """Bytes of superseded documents that events hold."""
        return self._document_bytes

    def of(self, project: str | None) -> EventLog:
        """Return the events of one project, or of all."""
        if project is None:
            return self._ring
        log = self._projects.get(project)
        return EventLog(self._born) if log is None else log

    def append(self, event: Event) -> None:
        """Add the newest event."""
        self._ring.append(event)
        log = self._projects.get(event.project)
        if log is None:
            log = self._projects[event.project] = EventLog(self._born)
        log.append(event)
        self._with_documents += 1
        self._document_bytes += len(event.prev_body or b"")

    def mark(self, now: float, rev: int) -> None:
        """Note that everything up to `rev` was here at `now` (monotonic seconds)."""
        if not self._marks or self._marks[-1][1] < rev:
            self._marks.append((now, rev))
            self._document_marks.append((now, rev))

    def trim(self, now: float) -> None:
        """Drop what is older than the window, and the documents of what is older than theirs."""
        self._release_documents(now)
        young = now - self._window.documents.total_seconds()
        old = now - self._window.stubs.total_seconds()
        while self._marks and len(self._ring):
            at, rev = self._marks[0]
            if at > old and (len(self._ring) <= self._window.events or at > young):
                return
            self._marks.popleft()
            self._drop_through(rev)

    def _drop_through(self, rev: int) -> None:
        while (event := self._ring.oldest()) is not None and event.rev <= rev:
            if self._with_documents == len(self._ring):
                self._release_oldest()
            self._ring.drop_oldest()
            self._projects[event.project].drop_oldest()

    def _release_documents(self, now: float) -> None:
        old = now - self._window.documents.total_seconds()
        while self._document_marks and self._document_marks[0][0] <= old:
            _, rev = self._document_marks.popleft()
            while self._with_documents and self._oldest_with_documents().rev <= rev:
                self._release_oldest()
        while self._with_documents and self._document_bytes > self._window.document_bytes:
            self._release_oldest()

    def _oldest_with_documents(self) -> Event:
        return self._ring.at(len(self._ring) - self._with_documents)

    def _release_oldest(self) -> None:
        event = self._oldest_with_documents()
        self._document_bytes -= len(event.prev_body or b"")
        event.body = None
        event.prev_body = None
        self._with_documents -= 1
