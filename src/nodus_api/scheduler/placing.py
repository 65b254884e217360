"""Where queued Attempts go: T2 to T5 (SC-606 step 4).

Claim and decision stand in one transaction, so a crash between them leaves nothing, and
an Attempt that finds no offering costs no revision unless its reasons changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodus_api.kernel import events
from nodus_api.kernel.calibration import Calibration, factors, usual_hours
from nodus_api.kernel.deadlines import ACQUIRE_LIMIT, starting_limit
from nodus_api.kernel.explaining import Told, told_of
from nodus_api.kernel.funding import InsufficientFunds
from nodus_api.kernel.hedging import late_at, may_hedge
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.offering import Family
from nodus_api.kernel.placement import (
    Decision,
    FailedAcquisition,
    LostCandidate,
    Outcome,
    PlacementRequest,
    RejectionCode,
)
from nodus_api.kernel.replacement import needs_on_demand
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Market, Stage, WaitingFor, WorkloadState
from nodus_api.kernel.warmth import with_warm
from nodus_api.scheduler.allowances import Remaining
from nodus_api.scheduler.catalog import Catalog
from nodus_api.scheduler.claiming import funded, unfunded
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.ganging import Ranks, units
from nodus_api.scheduler.intents import intended
from nodus_api.scheduler.keeping import idle_until_assigned
from nodus_api.scheduler.settling import budget, counters_of
from nodus_api.scheduler.warm_pool import pick, reassigned, warm_rooms
from nodus_api.storage.batch import Batch
from nodus_api.storage.calibration_store import Lineage, read_calibrations
from nodus_api.storage.catalog_store import Failure
from nodus_api.storage.checkpoint_store import restore_sources
from nodus_api.storage.machine_store import IdleMachine
from nodus_api.storage.records import AttemptRecord, Decided


async def place_queued(loop: LoopContext) -> bool:
    """Place a batch of queued Attempts; return whether any machine was intended."""
    if not loop.offers_known:
        return False
    nos = await loop.agenda.attempts("place")
    if not nos:
        return False
    room = _Room(await _look(loop))
    allowed = Remaining(await loop.allowances.read())

    async def work(batch: Batch) -> None:
        catalog = room.catalog
        past_of = await read_pasts(batch)
        for ranks in units(batch.records.values()):
            catalog = _place(loop, batch, ranks, catalog, allowed, past_of(ranks))
        room.catalog = catalog

    await loop.in_batches("place", nos, work)
    return room.catalog.snapshot.taken != {}


class _Room:
    """The catalog, less what earlier transactions of this step have taken (SC-371)."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What earlier Attempts left to the next (SC-301)."""

    restore_bytes: int | None
    """The checkpoint to go on from, of several ranks the largest: they read side by side."""
    calibrations: Mapping[Family, Calibration]
    """What runs of the same name have taught (SC-352)."""


async def read_pasts(batch: Batch) -> Callable[[Ranks], Past]:
    """Read what a batch's Attempts may go on from, and return how to find it."""
    resuming = [no for no, record in batch.records.items() if record.attempt.resumes]
    stored = await restore_sources(batch.connection, resuming) if resuming else {}
    known = await read_calibrations(
        batch.connection, [Lineage.of(one.workload) for one in batch.records.values()]
    )

    def of(ranks: Ranks) -> Past:
        sizes = [stored[one.no].size_bytes for one in ranks if one.no in stored]
        lineage = Lineage.of(ranks[0].workload)
        return Past(restore_bytes=max(sizes, default=None), calibrations=known.get(lineage, {}))

    return of


async def _look(loop: LoopContext) -> Catalog:
    """Look at the catalog, and at the warm machines where there can be any."""
    catalog = await loop.view.look(await loop.agenda.now())
    if not loop.supplier.caps.warm:
        return catalog
    warm, restarting = await loop.machines.idle(), await loop.machines.restarting()
    return replace(catalog, warm=tuple(warm), restarting=restarting)


def _place(
    loop: LoopContext,
    batch: Batch,
    ranks: Ranks,
    catalog: Catalog,
    allowed: Remaining,
    past: Past,
) -> Catalog:
    """Move one Attempt, or all ranks of a gang, by what placement decides (SC-130, SC-131).

    Return what is left of the catalog.
    """
    now = batch.now
    if not all(_may_place(one, now) for one in ranks):
        return catalog
    if ranks[0].attempt.gang is not None and ranks[0].workload.uid in catalog.restarting:
        return catalog  # in a moment there are machines for it (SC-134)
    spec = WorkloadSpec.from_json(ranks[0].workload.kind, ranks[0].workload.spec)
    claimed = [_claimed(one, spec, now) for one in ranks]
    request = request_of(claimed, spec, catalog, allowed, past)
    rooms = warm_rooms(catalog, ranks[0], spec) if catalog.warm else {}
    seen = with_warm(catalog.snapshot, rooms, spec.resources, len(claimed))
    decision = loop.decide(request, seen, now)
    try:
        claimed = funded(batch, claimed, spec, decision, catalog, request.remaining_cost_usd)
    except InsufficientFunds as lack:
        for one in ranks:
            batch.put(unfunded(one, spec, lack, now))
        return catalog
    if decision.chosen is not None:
        project = ranks[0].attempt.project
        allowed.take(project, decision.chosen.candidate.offering, len(ranks))
    moved, catalog = _decided(loop, batch, claimed, decision, catalog)
    for before, after in zip(ranks, moved, strict=True):
        batch.put(after)
        if after.no is not None and _tells_more(before, after):
            told = told_of(request, seen, decision, now)
            batch.decided.append(_kept(after.no, request, decision, told, now))
    return catalog


def _tells_more(before: AttemptRecord, after: AttemptRecord) -> bool:
    """Whether a decision shows something that the last one kept did not."""
    said = after.attempt.waiting_message
    return after.view.placement != before.view.placement or (
        said is not None and said != before.attempt.waiting_message
    )


def _may_place(record: AttemptRecord, now: datetime) -> bool:
    """Whether the Attempt is still queued, wanted, and past its backoff (T2)."""
    queued = record.attempt.stage in (Stage.PENDING, Stage.PLACING)
    wanted = record.workload.state is WorkloadState.ACTIVE
    backoff = record.slot.not_before
    return queued and wanted and (backoff is None or backoff <= now)


def _claimed(record: AttemptRecord, spec: WorkloadSpec, now: datetime) -> AttemptRecord:
    if record.attempt.stage is Stage.PLACING:
        return record
    deadline = now + timedelta(seconds=spec.limits.start_deadline_seconds)
    return record.moved(advance(record.attempt, events.Claimed(at=now, start_deadline=deadline)))


def request_of(
    ranks: Ranks, spec: WorkloadSpec, catalog: Catalog, allowed: Remaining, past: Past
) -> PlacementRequest:
    """Ask for all ranks at once: what any of them lost or did not get is avoided for all."""
    lead = ranks[0].attempt
    lost = (one for record in ranks for one in record.slot.lost_candidates)
    return PlacementRequest.of(
        spec,
        remaining_cost_usd=budget(ranks[0]),
        cursor=lead.restore.cursor if lead.restore else None,
        resumes=any(record.attempt.resumes for record in ranks),
        restore_bytes=past.restore_bytes,
        usual_hours=usual_hours(past.calibrations.values()),
        calibrations=factors(past.calibrations, spec),
        start_deadline=lead.start_deadline,
        closed_offerings=allowed.closed(lead.project),
        quota_left=allowed.left(lead.project),
        lost=tuple(
            LostCandidate(
                offering=one["offering"],
                market=Market(one["market"]),
                at=datetime.fromisoformat(one["at"]),
            )
            for one in lost
        ),
        failed=tuple(
            dict.fromkeys(one for record in ranks for one in _failed_acquisitions(record, catalog))
        ),
        on_demand_only=needs_on_demand(counters_of(ranks[0].slot), spec.placement.interruptible),
    )


def _failed_acquisitions(record: AttemptRecord, catalog: Catalog) -> tuple[FailedAcquisition, ...]:
    """Return the candidates that did not deliver in this Attempt, and why (SC-332).

    What is closed is no such candidate: it is Disabled for all (SC-617), and its class may have
    offers that are not.
    """
    failed = []
    for tenancy in record.tenancies:
        machine = tenancy.machine
        stats = catalog.stats_of(machine.offer, machine.market)
        if tenancy.open or stats is None or stats.failure is Failure.AUTH:
            continue
        if stats.backoff_until is not None:
            over = stats.failure is Failure.QUOTA
            failed.append(
                FailedAcquisition(
                    offering=machine.offering,
                    market=machine.market,
                    until=stats.backoff_until,
                    code=(
                        RejectionCode.QUOTA_EXCEEDED
                        if over
                        else RejectionCode.INSUFFICIENT_CAPACITY
                    ),
                )
            )
    return tuple(failed)


def _decided(
    loop: LoopContext, batch: Batch, ranks: Ranks, decision: Decision, catalog: Catalog
) -> tuple[Ranks, Catalog]:
    now = batch.now
    match decision.outcome:
        case Outcome.PLACED:
            return _placed(loop, batch, ranks, decision, catalog)
        case Outcome.WAITING:
            return [_waits(one, decision, now) for one in ranks], catalog
        case Outcome.UNPLACEABLE:
            ended = [one.moved(advance(one.attempt, events.Unplaceable(at=now))) for one in ranks]
            return [_shown(one, decision) for one in ended], catalog


def _placed(
    loop: LoopContext, batch: Batch, ranks: Ranks, decision: Decision, catalog: Catalog
) -> tuple[Ranks, Catalog]:
    """T3: the placement and the intents of its machines, in one transaction (SC-608).

    A gang's machines all come from one offer, which has the room for them (SC-131). What is there
    warm is granted at once (T7, SC-343).
    """
    assert decision.chosen is not None  # noqa: S101 - Placed has a choice
    candidate, now = decision.chosen.candidate, batch.now
    spec = WorkloadSpec.from_json(ranks[0].workload.kind, ranks[0].workload.spec)
    warm, offer = pick(catalog, ranks[0], spec, candidate.key, now, machines=len(ranks))
    if offer is None or offer.no is None:
        raise LookupError(f"no offer of {candidate.offering.name} has the room its class shows")
    choice, gang = decision.placement.choice, ranks[0].attempt.gang
    alternatives = choice is not None and bool(choice.fallbacks)
    hedges = alternatives and gang is None and may_hedge(spec.placement)
    placed = []
    for record in ranks:
        tenancy = intended(
            record,
            loop.reign,
            offer=offer.no,
            offering=candidate.offering.name,
            market=candidate.market,
            rate=candidate.rate,
            now=now,
        )
        moved = record.moved(advance(record.attempt, events.Placed(at=now))).with_tenancy(tenancy)
        work = replace(
            record.work,
            next_try=None,
            limit_at=now + ACQUIRE_LIMIT,
            hedge_at=late_at(now, candidate.stats) if hedges else None,
        )
        placed.append(_shown(replace(moved, work=work), decision))
    for rank, idle in enumerate(warm):
        placed[rank] = _on_warm(loop, batch, placed[rank], idle, boot_p95=candidate.stats.boot_p95)
    made = len(ranks) - len(warm)
    left = catalog.after_taking(candidate.key, offer, machines=made) if made else catalog
    return placed, left.without_warm(warm)


def _on_warm(
    loop: LoopContext, batch: Batch, record: AttemptRecord, idle: IdleMachine, *, boot_p95: float
) -> AttemptRecord:
    """T3 and T7 at once: what was just intended is there, and takes the program next (SC-343)."""
    (intent,), now = record.kept, batch.now
    tenancy = reassigned(loop.reign, idle, now, intent)
    idled = idle_until_assigned(idle, now)
    batch.idled += [] if idled is None else [idled]
    without = tuple(one for one in record.tenancies if one.machine.key != intent.machine.key)
    event = events.CapacityGranted(at=now, billing_start=now)
    moved = replace(record, tenancies=without).moved(advance(record.attempt, event))
    placement = record.view.placement
    if placement is not None and placement.choice is not None:
        shown = replace(placement, choice=replace(placement.choice, warm_reuse=True))
        moved = replace(moved, view=replace(moved.view, placement=shown))
    limit = now + starting_limit(timedelta(seconds=boot_p95))
    work = replace(moved.work, limit_at=limit, watermark=now)
    return replace(moved, work=work).with_tenancy(tenancy)


def _waits(record: AttemptRecord, decision: Decision, now: datetime) -> AttemptRecord:
    """T4: say why it waits, and when it is tried again."""
    waiting = record.moved(
        advance(
            record.attempt,
            events.NoOffering(
                at=now,
                waiting_for=decision.waiting_for or WaitingFor.CAPACITY,
                message=decision.waiting_message or "",
                until=decision.next_try,
            ),
        )
    )
    work = replace(record.work, next_try=decision.next_try, limit_at=None)
    return _shown(replace(waiting, work=work), decision)


def _shown(record: AttemptRecord, decision: Decision) -> AttemptRecord:
    return replace(record, view=replace(record.view, placement=decision.placement))


def _kept(
    no: int, request: PlacementRequest, decision: Decision, told: Told, now: datetime
) -> Decided:
    return Decided(
        attempt=no,
        at=now,
        request=request.to_json(),
        snapshot_id=decision.snapshot_id,
        result_hash=decision.result_hash,
        top=tuple(decision.top_to_json()),
        counters=told.to_json(decision.counters),
    )
