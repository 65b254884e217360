"""What should have been seen: the log folded into states, and projected onto a scope.

state(r) is the fold of the log up to r; the S-projection of a stretch are the events that a watch
of S shows for it (LW-132, LW-133), with their bytes.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

from tests.history.facts import EPOCH, Row
from tests.history.scope import Scope

_EMPTY = b'"resourceVersion":""'
_EVERY = 64
EPOCH_BITS = 44


@dataclass(frozen=True, kw_only=True)
class Version:
    """An object as it stood from a revision on."""

    rev: int
    row: Row

    @cached_property
    def obj(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.row.doc)
        return found

    @cached_property
    def body(self) -> bytes:
        return at_version(self.row.doc, self.rev)

    @property
    def key(self) -> tuple[str, int]:
        return self.row.uid, self.rev

    def __str__(self) -> str:
        return f"{self.row.name} at {self.rev}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An event that a watch must show."""

    type: str
    rev: int
    uid: str
    name: str
    body: bytes

    @property
    def key(self) -> tuple[str, int]:
        return self.uid, self.rev

    def __str__(self) -> str:
        return f"{self.type} {self.name} at {self.rev}"


State = Mapping[str, Version]


def at_version(doc: bytes, rev: int) -> bytes:
    """Return a document with its version filled in."""
    return doc.replace(_EMPTY, b'"resourceVersion":"%d"' % rev, 1)


class Truth:
    """The log of a history, indexed."""

    def __init__(self, log: Sequence[Row]) -> None:
        self.rows = tuple(log)
        self._revs = [row.rev for row in self.rows]
        self._steps: list[tuple[Version | None, Version | None]] = []
        self._marks: list[dict[str, Version]] = []
        state: dict[str, Version] = {}
        for n, row in enumerate(self.rows):
            if n % _EVERY == 0:
                self._marks.append(dict(state))
            before = state.get(row.uid)
            after = Version(rev=row.rev, row=row) if row.kind in ("A", "M") else None
            self._steps.append((before, after))
            _apply(state, row, after)
        self._of: dict[str, list[Version]] = {}
        for _, after in self._steps:
            if after is not None:
                self._of.setdefault(after.row.uid, []).append(after)

    @property
    def head(self) -> int:
        return self._revs[-1] if self._revs else 0

    @property
    def revs(self) -> Sequence[int]:
        return self._revs

    def steps(self) -> Iterator[tuple[Row, Version | None, Version | None]]:
        """Give each row with the object before and after it."""
        for row, (before, after) in zip(self.rows, self._steps, strict=True):
            yield row, before, after

    def lives(self) -> Mapping[str, Sequence[Version]]:
        """Return each object's versions, in order."""
        return self._of

    @cached_property
    def lost(self) -> Sequence[tuple[int, int]]:
        """The stretches (prev_last, marker) that a failover left out, without their ends."""
        return [
            (before.rev, row.rev)
            for before, row in pairwise(self.rows)
            if row.kind == EPOCH and row.rev > before.rev + 1
        ]

    def loss_of(self, rev: int) -> tuple[int, int] | None:
        """Return the stretch that a revision was lost in; None if it was not."""
        return next((gap for gap in self.lost if gap[0] < rev < gap[1]), None)

    def commit_end(self, rev: int) -> int:
        """Return the last revision of the commit that a revision belongs to."""
        at = bisect_left(self._revs, rev)
        if at == len(self._revs) or self._revs[at] != rev:
            return rev
        while at + 1 < len(self.rows) and self.rows[at + 1].tx == self.rows[at].tx:
            at += 1
        return self._revs[at]

    def state(self, rev: int) -> State:
        """Return state(rev): the newest version of every object that then was."""
        end = bisect_right(self._revs, rev)
        mark = min(end // _EVERY, len(self._marks) - 1)
        if mark < 0:
            return {}
        state = dict(self._marks[mark])
        for n in range(mark * _EVERY, end):
            _apply(state, self.rows[n], self._steps[n][1])
        return state

    def listed(self, scope: Scope, rev: int) -> list[Version]:
        """Return state(rev)∩S by project and name, in byte order (LW-106)."""
        found = [one for one in self.state(rev).values() if scope.has(one.obj)]
        return sorted(found, key=lambda one: (one.row.project.encode(), one.row.name.encode()))

    def projection(self, scope: Scope, after: int, upto: int) -> list[Change]:
        """Return the events of a scope for the changes in (after, upto]."""
        start, end = bisect_right(self._revs, after), bisect_right(self._revs, upto)
        found = (self._event(scope, n) for n in range(start, end))
        return [change for change in found if change is not None]

    def first(self, scope: Scope, after: int) -> Change | None:
        """Return the first event of a scope after a revision."""
        start = bisect_right(self._revs, after)
        found = (self._event(scope, n) for n in range(start, len(self.rows)))
        return next((change for change in found if change is not None), None)

    def next_row(self, rev: int) -> Row | None:
        """Return the first row after a revision."""
        at = bisect_right(self._revs, rev)
        return self.rows[at] if at < len(self.rows) else None

    def next_change(self, rev: int) -> Row | None:
        """Return the first row of an object after a revision."""
        at = bisect_right(self._revs, rev)
        return next((row for row in islice(self.rows, at, None) if row.kind != EPOCH), None)

    def knows(self, rev: int) -> bool:
        """Whether a revision is one of the log."""
        at = bisect_left(self._revs, rev)
        return at < len(self._revs) and self._revs[at] == rev

    def marks(self, rev: int) -> bool:
        """Whether a revision is the marker of an epoch."""
        at = bisect_left(self._revs, rev)
        return self.knows(rev) and self.rows[at].kind == EPOCH

    def _event(self, scope: Scope, n: int) -> Change | None:
        row, (before, after) = self.rows[n], self._steps[n]
        was = before is not None and scope.has(before.obj)
        now = after is not None and scope.has(after.obj)
        if now:
            assert after is not None
            return _change("MODIFIED" if was else "ADDED", row, after.body)
        if was:
            assert before is not None
            return _change("DELETED", row, at_version(before.row.doc, row.rev))
        return None


def _apply(state: dict[str, Version], row: Row, after: Version | None) -> None:
    if row.kind == EPOCH:
        return
    state.pop(row.uid, None)
    if after is not None:
        state[row.uid] = after


def _change(kind: str, row: Row, body: bytes) -> Change:
    return Change(type=kind, rev=row.rev, uid=row.uid, name=row.name, body=body)
