"""Holds of Attempts within a batch: placed at T2, renewed, captured, released (SC-620, SC-621).

The batch carries each organization's account along, so that what one Attempt takes is missing for
the next; `storage.fund_store` writes the differences.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from nodus_api.kernel import funding
from nodus_api.kernel.billing import actual
from nodus_api.kernel.funding import Account, Hold, InsufficientFunds, Price
from nodus_api.kernel.offering import CandidateStats
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord, Tenancy


def account_of(batch: Batch, record: AttemptRecord) -> Account:
    """Return the money of the Attempt's organization as this batch leaves it."""
    name = record.workload.organization
    return batch.accounts.get(name) or Account(organization=name)


def payable(batch: Batch, record: AttemptRecord) -> Decimal | None:
    """Return what the Attempt may be charged in all: its hold and the balance (SC-522)."""
    return funding.payable(account_of(batch, record), record.hold)


def settle_hold(batch: Batch, record: AttemptRecord) -> AttemptRecord:
    """Capture what the Attempt is charged, and release the hold of one that is over (SC-621).

    Over is T18, or an end without any machine. What ended before holds were kept has none.
    """
    attempt, hold = record.attempt, record.hold
    gone = attempt.deletion_proven is not None or not record.tenancies
    over = not attempt.live and gone
    cost = actual(record.view.segments).cost_usd
    if hold is None and (over or not cost):
        return record
    after = funding.charged_to(hold, cost)
    if over and after.released is None:
        after = replace(after, released=batch.now)
    return _holding(batch, record, after)


def hold_start(
    batch: Batch, ranks: Sequence[AttemptRecord], price: Price, budget: Decimal | None
) -> list[AttemptRecord]:
    """Hold what a start of each rank takes at that price (T2), or adjust it to that (T3).

    Raises InsufficientFunds if the money is not there for all; then nothing is held.
    """
    amount = funding.start_amount(price, budget)
    account = account_of(batch, ranks[0])
    holds = [funding.raised(record.hold, amount) for record in ranks]
    needed = sum((hold.held for hold in holds), Decimal(0))
    standing = sum(((one.hold or funding.NOTHING).held for one in ranks), Decimal(0))
    if account.balance is not None and needed - standing > account.balance:
        raise InsufficientFunds(needed - standing, account.balance)
    return [_holding(batch, record, hold) for record, hold in zip(ranks, holds, strict=True)]


def renewed(
    batch: Batch, record: AttemptRecord, tenancy: Tenancy, budget: Decimal | None
) -> AttemptRecord:
    """Keep 15 min and the end after them held ahead of what is charged (SC-621).

    `tenancy` is the machine that is billed. Raises InsufficientFunds if that cannot be had in full.
    """
    bill = actual(record.view.segments)
    clock = timedelta(seconds=sum(one.seconds for one in record.view.segments))
    amount = funding.ahead_amount(
        price_of(
            tenancy.lease.rate_usd_per_hour,
            CandidateStats(),
            increment=tenancy.machine.increment,
            minimum=tenancy.machine.minimum,
        ),
        charged=bill.cost_usd,
        clock=clock,
        budget=budget,
    )
    standing = record.hold or funding.NOTHING
    if amount <= standing.amount:
        return record
    return _holding(batch, record, replace(standing, amount=amount))


def price_of(
    rate_usd_per_hour: Decimal,
    stats: CandidateStats,
    *,
    increment: timedelta,
    minimum: timedelta,
) -> Price:
    """Return what a candidate costs, as a hold reckons with it."""
    return Price(
        rate_usd_per_hour=rate_usd_per_hour,
        boot=timedelta(seconds=stats.boot_p95),
        teardown=timedelta(seconds=stats.teardown_p95),
        increment=increment,
        minimum=minimum,
    )


def _holding(batch: Batch, record: AttemptRecord, hold: Hold) -> AttemptRecord:
    """Give the Attempt that hold, and move the money in the batch's account."""
    if hold == record.hold:
        return record
    account = account_of(batch, record).after(record.hold, hold)
    batch.accounts[account.organization] = account
    return replace(record, hold=hold)
