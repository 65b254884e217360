"""The five named scores of a candidate, and how a profile weighs them (SC-320..SC-323).

Times are hours, money USD, all on doubles in the written order of operations, so
that the same inputs give the same bits everywhere. Anchors come from the request and
from constants of the catalog, never from other candidates (SC-321).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from nodus_api.kernel.candidate import Candidate, Figures
from nodus_api.kernel.money import SCORE_DIGITS, millionths, round_half_up
from nodus_api.kernel.vocabulary import Profile

__all__ = [
    "NAMES",
    "SECONDS",
    "WEIGHTS",
    "Outlook",
    "Scores",
    "Work",
    "decay",
    "exp_rounded",
    "forecaster",
    "growth",
    "millionths",
    "outlook",
    "resumed_hours",
    "rounded",
    "score",
    "scorer",
    "weigh",
    "young_interval",
]

NAMES = ("fit", "timeToResult", "costToComplete", "recoveryValue", "health")

WEIGHTS: dict[Profile, tuple[float, float, float, float, float]] = {
    Profile.BALANCED: (0.10, 0.30, 0.30, 0.15, 0.15),
    Profile.COST: (0.05, 0.10, 0.60, 0.10, 0.15),
    Profile.SPEED: (0.05, 0.60, 0.10, 0.10, 0.15),
}
"""In the order of NAMES; each row sums to 1 (SC-323)."""

SECONDS = 3600.0
"""Seconds in an hour."""

START_ALLOWANCE_SECONDS = 120.0
"""What anchor A grants beside the work: A = W + 120 s (SC-320)."""

_EXPONENT_CAP = 20.0
_SMALL_EXPONENT = 1e-3
_MINIMUM_INTERVAL = 60.0 / SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What there is to do, as the scores see it: hours at speed 1, costs of saving.

    `interval_seconds` is τ, None where it follows Young's rule (SC-144); `cost_seconds`
    is δ; `restore_seconds` is R. `sizes` are (requested, field of Figures) of the
    dimensions asked for; `reference_rate` is the hourly rate that anchors K.
    """

    hours: float
    restartable: bool
    interval_seconds: float | None
    cost_seconds: float
    restore_seconds: float
    resumes: bool
    reference_rate: float
    sizes: tuple[tuple[float, str], ...]
    calibration: float = 1.0
    """The factor on the hours where it runs (SC-352); anchors are without it (SC-321)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a candidate would make of the work; the ground of scores and prediction."""

    work_hours: float
    """W_o: the work at the candidate's speed."""
    interval_hours: float | None
    """τ, None for work that saves nothing."""
    waste: float
    """w: the share of program time that ends as lost or saving time, over the kept."""
    boot_hours: float
    restore_hours: float
    """R if the Attempt resumes, else 0."""
    teardown_hours: float
    time_to_result: float
    cost_to_complete: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Five values in [0, 1], larger is better, in the order of NAMES."""

    fit: float
    time_to_result: float
    cost_to_complete: float
    recovery_value: float
    health: float

    def total(self, profile: Profile) -> int:
        """Return the weighted sum in whole millionths (SC-323)."""
        return weigh(WEIGHTS[profile], *self._values())

    def published(self) -> dict[str, Decimal]:
        """Return the scores by name, to 4 digits half up (SC-320)."""
        values = self._values()
        return {
            name: rounded(value, SCORE_DIGITS) for name, value in zip(NAMES, values, strict=True)
        }

    def _values(self) -> tuple[float, float, float, float, float]:
        return (
            self.fit,
            self.time_to_result,
            self.cost_to_complete,
            self.recovery_value,
            self.health,
        )


def outlook(work: Work, candidate: Candidate) -> Outlook:
    """Return time, cost and waste of the work on a candidate (SC-320)."""
    figures = candidate.figures
    hours, interval, waste, time, cost = forecaster(work)(figures)
    return Outlook(
        work_hours=hours,
        interval_hours=interval,
        waste=waste,
        boot_hours=figures.boot_hours,
        restore_hours=resumed_hours(work),
        teardown_hours=figures.teardown_hours,
        time_to_result=time,
        cost_to_complete=cost,
    )


def score(work: Work, candidate: Candidate, seen: Outlook) -> Scores:
    """Return the five scores of a candidate that can do the work (SC-320)."""
    fit, time, cost, recovery = scorer(work)(
        candidate.figures, seen.waste, seen.time_to_result, seen.cost_to_complete
    )
    return Scores(
        fit=fit,
        time_to_result=time,
        cost_to_complete=cost,
        recovery_value=recovery,
        health=candidate.figures.health,
    )


Forecast = tuple[float, float | None, float, float, float]
"""W_o, τ, w, T and C of SC-320, as the fields of `Outlook` are named.

A tuple: a placement makes hundreds, and only the best five become values with names.
"""


def forecaster(work: Work) -> Callable[[Figures], Forecast]:
    """Return the forecast of this work as a function of a candidate's figures (SC-320)."""
    restore = work.restore_seconds / SECONDS
    resumed = resumed_hours(work)
    saving_hours = work.cost_seconds / SECONDS
    given = None if work.interval_seconds is None else work.interval_seconds / SECONDS
    work_hours = work.hours * work.calibration
    restartable, cost_seconds = work.restartable, work.cost_seconds

    def forecast(figures: Figures) -> Forecast:
        rate, wait, boot, teardown, speed, rate_of_loss, *_ = figures
        hours = work_hours / speed
        interval: float | None = None
        if restartable:
            interval = given
            if interval is None:
                interval = young_interval(cost_seconds, rate_of_loss, hours)
            waste = saving_hours / interval + rate_of_loss * (interval / 2.0 + restore + boot)
        else:
            waste = growth(rate_of_loss * hours) - 1.0
        program = hours * (1.0 + waste)
        time = wait + boot + resumed + program
        return hours, interval, waste, time, rate * (boot + resumed + program + teardown)

    return forecast


def scorer(work: Work) -> Callable[[Figures, float, float, float], tuple[float, ...]]:
    """Return fit, time, cost and recovery as a function of figures, w, T and C (SC-320)."""
    anchor_time = work.hours + START_ALLOWANCE_SECONDS / SECONDS
    anchor_cost = anchor_time * work.reference_rate
    sizes = [(requested, Figures._fields.index(attribute)) for requested, attribute in work.sizes]
    dimensions = len(sizes)

    def scores(
        figures: Figures, waste: float, time: float, cost: float
    ) -> tuple[float, float, float, float]:
        fit = 1.0
        if dimensions:
            total = 0.0
            for requested, place in sizes:  # not sum(): since 3.12 it adds in another way
                total += requested / figures[place]
            fit = total / dimensions
        costs = anchor_cost + cost
        return (
            fit,
            anchor_time / (anchor_time + time),
            anchor_cost / costs if costs > 0.0 else 1.0,
            1.0 / (1.0 + waste),
        )

    return scores


def weigh(
    weights: tuple[float, float, float, float, float],
    fit: float,
    time: float,
    cost: float,
    recovery: float,
    health: float,
) -> int:
    """Return the weighted sum of the five scores in whole millionths (SC-323)."""
    by_fit, by_time, by_cost, by_recovery, by_health = weights
    return millionths(
        by_fit * fit + by_time * time + by_cost * cost + by_recovery * recovery + by_health * health
    )


def resumed_hours(work: Work) -> float:
    """Return R for an Attempt that resumes, else 0."""
    return work.restore_seconds / SECONDS if work.resumes else 0.0


def young_interval(cost_seconds: float, interruptions_per_hour: float, work_hours: float) -> float:
    """Return the checkpoint interval √(2δ/λ) in hours, within [60 s, the work] (SC-144)."""
    longest = max(_MINIMUM_INTERVAL, work_hours)
    if interruptions_per_hour <= 0.0:
        return longest
    best = math.sqrt(2.0 * (cost_seconds / SECONDS) / interruptions_per_hour)
    return min(max(best, _MINIMUM_INTERVAL), longest)


def growth(exponent: float) -> float:
    """Return (e^y - 1)/y, 1 at 0: how much longer unsaved work takes under y losses.

    Constant above y = 20, so that it never falls in λ (SC-322).
    """
    y = min(exponent, _EXPONENT_CAP)
    if y < _SMALL_EXPONENT:
        return 1.0 + y / 2.0 + y * y / 6.0 + y * y * y / 24.0
    return (exp_rounded(y) - 1.0) / y


def decay(exponent: float) -> float:
    """Return (1 - e^-y)/y, 1 at 0: the share of a run that is expected before a loss."""
    if exponent < _SMALL_EXPONENT:
        y = exponent
        return 1.0 - y / 2.0 + y * y / 6.0 - y * y * y / 24.0
    return (1.0 - exp_rounded(-exponent)) / exponent


def exp_rounded(exponent: float) -> float:
    """Return e^x to 12 digits: libraries differ in the last bits only (SC-324)."""
    return float(f"{math.exp(exponent):.11e}")


def rounded(value: float, digits: int) -> Decimal:
    """Return a double with `digits` decimals, half up, from its shortest text (SC-324)."""
    return round_half_up(Decimal(repr(value)), digits)
