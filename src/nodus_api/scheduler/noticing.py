"""Reclaims that a supplier announced become drains (SC-013, SC-701).

A notice is known as long as the supplier tells it, so it is asked again and again, and nothing
is remembered here.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from nodus_api.kernel import events
from nodus_api.kernel.deadlines import NOTICE_OVERTIME, drain_deadline
from nodus_api.kernel.drills import Loss
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Reason, Stage, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.desiring import end_unstarted, with_stop_order
from nodus_api.scheduler.drilling import drill_of
from nodus_api.scheduler.racing import rivals, without
from nodus_api.storage import records
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord, Tenancy
from nodus_api.suppliers.supplier import Notice

log = logging.getLogger(__name__)

_NOTICED = (Stage.STARTING, Stage.RUNNING)


async def take_notices(loop: LoopContext, *, look: bool) -> None:
    """Drain what the supplier is about to reclaim; with `look`, ask again what that is."""
    for answer in loop.calls.notices.returned().values():
        if isinstance(answer, Exception):
            loop.failed_call("notices", answer)
            log.warning("the supplier could not be asked for notices", extra={"cause": str(answer)})
        elif answer:
            await _apply(loop, {one.handle: one.deadline for one in answer})
    wanted = look or loop.notices_due
    if loop.supplier.caps.notices and wanted and loop.calls.notices.send("all", lambda: _all(loop)):
        loop.notices_due = False


async def _all(loop: LoopContext) -> list[Notice]:
    return [notice async for notice in loop.supplier.notices()]


async def _apply(loop: LoopContext, deadlines: Mapping[str, datetime]) -> None:
    sightings = await loop.machines.observable()

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            for tenancy in record.kept:  # one that lost its race is going anyway (SC-342)
                deadline = deadlines.get(tenancy.machine.handle or "")
                if deadline is not None:
                    record = _noticed(loop, record, tenancy, deadline, batch.now)
            batch.put(record)

    attempts = {one.attempt for one in sightings if one.handle in deadlines}
    await loop.in_batches("notices", sorted(attempts), work)


def _noticed(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    deadline: datetime,
    now: datetime,
) -> AttemptRecord:
    """Begin the drain of a notice, or bring a standing drain's deadline nearer (SC-013).

    A notice whose deadline passed so long ago came to nothing (scenario 23). Of two machines that
    race for the start the noticed one is out (SC-342): the other one runs the program.
    """
    attempt = record.attempt
    if attempt.stage not in _NOTICED or now >= deadline + NOTICE_OVERTIME:
        return record
    standing = attempt.drain
    if standing is not None and standing.deadline is not None and standing.deadline <= deadline:
        return record
    drill = drill_of(record)
    drilled = drill is not None and drill.loss is Loss.PREEMPTION and drill.in_force(attempt, now)
    trigger = Trigger.DRILL if drilled else Trigger.PREEMPTION_NOTICE
    if standing is None and not tenancy.lease.won and rivals(record, tenancy):
        return without(record, tenancy, now, records.Loss(trigger=trigger, reason=Reason.PREEMPTED))
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    end = drain_deadline(now, timedelta(seconds=spec.stop_grace_seconds), deadline)
    ordered = record.moved(
        advance(
            attempt,
            events.StopRequested(
                at=now,
                trigger=trigger,
                reason=Reason.PREEMPTED,
                deadline=end,
            ),
        )
    )
    if standing is None:
        loop.metrics.notices.labels(outcome="drained").inc()
        log.warning("a machine will be reclaimed", extra={"attempt": attempt.name})
    drain = ordered.attempt.drain
    grace = end if drain is None or drain.deadline is None else drain.deadline
    return end_unstarted(with_stop_order(ordered, max(grace - now, timedelta(0))), now)
