"""H-06: a stream that may be idle is told how far the log is, so that it can always resume."""

from collections.abc import Iterator
from datetime import timedelta

from tests.history.facts import Finding, History
from tests.history.knowledge import Knowledge
from tests.history.streams import served
from tests.history.truth import Truth

WITHIN = timedelta(seconds=65)
"""A bookmark comes each minute (LW-137), and has some time to get there."""


def progress(history: History, _: Truth) -> Iterator[Finding]:
    """H-06: what was known by anybody is told in a stream with bookmarks within 65 s.

    Only of streams whose end was noted, and that nobody kept from being read.
    """
    steps = list(Knowledge(history).steps())
    stopped = {stop.client for stop in history.stops}
    for stream, _scope in served(history):
        if stream.options.get("allowWatchBookmarks") not in ("true", "1"):
            continue
        if stream.ended is None or stream.client in stopped:
            continue
        told, at = 0, 0
        for moment, rev in steps:
            due = max(moment, stream.asked) + WITHIN
            if due > stream.ended:
                break
            while at < len(stream.events) and stream.events[at].at <= due:
                told = max(told, stream.events[at].rev)
                at += 1
            if told < rev:
                yield Finding(
                    rule="H-06",
                    where=str(stream),
                    said=f"{rev} was known at {moment:%H:%M:%S}",
                    but=f"the stream was at {told} at {due:%H:%M:%S}",
                )
                break
