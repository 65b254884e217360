"""What money that came back means for those who wait for it (SC-620, SC-623)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from uuid import UUID

from nodus_api.kernel import funding
from nodus_api.kernel.funding import Account
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import SlotState, WaitingFor, WorkloadState
from nodus_api.scheduler.catalog import Catalog
from nodus_api.scheduler.claiming import lowest_price
from nodus_api.scheduler.context import LoopContext
from nodus_api.storage import due
from nodus_api.storage.batch import Batch

Balances = dict[str, Decimal | None]


async def use_returned_funds(loop: LoopContext, *, look: bool) -> bool:
    """Let those try again who wait for Funds, and reopen Unfunded slots, as far as money goes.

    Balances are looked at in each pass in which somebody waits, and what they were in the last one
    is remembered: who waits is woken where there is more. Unfunded slots are looked at where there
    is not the same, and with `look` in any case. Returns whether a slot was opened.
    """
    if not loop.offers_known:
        return False  # nothing is placed, and no start has a price
    if not await loop.agenda.any("funds"):
        loop.balances = {}
        return False
    accounts = await loop.funds.accounts()
    before, loop.balances = loop.balances, {one: acc.balance for one, acc in accounts.items()}
    changed = {
        name: one
        for name, one in accounts.items()
        if name not in before or before[name] != one.balance
    }
    grown = [name for name, one in changed.items() if _grew(before.get(name), one.balance)]
    await _hasten(loop, [name for name in changed if name not in before or name in grown])
    return await _reopen(loop, accounts if look else changed)


def _grew(before: Decimal | None, now: Decimal | None) -> bool:
    return before is not None and (now is None or now > before)


async def _hasten(loop: LoopContext, organizations: Iterable[str]) -> None:
    """Let those who wait for Funds try again in this pass, the oldest first."""
    wanted = frozenset(organizations)
    if not wanted:
        return

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            waits = record.attempt.waiting_for is WaitingFor.FUNDS
            if waits and record.workload.organization in wanted:
                batch.put(replace(record, work=replace(record.work, next_try=None)))

    nos = await loop.attempts.nos(due.waiting_for_funds(loop.pace.batch))
    await loop.in_batches("hasten funds", nos, work)


async def _reopen(loop: LoopContext, accounts: Mapping[str, Account]) -> bool:
    """Open Unfunded slots whose next start can be held, the lowest first (SC-623)."""
    free: Balances = {
        name: one.balance for name, one in accounts.items() if one.balance is None or one.balance
    }
    uids = await loop.agenda.workloads("unfunded") if free else []
    if not uids:
        return False
    catalog = await loop.view.look(await loop.agenda.now())
    opened = False
    for uid in uids:
        work = partial(_reopen_slots, loop, uid, catalog, free)
        opened |= bool(await loop.item("funds", uid, work))
    return opened


async def _reopen_slots(loop: LoopContext, uid: UUID, catalog: Catalog, free: Balances) -> bool:
    async with loop.workloads.edit(loop.reign.token, uid) as edit:
        workload = edit.workload
        if workload is None or workload.state is not WorkloadState.ACTIVE:
            return False
        spec = WorkloadSpec.from_json(workload.kind, workload.spec)
        price = lowest_price(spec, catalog.snapshot)
        if price is None or workload.organization not in free:
            return False
        amount = funding.start_amount(price, spec.limits.max_cost_usd)
        over = [one.slot for one in edit.slots.values() if not one.live]
        unfunded = [slot for slot in over if slot.state is SlotState.UNFUNDED]
        starts = unfunded if spec.gang is None else over  # of a gang all ranks start again
        if spec.gang is not None and len(over) < len(edit.slots):
            return False  # some still end
        affordable = _affordable(free[workload.organization], amount, len(starts))
        if spec.gang is not None and affordable < len(starts):
            return False
        unfunded.sort(key=lambda one: (len(one.slot), one.slot))
        opened = [
            replace(slot, state=SlotState.OPEN, not_before=None)
            for slot in (unfunded[:affordable] if spec.gang is None else unfunded)
        ]
        await edit.put_slots(opened)
        _spend(free, workload.organization, amount * min(affordable, len(starts)))
        return bool(opened)


def _affordable(left: Decimal | None, amount: Decimal, most: int) -> int:
    """Return how many of at most so many starts can be held."""
    return most if left is None or not amount else min(most, int(left // amount))


def _spend(free: Balances, organization: str, amount: Decimal) -> None:
    """Set aside for the rest of this step what the starts will be held."""
    left = free[organization]
    free[organization] = None if left is None else left - amount
