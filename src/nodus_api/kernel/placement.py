"""The placement decision: rule out, rank, choose, explain (SC-301..SC-334).

`place` is a pure function of the request, the snapshot and the moment: the same
three give the same decision, whatever the order of the catalog (P-16), so that "why
there?" can be replayed from what is kept (SC-325).
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from nodus_api.kernel.attempt import Choice, Placement, Rejection
from nodus_api.kernel.misses import Failures, Miss, count_reasons, list_misses
from nodus_api.kernel.offering import Candidate, CatalogSnapshot
from nodus_api.kernel.prediction import predict
from nodus_api.kernel.rejection import (
    RECENTLY,
    Demand,
    FailedAcquisition,
    LostCandidate,
    RejectionCode,
    sieve,
)
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.scores import Outlook, Scores, Work, millionths, outlook, score
from nodus_api.kernel.spec import Resources
from nodus_api.kernel.vocabulary import Market, WaitingFor
from nodus_api.kernel.waiting import waiting_for, waiting_message

__all__ = [
    "Decide",
    "Decision",
    "FailedAcquisition",
    "LostCandidate",
    "Miss",
    "Outcome",
    "PlacementRequest",
    "Ranked",
    "RejectionCode",
    "demand_of",
    "place",
    "rank",
]

MOST_FALLBACKS = 5
MOST_KEPT = 5
"""How many ranked candidates are kept internally (SC-334)."""

LONGEST_WAIT = timedelta(seconds=60)
"""The latest next try after the longest backoff (SC-311)."""

CAPACITY_WAIT = timedelta(seconds=10)
"""The next try where nothing says when capacity returns."""


class Outcome(StrEnum):
    """What follows from a decision."""

    PLACED = "Placed"
    """T3: the choice stands."""
    WAITING = "Waiting"
    """T4: nothing now, at least one reason is transient."""
    UNPLACEABLE = "Unplaceable"
    """T5: nothing ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A feasible candidate with its scores; `total` in millionths, cost in micro-USD."""

    candidate: Candidate
    outlook: Outlook
    scores: Scores
    total: int
    cost_micro_usd: int

    @property
    def checkpoint_interval_seconds(self) -> float | None:
        """What the program is told as NODUS_CHECKPOINT_INTERVAL (SC-144)."""
        hours = self.outlook.interval_hours
        return None if hours is None else hours * 3600.0

    def to_json(self) -> dict[str, Any]:
        """Write it as it is kept with the decision (SC-334)."""
        return {
            "offering": self.candidate.offering.name,
            "market": self.candidate.market.value,
            "rateUSDPerHour": f"{self.candidate.rate:f}",
            "scores": {name: str(value) for name, value in self.scores.published().items()},
            "total": self.total,
            "costMicroUSD": self.cost_micro_usd,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A placement as it is published, and what is kept beside it (SC-333, SC-334).

    `chosen` is set iff the outcome is Placed; `next_try`, `waiting_for` and
    `waiting_message` iff it is Waiting; the message also when it is Unplaceable.
    `relaxed` tells that only the second pass found something (SC-311). `misses` are the
    candidates behind `placement.rejected`, in its order.
    """

    outcome: Outcome
    placement: Placement
    chosen: Ranked | None
    top: tuple[Ranked, ...]
    misses: tuple[Miss, ...]
    counters: Mapping[str, int]
    relaxed: bool
    next_try: datetime | None
    waiting_for: WaitingFor | None
    waiting_message: str | None
    snapshot_id: str
    request_hash: bytes
    result_hash: bytes

    def top_to_json(self) -> list[dict[str, Any]]:
        """Write the best candidates for the kept decision."""
        return [ranked.to_json() for ranked in self.top]


Decide = Callable[[PlacementRequest, CatalogSnapshot, datetime], Decision]
"""What decides where something runs; the product's is `place`."""


def place(request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime) -> Decision:
    """Decide where one slot, or one whole gang, runs.

    The order is total ↓, cost ↑, health ↓, name ↑, on-demand first (SC-324). With an
    empty catalog nothing is transient, so the outcome is Unplaceable: do not place
    before the catalog is loaded.
    """
    demand = demand_of(request, snapshot, now)
    near = _same_family(request, snapshot)
    feasible, failures = _filter(demand, near, forgiving=False)
    relaxed = not feasible
    if relaxed:
        feasible, failures = _filter(demand, near, forgiving=True)
    ranked = sorted((rank(demand, candidate) for candidate in feasible), key=_order)
    counters = count_reasons(request, snapshot, failures)
    misses = list_misses(request, demand, feasible, failures)
    placement = Placement(
        profile=request.policy.profile,
        candidates=snapshot.size,
        rejected=tuple(Rejection(offering=c.offering.name, reason=r.value) for c, r in misses),
        choice=_choice(demand, ranked),
    )
    outcome = _outcome(ranked, counters)
    backoff = _backoff_end(demand, failures)
    top = tuple(ranked[:MOST_KEPT])
    request_json = request.to_json()
    return Decision(
        outcome=outcome,
        placement=placement,
        chosen=ranked[0] if ranked else None,
        top=top,
        misses=misses,
        counters=counters,
        relaxed=relaxed and bool(ranked),
        next_try=_next_try(now, backoff) if outcome is Outcome.WAITING else None,
        waiting_for=waiting_for(counters) if outcome is Outcome.WAITING else None,
        waiting_message=None if ranked else waiting_message(demand, failures, backoff),
        snapshot_id=snapshot.id,
        request_hash=_digest(request_json),
        result_hash=_digest([request_json, snapshot.id, _result(placement, top)]),
    )


def demand_of(request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime) -> Demand:
    """Return what the filters compare candidates with, at this moment."""
    return Demand(
        resources=request.resources,
        policy=request.policy,
        gang_size=request.gang_size,
        max_rate_usd_per_hour=request.max_rate_usd_per_hour,
        remaining_cost_usd=request.remaining_cost_usd,
        closed_offerings=frozenset(request.closed_offerings),
        quota_left=request.quota_left,
        lost=frozenset(
            (one.offering, one.market) for one in request.lost if now - one.at < RECENTLY
        ),
        failed={(one.offering, one.market): one for one in request.failed if one.until > now},
        on_demand_only=request.on_demand_only,
        work=_work(request, snapshot),
        snapshot=snapshot,
        now=now,
    )


def _work(request: PlacementRequest, snapshot: CatalogSnapshot) -> Work:
    resources, checkpoint = request.resources, request.checkpoint
    sizes = (
        (Decimal(resources.count), "count"),
        (resources.accelerator_memory_gib, "accelerator_memory_gib"),
        (resources.vcpus, "vcpus"),
        (resources.memory_gib, "memory_gib"),
    )
    interval = checkpoint.interval_seconds
    return Work(
        hours=request.work_hours,
        restartable=checkpoint.restartable,
        interval_seconds=None if interval is None else float(interval),
        cost_seconds=float(checkpoint.cost_seconds),
        restore_seconds=request.restore_seconds,
        resumes=request.resumes,
        reference_rate=_reference_rate(resources, snapshot),
        sizes=tuple((float(asked), attribute) for asked, attribute in sizes if asked),
    )


def _reference_rate(resources: Resources, snapshot: CatalogSnapshot) -> float:
    """Return the hourly rate of anchor K (SC-320); one vCPU where none is asked for."""
    if not resources.accelerators:
        return float(snapshot.cpu_rate_per_vcpu * (resources.vcpus or Decimal(1)))
    families = ((name, resources.count) for name in resources.accelerators)
    known = (snapshot.reference_rates[one] for one in families if one in snapshot.reference_rates)
    return float(next(known, Decimal(0)))


def _same_family(request: PlacementRequest, snapshot: CatalogSnapshot) -> list[Candidate]:
    """Look up the candidates that can pass the first two filters (SC-370)."""
    allowed: tuple[str | None, ...] = request.resources.accelerators or (None,)
    return [
        candidate
        for accelerator in dict.fromkeys(allowed)
        for candidate in snapshot.families.get((accelerator, request.resources.count), ())
    ]


def _filter(
    demand: Demand, candidates: Iterable[Candidate], *, forgiving: bool
) -> tuple[list[Candidate], Failures]:
    feasible: list[Candidate] = []
    failures: Failures = {}
    first_failure = sieve(demand, forgiving=forgiving)
    for candidate in candidates:
        code = first_failure(candidate)
        if code is None:
            feasible.append(candidate)
        else:
            failures[candidate.key] = (candidate, code)
    return feasible, failures


def rank(demand: Demand, candidate: Candidate) -> Ranked:
    """Return a candidate with the scores that it has for this demand."""
    seen = outlook(demand.work, candidate)
    scores = score(demand.work, candidate, seen)
    return Ranked(
        candidate=candidate,
        outlook=seen,
        scores=scores,
        total=scores.total(demand.policy.profile),
        cost_micro_usd=millionths(seen.cost_to_complete),
    )


def _order(ranked: Ranked) -> tuple[int, int, int, str, bool]:
    return (
        -ranked.total,
        ranked.cost_micro_usd,
        -millionths(ranked.scores.health),
        ranked.candidate.offering.name,
        ranked.candidate.market is Market.SPOT,
    )


def _choice(demand: Demand, ranked: list[Ranked]) -> Choice | None:
    if not ranked:
        return None
    winner = ranked[0]
    offering = winner.candidate.offering
    names = dict.fromkeys(one.candidate.offering.name for one in ranked)
    return Choice(
        offering=offering.name,
        region_class=offering.region_class,
        market=winner.candidate.market,
        rate_usd_per_hour=winner.candidate.rate,
        scores=winner.scores.published(),
        fallbacks=tuple(name for name in names if name != offering.name)[:MOST_FALLBACKS],
        predicted=predict(demand.work, winner.candidate, winner.outlook),
    )


def _outcome(ranked: list[Ranked], counters: Mapping[str, int]) -> Outcome:
    if ranked:
        return Outcome.PLACED
    if any(not RejectionCode(code).permanent for code in counters):
        return Outcome.WAITING
    return Outcome.UNPLACEABLE


def _backoff_end(demand: Demand, failures: Failures) -> datetime | None:
    """Return when the first backoff ends, or None if nothing backs off."""
    ends: list[datetime] = []
    for key, (candidate, code) in failures.items():
        failed = demand.failed.get(key)
        if failed is not None and code is failed.code:
            ends.append(failed.until)
        elif _rests(candidate, code) and candidate.stats.backoff_until is not None:
            ends.append(candidate.stats.backoff_until)
    return min(ends, default=None)


def _rests(candidate: Candidate, code: RejectionCode) -> bool:
    """Whether it is asked again when its backoff ends, as after a supplier's quota (SC-360)."""
    if code is RejectionCode.QUOTA_EXCEEDED:
        return candidate.stats.supplier_quota_used_up
    return code is RejectionCode.BACKING_OFF


def _next_try(now: datetime, backoff: datetime | None) -> datetime:
    if backoff is None:
        return now + CAPACITY_WAIT
    return min(backoff, now + LONGEST_WAIT)


def _result(placement: Placement, top: tuple[Ranked, ...]) -> dict[str, Any]:
    return {
        "candidates": placement.candidates,
        "rejected": [[one.offering, one.reason] for one in placement.rejected],
        "fallbacks": [] if placement.choice is None else list(placement.choice.fallbacks),
        "top": [ranked.to_json() for ranked in top],
    }


def _digest(document: Any) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
