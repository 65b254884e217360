"""What running machines have cost so far, at most once a minute an Attempt (step 11, SC-508)."""

from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.settling import count_costs, share_budget
from nodus_api.storage import due
from nodus_api.storage.batch import Batch


async def accrue(loop: LoopContext) -> None:
    """Bring the bills of live Attempts up to their last proof of life."""
    query = due.accruable(loop.pace.placed_at_once, every=loop.pace.accrual)

    async def work(batch: Batch) -> None:
        for no in list(batch.records):
            latest = batch.records[no]
            if not latest.attempt.live:  # its bill is counted by what ends it
                continue
            counted = count_costs(latest)
            batch.put(counted)
            share_budget(batch, latest, counted)

    await loop.in_batches("accrue", await loop.attempts.nos(query), work)
