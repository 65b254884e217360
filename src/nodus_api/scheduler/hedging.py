"""A second machine for an Attempt that is late to run (SC-340).

It is asked for where the placement would have gone next, and races the first one for the start;
what follows is `racing`'s.
"""

import logging
from dataclasses import replace
from datetime import datetime

from nodus_api.kernel.hedging import LOOK_AGAIN, room_for_hedges
from nodus_api.kernel.offering import Candidate
from nodus_api.kernel.placement import PlacementRequest, place
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import LeaseRole, Stage, WorkloadState
from nodus_api.scheduler.allowances import Remaining
from nodus_api.scheduler.catalog import Catalog
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.intents import intended
from nodus_api.scheduler.placing import Past, read_pasts, request_of
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord

log = logging.getLogger(__name__)


class _Room:
    """What earlier transactions of this step have left: of the catalog, and of races."""

    def __init__(self, catalog: Catalog, hedges: int) -> None:
        self.catalog = catalog
        self.hedges = hedges


async def hedge_late(loop: LoopContext) -> None:
    """Ask for a second machine for each Attempt that is late, as far as few enough race by now."""
    if not loop.offers_known:
        return
    nos = await loop.agenda.attempts("hedge")
    if not nos:
        return
    races = await loop.machines.races()
    hedges = room_for_hedges(live=races.live, in_flight=races.in_flight)
    room = _Room(await loop.view.look(await loop.agenda.now()), hedges)

    allowed = Remaining(await loop.allowances.read())

    async def work(batch: Batch) -> None:
        catalog, left = room.catalog, room.hedges
        past_of = await read_pasts(batch)
        for no in nos:  # in the order of the agenda: the latest first
            record = batch.records.get(no)
            if record is None or not _is_late(record, batch.now):
                continue
            past = past_of([record])
            hedged = _hedged(loop, record, catalog, allowed, past, batch.now) if left else None
            if hedged is None:
                later = replace(record.work, hedge_at=batch.now + LOOK_AGAIN)
                batch.put(replace(record, work=later))
                continue
            moved, catalog = hedged
            left -= 1
            batch.put(moved)
        room.catalog, room.hedges = catalog, left

    await loop.in_batches("hedge", nos, work)


def _is_late(record: AttemptRecord, now: datetime) -> bool:
    """Whether the Attempt still waits for its one machine, and never had a second (SC-340)."""
    attempt, due = record.attempt, record.work.hedge_at
    waits = attempt.stage in (Stage.ACQUIRING, Stage.STARTING) and attempt.drain is None
    wanted = record.workload.state is WorkloadState.ACTIVE
    alone = len(record.kept) == 1 and not any(one.lease.won for one in record.tenancies)
    before = any(one.lease.role is LeaseRole.HEDGE for one in record.tenancies)
    return waits and wanted and alone and not before and due is not None and due <= now


def _hedged(
    loop: LoopContext,
    record: AttemptRecord,
    catalog: Catalog,
    allowed: Remaining,
    past: Past,
    now: datetime,
) -> tuple[AttemptRecord, Catalog] | None:
    """Return the Attempt with a second intent, and what is left; None without a fallback."""
    placement = record.view.placement
    choice = placement.choice if placement else None
    if placement is None or choice is None or not choice.fallbacks:
        return None
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    request = request_of([record], spec, catalog, allowed, past)
    candidate = _feasible(request, catalog, choice.fallbacks[0], now)
    offer = None if candidate is None else catalog.choose(candidate.key, now)
    if candidate is None or offer is None or offer.no is None:
        return None
    tenancy = intended(
        record,
        loop.reign,
        offer=offer.no,
        offering=candidate.offering.name,
        market=candidate.market,
        rate=candidate.rate,
        now=now,
        role=LeaseRole.HEDGE,
    )
    allowed.take(record.attempt.project, candidate.offering, 1)
    log.info(
        "an attempt is late to run, and a second machine is asked for",
        extra={"attempt": record.attempt.name, "offering": candidate.offering.name},
    )
    loop.metrics.hedges.inc()
    shown = replace(placement, choice=replace(choice, hedged=True))
    moved = replace(
        record.with_tenancy(tenancy),
        view=replace(record.view, placement=shown),
        work=replace(record.work, hedge_at=None),
    )
    return moved, catalog.after_taking(candidate.key, offer)


def _feasible(
    request: PlacementRequest, catalog: Catalog, offering: str, now: datetime
) -> Candidate | None:
    """Return the better market of a class, if nothing rules it out now, not even softly."""
    alone = replace(request, policy=replace(request.policy, offerings=(offering,)))
    decision = place(alone, catalog.snapshot, now)
    if decision.chosen is None or decision.relaxed:
        return None
    return decision.chosen.candidate
