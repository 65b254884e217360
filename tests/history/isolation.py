"""H-21: a client that stops to read costs the others nothing, and itself a new beginning."""

from collections.abc import Iterator

from tests.history.facts import Finding, History, Stop
from tests.history.knowledge import Knowledge
from tests.history.streams import served
from tests.history.truth import Truth


def undelayed(history: History, truth: Truth) -> Iterator[Finding]:
    """H-21: while one client reads nothing, the others get each change in time.

    In time is `history.isolation` after anybody could know of it: by another stream, an answer, or
    Postgres' own head.
    """
    known = Knowledge(history)
    for stop in history.stops:
        for stream, scope in served(history):
            if stream.client == stop.client:
                continue
            got = {event.key: event.at for event in stream.changes}
            for change in truth.projection(scope, known.at(stop.since), truth.head):
                since = known.since(change.rev)
                if since is None or not stop.since <= since < stop.until or since < stream.asked:
                    continue
                due = since + history.isolation
                if stream.ended is not None and stream.ended < due:
                    continue
                came = got.get(change.key)
                if came is None or came > due:
                    late = (
                        "never" if came is None else f"{(came - since).total_seconds():.3f} s later"
                    )
                    yield Finding(
                        rule="H-21",
                        where=str(stream),
                        said=f"{change} was known while {stop.client} read nothing",
                        but=f"it came {late}",
                    )
                    break


def resumed(history: History, _: Truth) -> Iterator[Finding]:
    """H-21: the stopped client's stream ends, and it goes on from where it was."""
    for stop in history.stops:
        if not any(_began_after(history, stop)):
            yield Finding(
                rule="H-21",
                where=stop.client,
                said=f"it read nothing from {stop.since:%H:%M:%S} to {stop.until:%H:%M:%S}",
                but="no stream of it follows that one",
            )


def _began_after(history: History, stop: Stop) -> Iterator[bool]:
    for stream, _ in served(history):
        yield stream.client == stop.client and stream.asked > stop.since
