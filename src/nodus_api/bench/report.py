"""What was measured: rows of figures, for people and as JSON."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


class NotMeasured(Exception):
    """A measurement could not be taken; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: its figures over all rounds, and its ratio to the yardstick of the same round."""

    area: str
    case: str
    unit: str
    samples: int
    median: float
    p90: float
    p99: float
    ratio: float | None = None
    """Median over the rounds of this case's median divided by the yardstick's; None for it."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    target: str | None = None
    """What it must hold, in words; judged by whoever reads, who knows the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All rows of one run, and the machine they were taken on."""

    machine: Mapping[str, str]
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {"machine": dict(self.machine), "rows": [asdict(row) for row in self.rows]}


def rows_of(
    area: str,
    unit: str,
    rounds: Sequence[Mapping[str, Sequence[float]]],
    *,
    yardstick: str,
    targets: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return a row for each case of the rounds, each compared with the yardstick in its round.

    A round holds, by case, the samples that it took; `targets` says by case what must hold.
    """
    known = targets or {}
    return [
        replace(_row(area, unit, rounds, case, yardstick), target=known.get(case))
        for case in rounds[0]
    ]


def figure(area: str, case: str, unit: str, samples: Sequence[float], target: str | None) -> Row:
    """Return the row of a case that stands alone, without a yardstick."""
    return Row(
        area=area,
        case=case,
        unit=unit,
        samples=len(samples),
        median=statistics.median(samples),
        p90=percentile(samples, 0.9),
        p99=percentile(samples, 0.99),
        target=target,
    )


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _row(
    area: str,
    unit: str,
    rounds: Sequence[Mapping[str, Sequence[float]]],
    case: str,
    yardstick: str,
) -> Row:
    samples = [sample for one in rounds for sample in one[case]]
    ratios = [statistics.median(one[case]) / statistics.median(one[yardstick]) for one in rounds]
    compared = case != yardstick
    return Row(
        area=area,
        case=case,
        unit=unit,
        samples=len(samples),
        median=statistics.median(samples),
        p90=percentile(samples, 0.9),
        p99=percentile(samples, 0.99),
        ratio=statistics.median(ratios) if compared else None,
        ratio_low=min(ratios) if compared else None,
        ratio_high=max(ratios) if compared else None,
    )
