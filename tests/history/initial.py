"""H-11: a watch that begins with the state shows exactly one state, and one young enough."""

from collections.abc import Iterator

from tests.history.facts import Event, Finding, History, Stream
from tests.history.knowledge import Knowledge
from tests.history.openings import Opening, by_version, opening_of
from tests.history.scope import Scope
from tests.history.streams import served
from tests.history.truth import Truth, Version


def initial(history: History, truth: Truth) -> Iterator[Finding]:
    """H-11: ADDED events = state(r₀)∩S in rising version, the marked bookmark r₀, then > r₀.

    r₀ is not older than what was known at the request, where no version was given, and not older
    than a version that was.
    """
    known = Knowledge(history)
    for stream, scope in served(history):
        if not stream.wants_state or any(one.code for one in stream.events):
            continue
        opening = opening_of(stream, scope, truth)
        if opening.rev is None:
            yield from _unfinished(stream, scope, truth)
            continue
        yield from _state(stream, opening, by_version(truth, scope, opening.rev))
        yield from _later(stream, opening)
        floor = int(stream.version) if stream.version else known.at(stream.asked)
        if opening.rev < floor:
            yield Finding(
                rule="H-11",
                where=str(stream),
                said=f"{floor} was known, or given, when the watch was asked for",
                but=f"it began with the state at {opening.rev}",
            )


def _state(stream: Stream, opening: Opening, due: list[Version]) -> Iterator[Finding]:
    there = {one.key: one for one in due}
    for event in opening.state:
        version = there.pop(event.key, None)
        if event.type != "ADDED" or version is None or version.body != event.body:
            yield _wrong(stream, opening, f"has {version or 'no such version'}", event)
    for missing in there.values():
        yield _wrong(stream, opening, f"has {missing}", None)
    if not there and [one.rev for one in opening.state] != sorted(one.rev for one in opening.state):
        yield _wrong(stream, opening, "comes in rising version", opening.state[0])


def _later(stream: Stream, opening: Opening) -> Iterator[Finding]:
    assert opening.rev is not None
    for event in opening.changes:
        if event.rev <= opening.rev:
            yield _wrong(stream, opening, "was complete", event)


def _unfinished(stream: Stream, scope: Scope, truth: Truth) -> Iterator[Finding]:
    """A stream cut in its state has shown the beginning of some state; nothing else is right."""
    keys = [one.key for one in stream.changes]
    for rev in truth.revs:
        if [one.key for one in by_version(truth, scope, rev)][: len(keys)] == keys:
            return
    yield Finding(
        rule="H-11",
        where=str(stream),
        said="the stream begins with a state",
        but=f"no state of the log begins with {', '.join(str(one) for one in stream.changes[:5])}",
    )


def _wrong(stream: Stream, opening: Opening, said: str, event: Event | None) -> Finding:
    return Finding(
        rule="H-11",
        where=str(stream),
        said=f"the state at {opening.rev} {said}",
        but=f"the stream has {event or 'it not'}",
    )
