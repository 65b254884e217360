"""A placement without any index: the yardstick of the area `placement`, and the tests' oracle.

It asks every candidate of the catalog every question of SC-310 in their order, scores all that
pass, sorts them, and sorts all that do not. The rules are written out again here, one sentence a
row, so that the bitmaps of `kernel.rejection` have something to be compared with.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from nodus_api.kernel.attempt import Placement, Rejection
from nodus_api.kernel.offering import Candidate, CatalogSnapshot
from nodus_api.kernel.placement import demand_of, rank
from nodus_api.kernel.prediction import predict
from nodus_api.kernel.rejection import Demand, RejectionCode
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.scores import millionths, outlook
from nodus_api.kernel.spec import InterruptiblePolicy
from nodus_api.kernel.vocabulary import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainDecision:
    """What a decision says, as far as the index could get it wrong."""

    order: tuple[tuple[str, Market, int], ...]
    """The best five: name, market, total in millionths (SC-324, SC-334)."""
    fallbacks: tuple[str, ...]
    rejected: tuple[Rejection, ...]
    counters: dict[str, int]
    candidates: int
    relaxed: bool


def place_plainly(
    request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime
) -> PlainDecision:
    """Decide by looking at every candidate."""
    demand = demand_of(request, snapshot, now)
    reasons = [(one, first_failure(demand, one, forgiving=False)) for one in snapshot]
    relaxed = all(code is not None for _, code in reasons)
    if relaxed:
        reasons = [(one, first_failure(demand, one, forgiving=True)) for one in snapshot]
    ranked = sorted(
        (rank(demand, one) for one, code in reasons if code is None),
        key=lambda one: (
            -one.total,
            one.cost_micro_usd,
            -millionths(one.scores.health),
            one.candidate.offering.name,
            one.candidate.market is Market.SPOT,
        ),
    )
    names = list(dict.fromkeys(one.candidate.offering.name for one in ranked))
    counts = Counter(code.value for _, code in reasons if code is not None)
    return PlainDecision(
        order=tuple((*one.candidate.key, one.total) for one in ranked[:5]),
        fallbacks=tuple(names[1:6]),
        rejected=_rejected(demand, reasons),
        counters=dict(sorted(counts.items())),
        candidates=len(reasons),
        relaxed=relaxed and bool(ranked),
    )


def plain(
    placement: Placement,
    order: tuple[tuple[str, Market, int], ...],
    counters: dict[str, int],
    *,
    relaxed: bool,
) -> PlainDecision:
    """Return the same parts of a decision of `place`, to compare with."""
    return PlainDecision(
        order=order,
        fallbacks=() if placement.choice is None else placement.choice.fallbacks,
        rejected=placement.rejected,
        counters=counters,
        candidates=placement.candidates,
        relaxed=relaxed,
    )


def first_failure(demand: Demand, candidate: Candidate, *, forgiving: bool) -> RejectionCode | None:
    """Return the first filter that a candidate fails (SC-310, SC-311, SC-332)."""
    for code, fails in _QUESTIONS.items():
        if code is RejectionCode.DISABLED and candidate.key in demand.failed:
            return demand.failed[candidate.key].code
        if not (forgiving and code.soft) and fails(demand, candidate):
            return code
    return None


def _rejected(
    demand: Demand, reasons: list[tuple[Candidate, RejectionCode | None]]
) -> tuple[Rejection, ...]:
    """Return the first 20 classes of which no market passed (SC-332)."""
    passed = {one.offering.name for one, code in reasons if code is None}
    failed_here = {name for name, _ in demand.failed}
    nearest: dict[str, tuple[Candidate, RejectionCode]] = {}
    for one, code in reasons:
        name = one.offering.name
        if code is None or name in passed:
            continue
        if name not in nearest or nearest[name][1].number < code.number:
            nearest[name] = (one, code)
    listed = sorted(
        nearest.values(),
        key=lambda miss: (
            miss[0].offering.name not in failed_here or miss[1] in _OTHER_FAMILY,
            -miss[1].number,
            miss[0].offering.rate_on_demand,
            miss[0].offering.name,
        ),
    )
    return tuple(Rejection(offering=one.offering.name, reason=c.value) for one, c in listed[:20])


_OTHER_FAMILY = (RejectionCode.ACCELERATOR_MISMATCH, RejectionCode.ACCELERATOR_COUNT_MISMATCH)


def _below(offered: Decimal | None, asked: Decimal | None) -> bool:
    return asked is not None and (offered is None or offered < asked)


def _over_budget(demand: Demand, one: Candidate) -> bool:
    limit = demand.remaining_cost_usd
    if limit is None:
        return False
    work = demand.work_on(one.offering.accelerator)
    cost = predict(work, one, outlook(work, one)).cost_usd
    return cost * demand.machines > limit


def _over_quota(demand: Demand, one: Candidate) -> bool:
    left = demand.quota_left.get(one.offering.accelerator or "")
    project = left is not None and one.offering.count * demand.machines > left
    return project or one.stats.supplier_quota_used_up


def _lost(demand: Demand, one: Candidate) -> bool:
    return one.key in demand.lost or (demand.on_demand_only and one.market is Market.SPOT)


def _rests(demand: Demand, one: Candidate) -> bool:
    until = one.stats.backoff_until
    return until is not None and until > demand.now


def _too_large(demand: Demand, one: Candidate) -> bool:
    room = demand.snapshot.largest_available(one)
    return demand.gang_size > 1 and room is not None and 0 < room < demand.gang_size


def _full(demand: Demand, one: Candidate) -> bool:
    if demand.gang_size > 1:
        return demand.snapshot.largest_available(one) == 0
    return demand.snapshot.available(one) == 0


_QUESTIONS: dict[RejectionCode, Callable[[Demand, Candidate], bool]] = {
    RejectionCode.ACCELERATOR_MISMATCH: lambda demand, one: (
        one.offering.accelerator not in (demand.resources.accelerators or (None,))
    ),
    RejectionCode.ACCELERATOR_COUNT_MISMATCH: lambda demand, one: (
        one.offering.count != demand.resources.count
    ),
    RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL: lambda demand, one: _below(
        one.offering.accelerator_memory_gib, demand.resources.accelerator_memory_gib
    ),
    RejectionCode.ARCHITECTURE_MISMATCH: lambda demand, one: (
        demand.resources.arch not in (None, one.offering.arch)
    ),
    RejectionCode.CPU_TOO_SMALL: lambda demand, one: _below(
        one.offering.vcpus, demand.resources.vcpus
    ),
    RejectionCode.MEMORY_TOO_SMALL: lambda demand, one: _below(
        one.offering.memory_gib, demand.resources.memory_gib
    ),
    RejectionCode.DISK_TOO_SMALL: lambda demand, one: _below(
        one.offering.disk_gib, demand.resources.disk_gib
    ),
    RejectionCode.GANG_UNSUPPORTED: lambda demand, one: (
        demand.gang_size > 1 and not one.offering.gang_capable
    ),
    RejectionCode.REGION_NOT_ALLOWED: lambda demand, one: (
        bool(demand.policy.regions) and one.offering.region_class not in demand.policy.regions
    ),
    RejectionCode.NOT_ENTITLED: lambda demand, one: one.offering.name in demand.closed_offerings,
    RejectionCode.INTERRUPTIBLE_NOT_ALLOWED: lambda demand, one: (
        one.market is Market.SPOT and demand.policy.interruptible is InterruptiblePolicy.NEVER
    ),
    RejectionCode.INTERRUPTIBLE_REQUIRED: lambda demand, one: (
        one.market is Market.ON_DEMAND
        and demand.policy.interruptible is InterruptiblePolicy.REQUIRE
    ),
    RejectionCode.NOT_IN_ALLOW_LIST: lambda demand, one: (
        bool(demand.policy.offerings) and one.offering.name not in demand.policy.offerings
    ),
    RejectionCode.RATE_ABOVE_LIMIT: lambda demand, one: (
        demand.max_rate_usd_per_hour is not None and one.rate > demand.max_rate_usd_per_hour
    ),
    RejectionCode.COST_ABOVE_LIMIT: _over_budget,
    RejectionCode.DISABLED: lambda _, one: (
        one.stats.credentials_refused or not one.offering.enabled
    ),
    RejectionCode.QUOTA_EXCEEDED: _over_quota,
    RejectionCode.RECENTLY_LOST: _lost,
    RejectionCode.BACKING_OFF: _rests,
    RejectionCode.UNHEALTHY: lambda _, one: one.stats.health < 0.55,
    RejectionCode.GANG_TOO_LARGE: _too_large,
    RejectionCode.INSUFFICIENT_CAPACITY: _full,
}
"""What rules a candidate out, in the order of SC-310."""
