"""What the cache holds at one moment: entries, their orders and the recent changes."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from nodus_api.watchcache.entry import Entry, Selections, finished
from nodus_api.watchcache.epochs import Epochs
from nodus_api.watchcache.history import Event, History, Window
from nodus_api.watchcache.snapshot import ScopeSnapshot, SortedEntries
from nodus_api.watchcache.source import Change, FeedState, StoredObject


class FeedFault(Exception):
    """The log does not continue what the cache holds: reload, and end all watches."""


class _Project:
    __slots__ = ("by_revision", "order")

    def __init__(self) -> None:
        self.order = SortedEntries()
        self.by_revision: dict[UUID, Entry] = {}


class Contents:
    """One load of the log, moved forward by whole commits.

    Dicts by uid stand in order of revision: a change takes its key out and puts it in again, so
    initial events (LW-134) are a copy of the values.
    """

    def __init__(self, window: Window) -> None:
        self.position = 0
        self.oldest_in_log = 0
        self.continue_key = b""
        self.broken = False  # whether the log had a gap when this was loaded
        self.epochs = Epochs(())
        self._window = window
        self._selections = Selections()
        self._by_uid: dict[UUID, Entry] = {}
        self._projects: dict[str, _Project] = {}
        self._names: tuple[str, ...] = ()  # of projects, sorted
        self.history = History(window, 0)

    # -- load -------------------------------------------------------------------------------

    def add(self, objects: Sequence[StoredObject]) -> None:
        """Take a piece of the snapshot; `loaded` follows the last."""
        for stored in objects:
            self._by_uid[stored.uid] = self.entry_of(stored)

    def loaded(self, state: FeedState, backfill: Sequence[Change], now: float) -> None:
        """Order what was added, and fill the history from the log, oldest first."""
        entries = sorted(self._by_uid.values(), key=lambda entry: entry.rev)
        self._by_uid = {entry.uid: entry for entry in entries}
        for entry in entries:
            project = self._projects.setdefault(entry.project, _Project())
            project.by_revision[entry.uid] = entry
        for project in self._projects.values():
            project.order = SortedEntries.of(project.by_revision.values())
        self._names = tuple(sorted(self._projects))
        self._took_state(state)
        self.position = state.head
        whole = self._unbroken(backfill)
        self.broken = len(whole) < len(backfill)
        self.history = History(self._window, self._floor_of(whole))
        self._fill(whole)
        self.history.mark(now, self.position)

    def _unbroken(self, rows: Sequence[Change]) -> Sequence[Change]:
        """Return the end of the rows up to the position in which each follows the one before.

        What lies before a gap cannot be resumed: some change of it is missing.
        """
        if rows and rows[-1].rev != self.position:
            return ()
        start = 0
        for at in range(1, len(rows)):
            if not self._follows(rows[at], rows[at - 1].rev):
                start = at
        return rows[start:] if start else rows

    def _floor_of(self, backfill: Sequence[Change]) -> int:
        if not backfill:
            return self.position
        first = backfill[0]
        return first.rev if first.kind == "E" else first.rev - 1

    def _fill(self, backfill: Iterable[Change]) -> None:
        bodies: dict[UUID, bytes | None] = {}
        for row in backfill:
            if row.uid is None:
                continue
            event = self.event_of(row, bodies.get(row.uid))
            bodies[row.uid] = event.body
            self.history.append(event)

    # -- follow -----------------------------------------------------------------------------

    def _took_state(self, state: FeedState) -> None:
        self.epochs = Epochs(state.epochs)
        self.oldest_in_log = state.oldest

    def took_state(self, state: FeedState) -> None:
        """Check the log's edges and epochs against what is held (storage.md section 8).

        Raises FeedFault when the history held is not the history that counts.
        """
        self._took_state(state)
        if state.head < self.position:
            raise FeedFault("the head of the log fell")
        if self.position < state.oldest - 1:
            raise FeedFault("the log no longer reaches back to the position")
        following = [e.prev_last for e in state.epochs if e.first_rev > self.position]
        if following and self.position > min(following):
            raise FeedFault("an epoch began below the position")

    def continues(self, row: Change, last: int) -> None:
        """Raise FeedFault unless `row` follows `last` in the log (storage.md section 1)."""
        if not self._follows(row, last):
            raise FeedFault("a row of the log is not the next one")

    def _follows(self, row: Change, last: int) -> bool:
        if row.kind == "E":
            return self.epochs.prev_last(row.rev) == last
        return row.rev == last + 1

    def apply(self, row: Change) -> str | None:
        """Apply one row; return the project it touched, None for the marker of an epoch.

        The rows of a commit are applied without a wait between them, so no reader sees half of it.
        Raises FeedFault when the log tells of an Attempt that is not held, or is held already.
        """
        self.position = row.rev
        return None if row.uid is None else self._apply(row, row.uid)

    def _apply(self, row: Change, uid: UUID) -> str:
        previous = self._by_uid.pop(uid, None)
        if (previous is None) != (row.kind == "A"):
            raise FeedFault("a change does not fit what is held")
        event = self.event_of(row, previous.body if previous is not None else None)
        project = self._project(event.project)
        project.by_revision.pop(uid, None)
        if row.kind == "D":
            project.order = project.order.remove(event.name)
        else:
            entry = Entry(
                project=event.project,
                name=event.name,
                uid=event.uid,
                rev=event.rev,
                selection=event.selection,
                body=event.body,
            )
            self._by_uid[uid] = entry
            project.by_revision[uid] = entry
            project.order = project.order.put(entry)
        self.history.append(event)
        return event.project

    def _project(self, name: str) -> _Project:
        found = self._projects.get(name)
        if found is None:
            found = self._projects[name] = _Project()
            self._names = tuple(sorted(self._projects))
        return found

    def event_of(self, row: Change, prev_body: bytes | None = None) -> Event:
        """Return a row of the log as an event. Raises FeedFault for one that names no object."""
        if row.uid is None or row.project is None or row.name is None or row.sel is None:
            raise FeedFault("a change names no object")
        selection = self._selections.of(row.sel)
        body = finished(row.doc, row.rev) if row.doc is not None else None
        if row.kind == "D":
            if prev_body is None and row.doc is not None and row.prev_rev is not None:
                prev_body = finished(row.doc, row.prev_rev)
            body = None
        return Event(
            rev=row.rev,
            kind=row.kind,
            uid=row.uid,
            project=row.project,
            name=row.name,
            selection=selection,
            body=body,
            prev_rev=row.prev_rev,
            prev_selection=selection if row.prev_sel is None else self._selections.of(row.prev_sel),
            prev_body=prev_body,
        )

    def entry_of(self, stored: StoredObject) -> Entry:
        """Return a stored Attempt as an entry: the one held, where it is the same version."""
        held = self._by_uid.get(stored.uid)
        if held is not None and held.rev == stored.rev:
            return held
        return Entry(
            project=stored.project,
            name=stored.name,
            uid=stored.uid,
            rev=stored.rev,
            selection=self._selections.of(stored.sel),
            body=finished(stored.doc, stored.rev),
        )

    # -- read -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many Attempts are held."""
        return len(self._by_uid)

    def get(self, project: str, name: str) -> Entry | None:
        """Return one Attempt as it stands."""
        found = self._projects.get(project)
        return found.order.get(name) if found is not None else None

    def snapshot(self, project: str | None) -> ScopeSnapshot:
        """Return the order of a project, or of all, as it stands."""
        if project is None:
            parts = tuple((name, self._projects[name].order) for name in self._names)
            return ScopeSnapshot(self.position, parts)
        found = self._projects.get(project)
        return ScopeSnapshot(self.position, ((project, found.order),) if found else ())

    def in_order_of_revision(self, project: str | None) -> list[Entry]:
        """Return a copy of the entries in rising revision (LW-134)."""
        if project is None:
            return list(self._by_uid.values())
        found = self._projects.get(project)
        return list(found.by_revision.values()) if found is not None else []
