"""T7: what a supplier's word that a machine runs does to its Attempt."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodus_api.kernel import events
from nodus_api.kernel.deadlines import starting_limit
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.moments import clamped
from nodus_api.kernel.vocabulary import MachineState, Stage
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.stopping import end_unstarted
from nodus_api.scheduler.told_times import possible
from nodus_api.storage.records import AttemptRecord, Tenancy
from nodus_api.suppliers.supplier import MachineCondition, MachineView


def seen(view: MachineView) -> bool:
    """Whether the machine has been granted: it runs, or it ran and what ended it is evidence."""
    return view.condition is not MachineCondition.PENDING


def granted(
    metrics: LoopMetrics,
    record: AttemptRecord,
    tenancy: Tenancy,
    view: MachineView,
    now: datetime,
    *,
    boot_p95: timedelta,
) -> AttemptRecord:
    """T7, and the end of a drain that waited for the grant, in one transaction (SC-006a).

    `boot_p95` is what is known of its class: how long Starting may take (SC-613).
    """
    attempt = record.attempt
    earliest = min(tenancy.machine.requested, now)
    since = possible(metrics, view.billing_start or now, of="billing", now=now, since=earliest)
    if attempt.stage is Stage.ACQUIRING:
        event = events.CapacityGranted(at=now, billing_start=view.billing_start)
        if clamped(attempt, event):
            metrics.clamped.labels(event=type(event).__name__).inc()
        attempt = advance(attempt, event)
    start = attempt.billing_start or since
    machine = replace(
        tenancy.machine,
        state=MachineState.GRANTED,
        handle=view.handle,
        address=view.address,
        granted=now,
        billing_start=max(start, tenancy.machine.requested.replace(microsecond=0)),
        gone_seen=None,
        next_try=None,
    )
    # Starting begins with the grant (SC-613), however long the machine has run unheard of
    work = replace(record.work, limit_at=now + starting_limit(boot_p95), watermark=now)
    moved = replace(record.moved(attempt), work=work)
    return end_unstarted(moved.with_tenancy(replace(tenancy, machine=machine)), now)
