"""When a second machine may race a slow first one, and how many may at once (SC-340).

Asking again only after the 95th percentile bounds the extra machines near one in twenty (Dean and
Barroso, "The Tail at Scale"); the share in flight bounds them where a whole class is slow.
"""

from datetime import datetime, timedelta

from nodus_api.kernel.offering import CandidateStats
from nodus_api.kernel.spec import HedgePolicy, PlacementPolicy
from nodus_api.kernel.vocabulary import Profile

IN_FLIGHT_PERCENT = 5
"""Of the live Attempts, so many may be hedged at once; one always may."""

LOOK_AGAIN = timedelta(seconds=10)
"""After a hedge that was due and not possible: no fallback was feasible, or too many race."""


def may_hedge(policy: PlacementPolicy) -> bool:
    """Whether the policy lets a second machine be asked for, once the first is late."""
    auto = policy.hedge is HedgePolicy.AUTO and policy.profile is Profile.SPEED
    return auto or policy.hedge is HedgePolicy.ALWAYS


def late_at(acquired: datetime, stats: CandidateStats) -> datetime:
    """Return when an Attempt that is not Running is late: after the p95 of grant and boot."""
    return acquired + timedelta(seconds=stats.grant_p95 + stats.boot_p95)


def room_for_hedges(*, live: int, in_flight: int) -> int:
    """Return how many more hedges may begin beside those in flight."""
    return max(0, max(1, live * IN_FLIGHT_PERCENT // 100) - in_flight)
