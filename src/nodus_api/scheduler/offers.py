"""What the supplier offers, as it changes, and what its change means for those who wait."""

import logging
from dataclasses import replace
from datetime import datetime
from functools import partial

from nodus_api.kernel.vocabulary import WaitingFor
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.errands import Offered
from nodus_api.scheduler.offered import kept_class, kept_offer
from nodus_api.storage import due
from nodus_api.storage.batch import Batch
from nodus_api.suppliers.catalog import CatalogConflict, merge

log = logging.getLogger(__name__)


async def sync_offers(loop: LoopContext) -> None:
    """Write down what the supplier said it offers, and ask again when that is old.

    Nothing is placed before the first answer of a reign: to an empty catalog everything
    would be unplaceable for ever.
    """
    for answer in loop.calls.offers.returned().values():
        if isinstance(answer, Exception):
            loop.failed_call("offers", answer)
            log.warning("the supplier did not say what it offers", extra={"cause": str(answer)})
        else:
            await _write(loop, answer)
    now = loop.clock.monotonic()
    if now >= loop.offers_due and loop.calls.offers.send(
        "all", partial(_ask, loop, await loop.agenda.now())
    ):
        loop.offers_due = now + loop.pace.offers.total_seconds()


async def _ask(loop: LoopContext, asked: datetime) -> Offered:
    """Ask the supplier, and note when: passes go on meanwhile and may take what it still names."""
    return Offered(asked=asked, offers=await loop.supplier.offers())


async def _write(loop: LoopContext, answer: Offered) -> None:
    try:
        catalog = merge({loop.supplier.name: answer.offers})
    except CatalogConflict as conflict:
        log.error("what the supplier offers is not believed", extra={"cause": str(conflict)})
        return
    classes = [kept_class(one) for one in catalog.classes]
    offers = [kept_offer(one.offer) for one in catalog.offers]
    roomier = await loop.catalog.sync(loop.reign.token, classes, offers, asked=answer.asked)
    loop.offers_known = True
    if roomier:
        await hasten_waiting(loop)


async def capacity_came_back(loop: LoopContext) -> None:
    """A machine is gone: ask the supplier what it has now, and let those who wait try again."""
    loop.offers_due = loop.clock.monotonic()
    await hasten_waiting(loop)


async def hasten_waiting(loop: LoopContext) -> None:
    """Let those who wait for Capacity try again in the next pass, the oldest first."""

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            if record.attempt.waiting_for in (WaitingFor.CAPACITY, WaitingFor.GANG):
                batch.put(replace(record, work=replace(record.work, next_try=None)))

    nos = await loop.attempts.nos(due.waiting_for_capacity(loop.pace.batch))
    await loop.in_batches("hasten", nos, work)
