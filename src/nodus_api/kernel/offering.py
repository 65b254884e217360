"""The catalog at one moment, indexed for placement (SC-370), and what a batch has taken of it.

What can be rented is `candidate`; its names are given here too, since who asks for the one asks
for the other.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import sha256
from itertools import chain

from nodus_api.kernel.bucket import Bucket
from nodus_api.kernel.candidate import (
    Candidate,
    CandidateKey,
    CandidateStats,
    Family,
    OfferingClass,
    candidates_of,
)
from nodus_api.kernel.vocabulary import Market

__all__ = [
    "Candidate",
    "CandidateKey",
    "CandidateStats",
    "CatalogSnapshot",
    "Family",
    "OfferingClass",
    "by_rate",
    "candidates_of",
]


Place = tuple[Family, int]
"""A family, and a position in its bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the classes stand, cheapest first; the same for all snapshots of one catalog."""

    families: Mapping[str, Family]
    """The family of each class."""
    cheapest: tuple[Place, ...]
    """A place a class, by (on-demand rate, name)."""
    by_accelerator: Mapping[str | None, tuple[Place, ...]]
    """The same for the classes of each accelerator."""
    sizes: Mapping[str | None, int]
    """Candidates by accelerator."""

    @classmethod
    def of(cls, families: Mapping[Family, Bucket]) -> "Layout":
        """Look through the buckets once."""
        sizes: dict[str | None, int] = {}
        for (accelerator, _), bucket in families.items():
            sizes[accelerator] = sizes.get(accelerator, 0) + len(bucket)
        ordered = [place for _, _, place in heapq.merge(*map(_cheapest, families.values()))]
        apart: dict[str | None, list[Place]] = {}
        for place in ordered:
            apart.setdefault(place[0][0], []).append(place)
        return cls(
            families={one.offering.name: f for f, members in families.items() for one in members},
            cheapest=tuple(ordered),
            by_accelerator={accelerator: tuple(places) for accelerator, places in apart.items()},
            sizes=sizes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSnapshot:
    """The catalog at one moment; make it with `CatalogSnapshot.of`.

    Families and their members are in rising order of (on-demand rate, name), so that
    nothing depends on the order of the input. The reference rates are constants of the
    catalog and survive the removal of a candidate (SC-321).
    """

    id: str
    families: Mapping[Family, Bucket]
    reference_rates: Mapping[Family, Decimal]
    cpu_rate_per_vcpu: Decimal
    """Median on-demand rate per vCPU of the classes without accelerator."""
    size: int
    layout: Layout = field(repr=False, compare=False)
    taken: Mapping[str, int] = field(default_factory=dict)
    """Machines of each class that this batch has already placed (SC-371).

    Of the class, since a machine is rented in one market or the other, never in both.
    """
    emptied: Mapping[Family, int] = field(default_factory=dict, repr=False, compare=False)
    """Positions of those of which `taken` left nothing."""

    @classmethod
    def of(cls, candidates: Iterable[Candidate], *, id: str | None = None) -> "CatalogSnapshot":
        """Index the candidates. Without an `id`, it is a hash of the content.

        Raises ValueError if two candidates have the same class and market.
        """
        ordered = sorted(candidates, key=_in_order)
        if len({candidate.key for candidate in ordered}) != len(ordered):
            raise ValueError("two candidates have the same offering class and market")
        members: dict[Family, list[Candidate]] = {}
        for candidate in ordered:
            members.setdefault(candidate.offering.family, []).append(candidate)
        families = {family: Bucket(family, several) for family, several in members.items()}
        classes = {c.offering.name: c.offering for c in ordered}.values()
        return cls(
            id=id if id is not None else _content_id(families.values()),
            families=families,
            reference_rates=_reference_rates(classes),
            cpu_rate_per_vcpu=_cpu_rate_per_vcpu(classes),
            size=len(ordered),
            layout=Layout.of(families),
        )

    def __iter__(self) -> Iterator[Candidate]:
        """Yield all candidates, family by family."""
        return chain.from_iterable(self.families.values())

    def find(self, key: CandidateKey) -> Candidate | None:
        """Return a candidate; None if there is no such one."""
        name, _ = key
        bucket = self.families.get(self.layout.families.get(name, ("", 0)))
        place = None if bucket is None else bucket.places.get(key)
        return None if bucket is None or place is None else bucket[place]

    def cheapest(self) -> Iterator[Candidate]:
        """Yield a candidate of each class by (on-demand rate, name), on-demand where it is."""
        return self._at(self.layout.cheapest)

    def cheapest_with(self, accelerators: Iterable[str | None]) -> Iterator[Candidate]:
        """Yield the same of these accelerators alone, each named once."""
        places = [self.layout.by_accelerator.get(one, ()) for one in accelerators]
        if len(places) == 1:
            return self._at(places[0])
        return heapq.merge(*map(self._at, places), key=by_rate)

    def count(self, accelerators: Iterable[str | None]) -> int:
        """Return how many candidates there are with these accelerators, each named once."""
        return sum(self.layout.sizes.get(one, 0) for one in accelerators)

    def _at(self, places: Iterable[Place]) -> Iterator[Candidate]:
        return (self.families[family][position] for family, position in places)

    def without(self, key: CandidateKey) -> "CatalogSnapshot":
        """Return the snapshot less one candidate, its constants unchanged."""
        families = {
            family: Bucket(family, (c for c in members if c.key != key))
            for family, members in self.families.items()
        }
        return replace(
            self,
            families=families,
            size=sum(map(len, families.values())),
            layout=Layout.of(families),
        )

    def knowing(
        self, news: Mapping[CandidateKey, CandidateStats], *, id: str | None = None
    ) -> "CatalogSnapshot":
        """Return the snapshot with other statistics of some candidates, and nothing taken.

        Only the buckets that they are in are indexed again. Candidates that it does not have are
        left out.
        """
        touched = {self.layout.families.get(name) for name, _ in news}
        families = {
            family: (
                bucket
                if family not in touched
                else Bucket(
                    family,
                    (
                        replace(one, stats=news[one.key]) if one.key in news else one
                        for one in bucket
                    ),
                )
            )
            for family, bucket in self.families.items()
        }
        return replace(
            self,
            id=id if id is not None else _content_id(families.values()),
            families=families,
            taken={},
            emptied={},
        )

    def after_taking(self, key: CandidateKey, machines: int) -> "CatalogSnapshot":
        """Return the snapshot with so many machines of a candidate spoken for (SC-371).

        They are missing in both markets of its class. The catalog itself is shared.
        """
        offering, _ = key
        taken = {**self.taken, offering: self.taken.get(offering, 0) + machines}
        family = self.layout.families[offering]
        bucket = self.families[family]
        gone = self.emptied.get(family, 0)
        for place in bucket.of(bucket.keys((offering, market) for market in Market)):
            if _left(place.stats.available, taken[offering]) == 0:
                gone |= bucket.keys([place.key])
        return replace(self, taken=taken, emptied={**self.emptied, family: gone})

    def full(self, bucket: Bucket) -> int:
        """Return the positions of a bucket of which no machine is left."""
        return bucket.full | self.emptied.get(bucket.family, 0)

    def available(self, candidate: Candidate) -> int | None:
        """Return the machines left of a candidate: 0 is none, None unknown."""
        return _left(candidate.stats.available, self.taken.get(candidate.offering.name, 0))

    def largest_available(self, candidate: Candidate) -> int | None:
        """Return the machines left within one supplier offer (SC-131)."""
        return _left(candidate.stats.largest, self.taken.get(candidate.offering.name, 0))


def by_rate(candidate: Candidate) -> tuple[Decimal, str]:
    """Return what candidates are ordered by in a bucket, and in every list of classes."""
    return candidate.offering.rate_on_demand, candidate.offering.name


def _left(known: int | None, taken: int) -> int | None:
    return None if known is None else max(0, known - taken)


def _in_order(candidate: Candidate) -> tuple[str, int, Decimal, str, bool]:
    accelerator, count = candidate.offering.family
    return (accelerator or "", count, *by_rate(candidate), candidate.market is Market.SPOT)


def _cheapest(bucket: Bucket) -> Iterator[tuple[Decimal, str, tuple[Family, int]]]:
    for one in bucket.of(bucket.one_a_class(bucket.everything)):
        place = (bucket.family, bucket.places[one.key])
        yield *by_rate(one), place


def _content_id(buckets: Iterable[Bucket]) -> str:
    digest = sha256()
    for bucket in buckets:
        digest.update(bucket.digest)
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
