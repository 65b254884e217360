"""T6: a placement that came to no machine is void, and its Attempt is placed again."""

from dataclasses import replace
from datetime import datetime

from nodus_api.kernel import events
from nodus_api.kernel.lifecycle import advance
from nodus_api.scheduler.settling import released
from nodus_api.storage.records import AttemptRecord, Tenancy


def without_machine(record: AttemptRecord, now: datetime, message: str) -> AttemptRecord:
    """Send an Attempt whose machine will not come back to be placed.

    A rank stays Acquiring without a machine until its gang decides for all (SC-132).
    """
    if record.attempt.gang is not None:
        return record
    return back_to_placing(record, now, message)


def give_up(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """T6 because the time for acquiring is over: the deletion of what may exist is queued."""
    return without_machine(leave_machines(record, now), now, "no machine was granted in time")


def leave_machines(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """Let go of what was asked for: its deletion is queued, the Attempt holds it no more."""
    for tenancy in record.held:
        leaving = released(tenancy, now)
        record = record.with_tenancy(
            Tenancy(machine=leaving.machine, lease=replace(leaving.lease, released=now))
        )
    return record


def back_to_placing(record: AttemptRecord, now: datetime, message: str) -> AttemptRecord:
    """T6: the placement is void, its candidates and reasons stay shown (SC-017)."""
    moved = record.moved(advance(record.attempt, events.AcquireFailed(at=now, message=message)))
    placement = moved.view.placement
    shown = replace(placement, choice=None) if placement else None
    work = replace(moved.work, next_try=None, limit_at=None, hedge_at=None)
    return replace(moved, view=replace(moved.view, placement=shown), work=work)
