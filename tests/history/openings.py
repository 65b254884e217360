"""Where the changes of a stream begin: at the version given, or after the state it starts with."""

from dataclasses import dataclass

from tests.history.facts import Event, Stream
from tests.history.scope import Scope
from tests.history.truth import Truth, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A stream in two parts: the state at `rev`, and the changes after it.

    `rev` is None where the stream ended before its state was complete, or where no state of the
    log fits the first events.
    """

    rev: int | None
    state: tuple[Event, ...]
    changes: tuple[Event, ...]


def opening_of(stream: Stream, scope: Scope, truth: Truth) -> Opening:
    """Split a stream where its changes begin."""
    if not stream.wants_state:
        return Opening(rev=_given(stream), state=(), changes=stream.changes)
    if stream.wants_end_of_state:
        return _at_bookmark(stream)
    return _at_fitting_state(stream, scope, truth)


def by_version(truth: Truth, scope: Scope, rev: int) -> list[Version]:
    """Return state(rev)∩S in rising version, as a watch begins with it (LW-134)."""
    return sorted(truth.listed(scope, rev), key=lambda one: one.rev)


def _given(stream: Stream) -> int | None:
    """The version asked for; without one, a stream begins just before its first event."""
    if stream.version not in ("", "0"):
        return int(stream.version)
    return stream.changes[0].rev - 1 if stream.changes else None


def _at_bookmark(stream: Stream) -> Opening:
    for n, event in enumerate(stream.events):
        if event.ends_state:
            before = _objects(stream.events[:n])
            after = _objects(stream.events[n + 1 :])
            return Opening(rev=event.rev, state=before, changes=after)
    return Opening(rev=None, state=stream.changes, changes=())


def _at_fitting_state(stream: Stream, scope: Scope, truth: Truth) -> Opening:
    """Without a bookmark: the last state that the stream begins with and goes on from.

    If it goes on from none, the largest that it begins with.
    """
    keys = [one.key for one in stream.changes]
    best = None
    for rev in reversed(truth.revs):
        state = by_version(truth, scope, rev)
        size = len(state)
        if size > len(keys) or [one.key for one in state] != keys[:size]:
            continue
        later = truth.first(scope, rev)
        if size == len(keys) or (later is not None and later.key == keys[size]):
            return _split(stream, rev, size)
        if best is None or size > len(best.state):
            best = _split(stream, rev, size)
    if best is None or not best.state:
        return Opening(rev=None, state=stream.changes, changes=())
    return best


def _split(stream: Stream, rev: int, size: int) -> Opening:
    return Opening(rev=rev, state=stream.changes[:size], changes=stream.changes[size:])


def _objects(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(one for one in events if one.type not in ("BOOKMARK", "ERROR"))
