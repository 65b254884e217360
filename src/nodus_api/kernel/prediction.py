"""What an Attempt is expected to take and cost on a candidate (SC-350).

The basis is that of `status.actual`: this Attempt alone, which may end by
interruption. Hours and USD have 6 decimals, half up.
"""

from nodus_api.kernel.attempt import Prediction
from nodus_api.kernel.money import USD_DIGITS, round_half_up
from nodus_api.kernel.offering import Candidate
from nodus_api.kernel.scores import SECONDS, Outlook, Work, decay, rounded
from nodus_api.kernel.vocabulary import Market

_PRIOR_HOURS = 20.0
_PRIOR_INTERRUPTIONS = {Market.SPOT: 1.0, Market.ON_DEMAND: 0.02}


def predict(work: Work, candidate: Candidate, seen: Outlook) -> Prediction:
    """Return the prediction published with a placement (SC-350, P-29).

    The cost is the published hours times the rate, so that a reader can recompute it.
    """
    rate_of_loss = candidate.stats.interruptions_per_hour
    saving = 0.0
    if seen.interval_hours is not None:
        saving = work.cost_seconds / SECONDS / seen.interval_hours
    program = seen.work_hours * (1.0 + saving)
    expected = program * decay(rate_of_loss * program)
    hours = rounded(
        seen.boot_hours + seen.restore_hours + expected + seen.teardown_hours,
        USD_DIGITS,
    )
    return Prediction(
        hours=hours,
        cost_usd=round_half_up(candidate.rate * hours),
        interruption_rate=rounded(rate_of_loss, USD_DIGITS),
    )


def interruption_rate(market: Market, *, interruptions: float, exposure_hours: float) -> float:
    """Return λ per hour from decayed counts, drawn towards a prior (SC-352).

    Without history it is 0.05 on spot and 0.001 on demand.
    """
    return (_PRIOR_INTERRUPTIONS[market] + interruptions) / (_PRIOR_HOURS + exposure_hours)
