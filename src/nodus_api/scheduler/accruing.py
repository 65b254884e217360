"""What running machines have cost so far, at most once a minute an Attempt (step 11, SC-508).

What is charged is captured from the Attempt's hold, and the hold renewed, in the same transaction;
where the money for that is not there, the Attempt is stopped (SC-621).
"""

import logging

from nodus_api.kernel.funding import InsufficientFunds
from nodus_api.kernel.vocabulary import Reason
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.holding import payable, renewed, settle_hold
from nodus_api.scheduler.machine_clocks import billed
from nodus_api.scheduler.settling import budget, count_costs, share_budget
from nodus_api.scheduler.stopping import stop_for_money, told_of_money
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord

log = logging.getLogger(__name__)


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
            counted = settle_hold(batch, count_costs(latest, funded=payable(batch, latest)))
            batch.put(counted)
            share_budget(batch, latest, counted)
            _keep_ahead(batch, batch.records[no])

    await loop.in_batches("accrue", nos, work)


def _keep_ahead(batch: Batch, record: AttemptRecord) -> None:
    """Renew the hold, or stop the Attempt, and the other ranks with it (SC-621)."""
    tenancy = billed(record)
    if tenancy is None or told_of_money(record.attempt.drain):
        return
    try:
        batch.put(renewed(batch, record, tenancy, budget(record)))
    except InsufficientFunds as lack:
        log.warning(
            "the funds do not cover more running time",
            extra={"attempt": record.attempt.name, "cause": str(lack)},
        )
        for one in _with_its_gang(batch, record):
            if one.attempt.live and not told_of_money(one.attempt.drain):
                batch.put(stop_for_money(one, Reason.UNFUNDED, now=batch.now))


def _with_its_gang(batch: Batch, record: AttemptRecord) -> list[AttemptRecord]:
    gang = record.attempt.gang
    if gang is None:
        return [record]
    several = [one for one in batch.records.values() if one.attempt.gang is not None]
    return [one for one in several if _epoch_of(one) == _epoch_of(record)]


def _epoch_of(record: AttemptRecord) -> tuple[str, int] | None:
    gang = record.attempt.gang
    return None if gang is None else (gang.id, gang.epoch)
