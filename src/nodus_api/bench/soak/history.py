"""What one watcher got, compared with what the log says it must get (H-01 to H-05, H-08, H-09)."""

import json
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from nodus_api.attempts.projection import splice
from nodus_api.metav1.watch_event import EventType, frame
from nodus_api.storage.feed import Change

Selection = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a watch asks for: a project or all, and one equality that must hold, or none."""

    project: str | None = None
    label: tuple[str, str] | None = None
    field: tuple[str, str] | None = None

    @property
    def target(self) -> str:
        """The path and query of the watch, without where it begins."""
        return f"{self.listed}&watch=1&allowWatchBookmarks=true"

    @property
    def listed(self) -> str:
        """The path and query of the list."""
        namespace = f"/namespaces/{self.project}" if self.project else ""
        query = ""
        if self.label:
            query += "&labelSelector={}%3D{}".format(*self.label)
        if self.field:
            query += "&fieldSelector={}%3D{}".format(*self.field)
        return f"/apis/nodus.dev/v1{namespace}/attempts?{query}"

    def chooses(self, selection: Selection) -> bool:
        """Whether an object with these labels and fields is in it."""
        labelled = self.label is None or selection["labels"].get(self.label[0]) == self.label[1]
        fielded = self.field is None or selection["fields"].get(self.field[0]) == self.field[1]
        return labelled and fielded


@dataclass(slots=True, kw_only=True)
class History:
    """One watcher's events as they came and as they were due, each as (revision, checksum).

    A bookmark that came has no checksum.
    """

    name: str
    scope: Scope
    breaches: list[str]
    """Of all watchers; a breach ends the comparison of this one."""
    events: int = 0
    _due: deque[tuple[int, int]] = field(default_factory=deque)
    _came: deque[tuple[int, int | None]] = field(default_factory=deque)
    _last: int = 0
    _listed: int = 0
    broken: bool = False

    @property
    def owed(self) -> int:
        """How many events the log has that did not come yet."""
        return len(self._due)

    def due(self, rev: int, line: bytes) -> None:
        """Take note of a line that must come."""
        if rev > self._listed:
            self._due.append((rev, zlib.crc32(line)))

    def came(self, rev: int, line: bytes | None) -> None:
        """Take note of a line that came; None is a bookmark's."""
        if rev < self._last or (line is not None and rev == self._last):
            self.breach(f"revision {rev} came after {self._last}")
        self._last = rev
        if line is not None:
            self.events += 1
        self._came.append((rev, None if line is None else zlib.crc32(line)))

    def listed(self, rev: int) -> None:
        """Forget what was due up to `rev`: a list of that state has told it."""
        while self._due and self._due[0][0] <= rev:
            self._due.popleft()
        self._last = self._listed = rev

    def compare(self, position: int) -> None:
        """Compare what came with what was due, as far as the log is read, and forget both."""
        while self._came and self._came[0][0] <= position and not self.broken:
            rev, checksum = self._came.popleft()
            first = self._due[0][0] if self._due else None
            if checksum is None:
                if first is not None and first <= rev:
                    self.breach(f"a bookmark of {rev} came before the event of {first}")
            elif first is None or rev < first:
                self.breach(f"the event of {rev} was not due")
            elif rev > first:
                self.breach(f"the event of {first} did not come before that of {rev}")
            elif self._due.popleft()[1] != checksum:
                self.breach(f"the event of {rev} is not what the log has")

    def breach(self, what: str) -> None:
        """Note what went wrong; nothing later is compared."""
        if not self.broken:
            self.broken = True
            self.breaches.append(f"{self.name} ({self.scope.target}): {what}")


@dataclass(slots=True)
class Truth:
    """The log as it is read, told to every history that it concerns."""

    position: int
    breaches: list[str]
    changes: int = 0
    _of: dict[str | None, list[History]] = field(default_factory=dict)
    _bodies: dict[UUID, bytes] = field(default_factory=dict)

    def add(self, history: History) -> None:
        """Let a history know what is due to it from now on."""
        self._of.setdefault(history.scope.project, []).append(history)

    def stood(self, uid: UUID, doc: bytes) -> None:
        """Take note of an object that was there before."""
        self._bodies[uid] = doc

    def read(self, rows: Iterable[Change]) -> None:
        """Take the next rows of the log; they must follow each other."""
        for row in rows:
            if row.rev != self.position + 1:
                self.breaches.append(f"the log goes from {self.position} to {row.rev}")
            self.position = row.rev
            self.changes += 1
            if row.uid is not None and row.doc is not None and row.sel is not None:
                self._tell(row, row.uid, row.doc, row.sel)

    def _tell(self, row: Change, uid: UUID, doc: bytes, text: str) -> None:
        after: Selection = json.loads(text)
        before: Selection | None = None
        if row.kind != "A":
            before = after if row.prev_sel is None else json.loads(row.prev_sel)
        earlier = self._bodies.pop(uid, doc)
        if row.kind != "D":
            self._bodies[uid] = doc
        lines = {
            event: frame(event, splice(earlier if event is EventType.DELETED else doc, row.rev))
            for event in (EventType.ADDED, EventType.MODIFIED, EventType.DELETED)
        }
        for history in (*self._of.get(row.project, ()), *self._of.get(None, ())):
            was = before is not None and history.scope.chooses(before)
            is_now = row.kind != "D" and history.scope.chooses(after)
            event = _EVENTS[was, is_now]
            if event is not None:
                history.due(row.rev, lines[event])


_EVENTS = {
    (False, False): None,
    (False, True): EventType.ADDED,
    (True, True): EventType.MODIFIED,
    (True, False): EventType.DELETED,
}
"""By whether the Attempt matched before and matches now (H-08)."""
