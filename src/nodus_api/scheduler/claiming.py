"""The money of a start: held before an Attempt is claimed, or waited for (T2, T3, SC-620)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal

from nodus_api.kernel import events, funding
from nodus_api.kernel.funding import InsufficientFunds, Price
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.money import ZERO, format_usd
from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import Decision, Outcome
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Stage, WaitingFor
from nodus_api.scheduler.catalog import Catalog
from nodus_api.scheduler.holding import hold_start, price_of
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord

TRY_AGAIN = timedelta(seconds=60)
"""Money that comes back wakes who waits for it; this is how often it is looked for besides."""

_NO_TIME = timedelta(0)


def funded(
    batch: Batch,
    ranks: Sequence[AttemptRecord],
    spec: WorkloadSpec,
    decision: Decision,
    catalog: Catalog,
    budget: Decimal | None,
) -> list[AttemptRecord]:
    """Return one Attempt, or all ranks of a gang, with the hold that the decision asks for.

    At the rate of the placement; where nothing is chosen, at the lowest of what is asked for,
    unless they have a hold already, which stays (SC-621). `budget` is what maxCostUSD leaves to
    all of them. Raises InsufficientFunds.
    """
    if decision.outcome is Outcome.UNPLACEABLE:  # it ends in this transaction, by T5
        return list(ranks)
    price = _chosen_price(decision, catalog, batch.now, machines=len(ranks))
    if price is None:
        if all(one.hold is not None for one in ranks):
            return list(ranks)
        price = lowest_price(spec, catalog.snapshot)
    if price is None:
        return list(ranks)
    return hold_start(batch, ranks, price, _share(budget, len(ranks)))


def lowest_price(spec: WorkloadSpec, snapshot: CatalogSnapshot) -> Price | None:
    """Return the lowest price of the families that a spec asks for; None if there is none."""
    asked, limit = spec.resources, spec.limits.max_rate_usd_per_hour
    names = asked.accelerators or (None,)
    return funding.cheapest(
        price_of(one.rate, one.stats, increment=timedelta(seconds=1), minimum=_NO_TIME)
        for name in names
        for one in snapshot.families.get((name, asked.count), ())
        if limit is None or one.rate <= limit
    )


def unfunded(
    record: AttemptRecord, spec: WorkloadSpec, lack: InsufficientFunds, now: datetime
) -> AttemptRecord:
    """Let an Attempt wait for Funds, Pending; the wait's own end is set when it begins (SC-620)."""
    attempt = record.attempt
    kind = events.Waits if attempt.stage is Stage.PENDING else events.NoOffering
    waits = attempt.waiting_for is WaitingFor.FUNDS and record.work.limit_at is not None
    longest = timedelta(seconds=spec.limits.funding_wait_seconds)
    again = now + TRY_AGAIN
    moved = record.moved(
        advance(
            attempt,
            kind(at=now, waiting_for=WaitingFor.FUNDS, message=_message(lack), until=again),
        )
    )
    limit_at = record.work.limit_at if waits else now + longest
    return replace(moved, work=replace(moved.work, next_try=again, limit_at=limit_at))


def _chosen_price(
    decision: Decision, catalog: Catalog, now: datetime, *, machines: int
) -> Price | None:
    if decision.chosen is None:
        return None
    candidate = decision.chosen.candidate
    offer = catalog.choose(candidate.key, now, machines=machines)
    return price_of(
        candidate.rate,
        candidate.stats,
        increment=offer.increment if offer else timedelta(seconds=1),
        minimum=offer.minimum if offer else _NO_TIME,
    )


def _share(budget: Decimal | None, ranks: int) -> Decimal | None:
    """Return what of a budget is each rank's: to hold all of it for each would hold it often."""
    if budget is None:
        return None
    return (budget / ranks).quantize(ZERO, rounding=ROUND_DOWN)


def _message(lack: InsufficientFunds) -> str:
    return (
        f"the start needs {format_usd(lack.asked)} USD to be held, "
        f"{format_usd(lack.balance)} USD of the organization's funds are free"
    )
