"""The catalog as placement sees it: classes with their markets, and the offers behind them."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

from nodus_api.kernel.offering import (
    CandidateKey,
    CandidateStats,
    CatalogSnapshot,
    OfferingClass,
    candidates_of,
)
from nodus_api.kernel.prediction import interruption_rate
from nodus_api.kernel.vocabulary import MachineState, Market, Reason, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import Failure, Offer, OfferStats, read_stats, write_stats
from nodus_api.storage.machine_store import IdleMachine

log = logging.getLogger(__name__)

LONGEST_BACKOFF = timedelta(seconds=1800)
FIRST_BACKOFF = timedelta(seconds=30)

_NEVER_READY = (Reason.STARTUP_TIMEOUT, Reason.READINESS_FAILED)
_GRANTED = (MachineState.GRANTED, MachineState.REGISTERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """One moment's classes for the kernel, and the private offers to choose among."""

    snapshot: CatalogSnapshot
    offers: Mapping[str, tuple[Offer, ...]]
    """Enabled offers by class, cheapest first, then by number (SC-360)."""
    warm: tuple[IdleMachine, ...] = ()
    """Warm machines that nobody has, in the order in which they are taken (SC-343)."""
    restarting: frozenset[UUID] = frozenset()
    """Workloads of gangs whose survivors' machines are about to be warm (SC-134)."""

    @classmethod
    def of(
        cls, classes: Iterable[OfferingClass], offers: Iterable[Offer], now: datetime
    ) -> "Catalog":
        """Index what was loaded; a class without an offer of this supplier is no candidate."""
        by_class: dict[str, list[Offer]] = {}
        for offer in offers:
            by_class.setdefault(offer.offering, []).append(offer)
        candidates = [
            candidate
            for offering in classes
            if offering.name in by_class
            for candidate in candidates_of(
                offering,
                {market: _class_stats(by_class[offering.name], market, now) for market in Market},
            )
        ]
        return cls(
            snapshot=CatalogSnapshot.of(candidates),
            offers={
                name: tuple(sorted(several, key=lambda one: (one.cost_on_demand, one.no or 0)))
                for name, several in by_class.items()
            },
        )

    def choose(self, key: CandidateKey, now: datetime, *, machines: int = 1) -> Offer | None:
        """Return the cheapest offer of a class that does not rest and has room (SC-360)."""
        offering, market = key
        offers = self.offers.get(offering, ())
        if market is Market.SPOT:
            offers = tuple(sorted(offers, key=lambda one: (one.cost_spot or 0, one.no or 0)))
        for offer in offers:
            room = free(offer, market)
            rests = offer.closed or backing_off(offer, market, now)
            if not rests and (room is None or room >= machines):
                return offer
        return None

    def after_taking(self, key: CandidateKey, offer: Offer, *, machines: int = 1) -> "Catalog":
        """Return the catalog with machines of an offer spoken for (SC-371)."""
        offering, _ = key
        taken = replace(offer, requested_since=offer.requested_since + machines)
        several = tuple(taken if one.no == offer.no else one for one in self.offers[offering])
        return replace(
            self,
            snapshot=self.snapshot.after_taking(key, machines),
            offers={**self.offers, offering: several},
        )

    def without_warm(self, taken: Sequence[IdleMachine]) -> "Catalog":
        """Return the catalog less warm machines that have been taken."""
        keys = {one.machine.key for one in taken}
        return replace(self, warm=tuple(one for one in self.warm if one.machine.key not in keys))

    def stats_of(self, number: int, market: Market) -> OfferStats | None:
        """Return what is known of an offer; None if it is not on offer any more."""
        for offer in (one for several in self.offers.values() for one in several):
            if offer.no == number:
                return offer.stats.get(market)
        return None


def free(offer: Offer, market: Market) -> int | None:
    """Return how many machines an offer still has: 0 is none, None unknown."""
    stats = offer.stats.get(market)
    if stats is None or stats.available is None:
        return None
    return max(0, stats.available - offer.requested_since)


def backing_off(offer: Offer, market: Market, now: datetime) -> bool:
    """Whether an offer failed to deliver and is left alone for a while (SC-360)."""
    stats = offer.stats.get(market)
    return stats is not None and stats.backoff_until is not None and stats.backoff_until > now


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
        ended = batch.loaded[no].attempt.live and record.attempt.reason in _NEVER_READY
        for tenancy in record.held:
            machine = tenancy.machine
            if (ended and machine.state in _GRANTED) or machine.key in record.unready:
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


async def load_catalog(loop: LoopContext, now: datetime) -> Catalog:
    """Load the catalog of this moment."""
    classes, offers = await loop.catalog.load()
    catalog = Catalog.of(classes, offers, now)
    if not loop.supplier.caps.warm:
        return catalog
    warm, restarting = await loop.machines.idle(), await loop.machines.restarting()
    return replace(catalog, warm=tuple(warm), restarting=restarting)


def _class_stats(offers: Sequence[Offer], market: Market, now: datetime) -> CandidateStats:
    """Put the offers of a class together (SC-205, SC-360): those that are not closed, if any."""
    closed = all(one.closed for one in offers)
    offers = [one for one in offers if closed or not one.closed]
    rooms = [0 if backing_off(one, market, now) else free(one, market) for one in offers]
    known = [room for room in rooms if room is not None]
    unknown = len(known) < len(rooms)
    resting = [one.stats[market] for one in offers if backing_off(one, market, now)]
    ends = [one.backoff_until for one in resting if one.backoff_until is not None]
    all_rest = bool(ends) and len(ends) == len(offers)
    return CandidateStats(
        interruptions_per_hour=interruption_rate(market, interruptions=0.0, exposure_hours=0.0),
        available=None if unknown else sum(known),
        largest_available=None if unknown else max(known, default=0),
        backoff_until=min(ends) if all_rest else None,
        credentials_refused=closed,
        supplier_quota_used_up=all_rest and all(one.failure is Failure.QUOTA for one in resting),
    )
