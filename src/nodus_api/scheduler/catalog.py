"""The catalog as placement sees it: classes with their markets, and the offers behind them.

It is put together once a catalog change. Between two of them only what was learnt is read anew, and
only the classes that it is about change; what a step takes lies over the catalog as an overlay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodus_api.kernel.experience import statistics, together
from nodus_api.kernel.offering import (
    CandidateKey,
    CandidateStats,
    CatalogSnapshot,
    OfferingClass,
    candidates_of,
)
from nodus_api.kernel.vocabulary import Market
from nodus_api.storage.catalog_store import CatalogStore, Failure, News, Offer, OfferStats

SNAPSHOT_AGE = timedelta(seconds=10)
"""How old statistics may become (SC-205)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """One moment's classes for the kernel, and the private offers to choose among."""

    snapshot: CatalogSnapshot
    offers: Mapping[str, tuple[Offer, ...]]
    """Enabled offers by class, cheapest first, then by number (SC-360)."""
    classes: Mapping[int, str]
    """The class of each offer, by its number."""
    taken: Mapping[int, int] = field(default_factory=dict)
    """Machines of each offer, by its number, that this step has spoken for (SC-371)."""

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
            classes={
                one.no: name for name, several in by_class.items() for one in several if one.no
            },
        )

    def after(self, news: News, now: datetime) -> "Catalog":
        """Return the catalog as it is known now, with nothing taken.

        Classes of whose offers nothing is new keep their statistics, but where one rests: its rest
        may be over.
        """
        offers: dict[str, tuple[Offer, ...]] = {}
        known: dict[CandidateKey, CandidateStats] = {}
        for name, several in self.offers.items():
            renewed = tuple(news.of(one) for one in several)
            if renewed == several and not any(map(_rests, several)):
                continue
            offers[name] = renewed
            for market in Market:
                known[name, market] = _class_stats(renewed, market, now)
        return replace(
            self,
            snapshot=self.snapshot.knowing(known),
            offers={**self.offers, **offers},
            taken={},
        )

    def choose(self, key: CandidateKey, now: datetime, *, machines: int = 1) -> Offer | None:
        """Return the cheapest offer of a class that does not rest and has room (SC-360)."""
        offering, market = key
        offers = self.offers.get(offering, ())
        if market is Market.SPOT:
            offers = tuple(sorted(offers, key=lambda one: (one.cost_spot or 0, one.no or 0)))
        for offer in offers:
            room = free(offer, market)
            left = None if room is None else room - self.taken.get(offer.no or 0, 0)
            rests = offer.closed or backing_off(offer, market, now)
            if not rests and (left is None or left >= machines):
                return offer
        return None

    def after_taking(self, key: CandidateKey, offer: Offer, *, machines: int = 1) -> "Catalog":
        """Return the catalog with machines of an offer spoken for (SC-371)."""
        number = offer.no or 0
        return replace(
            self,
            snapshot=self.snapshot.after_taking(key, machines),
            taken={**self.taken, number: self.taken.get(number, 0) + machines},
        )

    def known(self, offering: str, market: Market) -> CandidateStats:
        """Return what is known of a candidate; the priors, if it is not on offer."""
        candidate = self.snapshot.find((offering, market))
        return CandidateStats() if candidate is None else candidate.stats

    def stats_of(self, number: int, market: Market) -> OfferStats | None:
        """Return what is known of an offer; None if it is not on offer any more."""
        several = self.offers.get(self.classes.get(number, ""), ())
        return next((one.stats.get(market) for one in several if one.no == number), None)


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


def _rests(offer: Offer) -> bool:
    return any(one.backoff_until is not None for one in offer.stats.values())


class CatalogView:
    """The catalog of one reign, put together once a change of what is on offer."""

    def __init__(self, store: CatalogStore) -> None:
        """Read from this store; nothing is read yet."""
        self._store = store
        self._kept: Catalog | None = None
        self._fresh_until: datetime | None = None

    @property
    def last(self) -> Catalog | None:
        """The catalog as it was looked at last; None before the first look."""
        return self._kept

    async def look(self, now: datetime) -> Catalog:
        """Return the catalog of this moment, with nothing taken.

        The statistics of offers that this reign has not written to are at most 10 s old (SC-205);
        what it has written, and the machines that it asked for, are read each time.
        """
        fresh = self._fresh_until is not None and now < self._fresh_until
        news = None
        if self._kept is not None:
            news = await self._store.news(everything=not fresh)
        if self._kept is None or news is None:
            classes, offers = await self._store.load()
            self._kept, fresh = Catalog.of(classes, offers, now), False
        else:
            self._kept = self._kept.after(news, now)
        if not fresh:
            self._fresh_until = now + SNAPSHOT_AGE
        return self._kept


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
    taught = [one.stats[market].experience for one in offers if market in one.stats]
    return replace(
        statistics(together(taught, now), market),
        available=None if unknown else sum(known),
        largest_available=None if unknown else max(known, default=0),
        backoff_until=min(ends) if all_rest else None,
        credentials_refused=closed,
        supplier_quota_used_up=all_rest and all(one.failure is Failure.QUOTA for one in resting),
    )
