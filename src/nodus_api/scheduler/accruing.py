"""What running machines have cost so far, at most once a minute an Attempt (step 11, SC-508)."""

from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.settling import count_costs, share_budget
from nodus_api.storage.batch import Batch


async def accrue(loop: LoopContext) -> None:
    """Bring the bills of live Attempts up to their last proof of life."""
    nos = await loop.agenda.attempts("accrue")
    wanted = frozenset(nos)

    async def work(batch: Batch) -> None:
        for no in list(batch.records):
            latest = batch.records[no]
            # not the other ranks of a gang; and a bill that ended is counted by what ended it
            if no not in wanted or not latest.attempt.live:
                continue
            counted = count_costs(latest)
            batch.put(counted)
            share_budget(batch, latest, counted)

    await loop.in_batches("accrue", nos, work)
