"""What the area `placement` places, and on what: 5,000 classes and a mix of requests, drawn.

The catalog has the shape of public price lists: two dozen accelerators in five counts, a fifth of
the classes without any, most of them sold on spot too, some full, resting or unhealthy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from nodus_api.kernel.experience import Experience, Outcome
from nodus_api.kernel.offering import OfferingClass
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.spec import CheckpointPolicy, InterruptiblePolicy, PlacementPolicy, Resources
from nodus_api.kernel.vocabulary import Market, Profile
from nodus_api.scheduler.catalog import Catalog
from nodus_api.storage.catalog_store import News, Offer, OfferStats

CLASSES = 5_000
_COUNTS = (1, 2, 4, 8, 16)
_ACCELERATORS = tuple(f"gpu-{n:02}" for n in range(24))
_REGIONS = ("us", "eu", "uk", "in", "jp", "sg", "au", "ca")
_SIZES = (16, 24, 40, 48, 80, 141)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Classes, and an offer of each with what it is known for; so the loop loads them."""

    classes: tuple[OfferingClass, ...]
    offers: tuple[Offer, ...]

    def catalog(self, now: datetime) -> Catalog:
        """Put the catalog together."""
        return Catalog.of(self.classes, self.offers, now)

    def news(self) -> News:
        """Return all statistics, as after a look at what a supplier offers."""
        return News(
            stats={
                (one.no or 0, m): known for one in self.offers for m, known in one.stats.items()
            },
            requested={},
        )


def draw(classes: int, chance: Random, now: datetime) -> Drawn:
    """Draw so many classes, about twice as many candidates."""
    drawn = tuple(_a_class(chance, number) for number in range(classes))
    offers = tuple(_an_offer(chance, number, one, now) for number, one in enumerate(drawn, start=1))
    return Drawn(classes=drawn, offers=offers)


def requests(chance: Random) -> Iterator[PlacementRequest]:
    """Yield requests without end, no two alike: hours and sizes differ."""
    while True:
        accelerators = tuple(chance.sample(_ACCELERATORS, chance.choice((0, 1, 1, 1, 2, 3))))
        yield PlacementRequest(
            resources=Resources(
                accelerators=accelerators,
                count=chance.choice(_COUNTS) if accelerators else 0,
                accelerator_memory_gib=(
                    Decimal(chance.choice(_SIZES[:4])) if accelerators else None
                ),
                vcpus=Decimal(chance.choice((1, 4, 8, 16))),
                memory_gib=Decimal(chance.choice((4, 32, 64))),
            ),
            policy=PlacementPolicy(
                profile=chance.choice(tuple(Profile)),
                regions=chance.choice(((), (), ("us", "eu"))),
                interruptible=chance.choice(tuple(InterruptiblePolicy)),
            ),
            checkpoint=CheckpointPolicy(
                restartable=chance.random() < 0.7,
                interval_seconds=chance.choice((None, 600, 1800)),
            ),
            work_hours=chance.uniform(0.1, 48.0),
            max_rate_usd_per_hour=chance.choice((None, None, Decimal(20))),
            remaining_cost_usd=chance.choice((None, None, None, Decimal(200))),
        )


def _a_class(chance: Random, number: int) -> OfferingClass:
    accelerator = None if chance.random() < 0.2 else chance.choice(_ACCELERATORS)
    count = chance.choice(_COUNTS) if accelerator else 0
    vcpus = chance.choice((2, 4, 8, 16, 32)) * max(1, count)
    rate = Decimal(chance.randint(5_000, 4_000_000) * max(1, count)) / 1_000_000
    return OfferingClass(
        name=f"{accelerator or 'cpu'}-x{count}-{number:05}",
        accelerator=accelerator,
        form=None,
        count=count,
        accelerator_memory_gib=Decimal(chance.choice(_SIZES)) if accelerator else None,
        vcpus=Decimal(vcpus),
        memory_gib=Decimal(vcpus * chance.choice((4, 8, 16))),
        disk_gib=Decimal(500),
        arch="amd64",
        region_class=chance.choice(_REGIONS),
        gang_capable=count >= 8,
        rate_on_demand=rate,
        rate_spot=(rate * 2 / 5).quantize(Decimal("0.000001")) if chance.random() < 0.9 else None,
        speed=Decimal(chance.randint(10, 150)) / 100,
        reference_rate=Decimal(2 * max(1, count)),
        enabled=chance.random() < 0.98,
    )


def _an_offer(chance: Random, number: int, one: OfferingClass, now: datetime) -> Offer:
    stats = {market: _stats(chance, market, now) for market in Market if one.rate(market)}
    return Offer(
        no=number,
        offering=one.name,
        instance_type=one.name,
        region=one.region_class,
        zone="",
        cost_on_demand=one.rate_on_demand,
        cost_spot=one.rate_spot,
        increment=timedelta(seconds=1),
        minimum=timedelta(0),
        stats=stats,
    )


def _stats(chance: Random, market: Market, now: datetime) -> OfferStats:
    rests = chance.random() < 0.05
    known = Experience(
        at=now,
        successes=chance.uniform(0, 50),
        failures=chance.uniform(0, 8),
        exposure_hours=chance.uniform(0, 2000),
        interruptions=chance.uniform(0, 60) if market is Market.SPOT else chance.uniform(0, 2),
    )
    for _ in range(3):
        outcome = Outcome(
            grant_seconds=chance.uniform(2, 120),
            boot_seconds=chance.uniform(30, 300),
            teardown_seconds=chance.uniform(10, 60),
        )
        known = known.after(outcome, now)
    return OfferStats(
        market=market,
        available=chance.choice((None, None, 0, 2, 50)),
        backoff_until=now + timedelta(seconds=300) if rests else None,
        updated=now,
    ).with_experience(known)
