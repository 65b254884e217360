"""What the ranks of a gang do together, whichever step moved one of them (SC-130 to SC-135).

A batch holds all ranks of a gang epoch or none, so what follows for the others is decided and
written in the transaction that moved the one. Drawn before `settle`, which then releases and
bills whoever ended by it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.batch import Turn, in_turn
from nodus_api.kernel.gang import (
    END_WINDOW,
    all_registered,
    first_failed,
    has_succeeded,
    late_ranks,
)
from nodus_api.kernel.replacement import (
    MAX_UNSTARTED_GANGS,
    Replacement,
    decide_unstarted_gang,
)
from nodus_api.kernel.vocabulary import Reason, SlotState, Stage, WorkloadState
from nodus_api.scheduler.checkpointing import commit_together
from nodus_api.scheduler.handing_back import back_to_placing, leave_machines
from nodus_api.scheduler.settling import (
    barred,
    count_costs,
    counters_of,
    decide_slot,
    decided_workload,
    decision_on,
    last_loss,
    losses,
    release_machines,
    restore_lost,
    shortest_start,
    with_counters,
)
from nodus_api.scheduler.stopping import stop
from nodus_api.storage.batch import Batch
from nodus_api.storage.gang_store import GangEpoch, starts_of
from nodus_api.storage.records import AttemptRecord

log = logging.getLogger(__name__)

Ranks = list[AttemptRecord]
"""All ranks of one gang epoch, in order of rank."""


def chunks(nos: Sequence[int], gangs: Mapping[int, GangEpoch], most: int) -> Iterable[list[int]]:
    """Split Attempts into transactions of at most `most`, in their order; no gang is split.

    A gang counts with all its ranks, named or not, since a batch takes them all. One that is
    larger than `most` makes a transaction of its own.
    """
    chunk: list[int] = []
    weight = 0
    placed: set[int] = set()
    together: dict[GangEpoch, list[int]] = {}
    for no in nos:
        if no in gangs:
            together.setdefault(gangs[no], []).append(no)
    for no in nos:
        if no in placed:
            continue
        whole = gangs.get(no)
        unit = [no] if whole is None else together[whole]
        size = 1 if whole is None else whole.size
        if chunk and weight + size > most:
            yield chunk
            chunk, weight = [], 0
        chunk += unit
        weight += size
        placed.update(unit)
    if chunk:
        yield chunk


def units(records: Iterable[AttemptRecord]) -> list[Ranks]:
    """Return what is placed at once, in turn: gangs whole, others alone (SC-371)."""
    alone: list[Ranks] = []
    gangs: dict[tuple[str, int], Ranks] = {}
    for record in records:
        gang = record.attempt.gang
        if gang is None:
            alone.append([record])
        else:
            gangs.setdefault((gang.id, gang.epoch), []).append(record)
    whole = [sorted(ranks, key=_rank) for ranks in gangs.values() if _complete(ranks)]
    return in_turn([*whole, *alone], _turn)


def _turn(ranks: Ranks) -> Turn:
    lead = ranks[0].attempt
    return Turn(
        project=lead.project,
        queued=lead.queued,
        gang=lead.gang is not None,
        id=ranks[0].no or 0,
    )


def release_late_ranks(batch: Batch) -> None:
    """Stop the ranks that still run 60 s after rank 0 exited 0 (SC-135)."""
    for ranks in _current(batch):
        late = {one.uid for one in late_ranks(_attempts(ranks), batch.now)}
        for record in ranks:
            if record.attempt.uid in late and record.attempt.drain is None:
                batch.put(stop(record, None, Reason.RELEASED, now=batch.now))


def save_together(batch: Batch, record: AttemptRecord) -> None:
    """Commit what all ranks of a record's gang epoch propose by now, if they do (SC-142)."""
    for ranks in _current(batch) if record.attempt.gang else ():
        if any(one.no == record.no for one in ranks):
            for one in commit_together(ranks):
                batch.put(one)


async def move_together(batch: Batch) -> None:
    """Draw the consequences of every change in the batch for the gangs that it touched."""
    for ranks in _current(batch):
        if any(batch.loaded[one.no or 0] != one for one in ranks):
            await _acquired_or_not(batch, ranks)
            _open_barrier(batch, _latest(batch, ranks))
            _decide(batch, _latest(batch, ranks))
            _finish(batch, _latest(batch, ranks))
            _lose_checkpoint(batch, _latest(batch, ranks))
            for one in commit_together(_latest(batch, ranks)):
                batch.put(one)


async def _acquired_or_not(batch: Batch, ranks: Ranks) -> None:
    """SC-132: a rank got no machine. All go back to be placed, or none goes on in this epoch."""
    without = [one for one in ranks if _without_machine(one)]
    if not without:
        return
    now = batch.now
    message = f"rank {_rank(without[0])} of the gang got no machine"
    if all(one.attempt.stage is Stage.ACQUIRING and one.attempt.drain is None for one in ranks):
        for one in ranks:
            batch.put(back_to_placing(leave_machines(one, now), now, message))
        return
    answer = await _after_unstarted(batch, ranks[0])
    log.info(
        "a gang could not be acquired and takes its next epoch",
        extra={"attempt": without[0].attempt.name, "cause": message},
    )
    for one in ranks:
        batch.put(_decided(batch, one, answer))
    _release(batch, _latest(batch, ranks))


def _without_machine(record: AttemptRecord) -> bool:
    """Whether a rank's machine will not come: it stays Acquiring and holds none."""
    attempt = record.attempt
    return attempt.stage is Stage.ACQUIRING and attempt.drain is None and not record.held


async def _after_unstarted(batch: Batch, lead: AttemptRecord) -> Replacement:
    attempt = lead.attempt
    known = await starts_of(
        batch.connection, attempt.workload, attempt.slot, most=MAX_UNSTARTED_GANGS
    )
    return decide_unstarted_gang(
        [replace(attempt, epoch=epoch, command_started=started) for epoch, started in known],
        workload=lead.workload.state,
        counters=counters_of(lead.slot),
        now=batch.now,
    )


def _open_barrier(batch: Batch, ranks: Ranks) -> None:
    """Give ranks that waited for others to register the time that the last one has (SC-613).

    Their own may have passed meanwhile, which did not count (SC-133).
    """
    before = [_before(batch, one) for one in ranks]
    if all_registered(before) or not all_registered(_attempts(ranks)):
        return
    starting = [one for one in ranks if one.attempt.stage is Stage.STARTING]
    limits = [one.work.limit_at for one in starting if one.work.limit_at is not None]
    for one in starting:
        batch.put(replace(one, work=replace(one.work, limit_at=max(limits, default=None))))


def _decide(batch: Batch, ranks: Ranks) -> None:
    """Decide the slots of ranks that ended: once, for the gang's first failed rank (SC-120)."""
    ended = [one for one in ranks if not one.attempt.live and _before(batch, one).live]
    if not ended:
        return
    if batch.loaded[ranks[0].no or 0].workload.state is not WorkloadState.ACTIVE:  # rule 1
        for one in ended:
            batch.put(_closed(decide_slot(one, batch.now)))
        return
    cause = first_failed(_attempts(ranks))
    undecided = first_failed([_before(batch, one) for one in ranks]) is None
    # a limit that is reached while the others drain takes the answer back (SC-013)
    if cause is not None and (undecided or _barred(batch, ended) is not None):
        _restart(batch, ranks, next(one for one in ranks if one.attempt.uid == cause.uid))
        return
    for one in ended:  # Succeeded and Released wait for the others
        if one.attempt.stage is Stage.STOPPED and one.attempt.reason is not Reason.RELEASED:
            batch.put(decide_slot(one, batch.now, barred=_barred(batch, [one])))


def _barred(batch: Batch, ranks: Ranks) -> Reason | None:
    """Return why money forbids a replacement of what drained (SC-013)."""
    reasons = (barred(batch.loaded[one.no or 0]) for one in ranks)
    return next((reason for reason in reasons if reason is not None), None)


def _restart(batch: Batch, ranks: Ranks, cause: AttemptRecord) -> None:
    """SC-134: the answer for the first failed rank, with rank 0's counters, holds for all."""
    counted = count_costs(release_machines(cause, batch.now))
    known = [at for at in (last_loss(one.slot) for one in ranks) if at is not None]
    answer = decision_on(
        counted,
        batch.now,
        counters=counters_of(ranks[0].slot),
        minimum_start_usd=sum((shortest_start(one) for one in ranks), Decimal(0)),
        previous_loss=max(known, default=None),
        barred=_barred(batch, ranks),
    )
    interruption = cause.attempt.interruption
    for one in ranks:
        moved = _decided(batch, one, answer)
        if _before(batch, one).live:
            moved = replace(moved, slot=replace(moved.slot, lost_candidates=losses(one)))
        batch.put(moved)
    trigger = interruption.trigger if interruption and answer.replaces else None
    for one in _latest(batch, ranks):
        if one.attempt.live and one.attempt.drain is None:
            batch.put(stop(one, trigger, Reason.RELEASED, now=batch.now))


def _release(batch: Batch, ranks: Ranks) -> None:
    for one in ranks:
        if one.attempt.live and one.attempt.drain is None:
            batch.put(stop(one, None, Reason.RELEASED, now=batch.now))


def _decided(batch: Batch, record: AttemptRecord, answer: Replacement) -> AttemptRecord:
    """Write an answer to one rank's slot; rank 0's keeps the counters of all."""
    slot = replace(record.slot, state=answer.slot, not_before=answer.not_before)
    if _rank(record) == 0:
        slot = with_counters(slot, answer.counters)
    workload = decided_workload(record.workload, answer, batch.now)
    return replace(record, slot=slot, workload=workload)


def _closed(record: AttemptRecord) -> AttemptRecord:
    """Keep a suspended rank's slot for the resume, even if it exited 0: the gang starts whole."""
    if record.workload.state is not WorkloadState.SUSPENDED:
        return record
    return replace(record, slot=replace(record.slot, state=SlotState.SUSPENDED))


def _finish(batch: Batch, ranks: Ranks) -> None:
    """SC-135: all slots are done once rank 0 and the others are; until then a minute runs."""
    attempts = _attempts(ranks)
    if has_succeeded(attempts):
        for one in ranks:
            batch.put(replace(one, slot=replace(one.slot, state=SlotState.SUCCEEDED)))
        return
    end = attempts[0].finished
    if attempts[0].stage is not Stage.SUCCEEDED or end is None:
        return
    for one in ranks:
        if one.attempt.live:
            limit = min(end + END_WINDOW, one.work.limit_at or end + END_WINDOW)
            batch.put(replace(one, work=replace(one.work, limit_at=limit)))


def _lose_checkpoint(batch: Batch, ranks: Ranks) -> None:
    """SC-141: a checkpoint that one rank cannot read is lost on every rank."""
    if not any(_before(batch, one).live and restore_lost(one.attempt) for one in ranks):
        return
    for one in ranks:
        if one.attempt.restore is not None:
            batch.put(replace(one, restore_lost=True))


def _current(batch: Batch) -> list[Ranks]:
    """Return the whole gangs of the batch that stand at the latest epoch of their slots."""
    return [
        ranks
        for ranks in units(batch.records.values())
        if ranks[0].attempt.gang is not None
        and all(one.attempt.epoch == one.slot.current_epoch for one in ranks)
    ]


def _complete(ranks: Ranks) -> bool:
    gang = ranks[0].attempt.gang
    return gang is not None and len(ranks) == gang.size


def _latest(batch: Batch, ranks: Ranks) -> Ranks:
    return [batch.records[one.no or 0] for one in ranks]


def _before(batch: Batch, record: AttemptRecord) -> Attempt:
    return batch.loaded[record.no or 0].attempt


def _attempts(ranks: Ranks) -> list[Attempt]:
    return [one.attempt for one in ranks]


def _rank(record: AttemptRecord) -> int:
    return record.attempt.gang.rank if record.attempt.gang else 0
