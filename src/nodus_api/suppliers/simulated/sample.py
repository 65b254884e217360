"""The fleet of `--supplier simulated` and of `nodus simulate`: on demand and spot."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from nodus_api.suppliers.simulated.chance import Spread
from nodus_api.suppliers.simulated.model import ClassModel, FleetModel, Trace
from nodus_api.suppliers.supplier import OfferedClass

_REGIONS = {"us": Decimal(1), "eu": Decimal("1.08"), "in": Decimal("0.93")}
_SPOT = Decimal("0.4")
_DIGITS = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of machine that is offered in every region."""

    accelerator: str | None
    memory: int | None
    """Of one accelerator, in GiB."""
    vcpus: int
    memory_gib: int
    rate: Decimal
    speed: Decimal
    losses_per_hour: float


_KINDS = (
    _Kind(None, None, 4, 16, Decimal("0.19"), Decimal(1), 0.002),
    _Kind("l4", 24, 8, 32, Decimal("0.80"), Decimal("0.12"), 0.003),
    _Kind("a100-sxm", 80, 12, 120, Decimal("1.89"), Decimal("0.50"), 0.004),
    _Kind("h100-sxm", 80, 16, 180, Decimal("2.95"), Decimal(1), 0.006),
)


def sample_fleet(*, machines: int = 64) -> FleetModel:
    """Return a fleet of 12 classes with so many machines of each, and no faults but losses."""
    return FleetModel(
        classes=tuple(
            _class(kind, region, factor, machines)
            for kind in _KINDS
            for region, factor in _REGIONS.items()
        )
    )


def _class(kind: _Kind, region: str, factor: Decimal, machines: int) -> ClassModel:
    rate = (kind.rate * factor).quantize(_DIGITS)
    return ClassModel(
        offered=OfferedClass(
            name=f"sim-{kind.accelerator or 'cpu'}-{region}",
            accelerator=kind.accelerator,
            form=None,
            count=0 if kind.accelerator is None else 1,
            accelerator_memory_gib=None if kind.memory is None else Decimal(kind.memory),
            vcpus=Decimal(kind.vcpus),
            memory_gib=Decimal(kind.memory_gib),
            disk_gib=Decimal(500),
            arch="amd64",
            region_class=region,
            gang_capable=True,
            rate_on_demand=rate,
            rate_spot=(rate * _SPOT).quantize(_DIGITS),
            speed=kind.speed,
            reference_rate=kind.rate,
        ),
        region=f"sim-{region}-1",
        capacity=Trace.always(machines),
        boot=Spread(median=timedelta(seconds=40 if kind.accelerator else 20), sigma=0.5),
        reclaims_per_hour=0.08,
        notice=timedelta(seconds=30),
        losses_per_hour=kind.losses_per_hour,
    )
