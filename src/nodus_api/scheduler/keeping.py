"""Which machines of an ended Attempt are kept for another one, and what they cost idle (SC-343).

Kept means: to be wiped, then nobody's until `warm_until`. Its row stays Registered, its lease ends
with the wipe.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.billing import SECOND, billed_seconds
from nodus_api.kernel.moments import floored
from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import MachineState, Reason, SlotState, WorkloadState
from nodus_api.kernel.warmth import SURVIVOR_IDLE, idle_time, leaves_healthy
from nodus_api.storage.machine_store import IdleMachine
from nodus_api.storage.records import AttemptRecord, IdleTime, Tenancy


def image_family(spec: WorkloadSpec) -> str:
    """Return what machines must have pulled to be warm for a workload."""
    return spec.template.image or ""


def kept_for(record: AttemptRecord) -> timedelta:
    """Return how long the machine of an ended Attempt is kept: 0 if not at all (SC-343)."""
    if record.workload.state is WorkloadState.DELETED:
        return timedelta(0)
    attempt = record.attempt
    restarts = attempt.gang is not None and record.slot.state is SlotState.OPEN
    if restarts and attempt.reason is Reason.RELEASED:
        return SURVIVOR_IDLE  # SC-134
    return idle_time(WorkloadSpec.from_json(record.workload.kind, record.workload.spec))


def keep_machine(before: AttemptRecord, record: AttemptRecord, now: datetime) -> AttemptRecord:
    """Mark the one healthy machine of an Attempt that has just ended as one to keep."""
    idle, several = kept_for(record), record.kept
    if not idle or len(several) != 1:
        return record
    (tenancy,) = several
    registered = tenancy.machine.state is MachineState.REGISTERED
    if not registered or not leaves_healthy(record.attempt, before.attempt.drain):
        return record
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    machine = replace(
        tenancy.machine,
        warm_until=now + idle,
        image_family=image_family(spec),
        tries=0,
        next_try=None,
    )
    return record.with_tenancy(replace(tenancy, machine=machine))


def idle_until_assigned(idle: IdleMachine, now: datetime) -> IdleTime | None:
    """Return what a warm machine cost between two Attempts; None if that was no second."""
    start, end = floored(idle.since), floored(now)
    return _idle_time(idle.machine.no, idle.rate_usd_per_hour, start, end)


def idle_until_gone(tenancy: Tenancy) -> IdleTime | None:
    """Return what a machine that nobody took cost until its end, padding included (SC-507)."""
    machine, lease = tenancy.machine, tenancy.lease
    if machine.gone is None or machine.billing_start is None or lease.wiped is None:
        return None
    began = floored(machine.billing_start)
    length = (floored(machine.gone) - began) // SECOND
    whole = billed_seconds(length, machine.increment, machine.minimum)
    end = began + whole * SECOND
    return _idle_time(machine.no, lease.rate_usd_per_hour, floored(lease.wiped), end)


def _idle_time(
    number: int | None, rate_usd_per_hour: Decimal, start: datetime, end: datetime
) -> IdleTime | None:
    if number is None or end <= start:
        return None
    return IdleTime(
        machine=number,
        start=start,
        end=end,
        rate_usd_per_hour=rate_usd_per_hour,
        usd=cumulative_usd(rate_usd_per_hour, (end - start) // SECOND),
    )
