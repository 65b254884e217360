"""The placement decision: rule out, rank, choose, explain (SC-301..SC-334).

`place` is a pure function of the request, the snapshot and the moment: the same
three give the same decision, whatever the order of the catalog (P-16), so that "why
there?" can be replayed from what is kept (SC-325).
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import Any

from nodus_api.kernel.attempt import Choice, Placement, Rejection
from nodus_api.kernel.bucket import Bucket
from nodus_api.kernel.misses import Miss, count_reasons, list_misses
from nodus_api.kernel.offering import Candidate, CatalogSnapshot
from nodus_api.kernel.prediction import predict
from nodus_api.kernel.rejection import (
    RECENTLY,
    Demand,
    FailedAcquisition,
    LostCandidate,
    RejectionCode,
    Sifted,
    sift,
)
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.scores import (
    WEIGHTS,
    Outlook,
    Scores,
    Work,
    forecaster,
    millionths,
    outlook,
    score,
    scorer,
    weigh,
)
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
    sifted = [sift(demand, bucket) for bucket in near]
    relaxed = not any(one.feasible for one in sifted)
    if relaxed:
        sifted = [sift(demand, bucket, forgiving=True) for bucket in near]
    ranked = _ranked(demand, sifted)
    top = tuple(rank(demand, candidate) for *_, candidate in ranked[:MOST_KEPT])
    counters = count_reasons(request, snapshot, sifted)
    misses = list_misses(request, demand, sifted)
    placement = Placement(
        profile=request.policy.profile,
        candidates=snapshot.size,
        rejected=tuple(Rejection(offering=c.offering.name, reason=r.value) for c, r in misses),
        choice=_choice(demand, top, ranked),
    )
    outcome = _outcome(counters, placed=bool(top))
    backoff = None if ranked else _backoff_end(demand, sifted)
    asked = _canonical(request.to_json())
    return Decision(
        outcome=outcome,
        placement=placement,
        chosen=top[0] if top else None,
        top=top,
        misses=misses,
        counters=counters,
        relaxed=relaxed and bool(ranked),
        next_try=_next_try(now, backoff) if outcome is Outcome.WAITING else None,
        waiting_for=waiting_for(counters) if outcome is Outcome.WAITING else None,
        waiting_message=None if ranked else waiting_message(demand, sifted, backoff),
        snapshot_id=snapshot.id,
        request_hash=_digest(asked),
        result_hash=_digest(
            f"[{asked},{_canonical(snapshot.id)},{_canonical(_result(placement, top))}]"
        ),
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
        calibrations=request.calibrations,
        snapshot=snapshot,
        now=now,
    )


def _work(request: PlacementRequest, snapshot: CatalogSnapshot) -> Work:
    resources, checkpoint = request.resources, request.checkpoint
    sizes = (
        (Decimal(resources.count), "accelerators"),
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


def _same_family(request: PlacementRequest, snapshot: CatalogSnapshot) -> list[Bucket]:
    """Look up the buckets whose candidates can pass the first two filters (SC-370)."""
    families = ((accelerator, request.resources.count) for accelerator in request.accelerators)
    return [snapshot.families[family] for family in families if family in snapshot.families]


Standing = tuple[int, int, int, str, bool, Candidate]
"""A feasible candidate behind what it is ordered by: a smaller one is better (SC-324)."""


def _ranked(demand: Demand, sifted: Sequence[Sifted]) -> list[Standing]:
    """Return what is feasible, the best first: total ↓, cost ↑, health ↓, name ↑, on-demand first.

    Names and markets tell all apart, so that candidates themselves are never compared.
    """
    scores = scorer(demand.work)
    weights = WEIGHTS[demand.policy.profile]
    standings = []
    for part in sifted:
        accelerator, _ = part.bucket.family
        forecast = forecaster(demand.work_on(accelerator))
        for one in part.bucket.of(part.feasible):
            figures = one.figures
            _, _, waste, time, cost = forecast(figures)
            fit, by_time, by_cost, recovery = scores(figures, waste, time, cost)
            total = weigh(weights, fit, by_time, by_cost, recovery, figures.health)
            standings.append(_standing(one, total, millionths(cost)))
    standings.sort()
    return standings


def _standing(candidate: Candidate, total: int, cost_micro_usd: int) -> Standing:
    return (
        -total,
        cost_micro_usd,
        -candidate.figures.health_millionths,
        candidate.offering.name,
        candidate.market is Market.SPOT,
        candidate,
    )


def rank(demand: Demand, candidate: Candidate) -> Ranked:
    """Return a candidate with the scores that it has for this demand."""
    work = demand.work_on(candidate.offering.accelerator)
    seen = outlook(work, candidate)
    scores = score(work, candidate, seen)
    return Ranked(
        candidate=candidate,
        outlook=seen,
        scores=scores,
        total=scores.total(demand.policy.profile),
        cost_micro_usd=millionths(seen.cost_to_complete),
    )


def _choice(demand: Demand, top: Sequence[Ranked], standings: Iterable[Standing]) -> Choice | None:
    if not top:
        return None
    winner = top[0]
    offering = winner.candidate.offering
    names = (one.offering.name for *_, one in standings)
    others = (name for name in _distinct(names) if name != offering.name)
    return Choice(
        offering=offering.name,
        region_class=offering.region_class,
        market=winner.candidate.market,
        rate_usd_per_hour=winner.candidate.rate,
        scores=winner.scores.published(),
        fallbacks=tuple(islice(others, MOST_FALLBACKS)),
        predicted=predict(demand.work_on(offering.accelerator), winner.candidate, winner.outlook),
    )


def _distinct(names: Iterable[str]) -> Iterator[str]:
    seen = set()
    for name in names:
        if name not in seen:
            seen.add(name)
            yield name


def _outcome(counters: Mapping[str, int], *, placed: bool) -> Outcome:
    if placed:
        return Outcome.PLACED
    if any(not RejectionCode(code).permanent for code in counters):
        return Outcome.WAITING
    return Outcome.UNPLACEABLE


def _backoff_end(demand: Demand, sifted: Sequence[Sifted]) -> datetime | None:
    """Return when the first backoff ends, or None if nothing backs off."""
    ends: list[datetime] = []
    for part in sifted:
        for key, failed in demand.failed.items():
            if part.bucket.keys([key]) & part.ruled_out.get(failed.code, 0):
                ends.append(failed.until)
        elsewhere = ~part.bucket.keys(demand.failed)
        for code in (RejectionCode.QUOTA_EXCEEDED, RejectionCode.BACKING_OFF):
            for one in part.bucket.of(part.ruled_out.get(code, 0) & elsewhere):
                until = one.stats.backoff_until if _rests(one, code) else None
                ends += [until] if until is not None else []
    return min(ends, default=None)


def _rests(candidate: Candidate, code: RejectionCode) -> bool:
    """Whether it is asked again when its backoff ends, as after a supplier's quota (SC-360)."""
    return code is RejectionCode.BACKING_OFF or candidate.stats.supplier_quota_used_up


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


def _canonical(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
