"""What anybody knew at a moment: the newest revision that had been told by then.

A revision in an answer was committed before the answer came, so whoever asks later must not get an
older state where the newest is promised. Postgres' own head, where it was read, counts too.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime

from tests.history.facts import History


class Knowledge:
    """The newest revision told up to each moment of a history."""

    def __init__(self, history: History) -> None:
        told = [(head.answered, head.rev) for head in history.heads]
        for stream in history.streams:
            told += [(one.at, one.rev) for one in stream.events]
        for answer in history.answers:
            if answer.status == 200 and not answer.accept:
                rev = max([one.rev for one in answer.items], default=0)
                listed = "items" in answer.decoded
                told.append((answer.answered, answer.version_told if listed else rev))
        self._moments: list[datetime] = []
        self._revs: list[int] = []
        for moment, rev in sorted(told):
            if not self._revs or rev > self._revs[-1]:
                self._moments.append(moment)
                self._revs.append(rev)

    def at(self, moment: datetime) -> int:
        """Return the newest revision told at or before a moment; 0 if none was."""
        at = bisect_right(self._moments, moment)
        return self._revs[at - 1] if at else 0

    def since(self, rev: int) -> datetime | None:
        """Return when a revision, or a newer one, was first told; None if none was."""
        at = bisect_left(self._revs, rev)
        return self._moments[at] if at < len(self._revs) else None

    def steps(self) -> Iterator[tuple[datetime, int]]:
        """Give each moment at which a newer revision was told, with it."""
        return zip(self._moments, self._revs, strict=True)
