"""Stops before a limit of money is reached, so that the hard cap stays rare (SC-522, SC-622)."""

from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.offering import CandidateStats
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Reason
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.stopping import stop_for_money, told_of_money
from nodus_api.storage.batch import Batch
from nodus_api.storage.spending_store import Spender, Spending

_TEARDOWN = timedelta(seconds=CandidateStats().teardown_p95)


async def stop_at_limits(loop: LoopContext) -> None:
    """Stop the Attempts of workloads that would pass maxCostUSD while they end, newest first.

    Who is stopped is decided over whole workloads, before the batches that do it.
    """
    if not await loop.agenda.any("limits"):
        return
    now, spending = await loop.agenda.now(), await loop.workloads.spending()
    reached = {
        one.no
        for workload in spending
        if _exhausted(workload, now)
        for one in workload.spenders
        if not told_of_money(one.drain)
    }

    async def work(batch: Batch) -> None:
        for record in reversed(list(batch.records.values())):
            if record.no in reached and record.attempt.live:
                batch.put(stop_for_money(record, Reason.MAX_COST_REACHED, now=batch.now))

    await loop.in_batches("limits", sorted(reached, reverse=True), work)


def _exhausted(workload: Spending, now: datetime) -> bool:
    """Whether what is charged, and what the ends would still cost, reaches the limit."""
    spec = WorkloadSpec.from_json(workload.kind, workload.spec)
    limit = spec.limits.max_cost_usd
    if limit is None:
        return False
    grace = timedelta(seconds=spec.stop_grace_seconds)
    ends = sum((_until_gone(one, grace, now) for one in workload.spenders), Decimal(0))
    return workload.charged_usd + ends >= limit


def _until_gone(spender: Spender, grace: timedelta, now: datetime) -> Decimal:
    """Return what an Attempt costs beyond its bill if it is stopped now and uses its grace."""
    unbilled = max(now - spender.billed_until, timedelta(0))
    time = unbilled + grace + _TEARDOWN + spender.increment
    return cumulative_usd(spender.rate_usd_per_hour, time // timedelta(seconds=1))
