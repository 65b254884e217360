"""How long a workload's programs take, learnt from those that succeeded (SC-352, SC-301).

For each workload name and family of classes a factor on W: the moving average of actual over
predicted program time. It begins at 1, what is in force without it, so that one run does not
decide alone. Beside it the last hours at speed 1, for manifests that estimate nothing: their
median is then W, and needs no factor.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from nodus_api.kernel.offering import Family
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.scores import SECONDS, young_interval
from nodus_api.kernel.spec import WorkloadSpec

ALPHA = 0.2
"""The weight of the latest run (SC-352)."""

LEAST, MOST = 0.5, 2.0
"""The bounds of the factor (SC-352)."""

HOURS_KEPT = 15
"""Of how many runs the usual time is the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one workload name's runs in one family have taught.

    `ratio` is the factor on W, None before a run that had an estimate; `hours` are program hours
    at speed 1 of the last whole runs, the latest last.
    """

    ratio: float | None = None
    hours: tuple[float, ...] = ()

    def after_estimated(self, actual_hours: float, predicted_hours: float) -> "Calibration":
        """Return it after a run that took so many program hours instead of what was predicted."""
        if predicted_hours <= 0.0:
            return self
        before = 1.0 if self.ratio is None else self.ratio
        average = before + ALPHA * (actual_hours / predicted_hours - before)
        return replace(self, ratio=min(max(average, LEAST), MOST))

    def after_whole(self, hours_at_speed_one: float) -> "Calibration":
        """Return it after a run that did all of the work."""
        return replace(self, hours=(*self.hours, hours_at_speed_one)[-HOURS_KEPT:])


def usual_hours(known: Iterable[Calibration]) -> float:
    """Return W for a workload that estimates nothing: the median of its runs, else 1 (SC-301)."""
    hours = [one for calibration in known for one in calibration.hours]
    return median(hours) if hours else 1.0


def factors(known: Mapping[Family, Calibration], spec: WorkloadSpec) -> dict[str | None, float]:
    """Return the factors on the estimate of a spec by accelerator (SC-352); none without one."""
    if spec.estimate_hours is None:
        return {}  # the usual hours need none
    return {
        accelerator: calibration.ratio
        for (accelerator, count), calibration in known.items()
        if count == spec.resources.count and calibration.ratio is not None
    }


def program_hours(
    request: PlacementRequest, *, speed: float, interruptions_per_hour: float
) -> float:
    """Return the program time that a request expects without a factor: W_o·(1 + δ/τ) (SC-350)."""
    hours = request.work_hours / speed
    checkpoint = request.checkpoint
    if not checkpoint.restartable:
        return hours
    given = checkpoint.interval_seconds
    interval = (
        given / SECONDS
        if given is not None
        else young_interval(checkpoint.cost_seconds, interruptions_per_hour, hours)
    )
    return hours * (1.0 + checkpoint.cost_seconds / SECONDS / interval)
