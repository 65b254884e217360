"""How one Attempt is stopped: the order, and the end where no program can have started (SC-013)."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodus_api.kernel import events
from nodus_api.kernel.attempt import Drain
from nodus_api.kernel.deadlines import drain_deadline
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage, Trigger
from nodus_api.storage.records import AttemptRecord

STOP_ORDER = "stop"


def stop(
    record: AttemptRecord, trigger: Trigger | None, reason: Reason, *, now: datetime
) -> AttemptRecord:
    """Order a stop: at once while queued, else a drain with the spec's grace (SC-013)."""
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    grace = timedelta(seconds=spec.stop_grace_seconds)
    ordered = record.moved(
        advance(
            record.attempt,
            events.StopRequested(
                at=now, trigger=trigger, reason=reason, deadline=drain_deadline(now, grace)
            ),
        )
    )
    return end_unstarted(with_stop_order(ordered, grace), now)


def stop_for_money(record: AttemptRecord, reason: Reason, *, now: datetime) -> AttemptRecord:
    """Order the stop of Funding; of what another cause drains, only forbid the replacement.

    SC-013, SC-621, SC-622.
    """
    if record.attempt.drain is None:
        return stop(record, Trigger.FUNDING, reason, now=now)
    event = events.StopRequested(at=now, trigger=Trigger.FUNDING, reason=reason)
    return record.moved(advance(record.attempt, event))


def told_of_money(drain: Drain | None) -> bool:
    """Whether a limit of money is known to the stop that stands already (SC-013)."""
    return drain is not None and (drain.trigger is Trigger.FUNDING or drain.barred is not None)


def with_stop_order(record: AttemptRecord, grace: timedelta) -> AttemptRecord:
    """Put the order to stop on every lease, where the answers to reports take it from."""
    order = {"kind": STOP_ORDER, "graceMs": grace // timedelta(milliseconds=1)}
    for tenancy in record.kept:
        ordered = replace(tenancy.lease, orders=(order,))
        record = record.with_tenancy(replace(tenancy, lease=ordered))
    return record


def without_orders(record: AttemptRecord) -> AttemptRecord:
    """Take a stop that came to nothing back from every lease."""
    for tenancy in record.kept:
        record = record.with_tenancy(replace(tenancy, lease=replace(tenancy.lease, orders=())))
    return record


def end_unstarted(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """End a drain whose program cannot have started: no machine asked for, or no start granted.

    Not while a report of its runner waits: an end that it tells of came before the stop (SC-014).
    """
    attempt = record.attempt
    if attempt.drain is None:
        return record
    never_asked = all(
        one.machine.state is MachineState.REQUESTED and one.machine.tries == 0
        for one in record.held
    )
    not_granted = not any(one.lease.won for one in record.held)
    acquiring = attempt.stage is Stage.ACQUIRING and never_asked
    starting = attempt.stage is Stage.STARTING and not_granted and not record.unheard
    if acquiring or starting:
        return record.moved(advance(attempt, events.StopCompleted(at=now)))
    return record
