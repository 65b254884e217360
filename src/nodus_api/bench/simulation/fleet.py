"""What the simulated supplier offers: a few classes of each kind, on demand and spot."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.attempt import Placement
from nodus_api.kernel.offering import CandidateStats, CatalogSnapshot, OfferingClass, candidates_of
from nodus_api.kernel.placement import place
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Market, OwnerKind
from nodus_api.storage.catalog_store import CatalogStore, Offer

SUPPLIER = "simulated"
_REGIONS = ("us", "eu", "in")
_INTERRUPTIONS_PER_HOUR = 0.08


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of machine that is offered in every region."""

    accelerator: str | None
    vcpus: int
    memory_gib: int
    rate: Decimal
    speed: Decimal


_KINDS = (
    _Kind(None, 4, 16, Decimal("0.19"), Decimal(1)),
    _Kind("l4", 8, 32, Decimal("0.80"), Decimal("0.12")),
    _Kind("a100-sxm", 12, 120, Decimal("1.89"), Decimal("0.50")),
    _Kind("h100-sxm", 16, 180, Decimal("2.95"), Decimal(1)),
)
_SURCHARGES = {"us": Decimal(1), "eu": Decimal("1.08"), "in": Decimal("0.93")}

SPECS = tuple(
    WorkloadSpec.from_json(OwnerKind.JOB, {"template": {"command": ["simulated"]}} | asked)
    for asked in (
        {"restart": {"maxRetries": 1}},
        {
            "resources": {"accelerators": ["l4"], "count": 1},
            "checkpoint": {"restartable": True, "intervalSeconds": 300},
        },
        {
            "resources": {"accelerators": ["a100-sxm", "h100-sxm"], "count": 1},
            "checkpoint": {"restartable": True},
            "placement": {"profile": "Cost"},
            "restart": {"maxRetries": 2},
        },
        {
            "resources": {"accelerators": ["h100-sxm"], "count": 1},
            "placement": {"profile": "Speed", "interruptible": "Never"},
        },
    )
)
"""What simulated Jobs ask for, by turns; each without its number of slots."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The offers as they were written, and where each of `SPECS` is placed."""

    offers: dict[str, int]
    """The number of each class's offer."""
    placements: tuple[Placement, ...]
    """In the order of `SPECS`."""


async def stock(store: CatalogStore, token: int, now: datetime) -> Fleet:
    """Write the simulated supplier's catalog and place each kind of Job in it.

    Raises FencedOff when another loop leads.
    """
    classes = [_class(kind, region) for kind in _KINDS for region in _REGIONS]
    await store.sync(token, classes, [_offer(one) for one in classes], asked=now)
    _, offers = await store.load()
    stats = CandidateStats(interruptions_per_hour=_INTERRUPTIONS_PER_HOUR)
    snapshot = CatalogSnapshot.of(
        candidate
        for one in classes
        for candidate in candidates_of(one, {Market.SPOT: stats, Market.ON_DEMAND: stats})
    )
    return Fleet(
        offers={one.offering: one.no for one in offers if one.no is not None},
        placements=tuple(
            place(PlacementRequest.of(spec), snapshot, now).placement for spec in SPECS
        ),
    )


async def close(store: CatalogStore, token: int, now: datetime) -> None:
    """Offer nothing any more, so that no scheduler places anything here."""
    await store.sync(token, [], [], asked=now)


def _class(kind: _Kind, region: str) -> OfferingClass:
    rate = (kind.rate * _SURCHARGES[region]).quantize(Decimal("0.000001"))
    return OfferingClass(
        name=f"example-{kind.accelerator or 'cpu'}-{region}",
        accelerator=kind.accelerator,
        form=None,
        count=0 if kind.accelerator is None else 1,
        accelerator_memory_gib=None if kind.accelerator is None else Decimal(80),
        vcpus=Decimal(kind.vcpus),
        memory_gib=Decimal(kind.memory_gib),
        disk_gib=Decimal(500),
        arch="amd64",
        region_class=region,
        gang_capable=False,
        rate_on_demand=rate,
        rate_spot=(rate * Decimal("0.4")).quantize(Decimal("0.000001")),
        speed=kind.speed,
        reference_rate=kind.rate,
    )


def _offer(one: OfferingClass) -> Offer:
    return Offer(
        offering=one.name,
        instance_type=one.name,
        region=one.region_class,
        zone="",
        cost_on_demand=one.rate_on_demand,
        cost_spot=one.rate_spot,
        increment=timedelta(seconds=1),
        minimum=timedelta(0),
    )
