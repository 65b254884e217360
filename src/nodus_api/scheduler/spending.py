"""Stops before a limit of money is reached, so that the hard cap stays rare (SC-522, SC-622)."""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.offering import CandidateStats
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Reason, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.settling import billed, budget, charged
from nodus_api.scheduler.stopping import stop
from nodus_api.storage import due
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord

_TEARDOWN = timedelta(seconds=CandidateStats().teardown_p95)


async def stop_at_limits(loop: LoopContext) -> None:
    """Stop the Attempts of workloads that would pass maxCostUSD while they end, newest first."""
    nos = await loop.attempts.nos(due.limited(loop.pace.placed_at_once))

    async def work(batch: Batch) -> None:
        workloads: dict[UUID, list[AttemptRecord]] = defaultdict(list)
        for record in batch.records.values():
            if record.attempt.live:
                workloads[record.workload.uid].append(record)
        for live in workloads.values():
            if _exhausted(live, batch.now):
                for record in reversed(live):
                    if record.attempt.drain is None:
                        batch.put(
                            stop(record, Trigger.FUNDING, Reason.MAX_COST_REACHED, now=batch.now)
                        )

    await loop.in_batches("limits", nos, work)


def _exhausted(live: list[AttemptRecord], now: datetime) -> bool:
    """Whether what is charged, and what the ends would still cost, reaches the limit."""
    first = live[0]
    left = budget(first)
    if left is None:
        return False
    ends = sum((_until_gone(record, now) for record in live), Decimal(0))
    return charged(first) + ends >= left


def _until_gone(record: AttemptRecord, now: datetime) -> Decimal:
    """Return what an Attempt costs beyond its bill if it is stopped now and uses its grace."""
    tenancy = billed(record)
    if tenancy is None:
        return Decimal(0)
    segments = record.view.segments
    since = segments[-1].end if segments else record.attempt.billing_start or now
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    grace = timedelta(seconds=spec.stop_grace_seconds)
    time = max(now - since, timedelta(0)) + grace + _TEARDOWN + tenancy.machine.increment
    return cumulative_usd(tenancy.lease.rate_usd_per_hour, time // timedelta(seconds=1))
