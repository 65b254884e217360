"""How what only the loop sees becomes rows and back: one function a table and direction.

All pure. What readers see is in `attempt_rows`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodus_api.kernel.attempt import Drain
from nodus_api.kernel.vocabulary import (
    LeaseRole,
    MachineState,
    Market,
    OwnerKind,
    Reason,
    SlotState,
    Trigger,
    WorkloadState,
)
from nodus_api.storage.records import (
    AttemptRecord,
    Lease,
    Loss,
    Machine,
    Slot,
    Tenancy,
    Work,
    Workload,
)

Row = sa.RowMapping | Mapping[str, Any]


def work_of(row: Row) -> Work:
    """Build the loop's own state of an Attempt."""
    return Work(
        next_try=row["next_try"],
        limit_at=row["limit_at"],
        suspect_since=row["suspect_since"],
        watermark=row["watermark"],
        accrued=row["accrued"],
        warned=row["warned"],
        drill=row["drill"],
        drill_at=row["drill_at"],
        hedge_at=row["hedge_at"],
    )


def work_row(record: AttemptRecord) -> dict[str, Any]:
    """Return the row of `attempt_work`; a part of it stands in the Attempt itself."""
    attempt, work = record.attempt, record.work
    drain = attempt.drain
    return {
        "next_try": work.next_try,
        "limit_at": work.limit_at,
        "start_deadline": attempt.start_deadline,
        "drain_cause": _cause(drain) if drain else None,
        "drain_signalled": drain.signalled if drain else None,
        "drain_deadline": drain.deadline if drain else None,
        "last_heartbeat": attempt.last_heartbeat,
        "suspect_since": work.suspect_since,
        "watermark": work.watermark,
        "accrued": work.accrued,
        "warned": work.warned,
        "drill": work.drill,
        "drill_at": work.drill_at,
        "hedge_at": work.hedge_at,
    }


def _cause(drain: Drain) -> str:
    """Return `Trigger/Reason`, with the reason that bars a replacement after it if there is one."""
    cause = f"{drain.trigger or ''}/{drain.reason}"
    return cause if drain.barred is None else f"{cause}/{drain.barred}"


def slot_of(row: Row, prefix: str = "") -> Slot:
    """Build a slot; `prefix` tells its columns in a joined row."""
    return Slot(
        workload=row["workload"],
        slot=row["slot"],
        wanted=row[prefix + "wanted"],
        current_epoch=row[prefix + "current_epoch"],
        last_seq=row[prefix + "last_seq"],
        retries_used=row[prefix + "retries_used"],
        replacements=row[prefix + "replacements"],
        backoff_k=row[prefix + "backoff_k"],
        nodus_failures=row[prefix + "nodus_failures"],
        lost_in_a_row=row[prefix + "lost_in_a_row"],
        lost_candidates=tuple(row[prefix + "lost_candidates"]),
        not_before=row[prefix + "not_before"],
        state=SlotState(row[prefix + "state"]),
    )


def slot_row(slot: Slot) -> dict[str, Any]:
    """Return a row of `slots`."""
    return {
        "workload": slot.workload,
        "slot": slot.slot,
        "wanted": slot.wanted,
        "current_epoch": slot.current_epoch,
        "last_seq": slot.last_seq,
        "retries_used": slot.retries_used,
        "replacements": slot.replacements,
        "backoff_k": slot.backoff_k,
        "nodus_failures": slot.nodus_failures,
        "lost_in_a_row": slot.lost_in_a_row,
        "lost_candidates": list(slot.lost_candidates),
        "not_before": slot.not_before,
        "state": slot.state,
    }


def workload_of(row: Row, prefix: str = "") -> Workload:
    """Build a workload from its row joined with its project's organization."""
    return Workload(
        uid=row[prefix + "uid"],
        project=row[prefix + "project"],
        organization=row["organization"],
        kind=OwnerKind(row[prefix + "kind"]),
        name=row[prefix + "name"],
        spec=row[prefix + "spec"],
        state=WorkloadState(row[prefix + "state"]),
        outcome=row[prefix + "outcome"],
        created=row[prefix + "created"],
        ended=row[prefix + "ended"],
        archived_usd=row[prefix + "archived_usd"],
    )


def workload_row(workload: Workload) -> dict[str, Any]:
    """Return a row of `workloads`."""
    return {
        "uid": workload.uid,
        "project": workload.project,
        "kind": workload.kind,
        "name": workload.name,
        "spec": workload.spec,
        "state": workload.state,
        "outcome": workload.outcome,
        "created": workload.created,
        "ended": workload.ended,
    }


def machine_of(row: Row) -> Machine:
    """Build a machine."""
    return Machine(
        no=row["no"],
        key=row["key"],
        organization=row["organization"],
        offer=row["offer"],
        offering=row["offering"],
        region_class=row["region_class"],
        market=Market(row["market"]),
        state=MachineState(row["state"]),
        handle=row["handle"],
        address=row["address"],
        requested=row["requested"],
        granted=row["granted"],
        billing_start=row["billing_start"],
        registered=row["registered"],
        releasing=row["releasing"],
        gone=row["gone"],
        gone_seen=row["gone_seen"],
        tries=row["tries"],
        next_try=row["next_try"],
        warm_until=row["warm_until"],
        image_family=row["image_family"],
        increment=timedelta(seconds=row["billing_increment_seconds"]),
        minimum=timedelta(seconds=row["minimum_seconds"]),
    )


def machine_row(machine: Machine) -> dict[str, Any]:
    """Return a row of `machines`, without its `no`."""
    return {
        "key": machine.key,
        "organization": machine.organization,
        "offer": machine.offer,
        "offering": machine.offering,
        "market": machine.market,
        "requested": machine.requested,
        "state": machine.state,
        "handle": machine.handle,
        "address": machine.address,
        "granted": machine.granted,
        "billing_start": machine.billing_start,
        "registered": machine.registered,
        "releasing": machine.releasing,
        "gone": machine.gone,
        "gone_seen": machine.gone_seen,
        "tries": machine.tries,
        "next_try": machine.next_try,
        "warm_until": machine.warm_until,
        "image_family": machine.image_family,
    }


def tenancy_of(row: Row) -> Tenancy:
    """Build a tenancy from a lease's columns (`lease_…`) joined with its machine's."""
    return Tenancy(
        machine=machine_of(row),
        lease=Lease(
            fence=row["lease_fence"],
            role=LeaseRole(row["lease_role"]),
            held=row["lease_held"],
            released=row["lease_released"],
            rate_usd_per_hour=row["lease_rate"],
            won=row["lease_won"],
            token_sha256=row["lease_token_sha256"],
            last_report=row["lease_last_report"],
            orders=tuple(row["lease_orders"]),
            pull_seconds=row["lease_pull_seconds"],
            lost=row["lease_lost"],
            lost_cause=_loss_of(row["lease_lost_cause"]),
            assigned=row["lease_assigned"],
            wiped=row["lease_wiped"],
            latest=row["lease_latest"],
        ),
    )


def lease_row(machine: int, attempt: int, lease: Lease) -> dict[str, Any]:
    """Return the columns of an open lease; its start travels as `held_from`."""
    return {
        "machine": machine,
        "attempt": attempt,
        "fence": lease.fence,
        "role": lease.role,
        "rate": lease.rate_usd_per_hour,
        "token_sha256": lease.token_sha256,
        "won": lease.won,
        "last_report": lease.last_report,
        "orders": list(lease.orders),
        "pull_seconds": lease.pull_seconds,
        "lost": lease.lost,
        "lost_cause": _loss_text(lease.lost_cause),
        "assigned": lease.assigned,
        "wiped": lease.wiped,
        "held_from": lease.held,
    }


def _loss_of(text: str | None) -> Loss | None:
    """Read `Trigger/Reason`."""
    if text is None:
        return None
    trigger, _, reason = text.partition("/")
    return Loss(trigger=Trigger(trigger), reason=Reason(reason))


def _loss_text(loss: Loss | None) -> str | None:
    return None if loss is None else f"{loss.trigger}/{loss.reason}"
