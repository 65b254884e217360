"""What a client saw, held against the log: nothing lost, nothing twice, nothing out of order.

A client's events come in segments. One begins with the state (`state`: an empty view; `relist`: a
view that is brought up to date) and goes on with the changes of the log; resuming begins no new
one. Where its state ends the client does not say: it is the first place at which the view is a
state of the log and everything later is the log's, event by event.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.watching import Told
from tests.history.scope import Scope
from tests.history.truth import Change, Truth

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """One event that a client told."""

    type: str
    uid: str
    name: str
    rev: int

    @property
    def key(self) -> Key:
        return self.uid, self.rev

    def __str__(self) -> str:
        return f"{self.type} {self.name} at {self.rev}"


@dataclass(slots=True)
class Segment:
    """The events from one beginning on; `start` is set where they go on from a known version."""

    kind: str
    start: int = 0
    events: list[Seen] = field(default_factory=list)


def seen_of(told: Iterable[Told]) -> list[Seen]:
    """Return the events of objects, in the order in which they were told."""
    return [
        Seen(one["event"], one["uid"], one["name"], int(one["rv"]))
        for one in (line.said for line in told)
        if one.get("event") not in (None, "BOOKMARK")
    ]


def segments_of(told: Iterable[Told]) -> list[Segment]:
    """Split a client's lines where a state begins.

    A resume must be from the newest version that the client has.
    """
    found: list[Segment] = []
    newest = 0
    for line in told:
        said = line.said
        if "stream" in said:
            start = int(said.get("from") or 0)
            if said["stream"] != "resume":
                found.append(Segment(said["stream"]))
            elif not found:
                found.append(Segment("resume", start))
            else:
                assert start == newest, f"resumed from {start}, but had {newest}"
            newest = max(newest, start)
        elif "event" in said:
            newest = int(said["rv"])
            if said["event"] != "BOOKMARK":
                found[-1].events += seen_of([line])
    return found


class States:
    """The states of the log within a scope, found by what they hold."""

    def __init__(self, truth: Truth, scope: Scope) -> None:
        self._truth, self._scope = truth, scope
        self.changes = truth.projection(scope, 0, truth.head)
        self._at: dict[int, list[int]] = defaultdict(list)
        view = _View()
        self._at[view.print].append(0)
        for change in self.changes:
            view.apply(change.type, change.uid, change.rev)
            self._at[view.print].append(change.rev)

    def like(self, view: "_View") -> Sequence[int]:
        """Return the revisions at which the state is that view."""
        return self._at.get(view.print, [])

    def has(self, held: Mapping[str, int]) -> bool:
        """Whether there ever was that state."""
        return bool(self.like(_View(held)))

    def names(self) -> set[tuple[str, ...]]:
        """Return the names of every state, in the order of a list."""
        revs = (0, *(one.rev for one in self.changes))
        listed = (self._truth.listed(self._scope, rev) for rev in revs)
        return {tuple(one.row.name for one in state) for state in listed}

    def state(self, rev: int) -> Mapping[str, int]:
        return {one.row.uid: one.rev for one in self._truth.listed(self._scope, rev)}

    def after(self, rev: int, upto: int) -> list[Change]:
        return self._truth.projection(self._scope, rev, upto)


class _View:
    """Objects by their versions, with a number that tells two views apart."""

    def __init__(self, held: Mapping[str, int] | None = None) -> None:
        self.held = dict(held or {})
        self.print = sum(hash(one) for one in self.held.items())

    def apply(self, kind: str, uid: str, rev: int) -> None:
        before = self.held.pop(uid, None)
        if before is not None:
            self.print -= hash((uid, before))
        if kind != "DELETED":
            self.held[uid] = rev
            self.print += hash((uid, rev))


def followed(segments: Sequence[Segment], states: States) -> int:
    """Hold every segment against the log; return how many changes were seen after the states."""
    assert segments, "no stream"
    view, count = _View(), 0
    for segment in segments:
        if segment.kind == "state":
            view = _View()
        elif segment.kind == "resume":
            view = _View(states.state(segment.start))
        count += _explained(segment, view, states)
    return count


def _explained(segment: Segment, view: _View, states: States) -> int:
    events = segment.events
    if segment.kind == "resume":
        _same(events, states.after(segment.start, events[-1].rev if events else 0))
        return len(events)
    for n in range(len(events) + 1):
        if n:
            one = events[n - 1]
            if segment.kind == "state" and (one.type != "ADDED" or one.uid in view.held):
                break
            view.apply(one.type, one.uid, one.rev)
        for rev in states.like(view):
            last = events[-1].rev if n < len(events) else rev
            if _is(events[n:], states.after(rev, last)):
                for later in events[n:]:
                    view.apply(later.type, later.uid, later.rev)
                return len(events) - n
    raise AssertionError(_told_wrong(segment, states))


def _is(events: Sequence[Seen], due: Sequence[Change]) -> bool:
    return [(one.type, one.key) for one in events] == [(one.type, one.key) for one in due]


def _same(events: Sequence[Seen], due: Sequence[Change]) -> None:
    for event, change in zip(events, due, strict=False):
        assert (event.type, event.key) == (change.type, change.key), f"{event}, due {change}"
    assert len(events) == len(due), f"{len(events)} events, due {len(due)}"


def _told_wrong(segment: Segment, states: States) -> str:
    """Say where a segment departs from the log: at the state that explains most of it."""
    view, longest, said = _View(), -1, "no state of the log fits its beginning"
    for n, one in enumerate(segment.events):
        view.apply(one.type, one.uid, one.rev)
        for rev in states.like(view):
            later = segment.events[n + 1 :]
            due = states.after(rev, later[-1].rev if later else rev)
            pairs = zip(later, due, strict=False)
            same = next((at for at, (a, b) in enumerate(pairs) if not _is([a], [b])), None)
            if same is None:
                same = min(len(later), len(due))
            if n + 1 + same > longest:
                longest = n + 1 + same
                event, change = later[same : same + 1], due[same : same + 1]
                said = (
                    f"after the state at {rev} and {same} changes: "
                    f"{event[0] if event else 'no more'}, due {change[0] if change else 'no more'}"
                )
    return f"{segment.kind} of {len(segment.events)}: {said}"


def rising(events: Sequence[Seen], states: States) -> None:
    """Hold a client that may leave versions out: what it shows is the log's, and only rises.

    What it lists again it may show again.
    """
    known = {one.key for one in states.changes}
    newest: dict[str, int] = {}
    for event in events:
        assert event.key in known, f"{event} is not in the log"
        last = newest.get(event.uid, 0)
        assert event.rev > last or (event.type, event.rev) == ("LISTED", last), f"{event}: {last}"
        newest[event.uid] = event.rev


def in_rising_version(segments: Sequence[Segment]) -> None:
    """A watch begins with the state in rising version (LW-134)."""
    for segment in segments:
        if segment.kind == "state":
            revs = []
            for event in segment.events:
                if event.type != "ADDED":
                    break
                revs.append(event.rev)
            assert revs == sorted(revs)


def listed(told: Sequence[Told], truth: Truth, scope: Scope, key: str = "items") -> int:
    """Hold every list against the log: the state at its version, in order; return how many."""
    found = [one.said for one in told if key in one.said and "list" in one.said]
    for one in found:
        due = truth.listed(scope, int(one["list"]))
        assert [tuple(item) for item in one[key]] == [
            (version.row.uid, str(version.rev)) for version in due
        ], f"the list at {one['list']}"
    return len(found)


def newest_of(told: Sequence[Told]) -> list[Any]:
    """Return what the client held at its end, by project and name."""
    stores = [one.said["store"] for one in told if "store" in one.said]
    assert stores, "it told no store"
    return by_name(stores[-1])


def by_name(objects: Iterable[Any]) -> list[Any]:
    return sorted(
        objects, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"].encode())
    )
