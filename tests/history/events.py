"""H-08, H-09: each event has the type and the body that its change gives it."""

from collections.abc import Iterator

from tests.history.facts import Finding, History
from tests.history.openings import opening_of
from tests.history.streams import served
from tests.history.truth import Truth


def typed(history: History, truth: Truth) -> Iterator[Finding]:
    """H-08: ADDED, MODIFIED, DELETED by whether the object matched before and matches now."""
    for stream, scope in served(history):
        opening = opening_of(stream, scope, truth)
        if opening.rev is None:
            continue
        due = {one.key: one for one in truth.projection(scope, opening.rev, stream.last)}
        for event in opening.changes:
            change = due.get(event.key)
            if change is not None and change.type != event.type:
                yield Finding(
                    rule="H-08", where=str(stream), said=f"the log gives {change}", but=f"{event}"
                )


def introduced(history: History, truth: Truth) -> Iterator[Finding]:
    """H-08: where a stream begins with the state, nothing changes or goes that was not added."""
    for stream, _scope in served(history):
        there: set[str] = set()
        for event in stream.changes if stream.wants_state else ():
            if event.type == "ADDED":
                there.add(event.uid)
            elif event.uid not in there:
                yield Finding(
                    rule="H-08",
                    where=str(stream),
                    said=f"{event} came",
                    but=f"no ADDED of {event.name} before it",
                )
            if event.type == "DELETED":
                there.discard(event.uid)


def deleted_bodies(history: History, truth: Truth) -> Iterator[Finding]:
    """H-09: DELETED carries the last state that matched, with the version of its going."""
    for stream, scope in served(history):
        opening = opening_of(stream, scope, truth)
        if opening.rev is None:
            continue
        due = {one.key: one for one in truth.projection(scope, opening.rev, stream.last)}
        for event in opening.changes:
            change = due.get(event.key)
            if change is None or event.type != "DELETED" or change.type != "DELETED":
                continue
            if change.body != event.body:
                yield Finding(
                    rule="H-09",
                    where=str(stream),
                    said=f"the last matching state of {event.name} is {change.body!r}",
                    but=f"{event} carries {event.body!r}",
                )
