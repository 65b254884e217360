"""What a fleet is like: its classes, their capacity, delays and losses, and its programs (SC-731).

Values alone. Lengths are of the fleet's clock, from its start where they are moments.
"""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

from nodus_api.suppliers.simulated.chance import Chance, Spread
from nodus_api.suppliers.simulated.faults import FaultPlan
from nodus_api.suppliers.supplier import OfferedClass, SupplierCaps, SupplierOffer

_NEVER = timedelta(0)

_GRANT = Spread(median=timedelta(seconds=20), sigma=0.6)
_BOOT = Spread(median=timedelta(seconds=35), sigma=0.4)
_PULL = Spread(median=timedelta(seconds=8), sigma=0.5)
_TEARDOWN = Spread(median=timedelta(seconds=12), sigma=0.5)
_WORK = Spread(median=timedelta(minutes=15), sigma=0.8)
_RESTORING = Spread(median=timedelta(seconds=20), sigma=0.4)
_CAPS = SupplierCaps(notices=True, inject=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """How many machines there are at once, over time: (since, machines), in order of time."""

    points: tuple[tuple[timedelta, int], ...]

    @classmethod
    def always(cls, machines: int) -> "Trace":
        """Return a capacity that never changes."""
        return cls(points=((_NEVER, machines),))

    @classmethod
    def on_off(
        cls, chance: Chance, machines: int, *, on: timedelta, off: timedelta, span: timedelta
    ) -> "Trace":
        """Return a capacity that comes and goes: there for `on`, away for `off` on average."""
        points, at, there = list[tuple[timedelta, int]](), _NEVER, True
        while at < span:
            points.append((at, machines if there else 0))
            mean = on if there else off
            drawn = chance.until_event(f"change {len(points)}", timedelta(hours=1) / mean)
            at += drawn or span
            there = not there
        return cls(points=tuple(points))

    def at(self, since_start: timedelta) -> int:
        """Return how many there are then; none before the first point."""
        place = bisect_right(self.points, since_start, key=lambda point: point[0])
        return self.points[place - 1][1] if place else 0

    def sped_up(self, factor: float) -> "Trace":
        """Return the same trace, so many times as fast."""
        return Trace(points=tuple((at / factor, machines) for at, machines in self.points))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassModel:
    """One class as this fleet has it: what it is, how many there are, what happens to them.

    `spot_capacity` bounds the spot machines among `capacity`, None: nothing but it. When it falls
    below what is in use, machines are reclaimed, the youngest first.
    """

    offered: OfferedClass
    region: str
    capacity: Trace
    spot_capacity: Trace | None = None
    grant: Spread = _GRANT
    """From create to the moment when the machine runs and is billed."""
    boot: Spread = _BOOT
    """From there to the runner's first word."""
    pull: Spread = _PULL
    """The part of `boot` in which an image is pulled; never more than it."""
    teardown: Spread = _TEARDOWN
    reclaims_per_hour: float = 0.0
    """Of a spot machine."""
    notice: timedelta = timedelta(0)
    """Before a reclaim; none before those of 0."""
    losses_per_hour: float = 0.0
    """Of any machine, by its hardware."""

    def offer(self, available: int, factor: Decimal) -> SupplierOffer:
        """Return what is offered, at `factor` times the listed prices."""
        one = self.offered
        spot = one.rate_spot
        priced = replace(
            one,
            rate_on_demand=_priced(one.rate_on_demand, factor),
            rate_spot=None if spot is None else _priced(spot, factor),
        )
        return SupplierOffer(
            offered_class=priced,
            instance_type=f"sim-{one.name}",
            region=self.region,
            cost_on_demand=priced.rate_on_demand,
            cost_spot=priced.rate_spot,
            available=available,
        )

    def sped_up(self, factor: float) -> "ClassModel":
        """Return the same class where everything happens so many times as fast."""
        return replace(
            self,
            capacity=self.capacity.sped_up(factor),
            spot_capacity=self.spot_capacity and self.spot_capacity.sped_up(factor),
            grant=self.grant.shortened(factor),
            boot=self.boot.shortened(factor),
            pull=self.pull.shortened(factor),
            teardown=self.teardown.shortened(factor),
            reclaims_per_hour=self.reclaims_per_hour * factor,
            notice=self.notice / factor,
            losses_per_hour=self.losses_per_hour * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProfile:
    """What programs do that do not say it themselves (`programs`).

    `work` is drawn once a slot, in time at speed 1; a class of speed 0.5 takes twice as long.
    The shares are of program runs.
    """

    work: Spread = _WORK
    failing: float = 0.06
    out_of_memory: float = 0.02
    unstartable: float = 0.01
    saving: timedelta = timedelta(seconds=5)
    """How long the program stands still at each checkpoint (SC-144)."""
    restoring: Spread = _RESTORING
    stopping: timedelta = timedelta(seconds=5)
    """From the stop signal to the exit."""

    def sped_up(self, factor: float) -> "ProgramProfile":
        """Return the same profile where everything happens so many times as fast."""
        return replace(
            self,
            work=self.work.shortened(factor),
            saving=self.saving / factor,
            restoring=self.restoring.shortened(factor),
            stopping=self.stopping / factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """From a moment on, a class costs `factor` times what is listed (scenario 42)."""

    at: timedelta
    offering: str
    factor: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetModel:
    """A whole fleet. `speed` is how many times as fast it is than was written down."""

    classes: tuple[ClassModel, ...]
    programs: ProgramProfile = field(default_factory=ProgramProfile)
    faults: FaultPlan = field(default_factory=FaultPlan)
    prices: tuple[PriceChange, ...] = ()
    heartbeat: timedelta = timedelta(seconds=10)
    caps: SupplierCaps = _CAPS
    speed: float = 1.0

    def factor(self, offering: str, since_start: timedelta) -> Decimal:
        """Return what multiplies the listed prices of a class then."""
        said = [p for p in self.prices if p.offering == offering and p.at <= since_start]
        return max(said, key=lambda change: change.at).factor if said else Decimal(1)

    def sped_up(self, factor: float) -> "FleetModel":
        """Return the same fleet where everything but heartbeats happens so many times as fast."""
        return replace(
            self,
            classes=tuple(one.sped_up(factor) for one in self.classes),
            programs=self.programs.sped_up(factor),
            faults=self.faults.sped_up(factor),
            prices=tuple(replace(one, at=one.at / factor) for one in self.prices),
            speed=self.speed * factor,
        )


def _priced(rate: Decimal, factor: Decimal) -> Decimal:
    return (rate * factor).quantize(Decimal("0.000001"))
