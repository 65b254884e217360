"""What the cache holds at one moment: entries, their orders and the recent changes."""

from collections.abc import Sequence
from operator import attrgetter
from uuid import UUID

from nodus_api.watchcache.entry import NOT_INDEXED, Entry, Selections, finished
from nodus_api.watchcache.epochs import Epochs
from nodus_api.watchcache.history import Event, History, Window
from nodus_api.watchcache.index import Index
from nodus_api.watchcache.snapshot import ScopeSnapshot, SortedEntries
from nodus_api.watchcache.source import Change, FeedState, StoredObject


class FeedFault(Exception):
    """The log does not continue what the cache holds: reload, and end all watches."""


_EDITS = 64
"""Changes that wait for a reader of a project's order: together they cost a third of it."""


class _Project:
    __slots__ = ("_edits", "_order", "by_revision", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_revision: dict[UUID, Entry] = {}
        self._order = SortedEntries()
        self._edits: dict[str, Entry | None] = {}

    def order(self) -> SortedEntries:
        """Return the order as it stands."""
        if self._edits:
            self._order = self._order.with_edits(self._edits)
            self._edits.clear()
        return self._order

    def sort(self) -> None:
        """Make the order anew from the entries."""
        self._order = SortedEntries.of(self.by_revision.values())

    def edit(self, name: str, entry: Entry | None) -> None:
        """Put an entry in the place of its name, or take the one there out."""
        self._edits[name] = entry
        if len(self._edits) >= _EDITS:
            self.order()

    def get(self, name: str) -> Entry | None:
        """Return the entry of that name."""
        if name in self._edits:
            return self._edits[name]
        return self._order.get(name)


class Contents:
    """One load of the log, moved forward by whole commits.

    Dicts by uid stand in order of revision: a change takes its key out and puts it in again, so
    initial events (LW-134) are a copy of the values. All versions of an Attempt share its uid, its
    name and its project's, and those that nothing else tells apart their selection.
    """

    def __init__(self, window: Window) -> None:
        self.position = 0
        self.oldest_in_log = 0
        self.continue_key = b""
        self.broken = False  # whether the log had a gap when this was loaded
        self.epochs = Epochs(())
        self.index = Index()
        self._window = window
        self._selections = Selections()
        self._by_uid: dict[UUID, Entry] = {}
        self._projects: dict[str, _Project] = {}
        self._names: tuple[str, ...] = ()  # of projects, sorted
        self._whole: ScopeSnapshot | None = None  # of all projects, since the last change
        self._filled: dict[UUID, Event] = {}  # while the history is filled: the last of each
        self._filled_to: int | None = None
        self.history = History(window, 0)

    # -- load -------------------------------------------------------------------------------

    def add(self, objects: Sequence[StoredObject]) -> None:
        """Take a piece of the snapshot; `ordered` follows the last."""
        for stored in objects:
            entry = self._entry_of(stored, slot=self.index.slot())
            self._by_uid[stored.uid] = entry
            self.index.put(entry, None)

    def ordered(self, state: FeedState) -> None:
        """Order what was added; the history begins at the state's head until it is filled."""
        entries = sorted(self._by_uid.values(), key=attrgetter("rev"))
        self._by_uid = {entry.uid: entry for entry in entries}
        for entry in entries:
            self._projects[entry.project].by_revision[entry.uid] = entry
        for project in self._projects.values():
            project.sort()
        self._names = tuple(sorted(self._projects))
        self._took_state(state)
        self.position = state.head
        self.history = History(self._window, self.position)

    def fill(self, rows: Sequence[Change]) -> None:
        """Take a piece of the changes up to the head, in order; `loaded` follows the last.

        A row that does not follow the one before begins the history anew: what lies before a gap
        cannot be resumed, as some change of it is missing.
        """
        for row in rows:
            if self._filled_to is None or not self._follows(row, self._filled_to):
                self.broken = self._filled_to is not None
                self._filled.clear()
                self.history = History(self._window, row.rev if row.kind == "E" else row.rev - 1)
            self._filled_to = row.rev
            if row.uid is not None:
                event = self._back_filled(row, row.uid)
                self._filled[event.uid] = event
                self.history.append(event)

    def _back_filled(self, row: Change, uid: UUID) -> Event:
        before = self._filled.get(uid)
        known = before or self._by_uid.get(uid)
        event = self.event_of(row, before.after() if before is not None else None, shared=known)
        present = self._by_uid.get(uid)
        if present is not None and present.rev == event.rev:  # the same version: held once
            event.rev, event.selection = present.rev, present.selection
            event.body = event.body and present.body
        return event

    def loaded(self, now: float) -> None:
        """End the load at `now` (monotonic seconds)."""
        if self._filled_to not in (None, self.position):
            self.broken = True
            self.history = History(self._window, self.position)
        self._filled.clear()
        self.history.mark(now, self.position)

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
        if self.epochs.moved_up(self.position) < state.oldest - 1:
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
        self._whole = None  # it would hold what is superseded from now on
        return None if row.uid is None else self._apply(row, row.uid)

    def _apply(self, row: Change, uid: UUID) -> str:
        previous = self._by_uid.pop(uid, None)
        if (previous is None) != (row.kind == "A"):
            raise FeedFault("a change does not fit what is held")
        event = self.event_of(row, previous)
        project = self._project(event.project)
        project.by_revision.pop(uid, None)
        if row.kind == "D":
            project.edit(event.name, None)
            if previous is not None:
                self.index.remove(previous)
        else:
            entry = Entry(
                project=event.project,
                name=event.name,
                uid=event.uid,
                rev=event.rev,
                selection=event.selection,
                body=event.body,
                slot=self.index.slot() if previous is None else previous.slot,
            )
            self._by_uid[entry.uid] = entry
            project.by_revision[entry.uid] = entry
            project.edit(entry.name, entry)
            self.index.put(entry, previous)
        self.history.append(event)
        return event.project

    def _project(self, name: str) -> _Project:
        found = self._projects.get(name)
        if found is None:
            found = self._projects[name] = _Project(name)
            self._names = tuple(sorted(self._projects))
        return found

    def event_of(
        self, row: Change, previous: Entry | None = None, *, shared: Entry | Event | None = None
    ) -> Event:
        """Return a row of the log as an event; `previous` is the version before it, where known.

        `shared` is any version of the same Attempt, whose uid and names the event takes over.
        Raises FeedFault for a row that names no object.
        """
        if row.uid is None or row.project is None or row.name is None or row.sel is None:
            raise FeedFault("a change names no object")
        shared = shared or previous
        prev_body = previous.body if previous is not None else None
        body = finished(row.doc, row.rev) if row.doc is not None else None
        if row.kind == "D":
            if prev_body is None and row.doc is not None and row.prev_rev is not None:
                prev_body = finished(row.doc, row.prev_rev)
            body = None
        followed = previous is not None and previous.rev == row.prev_rev
        unchanged = row.kind != "A" and row.prev_sel is None
        if followed and previous is not None:
            prev_selection = previous.selection
            selection = prev_selection if unchanged else self._selections.of(row.sel)
        else:
            selection = self._selections.of(row.sel)
            prev_selection = (
                selection if row.prev_sel is None else self._selections.of(row.prev_sel)
            )
        return Event(
            rev=row.rev,
            kind=row.kind,
            uid=row.uid if shared is None else shared.uid,
            project=self._project_name(row.project) if shared is None else shared.project,
            name=row.name if shared is None else shared.name,
            selection=selection,
            body=body,
            prev_rev=previous.rev if followed and previous is not None else row.prev_rev,
            prev_selection=prev_selection,
            prev_body=prev_body,
        )

    def _project_name(self, name: str) -> str:
        found = self._projects.get(name)
        return name if found is None else found.name

    def entry_of(self, stored: StoredObject) -> Entry:
        """Return a stored Attempt as an entry: the one held, where it is the same version."""
        held = self._by_uid.get(stored.uid)
        if held is not None and held.rev == stored.rev:
            return held
        return self._entry_of(stored)

    def _entry_of(self, stored: StoredObject, slot: int = NOT_INDEXED) -> Entry:
        project = self._projects.get(stored.project)
        if project is None:
            project = _Project(stored.project)
            if slot != NOT_INDEXED:
                self._projects[stored.project] = project
        return Entry(
            project=project.name,
            name=stored.name,
            uid=stored.uid,
            rev=stored.rev,
            selection=self._selections.of(stored.sel),
            body=finished(stored.doc, stored.rev),
            slot=slot,
        )

    # -- read -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many Attempts are held."""
        return len(self._by_uid)

    def size_of(self, project: str | None) -> int:
        """Return how many Attempts a project holds, or all."""
        if project is None:
            return len(self._by_uid)
        found = self._projects.get(project)
        return len(found.by_revision) if found is not None else 0

    def get(self, project: str, name: str) -> Entry | None:
        """Return one Attempt as it stands."""
        found = self._projects.get(project)
        return found.get(name) if found is not None else None

    def snapshot(self, project: str | None) -> ScopeSnapshot:
        """Return the order of a project, or of all, as it stands."""
        if project is None:
            if self._whole is None:
                parts = tuple((name, self._projects[name].order()) for name in self._names)
                self._whole = ScopeSnapshot(self.position, parts)
            return self._whole
        found = self._projects.get(project)
        return ScopeSnapshot(self.position, ((project, found.order()),) if found else ())

    def stands(self, project: str | None, rev: int) -> bool:
        """Return whether the scope is now as it was at `rev`."""
        log = self.history.of(project)
        return rev == self.position or (rev >= log.dropped and log.first_after(rev) is None)

    def in_order_of_revision(self, project: str | None) -> list[Entry]:
        """Return a copy of the entries in rising revision (LW-134)."""
        if project is None:
            return list(self._by_uid.values())
        found = self._projects.get(project)
        return list(found.by_revision.values()) if found is not None else []
