"""What can be rented: classes, the markets in which they are sold, and what is known of both.

Only the public side: no field names a supplier (SC-203). Sizes are GiB, rates USD
per hour for the whole machine, statistics seconds (SC-202, SC-205).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from struct import Struct
from typing import NamedTuple

from nodus_api.kernel.money import millionths
from nodus_api.kernel.vocabulary import Market

Family = tuple[str | None, int]
"""Accelerator and count: the catalog's index (SC-370)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingClass:
    """The public facts of a kind of capacity (SC-202).

    `speed` is relative to one h100-sxm. `reference_rate` is the median on-demand rate
    of the family, a constant between imports.
    """

    name: str
    accelerator: str | None
    form: str | None
    count: int
    accelerator_memory_gib: Decimal | None
    vcpus: Decimal
    memory_gib: Decimal
    disk_gib: Decimal
    arch: str
    region_class: str
    gang_capable: bool
    rate_on_demand: Decimal
    rate_spot: Decimal | None
    speed: Decimal
    reference_rate: Decimal
    enabled: bool = True

    @property
    def family(self) -> Family:
        """The key of the catalog's index."""
        return (self.accelerator, self.count)

    def rate(self, market: Market) -> Decimal | None:
        """Return the hourly rate in a market, or None where it is not sold so (SC-312)."""
        return self.rate_on_demand if market is Market.ON_DEMAND else self.rate_spot


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStats:
    """What is known of a candidate (SC-205).

    Waits are seconds; `interruptions_per_hour` is λ; successes and failures have
    decayed (SC-361). `available` counts machines, and `largest_available` those of the
    best single supplier offer, where a gang must fit (SC-131): 0 is none, None unknown.
    The defaults are priors for a candidate without history.
    """

    grant_p50: float = 10.0
    grant_p95: float = 60.0
    boot_p50: float = 60.0
    boot_p95: float = 180.0
    teardown_p50: float = 30.0
    teardown_p95: float = 120.0
    interruptions_per_hour: float = 0.001
    successes: float = 0.0
    failures: float = 0.0
    available: int | None = None
    largest_available: int | None = None
    backoff_until: datetime | None = None
    supplier_quota_used_up: bool = False
    credentials_refused: bool = False
    """Whether every offer behind it is closed for this (SC-617)."""

    @property
    def health(self) -> float:
        """The share of deliveries that went well, towards a prior of 0.9 (SC-320)."""
        return (9.0 + self.successes) / (10.0 + self.successes + self.failures)

    @property
    def largest(self) -> int | None:
        """The machines of the best single offer: all, where that is not known apart (SC-131)."""
        return self.available if self.largest_available is None else self.largest_available

    def packed(self) -> bytes:
        """Return all of it as bytes, for a hash."""
        rests = self.backoff_until
        return _PACKED.pack(
            self.grant_p50, self.grant_p95, self.boot_p50, self.boot_p95,
            self.teardown_p50, self.teardown_p95,
            self.interruptions_per_hour, self.successes, self.failures,
            0.0 if rests is None else rests.timestamp(),
            -1 if self.available is None else self.available,
            -1 if self.largest_available is None else self.largest_available,
            self.supplier_quota_used_up, self.credentials_refused,
        )  # fmt: skip


_PACKED = Struct("<10d2q2?")
"""`CandidateStats` as bytes."""

CandidateKey = tuple[str, Market]

_SECONDS = 3600.0
"""Seconds in an hour."""


class Figures(NamedTuple):
    """A candidate's numbers as the scores use them: doubles, hours, USD per hour (SC-320).

    They are made once a candidate, not once a placement: a placement looks at hundreds.
    """

    rate: float
    wait_hours: float
    boot_hours: float
    teardown_hours: float
    speed: float
    interruptions_per_hour: float
    health: float
    accelerators: float
    accelerator_memory_gib: float
    vcpus: float
    memory_gib: float
    health_millionths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One (class, market) pair that exists."""

    offering: OfferingClass
    market: Market
    stats: CandidateStats
    rate: Decimal = field(init=False, repr=False, compare=False)
    """USD per hour in this market."""
    figures: Figures = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a market in which the class is not sold (SC-312)."""
        rate = self.offering.rate(self.market)
        if rate is None:
            raise ValueError(f"{self.offering.name} is not sold on {self.market}")
        offering, stats = self.offering, self.stats
        object.__setattr__(self, "rate", rate)
        figures = Figures(
            rate=float(rate),
            wait_hours=stats.grant_p50 / _SECONDS,
            boot_hours=stats.boot_p50 / _SECONDS,
            teardown_hours=stats.teardown_p50 / _SECONDS,
            speed=float(offering.speed),
            interruptions_per_hour=stats.interruptions_per_hour,
            health=stats.health,
            health_millionths=millionths(stats.health),
            accelerators=float(offering.count),
            accelerator_memory_gib=float(offering.accelerator_memory_gib or 0),
            vcpus=float(offering.vcpus),
            memory_gib=float(offering.memory_gib),
        )
        object.__setattr__(self, "figures", figures)

    @property
    def key(self) -> CandidateKey:
        """Name and market: what tells candidates apart."""
        return (self.offering.name, self.market)


def candidates_of(
    offering: OfferingClass, stats: Mapping[Market, CandidateStats]
) -> tuple[Candidate, ...]:
    """Return the candidates that a class gives: one a market in which it is sold."""
    return tuple(
        Candidate(
            offering=offering,
            market=market,
            stats=stats.get(market, CandidateStats()),
        )
        for market in Market
        if offering.rate(market) is not None
    )
