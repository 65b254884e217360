"""Classes and offers as values, and the columns they are kept in (SC-202, SC-203)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from nodus_api.kernel.offering import OfferingClass
from nodus_api.kernel.vocabulary import Market
from nodus_api.storage.offer_stats import Failure, OfferStats

CLASS_COLUMNS = (
    "accelerator", "form", "count", "accelerator_memory_gib", "vcpus", "memory_gib", "disk_gib",
    "arch", "region_class", "gang_capable", "rate_on_demand", "rate_spot", "speed",
    "reference_rate",
)  # fmt: skip
OFFER_KEY = ("supplier", "instance_type", "region", "zone")
OFFER_COLUMNS = (
    "class", "cost_on_demand", "cost_spot", "billing_increment_seconds", "minimum_seconds",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One private row behind a class; `no` is None until it is written."""

    no: int | None = None
    offering: str
    instance_type: str
    region: str
    zone: str
    cost_on_demand: Decimal
    cost_spot: Decimal | None
    increment: timedelta
    minimum: timedelta
    enabled: bool = True
    available: int | None = None
    """As the supplier says now; kept in the statistics."""
    requested_since: int = 0
    """Machines asked for that `available` does not know of, as far as can be told."""
    stats: Mapping[Market, OfferStats] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        """Whether its supplier refused the credentials, which are one for both markets."""
        return any(one.failure is Failure.AUTH for one in self.stats.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is known of offers now: statistics of some, and the machines asked for of all.

    `requested` counts by the offer's number, see `Offer.requested_since`; none is zero.
    """

    stats: Mapping[tuple[int, Market], OfferStats]
    requested: Mapping[int, int]

    def of(self, offer: Offer) -> Offer:
        """Return an offer as it is known now."""
        number = offer.no or 0
        requested = self.requested.get(number, 0)
        fresh = {m: self.stats[number, m] for m in Market if (number, m) in self.stats}
        if requested == offer.requested_since and not fresh:
            return offer
        return replace(offer, requested_since=requested, stats={**offer.stats, **fresh})


def offer_row(supplier: str, offer: Offer) -> dict[str, Any]:
    """Return the columns of an offer that are told by who offers it."""
    return {
        "supplier": supplier,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "zone": offer.zone,
        "class": offer.offering,
        "cost_on_demand": offer.cost_on_demand,
        "cost_spot": offer.cost_spot,
        "billing_increment_seconds": offer.increment // timedelta(seconds=1),
        "minimum_seconds": offer.minimum // timedelta(seconds=1),
    }


def class_row(one: OfferingClass) -> dict[str, Any]:
    """Return the columns of a class that are told by who offers it."""
    return {"name": one.name} | {name: getattr(one, name) for name in CLASS_COLUMNS}


def class_of(row: Any) -> OfferingClass:
    """Return the class of a row."""
    return OfferingClass(
        name=row["name"], enabled=row["enabled"], **{name: row[name] for name in CLASS_COLUMNS}
    )


def offer_of(row: Any, stats: Mapping[Market, OfferStats]) -> Offer:
    """Return the offer of a row that knows `requested_since`."""
    return Offer(
        no=row["no"],
        offering=row["class"],
        instance_type=row["instance_type"],
        region=row["region"],
        zone=row["zone"],
        cost_on_demand=row["cost_on_demand"],
        cost_spot=row["cost_spot"],
        increment=timedelta(seconds=row["billing_increment_seconds"]),
        minimum=timedelta(seconds=row["minimum_seconds"]),
        enabled=row["enabled"],
        requested_since=row["requested_since"],
        stats=stats,
    )
