"""What follows from a change, whichever step made it: pure, and applied once before the write.

An Attempt that ended releases its machines and decides its slot (SC-120; a gang's slots are
`ganging`'s); its bill is
counted anew (SC-523); a start completes the recovery of the slot's earlier epochs
(SC-016). Because this stands in one place, no step can forget it.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.attempt import Attempt, Checkpoints, CostSegment
from nodus_api.kernel.billing import Release, charge, proof_of_life
from nodus_api.kernel.events import DeletionProven, Recovered
from nodus_api.kernel.gang import release_of
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.offering import CandidateStats
from nodus_api.kernel.replacement import Replacement, SlotCounters, decide
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage, Trigger, WorkloadState
from nodus_api.scheduler.checkpointing import interval_of
from nodus_api.scheduler.holding import payable, settle_hold
from nodus_api.scheduler.keeping import keep_machine
from nodus_api.scheduler.machine_clocks import billed, clocks_of
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord, Slot, Tenancy, Workload

LOSSES_KEPT = 10
"""How many lost candidates a slot remembers; placement looks back 15 minutes."""


def settle(batch: Batch, *, warm: bool = False) -> None:
    """Draw the consequences of every change in the batch.

    `warm`: whether the supplier can keep machines for another Attempt (SC-343).
    """
    for no in list(batch.records):
        before, record = batch.loaded[no], batch.records[no]
        if record == before:
            continue
        release = (
            release_of(ranks_with(batch, record)) if record.attempt.gang else Release.NOT_NEEDED
        )
        if before.attempt.live and not record.attempt.live:
            # its cost first: the decision asks what the limit leaves
            record = _without_untold_start(before, record)
            record = keep_machine(before, record, batch.now) if warm else record
            record = release_machines(record, batch.now)
            record = count_costs(record, release, payable(batch, record))
            if record.attempt.gang is None:  # a gang's slots are decided together
                record = decide_slot(record, batch.now, barred=barred(before))
            lost = record.restore_lost or restore_lost(record.attempt)
            record = replace(record, restore_lost=lost)
        record = prove_deletion(record)
        if _billed_times(record) != _billed_times(before):
            record = count_costs(record, release, payable(batch, record))
        record = settle_hold(batch, record)
        batch.put(_with_checkpoints(record))
        share_budget(batch, batch.loaded[no], record)
        if record.attempt.command_started and not before.attempt.command_started:
            _recover_earlier(batch, record)


def ranks_with(batch: Batch, record: AttemptRecord) -> list[Attempt]:
    """Return all ranks of a record's gang epoch as they stand; itself alone without a gang."""
    gang = record.attempt.gang
    if gang is None:
        return [record.attempt]
    several = (record if one.no == record.no else one for one in batch.records.values())
    found = [
        one.attempt
        for one in several
        if one.attempt.gang
        and (one.attempt.gang.id, one.attempt.gang.epoch) == (gang.id, gang.epoch)
    ]
    return sorted(found, key=lambda one: one.gang.rank if one.gang else 0)


def _without_untold_start(before: AttemptRecord, record: AttemptRecord) -> AttemptRecord:
    """Take back a start that was won in the transaction that ends the Attempt.

    Nobody was told of it, and its statement would refuse an Attempt that has left Starting.
    """
    known = {one.machine.key: one.lease for one in before.tenancies}
    untold = any(
        one.lease.won and not (one.machine.key in known and known[one.machine.key].won)
        for one in record.tenancies
    )
    for tenancy in record.tenancies if untold else ():
        lease, old = tenancy.lease, known.get(tenancy.machine.key)
        beaten = lease.lost_cause is None and (old is None or old.lost is None)
        lease = replace(lease, won=False, lost=None if beaten else lease.lost)
        record = record.with_tenancy(replace(tenancy, lease=lease))
    return record


def restore_lost(attempt: Attempt) -> bool:
    """Whether the end proves that the checkpoint to go on from is gone (SC-141)."""
    return attempt.reason is Reason.CHECKPOINT_UNAVAILABLE and attempt.restore is not None


def release_machines(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """Queue the deletion of every machine that the Attempt still holds (SC-608).

    But for one that is kept for another Attempt (SC-343).
    """
    for tenancy in record.held:
        if tenancy.machine.warm_until is not None:
            continue
        record = record.with_tenancy(released(tenancy, now))
    return record


def released(tenancy: Tenancy, now: datetime) -> Tenancy:
    """Return a machine on its way out: Gone at once if create was never called (SC-006a)."""
    machine = tenancy.machine
    match machine.state:
        case MachineState.REQUESTED if machine.tries == 0:
            gone = replace(machine, state=MachineState.GONE, gone=now, next_try=None)
            return Tenancy(machine=gone, lease=replace(tenancy.lease, released=now))
        case MachineState.RELEASING | MachineState.GONE:
            return tenancy
        case _:
            leaving = replace(
                machine,
                state=MachineState.RELEASING,
                releasing=now,
                gone_seen=None,
                tries=0,
                next_try=None,
                warm_until=None,
            )
            return replace(tenancy, machine=leaving)


def prove_deletion(record: AttemptRecord) -> AttemptRecord:
    """T18 once every machine of an ended Attempt is gone; the billed one's time counts (SC-342).

    One that was wiped for another Attempt is gone for this one (SC-344).
    """
    attempt, tenancies = record.attempt, record.tenancies
    if attempt.live or attempt.deletion_proven is not None or not tenancies:
        return record
    if any(one.over_at is None for one in tenancies):
        return record
    payer = billed(record)
    times = [one.over_at for one in ([payer] if payer else tenancies)]
    at = max(time for time in times if time is not None)
    return record.moved(advance(attempt, DeletionProven(at=at)))


def barred(before: AttemptRecord) -> Reason | None:
    """Return why money forbids a replacement, of a record as it was before its end (SC-013)."""
    return before.attempt.drain.barred if before.attempt.drain else None


def decide_slot(
    record: AttemptRecord, now: datetime, *, barred: Reason | None = None
) -> AttemptRecord:
    """Write what becomes of the slot, and of the workload if this end decides it (SC-120)."""
    answer = decision_on(
        record,
        now,
        counters=counters_of(record.slot),
        minimum_start_usd=shortest_start(record),
        previous_loss=last_loss(record.slot),
        barred=barred,
    )
    slot = with_counters(
        replace(record.slot, state=answer.slot, not_before=answer.not_before), answer.counters
    )
    slot = replace(slot, lost_candidates=losses(record))
    return replace(record, slot=slot, workload=decided_workload(record.workload, answer, now))


def decision_on(
    record: AttemptRecord,
    now: datetime,
    *,
    counters: SlotCounters,
    minimum_start_usd: Decimal,
    previous_loss: datetime | None,
    barred: Reason | None,
) -> Replacement:
    """Ask the kernel what follows an ended Attempt whose costs are counted."""
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    left = budget(record)
    return decide(
        record.attempt,
        spec=spec,
        workload=record.workload.state,
        counters=counters,
        now=now,
        budget_left=None if left is None else left - charged(record),
        minimum_start_usd=minimum_start_usd,
        previous_loss=previous_loss,
        checkpoint_interval=interval_of(record, spec) or timedelta(0),
        barred=barred,
    )


def with_counters(slot: Slot, counters: SlotCounters) -> Slot:
    """Return a slot with what a decision made of its counters."""
    return replace(
        slot,
        retries_used=counters.retries_used,
        replacements=counters.replacements,
        backoff_k=counters.backoff_k,
        nodus_failures=counters.nodus_failures,
        lost_in_a_row=counters.lost_in_a_row,
    )


def decided_workload(workload: Workload, answer: Replacement, now: datetime) -> Workload:
    """Return a workload after a decision, which may end it or let it wait."""
    if answer.workload is None or workload.state is not WorkloadState.ACTIVE:
        return workload
    return replace(
        workload,
        state=answer.workload,
        outcome=answer.outcome,
        ended=now if answer.workload is not WorkloadState.SUSPENDED else None,
    )


def shortest_start(record: AttemptRecord) -> Decimal:
    """Return the least that another start costs, at the rate of this one (SC-120 rule 2)."""
    payer = billed(record)
    if payer is None:
        return Decimal(0)
    prior = CandidateStats()
    return cumulative_usd(payer.lease.rate_usd_per_hour, int(prior.boot_p50 + prior.teardown_p50))


def counters_of(slot: Slot) -> SlotCounters:
    """Return the counters that the kernel decides with."""
    return SlotCounters(
        retries_used=slot.retries_used,
        replacements=slot.replacements,
        backoff_k=slot.backoff_k,
        nodus_failures=slot.nodus_failures,
        lost_in_a_row=slot.lost_in_a_row,
    )


def count_costs(
    record: AttemptRecord,
    release: Release = Release.NOT_NEEDED,
    funded: Decimal | None = None,
) -> AttemptRecord:
    """Count the ledger anew, up to the last proof of life (SC-508, SC-523).

    `release` tells why a rank was Released, which decides its cover (SC-520).

    A workload's limit is a hard cap, and so is what its hold and the balance can pay (`funded`,
    None without control of funds): what lies beyond is ours (SC-522).
    """
    caps = [cap for cap in (budget(record), funded) if cap is not None]
    watermark = proof_of_life(record.attempt, record.work.watermark)
    segments: list[CostSegment] = []
    for counted in clocks_of(record, release):
        until = watermark if counted.accrues else None
        segments += charge(
            counted.clock, cover=counted.cover, watermark=until, cap_usd=min(caps, default=None)
        ).segments
    view = replace(record.view, segments=tuple(segments))
    return replace(record, view=view, work=replace(record.work, accrued=watermark))


def budget(record: AttemptRecord) -> Decimal | None:
    """Return what the workload's limit leaves to this Attempt in all; None without a limit."""
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    limit = spec.limits.max_cost_usd
    return None if limit is None else max(limit - record.spent_elsewhere, Decimal(0))


def charged(record: AttemptRecord) -> Decimal:
    """Return what the Attempt was charged so far."""
    return sum((one.usd for one in record.view.segments if not one.covered), Decimal(0))


def share_budget(batch: Batch, before: AttemptRecord, after: AttemptRecord) -> None:
    """Let the workload's other Attempts in this batch see what this one was charged."""
    more = charged(after) - charged(before)
    if not more or budget(after) is None:
        return
    for no, other in list(batch.records.items()):
        if no != after.no and other.workload.uid == after.workload.uid:
            batch.put(replace(other, spent_elsewhere=other.spent_elsewhere + more))


def _billed_times(record: AttemptRecord) -> tuple[object, ...]:
    """Return what a bill depends on, but for proofs of life: those are `accrue`'s (SC-508)."""
    attempt = record.attempt
    return (
        attempt.billing_start,
        attempt.registered,
        attempt.command_started,
        attempt.finished,
        attempt.deletion_proven,
        *(
            (one.machine.key, one.machine.billing_start, one.over_at, one.lease.lost)
            for one in record.tenancies
        ),
    )


def _with_checkpoints(record: AttemptRecord) -> AttemptRecord:
    """Show the count of checkpoints from the program's start on (SC-017)."""
    if record.attempt.command_started is None or record.view.checkpoints is not None:
        return record
    return replace(record, view=replace(record.view, checkpoints=Checkpoints(count=0)))


def _recover_earlier(batch: Batch, started: AttemptRecord) -> None:
    """Complete `recoverySeconds` of the slot's earlier epochs (SC-016)."""
    at = started.attempt.command_started
    for record in list(batch.records.values()):
        if at is not None and _waits_for(record.attempt, started.attempt):
            batch.put(record.moved(advance(record.attempt, Recovered(at=at))))


def _waits_for(earlier: Attempt, started: Attempt) -> bool:
    return (
        (earlier.workload, earlier.slot) == (started.workload, started.slot)
        and earlier.epoch < started.epoch
        and earlier.interruption is not None
        and earlier.interruption.recovery_seconds is None
    )


def last_loss(slot: Slot) -> datetime | None:
    """Return when the slot lost an Attempt last; None if it never did."""
    times = [datetime.fromisoformat(one["at"]) for one in slot.lost_candidates]
    return max(times, default=None)


def losses(record: AttemptRecord) -> tuple[dict[str, str], ...]:
    """Return the slot's lost candidates, with those of this Attempt if it was Lost (SC-311).

    Not by a drill: that counts nowhere (SC-120, SC-630), and its candidate did nothing wrong.
    """
    kept = tuple(dict(one) for one in record.slot.lost_candidates)
    attempt = record.attempt
    if attempt.stage is not Stage.LOST or attempt.finished is None:
        return kept
    if attempt.interruption is not None and attempt.interruption.trigger is Trigger.DRILL:
        return kept
    lost = [
        {
            "offering": one.machine.offering,
            "market": one.machine.market.value,
            "at": attempt.finished.isoformat(),
        }
        for one in record.tenancies
        if one.machine.billing_start is not None and _lost_with(record, one)
    ]
    return (*kept, *lost)[-LOSSES_KEPT:]


def _lost_with(record: AttemptRecord, tenancy: Tenancy) -> bool:
    """Whether a machine's loss is the Attempt's: of a race without a winner, that of each."""
    if any(one.lease.won for one in record.tenancies):
        return tenancy.lease.won
    return tenancy.lease.lost is None or tenancy.lease.lost_cause is not None
