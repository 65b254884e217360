"""Why a candidate is ruled out: the filters of placement, in their order (SC-310).

`sift` puts a bucket of the catalog through them, all its candidates at once. Filters are
permanent for a spec, or transient; two of the transient ones are soft, which a second
pass forgives (SC-311).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from nodus_api.kernel.bucket import UNHEALTHY_BELOW, Bucket
from nodus_api.kernel.offering import Candidate, CandidateKey, CatalogSnapshot
from nodus_api.kernel.prediction import dearer_than
from nodus_api.kernel.scores import Work
from nodus_api.kernel.spec import InterruptiblePolicy, PlacementPolicy, Resources
from nodus_api.kernel.vocabulary import Market

RECENTLY = timedelta(minutes=15)
"""How long a slot avoids the candidate that it lost (SC-310)."""

__all__ = [
    "RECENTLY",
    "UNHEALTHY_BELOW",
    "Demand",
    "FailedAcquisition",
    "LostCandidate",
    "RejectionCode",
    "Sifted",
    "over_project_quota",
    "sift",
]


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
    calibrations: Mapping[str | None, float]
    """Factors on the work's hours by accelerator (SC-352)."""
    snapshot: CatalogSnapshot
    now: datetime

    def work_on(self, accelerator: str | None) -> Work:
        """Return the work as it is known to go on an accelerator."""
        factor = self.calibrations.get(accelerator, 1.0)
        return self.work if factor == 1.0 else replace(self.work, calibration=factor)

    @property
    def machines(self) -> int:
        """How many machines one placement takes: the gang's size, else 1."""
        return max(1, self.gang_size)


@dataclass(frozen=True, slots=True)
class Sifted:
    """What the filters leave of a bucket, and whom each rules out: bitmaps over its members.

    Every member is in one of them. `ruled_out` has no empty ones.
    """

    bucket: Bucket
    feasible: int
    ruled_out: Mapping[RejectionCode, int]

    def code_of(self, candidate: Candidate) -> RejectionCode | None:
        """Return the first filter that a member fails, or None."""
        here = self.bucket.keys([candidate.key])
        return next((code for code, failing in self.ruled_out.items() if failing & here), None)

    def failing(self, code: RejectionCode) -> Iterator[Candidate]:
        """Yield those that a filter rules out, cheapest first."""
        return self.bucket.of(self.ruled_out.get(code, 0))


def sift(demand: Demand, bucket: Bucket, *, forgiving: bool = False) -> Sifted:
    """Put the candidates of a bucket through the filters; the first that fails is the reason.

    `forgiving` is the second pass: soft reasons are skipped (SC-311). A candidate that did not
    deliver in this Attempt keeps that reason, whatever the snapshot says of its capacity (SC-332).
    """
    left = bucket.everything
    ruled_out: dict[RejectionCode, int] = {}
    for code, fails in _PERMANENT:
        if failing := left and fails(demand, bucket, left) & left:
            ruled_out[code] = failing
            left ^= failing
    for failed in demand.failed.values():
        if failing := bucket.keys([(failed.offering, failed.market)]) & left:
            ruled_out[failed.code] = ruled_out.get(failed.code, 0) | failing
            left ^= failing
    for code, fails in _UNFORGIVEN if forgiving else _TRANSIENT:
        if failing := left and fails(demand, bucket, left) & left:
            ruled_out[code] = ruled_out.get(code, 0) | failing
            left ^= failing
    return Sifted(bucket, left, ruled_out)


def over_project_quota(demand: Demand, candidate: Candidate) -> bool:
    """Whether the project may not take so many more accelerators of this name."""
    return _over_quota(demand, candidate.offering.accelerator, candidate.offering.count)


def _over_quota(demand: Demand, accelerator: str | None, count: int) -> bool:
    left = demand.quota_left.get(accelerator or "")
    return left is not None and count * demand.machines > left


def _other_accelerator(demand: Demand, bucket: Bucket, _left: int) -> int:
    accelerator, _ = bucket.family
    if not demand.resources.accelerators:
        return 0 if accelerator is None else bucket.everything  # SC-209
    return 0 if accelerator in demand.resources.accelerators else bucket.everything


def _other_count(demand: Demand, bucket: Bucket, _left: int) -> int:
    _, count = bucket.family
    return 0 if count == demand.resources.count else bucket.everything


def _accelerator_memory(demand: Demand, bucket: Bucket, _left: int) -> int:
    asked = demand.resources.accelerator_memory_gib
    return 0 if asked is None else bucket.accelerator_memory.below(asked)


def _architecture(demand: Demand, bucket: Bucket, _left: int) -> int:
    asked = demand.resources.arch
    return 0 if asked is None else ~bucket.arches.among([asked])


def _vcpus(demand: Demand, bucket: Bucket, _left: int) -> int:
    asked = demand.resources.vcpus
    return 0 if asked is None else bucket.vcpus.below(asked)


def _memory(demand: Demand, bucket: Bucket, _left: int) -> int:
    asked = demand.resources.memory_gib
    return 0 if asked is None else bucket.memory.below(asked)


def _disk(demand: Demand, bucket: Bucket, _left: int) -> int:
    asked = demand.resources.disk_gib
    return 0 if asked is None else bucket.disk.below(asked)


def _no_gang(demand: Demand, bucket: Bucket, _left: int) -> int:
    return ~bucket.gang_capable if demand.gang_size > 1 else 0


def _region(demand: Demand, bucket: Bucket, _left: int) -> int:
    allowed = demand.policy.regions
    return ~bucket.regions.among(allowed) if allowed else 0


def _closed(demand: Demand, bucket: Bucket, _left: int) -> int:
    return bucket.names.among(demand.closed_offerings) if demand.closed_offerings else 0


def _spot(demand: Demand, bucket: Bucket, _left: int) -> int:
    return bucket.spot if demand.policy.interruptible is InterruptiblePolicy.NEVER else 0


def _on_demand(demand: Demand, bucket: Bucket, _left: int) -> int:
    return ~bucket.spot if demand.policy.interruptible is InterruptiblePolicy.REQUIRE else 0


def _not_listed(demand: Demand, bucket: Bucket, _left: int) -> int:
    listed = demand.policy.offerings
    return ~bucket.names.among(listed) if listed else 0


def _rate(demand: Demand, bucket: Bucket, _left: int) -> int:
    limit = demand.max_rate_usd_per_hour
    return 0 if limit is None else bucket.rates.above(limit)


def _cost(demand: Demand, bucket: Bucket, left: int) -> int:
    """Compare the whole gang's predicted cost: its members share the budget."""
    limit = demand.remaining_cost_usd
    if limit is None:
        return 0
    accelerator, _ = bucket.family
    dearer = dearer_than(limit, demand.work_on(accelerator), demand.machines)
    return bucket.keys(one.key for one in bucket.of(left) if dearer(one))


def _disabled(_demand: Demand, bucket: Bucket, _left: int) -> int:
    return bucket.disabled


def _quota(demand: Demand, bucket: Bucket, _left: int) -> int:
    return bucket.everything if _over_quota(demand, *bucket.family) else bucket.out_of_quota


def _recently_lost(demand: Demand, bucket: Bucket, _left: int) -> int:
    """A slot that made no progress on spot avoids all of it: the guard of SC-122."""
    lost = bucket.keys(demand.lost)
    return lost | bucket.spot if demand.on_demand_only else lost


def _backing_off(demand: Demand, bucket: Bucket, _left: int) -> int:
    return bucket.resting(demand.now)


def _unhealthy(_demand: Demand, bucket: Bucket, _left: int) -> int:
    return bucket.unhealthy


def _gang_too_large(demand: Demand, bucket: Bucket, left: int) -> int:
    """A gang needs room within one supplier offer (SC-131); no room at all is row 21."""
    if demand.gang_size <= 1:
        return 0
    return _roomless(demand, bucket, left, demand.gang_size) & ~_roomless(demand, bucket, left, 1)


def _no_capacity(demand: Demand, bucket: Bucket, left: int) -> int:
    if demand.gang_size > 1:
        return _roomless(demand, bucket, left, 1)
    return demand.snapshot.full(bucket)


def _roomless(demand: Demand, bucket: Bucket, left: int, machines: int) -> int:
    """Return those of which no supplier offer has room for so many machines, as far as known."""
    found = bucket.largest.below(machines) & bucket.largest.above(-1)
    if demand.snapshot.taken:
        for one in bucket.of(bucket.names.among(demand.snapshot.taken) & left & ~found):
            room = demand.snapshot.largest_available(one)
            if room is not None and room < machines:
                found |= bucket.keys([one.key])
    return found


Filter = Callable[[Demand, Bucket, int], int]
"""Answers with the members of a bucket that fail, at least all of those that are `left`."""

_FILTERS: tuple[tuple[RejectionCode, Filter], ...] = (
    (RejectionCode.ACCELERATOR_MISMATCH, _other_accelerator),
    (RejectionCode.ACCELERATOR_COUNT_MISMATCH, _other_count),
    (RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL, _accelerator_memory),
    (RejectionCode.ARCHITECTURE_MISMATCH, _architecture),
    (RejectionCode.CPU_TOO_SMALL, _vcpus),
    (RejectionCode.MEMORY_TOO_SMALL, _memory),
    (RejectionCode.DISK_TOO_SMALL, _disk),
    (RejectionCode.GANG_UNSUPPORTED, _no_gang),
    (RejectionCode.REGION_NOT_ALLOWED, _region),
    (RejectionCode.NOT_ENTITLED, _closed),
    (RejectionCode.INTERRUPTIBLE_NOT_ALLOWED, _spot),
    (RejectionCode.INTERRUPTIBLE_REQUIRED, _on_demand),
    (RejectionCode.NOT_IN_ALLOW_LIST, _not_listed),
    (RejectionCode.RATE_ABOVE_LIMIT, _rate),
    (RejectionCode.COST_ABOVE_LIMIT, _cost),
    (RejectionCode.DISABLED, _disabled),
    (RejectionCode.QUOTA_EXCEEDED, _quota),
    (RejectionCode.RECENTLY_LOST, _recently_lost),
    (RejectionCode.BACKING_OFF, _backing_off),
    (RejectionCode.UNHEALTHY, _unhealthy),
    (RejectionCode.GANG_TOO_LARGE, _gang_too_large),
    (RejectionCode.INSUFFICIENT_CAPACITY, _no_capacity),
)
"""In the order of SC-310."""

_PERMANENT = tuple(row for row in _FILTERS if row[0].permanent)
_TRANSIENT = tuple(row for row in _FILTERS if not row[0].permanent)
_UNFORGIVEN = tuple(row for row in _TRANSIENT if not row[0].soft)
