"""A study as a picture: cost against time to result, a point each; the better, the lower and left.

SVG by hand: text that any browser draws, and no library for one picture.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from nodus_api.bench.simulation.study import Line, Study

_WIDTH, _HEIGHT = 760, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 180, 60, 60
_TICKS = 5
_INK, _GRID, _PROFILE, _BASELINE = "#222222", "#dddddd", "#1f6fb2", "#b2641f"


def plot(study: Study) -> str:
    """Return the SVG document: costs in USD, mean hours, interruptions beside each name."""
    across = _Scale.of([one.mean_hours for one in study.lines], start=_LEFT, end=_WIDTH - _RIGHT)
    up = _Scale.of([float(one.cost_usd) for one in study.lines], start=_HEIGHT - _BOTTOM, end=_TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="13" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 28, f"{study.slots} slots, seed {study.seed}: cost and time to result", 16),
        *_axes(across, up),
        *(_point(one, across, up) for one in study.lines),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """Values along one axis, from 0, with round ticks."""

    def __init__(self, most: float, step: float, start: float, end: float) -> None:
        self._most, self._step, self._start, self._end = most, step, start, end

    @classmethod
    def of(cls, values: Sequence[float], *, start: float, end: float) -> "_Scale":
        rough = max(*values, 1e-9) / _TICKS
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough)
        return cls(step * math.ceil(max(values) / step + 1e-9), step, start, end)

    def at(self, value: float) -> float:
        return round(self._start + (self._end - self._start) * value / self._most, 1)

    def ticks(self) -> list[float]:
        return [self._step * number for number in range(round(self._most / self._step) + 1)]


def _axes(across: _Scale, up: _Scale) -> Iterator[str]:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    for value in across.ticks():
        x = across.at(value)
        yield f'<path d="M{x} {top}V{bottom}" stroke="{_GRID}"/>'
        yield _text(x, bottom + 20, f"{value:g}", anchor="middle")
    for value in up.ticks():
        y = up.at(value)
        yield f'<path d="M{left} {y}H{right}" stroke="{_GRID}"/>'
        yield _text(left - 8, y + 4, f"{value:,g}", anchor="end")
    yield _text((left + right) / 2, bottom + 44, "mean time to result, hours", anchor="middle")
    yield _text(left, top - 12, "cost, USD")


def _point(line: Line, across: _Scale, up: _Scale) -> str:
    x, y = across.at(line.mean_hours), up.at(float(line.cost_usd))
    colour = _BASELINE if line.baseline else _PROFILE
    said = f"{line.name} ({line.interruptions} interruptions)"
    return f'<circle cx="{x}" cy="{y}" r="6" fill="{colour}"/>\n' + _text(x + 10, y + 4, said)


def _text(x: float, y: float, said: str, size: int = 13, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{escape(said)}</text>'
