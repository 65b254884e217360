"""Whether offers deliver: what a failure puts to rest, and what ends the rest (SC-360, SC-617)."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

from nodus_api.kernel.experience import Outcome
from nodus_api.kernel.vocabulary import Market, Reason, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.storage.batch import Batch
from nodus_api.storage.offer_stats import Failure, OfferStats, read_stats, write_stats

log = logging.getLogger(__name__)

LONGEST_BACKOFF = timedelta(seconds=1800)
FIRST_BACKOFF = timedelta(seconds=30)

_NEVER_READY = (Reason.STARTUP_TIMEOUT, Reason.READINESS_FAILED)


async def note_deliveries(
    loop: LoopContext, batch: Batch, outcomes: Mapping[int, Mapping[Market, Failure | None]]
) -> set[int]:
    """Remember which offers delivered, in the transaction that writes the outcome (SC-360).

    None is a delivery. Of several outcomes at once a failure is what the next one would get.
    Refused credentials close an offer, whatever its machines on the way still bring.
    Return the offers that are closed by this.
    """
    known = await read_stats(batch.connection, list(outcomes))
    changed: dict[int, list[OfferStats]] = {}
    for offer, markets in outcomes.items():
        for market, failure in markets.items():
            before = known.get((offer, market), OfferStats(market=market, updated=batch.now))
            after = _failed(before, offer, failure, batch.now) if failure else _delivered(before)
            if after != before:
                changed.setdefault(offer, []).append(after)
    await write_stats(batch.connection, changed)
    loop.catalog.touched.update(changed)
    if any(any(markets.values()) for markets in outcomes.values()):
        loop.offers_due = loop.clock.monotonic()
    was_closed = {no for (no, _), stats in known.items() if stats.failure is Failure.AUTH}
    refused = {no for no, markets in outcomes.items() if Failure.AUTH in markets.values()}
    return refused - was_closed


async def note_starts(loop: LoopContext, batch: Batch) -> None:
    """Let the offers rest whose machines did not become ready in this transaction (SC-360).

    A program that started is the success that ends a row of failures: a grant alone is none,
    or machines that never become ready would be asked for every 30 s for ever. To be called
    when the batch's decisions are made.
    """
    outcomes: dict[int, dict[Market, Failure | None]] = {}
    for no, record in batch.records.items():
        if record.attempt.command_started and not batch.loaded[no].attempt.command_started:
            for tenancy in record.held:
                if tenancy.lease.won:
                    outcomes.setdefault(tenancy.machine.offer, {}).setdefault(
                        tenancy.machine.market, None
                    )
        drilled = record.attempt.interruption and (
            record.attempt.interruption.trigger is Trigger.DRILL
        )
        if drilled:
            continue  # its machine did nothing wrong (SC-630)
        if batch.loaded[no].attempt.live and record.attempt.reason in _NEVER_READY:
            for tenancy in record.held:
                machine = tenancy.machine
                outcomes.setdefault(machine.offer, {})[machine.market] = Failure.NEVER_READY
    if outcomes:
        await note_deliveries(loop, batch, outcomes)


def alert_of_closed(loop: LoopContext, offers: Iterable[int]) -> None:
    """Say once of each offer that it is closed, and how it is opened again (SC-617)."""
    for offer in sorted(offers):
        loop.metrics.closed_offers.inc()
        log.error(
            "an offer is closed: the supplier refuses our credentials; mend them and restart the "
            "scheduler, or it is tried again after its rest",
            extra={"offer": offer},
        )


def _delivered(stats: OfferStats) -> OfferStats:
    if stats.failure is Failure.AUTH:
        return stats
    return replace(stats.failing(None), failures_in_row=0, backoff_until=None)


def _failed(stats: OfferStats, offer: int, failure: Failure, now: datetime) -> OfferStats:
    """Let an offer rest for 30·2^k s, at most 1,800 s, ± 20 % by a hash (SC-360)."""
    if stats.failure is Failure.AUTH:
        failure = Failure.AUTH
    if failure is not Failure.AUTH:  # which tells of our credentials, not of the offer (SC-361)
        stats = stats.with_experience(stats.experience.after(Outcome(failures=1), now))
    k = stats.failures_in_row
    wait = min(FIRST_BACKOFF * (1 << min(k, 6)), LONGEST_BACKOFF)
    share = int.from_bytes(sha256(f"{offer}/{stats.market}/{k}".encode()).digest()[:4]) % 401
    return replace(
        stats.failing(failure),
        available=0,
        failures_in_row=k + 1,
        backoff_until=now + wait * (800 + share) / 1000,
        updated=now,
    )
