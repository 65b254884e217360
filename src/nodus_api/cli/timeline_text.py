"""Draws a timeline: a lane a slot, a bar an epoch, a scale at the foot, a line an epoch (pure).

A drawing is lines of pieces, each a text with the name of what it shows, so that the caller may
colour them; without colour the characters alone tell the kinds apart.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from nodus_api.cli.spans import KINDS, Epoch, Timeline
from nodus_api.cli.time_scale import TimeScale, length
from nodus_api.kernel.money import ZERO, format_usd
from nodus_api.metav1.table import age
from nodus_api.metav1.times import format_time

Piece = tuple[str, str]
"""A text, and what it shows: a kind of span, Checkpoint, Covered, Live, or nothing."""

LEAST_CELLS = 20

PLAIN: Mapping[str, str] = {
    "Queued": ".",
    "Acquiring": "-",
    "Boot": "b",
    "Restore": "r",
    "Running": "=",
    "Teardown": "t",
    "Checkpoint": "|",
    "Covered": "~",
    "Live": ">",
}
BLOCKS: Mapping[str, str] = {
    "Queued": "·",
    "Acquiring": "╌",
    "Boot": "░",
    "Restore": "▒",
    "Running": "█",
    "Teardown": "▓",
    "Checkpoint": "┃",
    "Covered": "▔",
    "Live": "▶",
}
"""Characters of a bar; those of PLAIN where the output has no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How to draw: the width in characters, and whether bars are of blocks."""

    width: int
    blocks: bool = False

    @property
    def glyphs(self) -> Mapping[str, str]:
        """The characters of a bar by what they show."""
        return BLOCKS if self.blocks else PLAIN


def draw(timeline: Timeline, drawing: Drawing) -> list[list[Piece]]:
    """Return the lines of a timeline."""
    lines = [[(line, "")] for line in _head(timeline, drawing)]
    if not timeline.epochs:
        return lines
    labels = _labels(timeline.epochs)
    indent = max(map(len, labels)) + 2
    cells = max(LEAST_CELLS, drawing.width - indent)
    scale = TimeScale(start=timeline.start, end=timeline.end, cells=cells)
    lines.append([])
    for label, epoch in zip(labels, timeline.epochs, strict=True):
        lines.append([(label.ljust(indent), ""), *_bar(epoch, scale, drawing)])
        if epoch.covered:
            lines.append([(" " * indent, ""), *_cover(epoch, scale, drawing)])
    lines += [[(" " * indent + foot, "")] for foot in scale.feet()]
    lines += [[], *_legend(scale, drawing), []]
    for label, epoch in zip(_whole_labels(timeline.epochs), timeline.epochs, strict=True):
        lines += [[(line, "")] for line in _wrapped(label, _told(epoch), drawing.width)]
    lines.append([(_total(timeline.epochs), "")])
    return lines


def text_of(lines: Sequence[Sequence[Piece]]) -> str:
    """Return a drawing without colour."""
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def _head(timeline: Timeline, drawing: Drawing) -> list[str]:
    what = f"{timeline.owner} in project {timeline.project}: {timeline.state}"
    if not timeline.epochs:
        return [f"{what}, no Attempt yet."]
    lanes = len({(epoch.rank, epoch.slot) for epoch in timeline.epochs})
    counted = f"{_count(len(timeline.epochs), 'epoch')} in {_count(lanes, 'lane')}"
    until = "now, " if timeline.live else ""
    extent = f"from {format_time(timeline.start)} to {until}{format_time(timeline.end)}"
    return textwrap.wrap(f"{what}, {counted}, {extent}", max(LEAST_CELLS, drawing.width))


def _lane(epoch: Epoch) -> str:
    return epoch.slot if epoch.rank is None else f"rank {epoch.rank}"


def _labels(epochs: Sequence[Epoch]) -> list[str]:
    """Return what stands before each bar: the lane's name before its first alone."""
    widest = max(len(_lane(epoch)) for epoch in epochs)
    labels = []
    for lane, several in groupby(epochs, key=_lane):
        for n, epoch in enumerate(several):
            labels.append(f"{lane if n == 0 else '':<{widest}}  e{epoch.epoch}")
    return labels


def _whole_labels(epochs: Sequence[Epoch]) -> list[str]:
    widest = max(len(_lane(epoch)) for epoch in epochs)
    return [f"{_lane(epoch):<{widest}}  e{epoch.epoch}" for epoch in epochs]


def _bar(epoch: Epoch, scale: TimeScale, drawing: Drawing) -> Iterator[Piece]:
    """Yield a bar: short spans are painted last, so that each shows where there is room."""
    kinds = [""] * scale.cells
    for span in sorted(epoch.spans, key=lambda one: one.start - one.end):
        first, after = scale.extent(span.start, span.end)
        kinds[first:after] = [span.kind] * (after - first)
    for moment in epoch.saved:
        kinds[scale.cell(moment)] = "Checkpoint"
    if any(not span.ends for span in epoch.spans):
        kinds[-1] = "Live"
    yield from _pieces(kinds, drawing)


def _cover(epoch: Epoch, scale: TimeScale, drawing: Drawing) -> Iterator[Piece]:
    kinds = [""] * scale.cells
    for start, end in epoch.covered:
        first, after = scale.extent(start, end)
        kinds[first:after] = ["Covered"] * (after - first)
    yield from _pieces(kinds, drawing)


def _pieces(kinds: Sequence[str], drawing: Drawing) -> Iterator[Piece]:
    for kind, several in groupby(kinds):
        yield drawing.glyphs.get(kind, " ") * len(list(several)), kind


def _legend(scale: TimeScale, drawing: Drawing) -> Iterator[list[Piece]]:
    """Yield the meaning of each character, as many on a line as fit."""
    words = {"Checkpoint": "checkpoint", "Covered": "covered by Nodus", "Live": "goes on"}
    entries: list[list[Piece]] = [
        [(drawing.glyphs[name], name), (f" {words.get(name, name)}", "")]
        for name in (*KINDS, *words)
    ]
    entries.append([(f"a character is {length(scale.seconds / scale.cells)}, times are UTC", "")])
    line: list[Piece] = []
    for entry in entries:
        size = sum(len(text) for text, _ in (*line, *entry)) + 2
        if line and size > drawing.width:
            yield line
            line = []
        line = [*line, ("  ", ""), *entry] if line else entry
    yield line


def _told(epoch: Epoch) -> str:
    """Return an epoch's line: outcome, seconds, what was lost, what it cost."""
    words = [epoch.outcome]
    for kind in KINDS:
        seconds = epoch.seconds(kind)
        if seconds is not None:
            words.append(f"{kind} {_time(seconds)}")
    if epoch.saved:
        words.append(_count(len(epoch.saved), "checkpoint"))
    if epoch.lost_seconds is not None:
        words.append(f"lost {_time(epoch.lost_seconds)}")
    if epoch.recovery_seconds is not None:
        words.append(f"recovered after {_time(epoch.recovery_seconds)}")
    words.append(_money(epoch))
    words.append(epoch.name)
    return ", ".join(words)


def _money(epoch: Epoch) -> str:
    covered = f" and {format_usd(epoch.covered_usd)} covered" if epoch.covered else ""
    return f"{format_usd(epoch.charged)} USD{covered}"


def _total(epochs: Sequence[Epoch]) -> str:
    charged = format_usd(sum((epoch.charged for epoch in epochs), ZERO))
    covered = format_usd(sum((epoch.covered_usd for epoch in epochs), ZERO))
    return f"Total: {charged} USD, and {covered} USD covered by Nodus."


def _wrapped(label: str, told: str, width: int) -> list[str]:
    return textwrap.wrap(
        f"{label}  {told}",
        max(LEAST_CELLS, width),
        subsequent_indent=" " * (len(label) + 2),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 600 else age(timedelta(seconds=seconds))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
