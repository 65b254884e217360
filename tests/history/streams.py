"""H-01 to H-05: a stream's versions rise, name nothing twice, and are all that the log has."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise, zip_longest

from tests.history.facts import Event, Finding, Head, History, Stream
from tests.history.openings import opening_of
from tests.history.scope import Scope, scope_of
from tests.history.truth import Change, Truth


def served(history: History) -> Iterator[tuple[Stream, Scope]]:
    """Give the streams that were answered, with what they select."""
    for stream in history.streams:
        scope = scope_of(stream)
        if scope is not None and stream.status == 200:
            yield stream, scope


def resumes(history: History) -> Iterator[tuple[Stream, Stream]]:
    """Give each stream that goes on where the same client's last one ended, with that one."""
    last: dict[tuple[str, str], Stream] = {}
    for stream in sorted(history.streams, key=lambda one: one.asked):
        if stream.status != 200:
            continue
        key = (stream.client, stream.path)
        before = last.get(key)
        if before is not None and stream.version == str(before.last) and not stream.wants_state:
            yield before, stream
        if stream.events:
            last[key] = stream


def ordered(history: History, _: Truth) -> Iterator[Finding]:
    """H-01: versions rise strictly within a stream, and across its resumes."""
    for stream, _scope in served(history):
        for one, two in pairwise(stream.changes):
            if one.rev >= two.rev:
                yield Finding(rule="H-01", where=str(stream), said=f"{one} came", but=f"then {two}")
    for before, stream in resumes(history):
        for event in stream.changes:
            if event.rev <= before.last:
                yield Finding(
                    rule="H-01",
                    where=str(stream),
                    said=f"the client had {before.last}",
                    but=f"after its resume {event} came",
                )


def unique(history: History, _: Truth) -> Iterator[Finding]:
    """H-02: no (uid, version) twice in a stream; after a resume from r nothing up to r."""
    for stream, _scope in served(history):
        seen: dict[tuple[str, int], Event] = {}
        for event in stream.changes:
            if event.key in seen:
                yield Finding(
                    rule="H-02",
                    where=str(stream),
                    said=f"{seen[event.key]} came",
                    but=f"then {event} again",
                )
            seen[event.key] = event
        start = 0 if stream.wants_state else int(stream.version or 0)
        for event in stream.changes:
            if event.rev <= start:
                yield Finding(
                    rule="H-02",
                    where=str(stream),
                    said=f"the watch started from {start}",
                    but=f"{event} came",
                )


def reliable(history: History, truth: Truth) -> Iterator[Finding]:
    """H-03: the changes are exactly the log's on the scope, up to the last version seen."""
    for stream, scope in served(history):
        opening = opening_of(stream, scope, truth)
        if opening.rev is None:
            continue
        due = truth.projection(scope, opening.rev, stream.last)
        found = _first_difference(stream, due, opening.changes)
        if found is not None:
            yield found


def _first_difference(
    stream: Stream, due: Sequence[Change], seen: Sequence[Event]
) -> Finding | None:
    for change, event in zip_longest(due, seen):
        if change is None or event is None or change.key != event.key:
            return Finding(
                rule="H-03",
                where=str(stream),
                said=f"the log has {change or 'no more'}, up to {stream.last}",
                but=f"the stream has {event or 'no more'}",
            )
    return None


def resumable(history: History, truth: Truth) -> Iterator[Finding]:
    """H-04: a watch from r starts with the first change after r, in the log's bytes.

    While r lies in the history that is promised it is not refused.
    """
    for stream, scope in served(history):
        if stream.wants_state or stream.version in ("", "0"):
            continue
        start = int(stream.version)
        for event in stream.events:
            if event.code == 410 and _promised(history, truth, start, event.at):
                yield Finding(
                    rule="H-04",
                    where=str(stream),
                    said=f"{start} is younger than the window of {history.window}",
                    but="the watch was answered with 410",
                )
        first = truth.first(scope, start)
        if stream.changes and first is not None and stream.changes[0].body != first.body:
            yield Finding(
                rule="H-04",
                where=str(stream),
                said=f"the first change after {start} is {first}: {first.body!r}",
                but=f"the stream began with {stream.changes[0]}: {stream.changes[0].body!r}",
            )


def _promised(history: History, truth: Truth, rev: int, at: datetime) -> bool:
    """Whether everything after a revision is younger than the window; unknown versions are not."""
    later = truth.next_change(rev)
    if not truth.knows(rev) or later is None:
        return truth.knows(rev)
    return at - later.at < history.window


def bookmarked(history: History, truth: Truth) -> Iterator[Finding]:
    """H-05: after a bookmark at b nothing up to b; b rises, and is not ahead of the log."""
    for stream, _scope in served(history):
        last, mark = 0, 0
        for event in stream.events:
            if event.type == "BOOKMARK":
                floor = last if event.ends_state else max(last, mark) + 1
                if event.rev < floor:
                    yield _passed(stream, f"{max(last, mark)} was sent", event)
                mark = event.rev
                yield from _ahead(history, truth, stream, event)
            elif event.rev and event.rev <= mark:
                yield _passed(stream, f"a bookmark told {mark}", event)
            last = max(last, event.rev)


def _passed(stream: Stream, said: str, event: Event) -> Finding:
    return Finding(rule="H-05", where=str(stream), said=said, but=f"then {event} came")


def _ahead(history: History, truth: Truth, stream: Stream, event: Event) -> Iterator[Finding]:
    later: list[Head] = [head for head in history.heads if head.asked >= event.at]
    heads = [head.rev for head in later] + [truth.head]
    if event.rev > min(heads):
        yield Finding(
            rule="H-05",
            where=str(stream),
            said=f"the log's head was {min(heads)} afterwards",
            but=f"{event} came",
        )
