"""The fleet of a study: the built-in sample of real prices, and what happens to each class.

Rates, spot rates and speeds are those of `suppliers/imported/sample` (SC-207). How many machines
there are, how they come and go, and how often spot is reclaimed is ours: the deeper the discount,
the more often, and the larger the machine, the slower it boots.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from nodus_api.suppliers.catalog import merge
from nodus_api.suppliers.imported import read_forms, read_skypilot
from nodus_api.suppliers.imported.samples import SAMPLE_CLOUDS, sample_forms, sample_prices
from nodus_api.suppliers.simulated import ClassModel, FleetModel, ProgramProfile, Trace
from nodus_api.suppliers.simulated.chance import Chance, Spread
from nodus_api.suppliers.supplier import OfferedClass

_AT_COST = Decimal(1)
_HEARTBEAT = timedelta(seconds=50)
"""As far apart as no runner is suspected by it (SC-614): they are most of what is reported."""
_TAIL = timedelta(days=3)
"""Capacity comes and goes so long after the last arrival too."""
_PROGRAMS = ProgramProfile(failing=0.02, out_of_memory=0.005, unstartable=0.002)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supply:
    """What there is of one class, and what becomes of it."""

    machines: int
    spot: int = 0
    reclaims_per_hour: float = 0.0
    notice: timedelta = timedelta(seconds=30)
    spot_there: timedelta = timedelta(hours=20)
    """How long spot is there at a time, on average, and then away."""
    spot_away: timedelta = timedelta(hours=1)
    there: timedelta | None = None
    """The same of all machines; None is always there."""
    away: timedelta = timedelta(hours=4)
    grant: timedelta = timedelta(seconds=20)
    boot: timedelta = timedelta(seconds=60)
    losses_per_hour: float = 0.002


_SUPPLY: Mapping[str, _Supply] = {
    "cpu-8c-32g-us": _Supply(machines=200, spot=100, reclaims_per_hour=0.05, losses_per_hour=5e-4),
    "a6000-48g-x1-us": _Supply(machines=24, losses_per_hour=0.004),
    "gh200-96g-x1-us": _Supply(machines=10, there=timedelta(hours=30), boot=timedelta(seconds=150)),
    "h100-sxm-80g-x1-eu": _Supply(machines=40, spot=20, reclaims_per_hour=0.08),
    "h200-sxm-141g-x1-us": _Supply(machines=24, spot=12, reclaims_per_hour=0.12),
    "v100-sxm-16g-x4-us": _Supply(
        machines=16, spot=16, reclaims_per_hour=0.30, notice=timedelta(seconds=120)
    ),
    "a100-sxm-40g-x8-us": _Supply(
        machines=12,
        spot=12,
        reclaims_per_hour=0.25,
        notice=timedelta(seconds=120),
        boot=timedelta(minutes=4),
    ),
    "a100-sxm-80g-x8-us": _Supply(
        machines=12,
        spot=10,
        reclaims_per_hour=0.15,
        notice=timedelta(seconds=120),
        boot=timedelta(minutes=4),
    ),
    "h100-sxm-80g-x8-eu": _Supply(
        machines=14, spot=8, reclaims_per_hour=0.12, boot=timedelta(minutes=3)
    ),
    "h100-sxm-80g-x8-us": _Supply(
        machines=12, there=timedelta(hours=30), boot=timedelta(minutes=3), losses_per_hour=0.006
    ),
    "h100-sxm-80g-x8-jp": _Supply(
        machines=16,
        spot=8,
        reclaims_per_hour=0.06,
        notice=timedelta(seconds=120),
        boot=timedelta(minutes=4),
    ),
    "b200-sxm-180g-x8-us": _Supply(
        machines=8,
        there=timedelta(hours=24),
        grant=timedelta(seconds=60),
        boot=timedelta(minutes=5),
        losses_per_hour=0.008,
    ),
}


def week_fleet(*, seed: int, span: timedelta) -> FleetModel:
    """Return the fleet for a load that arrives within `span`; one seed gives the same capacity."""
    chance = Chance(seed).of("capacity")
    return FleetModel(
        classes=tuple(_class(one, chance.of(one.name), span + _TAIL) for one in _offered()),
        programs=_PROGRAMS,
        heartbeat=_HEARTBEAT,
    )


def _offered() -> tuple[OfferedClass, ...]:
    """Return the classes of the sample's offers, at their cost."""
    forms = sample_forms()
    listings = {
        cloud: read_skypilot(sample_prices(cloud), read_forms(forms, cloud), markup=_AT_COST)
        for cloud in SAMPLE_CLOUDS
    }
    return merge(
        {cloud: [row.offer for row in one.rows] for cloud, one in listings.items()}
    ).classes


def _class(offered: OfferedClass, chance: Chance, span: timedelta) -> ClassModel:
    supply = _SUPPLY[offered.name]
    capacity, spot = Trace.always(supply.machines), None
    if supply.there is not None:
        capacity = Trace.on_off(
            chance.of("all"), supply.machines, on=supply.there, off=supply.away, span=span
        )
    if offered.rate_spot is not None:
        spot = Trace.on_off(
            chance.of("spot"),
            supply.spot,
            on=supply.spot_there,
            off=supply.spot_away,
            span=span,
        )
    return ClassModel(
        offered=offered,
        region=f"sim-{offered.region_class}-1",
        capacity=capacity,
        spot_capacity=spot,
        grant=Spread(median=supply.grant, sigma=0.6),
        boot=Spread(median=supply.boot, sigma=0.4),
        reclaims_per_hour=supply.reclaims_per_hour,
        notice=supply.notice,
        losses_per_hour=supply.losses_per_hour,
    )
