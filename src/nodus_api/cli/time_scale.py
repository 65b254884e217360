"""Where a moment lies on a line of characters, and the scale at its foot (pure). Times are UTC."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
"""Seconds between two ticks, such that ticks stand at round times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeScale:
    """`cells` characters for the time from `start` to `end`, which is later."""

    start: datetime
    end: datetime
    cells: int

    @property
    def seconds(self) -> float:
        """The length of the whole line in seconds."""
        return (self.end - self.start).total_seconds()

    def cell(self, moment: datetime) -> int:
        """Return the character in which a moment lies, within the line."""
        return min(max(int(self._position(moment)), 0), self.cells - 1)

    def extent(self, start: datetime, end: datetime) -> tuple[int, int]:
        """Return the first character of an interval and the one after its last: at least one."""
        first = min(max(round(self._position(start)), 0), self.cells - 1)
        return first, max(first + 1, min(round(self._position(end)), self.cells))

    def feet(self) -> tuple[str, str]:
        """Return the line of ticks and the line of their times."""
        ruler, words = ["-"] * self.cells, [" "] * self.cells
        free = 0
        for moment in self._ticks():
            at, label = self.cell(moment), self._label(moment)
            ruler[at] = "|"
            if at >= free and at + len(label) <= self.cells:
                words[at : at + len(label)] = label
                free = at + len(label) + 1
        return "".join(ruler), "".join(words).rstrip()

    def _position(self, moment: datetime) -> float:
        return (moment - self.start).total_seconds() / self.seconds * self.cells

    def _step(self) -> int:
        """Return the shortest step whose labels do not touch."""
        a_cell = self.seconds / self.cells
        fits = (step for step in _STEPS if step / a_cell >= len(self._format(step)) + 2)
        return next(fits, _STEPS[-1])

    def _format(self, step: int) -> str:
        """Return what a label looks like, in as many characters as it has."""
        if self.seconds < _DAY:
            return "%H:%M:%S" if step < _MINUTE else "%H:%MZ  "
        return "%m-%d %H:%M" if step < _DAY else "%Y-%m-%d  "

    def _label(self, moment: datetime) -> str:
        return moment.astimezone(UTC).strftime(self._format(self._step())).rstrip()

    def _ticks(self) -> Iterator[datetime]:
        """Yield the round times on the line; its start where there is none."""
        step = self._step()
        first = -(-int(self.start.timestamp()) // step) * step
        ticks = range(first, int(self.end.timestamp()) + 1, step)
        for seconds in ticks:
            yield datetime.fromtimestamp(seconds, UTC)
        if not ticks:
            yield self.start


def length(seconds: float) -> str:
    """Return a length of time for a legend: `0.4 s`, `12 s`, `5 min`, `2 h`."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def rounded_up(moment: datetime) -> datetime:
    """Return the next whole second."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
