"""What can be rented: classes, markets, statistics, and the catalog at one moment.

Only the public side: no field names a supplier (SC-203). Sizes are GiB, rates USD
per hour for the whole machine, statistics seconds (SC-202, SC-205).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from nodus_api.kernel.vocabulary import Market

Family = tuple[str | None, int]
"""Accelerator and count: the catalog's index (SC-370)."""


CPU_UNIT = "cpu"
"""What a quota calls machines without accelerators, of which it counts each as one."""


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

    @property
    def quota_unit(self) -> tuple[str, int]:
        """What a quota counts of one machine: an accelerator's name, and how many."""
        return (CPU_UNIT, 1) if self.accelerator is None else (self.accelerator, self.count)

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


CandidateKey = tuple[str, Market]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One (class, market) pair that exists."""

    offering: OfferingClass
    market: Market
    stats: CandidateStats

    def __post_init__(self) -> None:
        """Refuse a market in which the class is not sold (SC-312)."""
        if self.offering.rate(self.market) is None:
            raise ValueError(f"{self.offering.name} is not sold on {self.market}")

    @property
    def key(self) -> CandidateKey:
        """Name and market: what tells candidates apart."""
        return (self.offering.name, self.market)

    @property
    def rate(self) -> Decimal:
        """USD per hour in this market."""
        rate = self.offering.rate(self.market)
        return Decimal(0) if rate is None else rate


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSnapshot:
    """The catalog at one moment; make it with `CatalogSnapshot.of`.

    Families and their members are in rising order of (on-demand rate, name), so that
    nothing depends on the order of the input. The reference rates are constants of the
    catalog and survive the removal of a candidate (SC-321).
    """

    id: str
    families: Mapping[Family, tuple[Candidate, ...]]
    reference_rates: Mapping[Family, Decimal]
    cpu_rate_per_vcpu: Decimal
    """Median on-demand rate per vCPU of the classes without accelerator."""
    size: int
    taken: Mapping[str, int] = field(default_factory=dict)
    """Machines of each class that this batch has already placed (SC-371).

    Of the class, since a machine is rented in one market or the other, never in both.
    """

    @classmethod
    def of(cls, candidates: Iterable[Candidate], *, id: str | None = None) -> "CatalogSnapshot":
        """Index the candidates. Without an `id`, it is a hash of the content.

        Raises ValueError if two candidates have the same class and market.
        """
        ordered = sorted(candidates, key=_by_rate)
        if len({candidate.key for candidate in ordered}) != len(ordered):
            raise ValueError("two candidates have the same offering class and market")
        families: dict[Family, list[Candidate]] = {}
        for candidate in ordered:
            families.setdefault(candidate.offering.family, []).append(candidate)
        classes = {c.offering.name: c.offering for c in ordered}.values()
        return cls(
            id=id if id is not None else _content_id(ordered),
            families={family: tuple(members) for family, members in families.items()},
            reference_rates=_reference_rates(classes),
            cpu_rate_per_vcpu=_cpu_rate_per_vcpu(classes),
            size=len(ordered),
        )

    def __iter__(self) -> Iterator[Candidate]:
        """Yield all candidates, family by family."""
        for members in self.families.values():
            yield from members

    def without(self, key: CandidateKey) -> "CatalogSnapshot":
        """Return the snapshot less one candidate, its constants unchanged."""
        families = {
            family: tuple(c for c in members if c.key != key)
            for family, members in self.families.items()
        }
        return replace(self, families=families, size=sum(map(len, families.values())))

    def after_taking(self, key: CandidateKey, machines: int) -> "CatalogSnapshot":
        """Return the snapshot with so many machines of a candidate spoken for (SC-371).

        They are missing in both markets of its class.
        """
        offering, _ = key
        return replace(self, taken={**self.taken, offering: self.taken.get(offering, 0) + machines})

    def available(self, candidate: Candidate) -> int | None:
        """Return the machines left of a candidate: 0 is none, None unknown."""
        return _left(candidate.stats.available, self.taken.get(candidate.offering.name, 0))

    def largest_available(self, candidate: Candidate) -> int | None:
        """Return the machines left within one supplier offer (SC-131)."""
        known = candidate.stats.largest_available
        if known is None:
            known = candidate.stats.available
        return _left(known, self.taken.get(candidate.offering.name, 0))


def _left(known: int | None, taken: int) -> int | None:
    return None if known is None else max(0, known - taken)


def _by_rate(candidate: Candidate) -> tuple[str, int, Decimal, str, bool]:
    offering = candidate.offering
    return (
        offering.accelerator or "",
        offering.count,
        offering.rate_on_demand,
        offering.name,
        candidate.market is Market.SPOT,
    )


def _content_id(ordered: Iterable[Candidate]) -> str:
    digest = hashlib.sha256()
    for candidate in ordered:
        digest.update(repr(candidate).encode())
    return digest.hexdigest()[:16]


def _reference_rates(classes: Iterable[OfferingClass]) -> dict[Family, Decimal]:
    """Take each family's constant; classes of one family carry the same (SC-202)."""
    rates: dict[Family, Decimal] = {}
    for offering in sorted(classes, key=lambda one: one.name):
        rates.setdefault(offering.family, offering.reference_rate)
    return rates


def _cpu_rate_per_vcpu(classes: Iterable[OfferingClass]) -> Decimal:
    rates = sorted(
        one.rate_on_demand / one.vcpus for one in classes if one.accelerator is None and one.vcpus
    )
    if not rates:
        return Decimal(0)
    middle = len(rates) // 2
    return rates[middle] if len(rates) % 2 else (rates[middle - 1] + rates[middle]) / 2
