"""H-17, H-18, H-20: how a stream begins ahead of the log or behind it, and how it ends."""

from collections.abc import Iterator

from tests.history.facts import Finding, History, Stream
from tests.history.streams import served
from tests.history.truth import Truth

_ENDS = (410, 500, 503, 504)
"""The specification leaves out 503: so ends a watch from now whose stream had begun when Postgres
turned out to be away (LW-121, LW-199)."""


def ahead(history: History, _: Truth) -> Iterator[Finding]:
    """H-17: a watch from r, wherever the head is, is told nothing up to r, by a bookmark neither.

    Objects up to r break H-02; what is left are bookmarks.
    """
    for stream, _scope in served(history):
        start = 0 if stream.wants_state else int(stream.version or 0)
        for event in stream.events:
            if event.type == "BOOKMARK" and event.rev <= start:
                yield _wrong(stream, "H-17", f"the watch started from {start}", f"{event} came")


def past(history: History, truth: Truth) -> Iterator[Finding]:
    """H-18: 410 comes first and alone; and it comes where the log had no longer what follows r."""
    for stream, _scope in served(history):
        for n, event in enumerate(stream.events):
            if event.code == 410 and n:
                yield _wrong(stream, "H-18", f"{stream.events[0]} came first", "then 410")
        if stream.wants_state or not stream.version:
            continue
        start = int(stream.version)
        promised = [head.oldest for head in history.heads if head.answered <= stream.asked]
        oldest = max(promised, default=0)
        if truth.marks(oldest):
            continue  # the end of an epoch stands for the marker of the next
        served_from = next((event for event in stream.events if not event.code), None)
        if start < oldest - 1 and served_from is not None:
            yield _wrong(
                stream, "H-18", f"the log began at {oldest}", f"{served_from} came after {start}"
            )


def honest(history: History, _: Truth) -> Iterator[Finding]:
    """H-20: a stream ends cleanly, or by an ERROR that nothing follows.

    A connection that broke is the fault of the server, unless somebody cut it off meanwhile.
    """
    stopped = {stop.client for stop in history.stops}
    for stream, _scope in served(history):
        for n, event in enumerate(stream.events):
            if event.type == "ERROR" and event.code not in _ENDS:
                yield _wrong(stream, "H-20", f"an ERROR has one of {_ENDS}", f"{event.code} came")
            if event.type == "ERROR" and n + 1 < len(stream.events):
                yield _wrong(
                    stream, "H-20", f"ERROR {event.code} came", f"then {stream.events[n + 1]}"
                )
        if stream.ending != "cut" or history.kills is None or stream.client in stopped:
            continue
        if not any(stream.ended is None or kill <= stream.ended for kill in history.kills):
            yield _wrong(stream, "H-20", "nobody had cut anything off", "the stream broke")


def _wrong(stream: Stream, rule: str, said: str, but: str) -> Finding:
    return Finding(rule=rule, where=str(stream), said=said, but=but)
