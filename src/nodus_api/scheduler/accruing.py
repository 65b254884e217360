"""What running machines have cost so far, at most once a minute an Attempt (step 11, SC-508)."""

from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.settling import count_costs
from nodus_api.storage import due
from nodus_api.storage.batch import Batch


async def accrue(loop: LoopContext) -> None:
    """Bring the bills of live Attempts up to their last proof of life."""
    query = due.accruable(loop.pace.placed_at_once, every=loop.pace.accrual)

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            batch.put(count_costs(record))

    await loop.in_batches("accrue", await loop.attempts.nos(query), work)
