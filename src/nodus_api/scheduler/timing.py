"""What time alone decides: limits that passed, silence, drains that are over (step 8)."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from nodus_api.kernel import deadlines, events
from nodus_api.kernel.deadlines import Overdue, Silence
from nodus_api.kernel.gang import waits_at_barrier
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import Reason, Stage, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.deliveries import note_starts
from nodus_api.scheduler.drilling import as_drilled
from nodus_api.scheduler.ganging import release_late_ranks
from nodus_api.scheduler.handing_back import give_up
from nodus_api.scheduler.lasting import limits_of
from nodus_api.scheduler.racing import lose_machine, oldest, rivals, without
from nodus_api.scheduler.setbacks import LONGEST_OF_CALLS
from nodus_api.scheduler.settling import ranks_with, release_machines
from nodus_api.scheduler.stopping import end_unstarted, stop, stop_for_money, without_orders
from nodus_api.storage.batch import Batch
from nodus_api.storage.machine_store import Sighting
from nodus_api.storage.records import AttemptRecord
from nodus_api.suppliers.supplier import Order

log = logging.getLogger(__name__)

_SIGNAL = "signal of a machine"
"""The name of failing signals among the setbacks: each is tried again after 1 s to 60 s."""

VOUCHED_FOR = timedelta(seconds=30)
"""How long the supplier's word that a machine runs is good for."""


async def apply_deadlines(
    loop: LoopContext, running: Mapping[int, datetime], *, asked: bool = True
) -> None:
    """Move every Attempt whose time is up. `running`: machines the supplier vouched for.

    `asked` tells whether the supplier has answered, or failed to, in this reign: until then a
    silent machine is given the time of one that it vouches for.
    """
    away = loop.reign.away > deadlines.TAKE_OVER_GAP
    since = loop.reign.since if away else None

    async def work(batch: Batch) -> None:
        release_late_ranks(batch)
        for record in list(batch.records.values()):
            if record.attempt.live:
                waits = waits_at_barrier(ranks_with(batch, record), record.attempt)
                moved = record if waits else _overdue(record, batch.now)
                if record.attempt.drain and moved.attempt.live and not moved.attempt.drain:
                    loop.metrics.notices.labels(outcome="cleared").inc()
                vouched = not asked or _vouched(moved, running, batch.now)
                batch.put(_silent(moved, vouched, since, batch.now))
        await note_starts(loop, batch)

    await loop.in_batches("deadlines", await loop.agenda.attempts("deadlines"), work)


def _overdue(record: AttemptRecord, now: datetime) -> AttemptRecord:
    attempt = record.attempt
    what = deadlines.overdue(
        attempt, now, limit_at=record.work.limit_at, limits=limits_of(record.workload)
    )
    if what is None:
        return _in_time(record, now)
    log.info("a limit has passed", extra={"attempt": attempt.name, "limit": what.value})
    match what:
        case Overdue.START_DEADLINE:
            passed = record.moved(advance(attempt, events.StartDeadlinePassed(at=now)))
            return end_unstarted(passed, now)
        case Overdue.FUNDING:
            return stop_for_money(record, Reason.UNFUNDED, now=now)
        case Overdue.ACQUIRE:
            return _not_granted(record, now)
        case Overdue.STARTUP:
            return _never_ready(record, now)
        case Overdue.IMAGE_PULL:
            fault = events.StartFault(at=now, reason=Reason.IMAGE_PULL_FAILED)
            return record.moved(advance(attempt, fault))
        case Overdue.DURATION:
            fault_ = events.RunFault(at=now, reason=Reason.DEADLINE_EXCEEDED)
            return record.moved(advance(attempt, fault_))
        case Overdue.IDLE:
            return stop(record, None, Reason.RELEASED, now=now)
        case Overdue.DRAIN | Overdue.NOTICE:
            return _drained(record, now, cleared=what is Overdue.NOTICE)


def _drained(record: AttemptRecord, now: datetime, *, cleared: bool) -> AttemptRecord:
    """End a drain that saw no exit, or clear a notice that came to nothing (SC-013)."""
    attempt = record.attempt
    if cleared:
        return without_orders(record.moved(advance(attempt, events.NoticeCleared(at=now))))
    over = events.StopCompleted(at=deadlines.drain_end(attempt, now))
    return record.moved(advance(attempt, over))


def _in_time(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """End what a stop waits for no more, though no limit of its own has passed."""
    if _waits_in_vain(record, now):
        record = release_machines(record, now)
    return end_unstarted(record, now)


def _not_granted(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """T6 by the time for acquiring; of two machines that race, only the older one's is over."""
    late = oldest(record)
    if late is not None and rivals(record, late):
        return without(record, late, now)
    return give_up(record, now)


def _never_ready(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """T12 by the time for starting; of two machines that race, only the older one's is over."""
    event = as_drilled(
        record,
        events.CapacityLost(at=now, trigger=Trigger.STARTUP_TIMEOUT, reason=Reason.STARTUP_TIMEOUT),
        now,
    )
    late = oldest(record)
    if late is None:
        return record.moved(advance(record.attempt, event))
    return lose_machine(record, late, event, now)


def _waits_in_vain(record: AttemptRecord, now: datetime) -> bool:
    """Whether a stop still waits for a grant when the time for acquiring is over (SC-006a).

    The machine is deleted then; the proof that it is gone ends the Attempt.
    """
    limit, attempt = record.work.limit_at, record.attempt
    acquiring = attempt.stage is Stage.ACQUIRING and attempt.drain is not None
    return acquiring and limit is not None and now >= limit


def _vouched(record: AttemptRecord, running: Mapping[int, datetime], now: datetime) -> bool:
    """Whether the supplier said lately that a machine of the Attempt runs."""
    seen = [running[one.machine.no or 0] for one in record.kept if one.machine.no in running]
    return any(now - at <= VOUCHED_FOR for at in seen)


def _silent(
    record: AttemptRecord, vouched: bool, since: datetime | None, now: datetime
) -> AttemptRecord:
    """Suspect a silent machine, or give it up (SC-614)."""
    attempt = record.attempt
    if attempt.stage is not Stage.RUNNING:
        return record
    match deadlines.silence(attempt, now, vouched=vouched, since=since):
        case Silence.NONE:
            return _suspected(record, None)
        case Silence.SUSPECT:
            return _suspected(record, record.work.suspect_since or now)
        case Silence.LOST:
            log.warning("a machine fell silent", extra={"attempt": attempt.name})
            event = events.CapacityLost(
                at=now, trigger=Trigger.HEARTBEAT_LOSS, reason=Reason.NODE_LOST
            )
            return record.moved(advance(attempt, as_drilled(record, event, now)))


def _suspected(record: AttemptRecord, since: datetime | None) -> AttemptRecord:
    return replace(record, work=replace(record.work, suspect_since=since))


async def pass_orders_on(loop: LoopContext) -> None:
    """Tell machines of draining Attempts to stop; the answers to their reports tell them too."""
    answers = loop.calls.signals.returned()
    if not await loop.agenda.any("signal"):
        return
    sightings = await loop.machines.signallable(loop.pace.batch)
    now, at = await loop.agenda.now(), loop.clock.monotonic()
    for no, answer in answers.items():
        if isinstance(answer, Exception):
            loop.failed_call("signal", answer)
            loop.setbacks.failed((_SIGNAL, no), at, longest=LONGEST_OF_CALLS)
        else:
            loop.setbacks.passed((_SIGNAL, no))
    for one in sightings:
        rested = one.no not in answers and loop.setbacks.over((_SIGNAL, one.no), at)
        if rested and one.handle is not None:
            call = partial(loop.supplier.signal, one.handle, _order(one, now))
            loop.calls.signals.send(one.no, call)
    reached = {
        one.attempt
        for one in sightings
        if one.no in answers and not isinstance(answers[one.no], Exception)
    }

    async def work(batch: Batch) -> None:
        for no, record in list(batch.records.items()):
            if no in reached and record.attempt.live and record.attempt.drain is not None:
                signalled = events.StopSignalled(at=batch.now)
                batch.put(record.moved(advance(record.attempt, signalled)))

    await loop.in_batches("signal", sorted(reached), work)


def _order(sighting: Sighting, now: datetime) -> Order:
    deadline: datetime | None = sighting.details["drain_deadline"]
    grace = timedelta(0) if deadline is None else max(deadline - now, timedelta(0))
    return Order(kind="stop", grace=grace)
