"""Superseded documents that somebody still holds, and their budget (storage.md section 6, Pins).

A pin, a list that is being sent and the start of a watch each hold the state of a scope at one
revision: of every Attempt the version that was there. What it costs is not the state, which the
cache holds as well, but each version of it that was superseded since. Such a document is counted
once, whoever else holds it: for the holder of the newest state that has it, so that it is counted
on until the last has let go.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from nodus_api.watchcache.history import Event

T = TypeVar("T")

BUDGET_BYTES = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Document:
    """A superseded document: the state of every revision from `since` and below `until` has it."""

    since: int
    until: int
    project: str
    size: int


@dataclass(slots=True, eq=False)
class Hold:
    """One holder of a scope's state at a revision; None for all projects.

    `documents` are those counted for it, by their revision.
    """

    scope: str | None
    rev: int
    documents: dict[int, _Document] = field(default_factory=dict)


class Holds:
    """All holders of a process, and what they hold together."""

    def __init__(self, budget: int = BUDGET_BYTES) -> None:
        """`budget` is in bytes of documents."""
        self._budget = budget
        self._by_scope: dict[str | None, list[Hold]] = {}  # each in rising revision
        self._counted: dict[int, Hold] = {}  # documents by their revision
        self.bytes = 0
        """Superseded documents that are held, each counted once."""

    @property
    def exceeded(self) -> bool:
        """Whether more is held than the budget allows."""
        return self.bytes > self._budget

    def hold(self, scope: str | None, rev: int) -> Hold:
        """Register a holder of the scope's state at `rev`.

        Where that is not the present state, what it has of before is told by `superseded`.
        """
        hold = Hold(scope, rev)
        insort(self._by_scope.setdefault(scope, []), hold, key=_rev_of)
        return hold

    def running(self, scope: str | None, rev: int) -> "Running":
        """Register an answer that is being made or sent; it is released once nothing refers to it.

        So whatever carries the objects to the client carries it along.
        """
        return Running(self, self.hold(scope, rev))

    def superseded(self, event: Event) -> None:
        """Count the document that a change took the place of, if somebody holds it."""
        if not self._by_scope or event.prev_rev is None or event.prev_body is None:
            return
        if event.prev_rev in self._counted:
            return
        document = _Document(event.prev_rev, event.rev, event.project, len(event.prev_body))
        if self._count(document):
            self.bytes += document.size

    def _count(self, document: _Document) -> bool:
        """Count a document for the newest of its holders; False where there is none."""
        found: Hold | None = None
        for scope in (document.project, None):
            holds = self._by_scope.get(scope, ())
            at = bisect_left(holds, document.until, key=_rev_of) - 1
            if at >= 0 and holds[at].rev >= document.since:
                found = holds[at] if found is None or holds[at].rev > found.rev else found
        if found is None:
            return False
        found.documents[document.since] = document
        self._counted[document.since] = found
        return True

    def release(self, hold: Hold) -> None:
        """Forget a holder; what others hold too is counted on. A second time does nothing."""
        holds = self._by_scope.get(hold.scope, [])
        if hold not in holds:
            return
        holds.remove(hold)
        if not holds:
            del self._by_scope[hold.scope]
        for document in hold.documents.values():
            del self._counted[document.since]
            if not self._count(document):
                self.bytes -= document.size


class Running:
    """A holder for as long as it is referred to."""

    __slots__ = ("_hold", "_holds")

    def __init__(self, holds: Holds, hold: Hold) -> None:
        self._holds = holds
        self._hold = hold

    def __del__(self) -> None:
        """Release it, with the last of what refers to it."""
        self._holds.release(self._hold)


class Held(list[T]):
    """A list of what an answer sends, which holds it."""

    __slots__ = ("running",)

    def __init__(self, items: Iterable[T], running: Running | None) -> None:
        super().__init__(items)
        self.running = running


def _rev_of(hold: Hold) -> int:
    return hold.rev
