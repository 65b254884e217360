"""Why a candidate is ruled out: the filters of placement, in their order (SC-310).

`sieve` gives a function that answers with the first filter that a candidate fails. Filters are
permanent for a spec, or transient; two of the transient ones are soft, which a second
pass forgives (SC-311).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from nodus_api.kernel.offering import Candidate, CandidateKey, CatalogSnapshot
from nodus_api.kernel.prediction import predict
from nodus_api.kernel.scores import Work, outlook
from nodus_api.kernel.spec import InterruptiblePolicy, PlacementPolicy, Resources
from nodus_api.kernel.vocabulary import Market

RECENTLY = timedelta(minutes=15)
"""How long a slot avoids the candidate that it lost (SC-310)."""

UNHEALTHY_BELOW = 0.55
"""The health below which a candidate is avoided (SC-310)."""


class RejectionCode(StrEnum):
    """The registered codes, in the order of evaluation (SC-310)."""

    ACCELERATOR_MISMATCH = "AcceleratorMismatch"
    ACCELERATOR_COUNT_MISMATCH = "AcceleratorCountMismatch"
    ACCELERATOR_MEMORY_TOO_SMALL = "AcceleratorMemoryTooSmall"
    ARCHITECTURE_MISMATCH = "ArchitectureMismatch"
    CPU_TOO_SMALL = "CPUTooSmall"
    MEMORY_TOO_SMALL = "MemoryTooSmall"
    DISK_TOO_SMALL = "DiskTooSmall"
    GANG_UNSUPPORTED = "GangUnsupported"
    REGION_NOT_ALLOWED = "RegionNotAllowed"
    NOT_ENTITLED = "NotEntitled"
    INTERRUPTIBLE_NOT_ALLOWED = "InterruptibleNotAllowed"
    INTERRUPTIBLE_REQUIRED = "InterruptibleRequired"
    NOT_IN_ALLOW_LIST = "NotInAllowList"
    RATE_ABOVE_LIMIT = "RateAboveLimit"
    COST_ABOVE_LIMIT = "CostAboveLimit"
    DISABLED = "Disabled"
    QUOTA_EXCEEDED = "QuotaExceeded"
    RECENTLY_LOST = "RecentlyLost"
    BACKING_OFF = "BackingOff"
    UNHEALTHY = "Unhealthy"
    GANG_TOO_LARGE = "GangTooLarge"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"

    @property
    def number(self) -> int:
        """The code's place in the order: the higher, the nearer it was."""
        return _NUMBERS[self]

    @property
    def permanent(self) -> bool:
        """Whether no later moment can change it for this spec."""
        return self.number < _NUMBERS[RejectionCode.DISABLED]

    @property
    def soft(self) -> bool:
        """Whether the second pass forgives it (SC-311)."""
        return self in (RejectionCode.RECENTLY_LOST, RejectionCode.UNHEALTHY)


_NUMBERS = {code: number for number, code in enumerate(RejectionCode)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCandidate:
    """A candidate on which the slot lost an Attempt, and when (SC-310, row 17)."""

    offering: str
    market: Market
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAcquisition:
    """A candidate that did not deliver in this Attempt, until its backoff ends (SC-332).

    `code` is InsufficientCapacity or QuotaExceeded.
    """

    offering: str
    market: Market
    until: datetime
    code: RejectionCode = RejectionCode.INSUFFICIENT_CAPACITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the filters compare a candidate with, at one moment."""

    resources: Resources
    policy: PlacementPolicy
    gang_size: int
    max_rate_usd_per_hour: Decimal | None
    remaining_cost_usd: Decimal | None
    closed_offerings: frozenset[str]
    quota_left: Mapping[str, int]
    """Accelerators that the project may still take, by name; without an entry, any number."""
    lost: frozenset[CandidateKey]
    """Lost within the last 15 minutes."""
    failed: Mapping[CandidateKey, FailedAcquisition]
    """Failed in this Attempt, still backing off."""
    on_demand_only: bool
    """The progress guard of SC-122; the second pass forgives it."""
    work: Work
    snapshot: CatalogSnapshot
    now: datetime

    @property
    def machines(self) -> int:
        """How many machines one placement takes: the gang's size, else 1."""
        return max(1, self.gang_size)


Sieve = Callable[[Candidate], RejectionCode | None]


def sieve(demand: Demand, *, forgiving: bool) -> Sieve:
    """Return the filters of a demand as one function of a candidate.

    It answers with the first filter that the candidate fails, or None. `forgiving` is the
    second pass: soft reasons are skipped (SC-311). A candidate that did not deliver in this
    Attempt keeps that reason, whatever the snapshot says of its capacity (SC-332). Filters
    that the demand cannot fail are left out, for a placement looks at hundreds of candidates.
    """
    rows = [row for row in _FILTERS if row.applies is None or row.applies(demand)]
    permanent = [(row.code, row.fails) for row in rows if row.code.permanent]
    transient = [
        (row.code, row.fails)
        for row in rows
        if not row.code.permanent and not (forgiving and row.code.soft)
    ]

    def first_failure(candidate: Candidate) -> RejectionCode | None:
        for code, fails in permanent:
            if fails(demand, candidate):
                return code
        if demand.failed and candidate.key in demand.failed:
            return demand.failed[candidate.key].code
        for code, fails in transient:
            if fails(demand, candidate):
                return code
        return None

    return first_failure


def over_project_quota(demand: Demand, candidate: Candidate) -> bool:
    """Whether the project may not take so many more accelerators of this name."""
    name, count = candidate.offering.quota_unit
    left = demand.quota_left.get(name)
    return left is not None and count * demand.machines > left


def _other_accelerator(demand: Demand, candidate: Candidate) -> bool:
    accelerator = candidate.offering.accelerator
    if not demand.resources.accelerators:
        return accelerator is not None  # SC-209
    return accelerator not in demand.resources.accelerators


def _other_count(demand: Demand, candidate: Candidate) -> bool:
    return candidate.offering.count != demand.resources.count


def _accelerator_memory(demand: Demand, candidate: Candidate) -> bool:
    return _below(
        candidate.offering.accelerator_memory_gib, demand.resources.accelerator_memory_gib
    )


def _architecture(demand: Demand, candidate: Candidate) -> bool:
    return candidate.offering.arch != demand.resources.arch


def _vcpus(demand: Demand, candidate: Candidate) -> bool:
    return _below(candidate.offering.vcpus, demand.resources.vcpus)


def _memory(demand: Demand, candidate: Candidate) -> bool:
    return _below(candidate.offering.memory_gib, demand.resources.memory_gib)


def _disk(demand: Demand, candidate: Candidate) -> bool:
    return _below(candidate.offering.disk_gib, demand.resources.disk_gib)


def _below(offered: Decimal | None, asked: Decimal | None) -> bool:
    return asked is not None and (offered is None or offered < asked)


def _no_gang(_demand: Demand, candidate: Candidate) -> bool:
    return not candidate.offering.gang_capable


def _region(demand: Demand, candidate: Candidate) -> bool:
    return candidate.offering.region_class not in demand.policy.regions


def _closed(demand: Demand, candidate: Candidate) -> bool:
    return candidate.offering.name in demand.closed_offerings


def _spot(_demand: Demand, candidate: Candidate) -> bool:
    return candidate.market is Market.SPOT


def _on_demand(_demand: Demand, candidate: Candidate) -> bool:
    return candidate.market is Market.ON_DEMAND


def _not_listed(demand: Demand, candidate: Candidate) -> bool:
    return candidate.offering.name not in demand.policy.offerings


def _rate(demand: Demand, candidate: Candidate) -> bool:
    limit = demand.max_rate_usd_per_hour
    return limit is not None and candidate.rate > limit


def _cost(demand: Demand, candidate: Candidate) -> bool:
    """Compare the whole gang's predicted cost: its members share the budget."""
    limit = demand.remaining_cost_usd
    prediction = predict(demand.work, candidate, outlook(demand.work, candidate))
    return limit is not None and prediction.cost_usd * demand.machines > limit


def _disabled(_demand: Demand, candidate: Candidate) -> bool:
    return candidate.stats.credentials_refused or not candidate.offering.enabled


def _quota(demand: Demand, candidate: Candidate) -> bool:
    return candidate.stats.supplier_quota_used_up or over_project_quota(demand, candidate)


def _recently_lost(demand: Demand, candidate: Candidate) -> bool:
    """A slot that made no progress on spot avoids all of it: the guard of SC-122."""
    if demand.on_demand_only and candidate.market is Market.SPOT:
        return True
    return candidate.key in demand.lost


def _backing_off(demand: Demand, candidate: Candidate) -> bool:
    until = candidate.stats.backoff_until
    return until is not None and until > demand.now


def _unhealthy(_demand: Demand, candidate: Candidate) -> bool:
    return candidate.stats.health < UNHEALTHY_BELOW


def _gang_too_large(demand: Demand, candidate: Candidate) -> bool:
    """A gang needs room within one supplier offer (SC-131); no room at all is row 21."""
    room = demand.snapshot.largest_available(candidate)
    return room is not None and 0 < room < demand.gang_size


def _no_capacity(demand: Demand, candidate: Candidate) -> bool:
    if demand.gang_size > 1:
        return demand.snapshot.largest_available(candidate) == 0
    return demand.snapshot.available(candidate) == 0


@dataclass(frozen=True, slots=True)
class _Filter:
    """One row of SC-310; `applies` tells whether a demand can fail it at all."""

    code: RejectionCode
    fails: Callable[[Demand, Candidate], bool]
    applies: Callable[[Demand], bool] | None = None


_FILTERS = (
    _Filter(RejectionCode.ACCELERATOR_MISMATCH, _other_accelerator),
    _Filter(RejectionCode.ACCELERATOR_COUNT_MISMATCH, _other_count),
    _Filter(
        RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL,
        _accelerator_memory,
        lambda demand: demand.resources.accelerator_memory_gib is not None,
    ),
    _Filter(
        RejectionCode.ARCHITECTURE_MISMATCH,
        _architecture,
        lambda demand: demand.resources.arch is not None,
    ),
    _Filter(RejectionCode.CPU_TOO_SMALL, _vcpus, lambda demand: demand.resources.vcpus is not None),
    _Filter(
        RejectionCode.MEMORY_TOO_SMALL,
        _memory,
        lambda demand: demand.resources.memory_gib is not None,
    ),
    _Filter(
        RejectionCode.DISK_TOO_SMALL, _disk, lambda demand: demand.resources.disk_gib is not None
    ),
    _Filter(RejectionCode.GANG_UNSUPPORTED, _no_gang, lambda demand: demand.gang_size > 1),
    _Filter(RejectionCode.REGION_NOT_ALLOWED, _region, lambda demand: bool(demand.policy.regions)),
    _Filter(RejectionCode.NOT_ENTITLED, _closed, lambda demand: bool(demand.closed_offerings)),
    _Filter(
        RejectionCode.INTERRUPTIBLE_NOT_ALLOWED,
        _spot,
        lambda demand: demand.policy.interruptible is InterruptiblePolicy.NEVER,
    ),
    _Filter(
        RejectionCode.INTERRUPTIBLE_REQUIRED,
        _on_demand,
        lambda demand: demand.policy.interruptible is InterruptiblePolicy.REQUIRE,
    ),
    _Filter(
        RejectionCode.NOT_IN_ALLOW_LIST, _not_listed, lambda demand: bool(demand.policy.offerings)
    ),
    _Filter(
        RejectionCode.RATE_ABOVE_LIMIT,
        _rate,
        lambda demand: demand.max_rate_usd_per_hour is not None,
    ),
    _Filter(
        RejectionCode.COST_ABOVE_LIMIT, _cost, lambda demand: demand.remaining_cost_usd is not None
    ),
    _Filter(RejectionCode.DISABLED, _disabled),
    _Filter(RejectionCode.QUOTA_EXCEEDED, _quota),
    _Filter(
        RejectionCode.RECENTLY_LOST,
        _recently_lost,
        lambda demand: demand.on_demand_only or bool(demand.lost),
    ),
    _Filter(RejectionCode.BACKING_OFF, _backing_off),
    _Filter(RejectionCode.UNHEALTHY, _unhealthy),
    _Filter(RejectionCode.GANG_TOO_LARGE, _gang_too_large, lambda demand: demand.gang_size > 1),
    _Filter(RejectionCode.INSUFFICIENT_CAPACITY, _no_capacity),
)
"""In the order of SC-310."""
