"""The five named scores of a candidate, and how a profile weighs them (SC-320..SC-323).

Times are hours, money USD, all on doubles in the written order of operations, so
that the same inputs give the same bits everywhere. Anchors come from the request and
from constants of the catalog, never from other candidates (SC-321).
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from nodus_api.kernel.money import SCORE_DIGITS, round_half_up
from nodus_api.kernel.offering import Candidate
from nodus_api.kernel.vocabulary import Profile

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
    is δ; `restore_seconds` is R. `sizes` are (requested, attribute of the class) of the
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
        fit, time, cost, recovery, health = WEIGHTS[profile]
        return millionths(
            fit * self.fit
            + time * self.time_to_result
            + cost * self.cost_to_complete
            + recovery * self.recovery_value
            + health * self.health
        )

    def published(self) -> dict[str, Decimal]:
        """Return the scores by name, to 4 digits half up (SC-320)."""
        values = (
            self.fit,
            self.time_to_result,
            self.cost_to_complete,
            self.recovery_value,
            self.health,
        )
        return {
            name: rounded(value, SCORE_DIGITS) for name, value in zip(NAMES, values, strict=True)
        }


def outlook(work: Work, candidate: Candidate) -> Outlook:
    """Return time, cost and waste of the work on a candidate (SC-320)."""
    stats = candidate.stats
    rate = float(candidate.rate)
    wait = stats.grant_p50 / SECONDS
    boot = stats.boot_p50 / SECONDS
    teardown = stats.teardown_p50 / SECONDS
    restore = work.restore_seconds / SECONDS
    hours = work.hours / float(candidate.offering.speed)
    rate_of_loss = stats.interruptions_per_hour
    interval: float | None = None
    if work.restartable:
        interval = _interval(work, hours, rate_of_loss)
        saving = work.cost_seconds / SECONDS / interval
        waste = saving + rate_of_loss * (interval / 2.0 + restore + boot)
    else:
        waste = growth(rate_of_loss * hours) - 1.0
    program = hours * (1.0 + waste)
    resumed = restore if work.resumes else 0.0
    return Outlook(
        work_hours=hours,
        interval_hours=interval,
        waste=waste,
        boot_hours=boot,
        restore_hours=resumed,
        teardown_hours=teardown,
        time_to_result=wait + boot + resumed + program,
        cost_to_complete=rate * (boot + resumed + program + teardown),
    )


def score(work: Work, candidate: Candidate, seen: Outlook) -> Scores:
    """Return the five scores of a candidate that can do the work (SC-320)."""
    anchor_time = work.hours + START_ALLOWANCE_SECONDS / SECONDS
    anchor_cost = anchor_time * work.reference_rate
    costs = anchor_cost + seen.cost_to_complete
    return Scores(
        fit=_fit(work, candidate),
        time_to_result=anchor_time / (anchor_time + seen.time_to_result),
        cost_to_complete=anchor_cost / costs if costs > 0.0 else 1.0,
        recovery_value=1.0 / (1.0 + seen.waste),
        health=candidate.stats.health,
    )


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


def millionths(value: float) -> int:
    """Return a value in whole millionths, half up."""
    return math.floor(value * 1e6 + 0.5)


def rounded(value: float, digits: int) -> Decimal:
    """Return a double with `digits` decimals, half up, from its shortest text (SC-324)."""
    return round_half_up(Decimal(repr(value)), digits)


def _interval(work: Work, hours: float, rate_of_loss: float) -> float:
    if work.interval_seconds is not None:
        return work.interval_seconds / SECONDS
    return young_interval(work.cost_seconds, rate_of_loss, hours)


def _fit(work: Work, candidate: Candidate) -> float:
    if not work.sizes:
        return 1.0
    total = 0.0
    for requested, attribute in work.sizes:  # not sum(): since 3.12 it adds in another way
        total += requested / float(getattr(candidate.offering, attribute))
    return total / len(work.sizes)
