"""`nodus cost --accuracy` as a table, a sheet and JSON."""

from decimal import Decimal
from typing import Any

from nodus_api.cli.accuracy import Accuracy, AccuracyLine
from nodus_api.cli.tabular import render_table
from nodus_api.kernel.money import format_hours, format_usd, round_half_up

_FIGURES = (
    *("ATTEMPTS", "PREDICTED H", "ACTUAL H", "RATIO", "OFF BY"),
    *("PREDICTED USD", "ACTUAL USD", "RATIO", "OFF BY", "LOSSES PREDICTED", "SEEN"),
)


def accuracy_text(accuracy: Accuracy) -> str:
    """Return the table with its total, and what the columns say."""
    if not accuracy.lines:
        return "No Attempt that was placed is over yet: there is nothing to compare.\n"
    headings = [*(name.upper() for name in accuracy.headings), *_FIGURES]
    rows = [_cells(line) for line in (*accuracy.lines, accuracy.total)]
    return render_table(headings, rows, right=_FIGURES) + (
        "RATIO is actual over predicted; OFF BY is how far an Attempt is from its prediction in the"
        " median.\n"
        "Hours and cost are compared for Attempts that succeeded or lost their capacity,"
        " losses for all.\n"
    )


def accuracy_as_json(accuracy: Accuracy, by: str) -> dict[str, Any]:
    """Return the lines as JSON values: decimal strings, null where there is nothing to compare."""
    return {
        "by": by,
        "items": [
            dict(zip(accuracy.headings, line.group, strict=True)) | _facts(line)
            for line in accuracy.lines
        ],
        "total": _facts(accuracy.total),
    }


def accuracy_as_sheet(accuracy: Accuracy) -> tuple[list[str], list[list[str]]]:
    """Return the headings, those of the JSON, and a row a line, none of the total."""
    rows = [
        [*line.group, *("" if value is None else str(value) for value in _facts(line).values())]
        for line in accuracy.lines
    ]
    return [*accuracy.headings, *_facts(accuracy.total)], rows


def _facts(line: AccuracyLine) -> dict[str, Any]:
    return {
        "attempts": len(line.outcomes),
        "compared": len(line.compared),
        "predictedHours": format_hours(line.predicted_hours),
        "actualHours": format_hours(line.actual_hours),
        "hoursRatio": _share(line.hours_ratio),
        "hoursErrorMedian": _share(line.hours_error),
        "predictedUSD": format_usd(line.predicted_usd),
        "actualUSD": format_usd(line.actual_usd),
        "costRatio": _share(line.cost_ratio),
        "costErrorMedian": _share(line.cost_error),
        "predictedInterruptions": _share(line.expected_interruptions),
        "interruptions": line.interruptions,
    }


def _cells(line: AccuracyLine) -> list[str]:
    return [
        *line.group,
        str(len(line.outcomes)),
        format_hours(line.predicted_hours),
        format_hours(line.actual_hours),
        _share(line.hours_ratio) or "-",
        _percent(line.hours_error),
        format_usd(line.predicted_usd),
        format_usd(line.actual_usd),
        _share(line.cost_ratio) or "-",
        _percent(line.cost_error),
        f"{round_half_up(line.expected_interruptions, 2)}",
        str(line.interruptions),
    ]


def _share(value: Decimal | None) -> str | None:
    return None if value is None else f"{round_half_up(value, 4)}"


def _percent(value: Decimal | None) -> str:
    return "-" if value is None else f"{round_half_up(value * 100, 1)} %"
