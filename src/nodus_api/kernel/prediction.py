"""What an Attempt is expected to take and cost on a candidate (SC-350).

The basis is that of `status.actual`: this Attempt alone, which may end by
interruption. Hours and USD have 6 decimals, half up.
"""

from collections.abc import Callable
from decimal import Decimal

from nodus_api.kernel.attempt import Prediction
from nodus_api.kernel.candidate import Candidate, Figures
from nodus_api.kernel.money import USD_DIGITS, round_half_up
from nodus_api.kernel.scores import (
    SECONDS,
    Outlook,
    Work,
    decay,
    forecaster,
    outlook,
    resumed_hours,
    rounded,
)
from nodus_api.kernel.vocabulary import Market

_MICRO = 1e-6
_PRIOR_HOURS = 20.0
_PRIOR_INTERRUPTIONS = {Market.SPOT: 1.0, Market.ON_DEMAND: 0.02}


def predict(work: Work, candidate: Candidate, seen: Outlook) -> Prediction:
    """Return the prediction published with a placement (SC-350, P-29).

    The cost is the published hours times the rate, so that a reader can recompute it.
    """
    hours = rounded(
        _hours(work, candidate.figures, seen.work_hours, seen.interval_hours), USD_DIGITS
    )
    return Prediction(
        hours=hours,
        cost_usd=round_half_up(candidate.rate * hours),
        interruption_rate=rounded(candidate.stats.interruptions_per_hour, USD_DIGITS),
    )


def dearer_than(limit_usd: Decimal, work: Work, machines: int) -> Callable[[Candidate], bool]:
    """Return whether the predicted cost of so many machines of a candidate is above a limit.

    Doubles decide where the limit is further away than all rounding can reach, which is nearly
    always so: the decimals of `predict` take longer than all else that is done to a candidate.
    """
    forecast, limit = forecaster(work), float(limit_usd)

    def dearer(candidate: Candidate) -> bool:
        figures = candidate.figures
        hours, interval, *_ = forecast(figures)
        about = figures.rate * _hours(work, figures, hours, interval) * machines
        unsure = (machines * (figures.rate + 1.0) + about) * _MICRO
        if abs(about - limit) > unsure:
            return about > limit
        exact = predict(work, candidate, outlook(work, candidate))
        return exact.cost_usd * machines > limit_usd

    return dearer


def _hours(work: Work, figures: Figures, work_hours: float, interval: float | None) -> float:
    saving = 0.0 if interval is None else work.cost_seconds / SECONDS / interval
    program = work_hours * (1.0 + saving)
    expected = program * decay(figures.interruptions_per_hour * program)
    return figures.boot_hours + resumed_hours(work) + expected + figures.teardown_hours


def interruption_rate(market: Market, *, interruptions: float, exposure_hours: float) -> float:
    """Return λ per hour from decayed counts, drawn towards a prior (SC-352).

    Without history it is 0.05 on spot and 0.001 on demand.
    """
    return (_PRIOR_INTERRUPTIONS[market] + interruptions) / (_PRIOR_HOURS + exposure_hours)
