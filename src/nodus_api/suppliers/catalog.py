"""Which classes and offers the catalog should hold: supplier offers, merged (SC-202 to SC-204).

Values in, values out; the loop writes them to `offering_classes` and `supplier_offers`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from nodus_api.kernel.money import round_half_up
from nodus_api.suppliers.supplier import OfferedClass, SupplierOffer


class CatalogConflict(Exception):
    """Two offers use one class name for different kinds of capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffer:
    """A supplier's offer with the supplier's name: one private row (SC-203)."""

    supplier: str
    offer: SupplierOffer

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Return what is unique about the row: supplier, instance type, region and zone."""
        return (self.supplier, self.offer.instance_type, self.offer.region, self.offer.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything on offer; classes by name, offers by identity."""

    classes: tuple[OfferedClass, ...]
    offers: tuple[ListedOffer, ...]

    def retired(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the known class names that nobody offers any more, in order (SC-201)."""
        return tuple(sorted(set(known) - {offered.name for offered in self.classes}))


def merge(offers: Mapping[str, Sequence[SupplierOffer]]) -> Catalog:
    """Return the catalog of all suppliers' offers, by supplier name.

    A class promises the least vcpus, memory and disk of its offers (SC-204), the lowest rates
    (USD per hour, 6 digits) and the lowest speed; a spot rate where any offer has one. Its
    reference rate is the median on-demand rate of its (accelerator, count) family (SC-202).
    Raises CatalogConflict.
    """
    listed = [
        ListedOffer(supplier=supplier, offer=offer)
        for supplier, several in offers.items()
        for offer in several
    ]
    by_name: dict[str, list[OfferedClass]] = defaultdict(list)
    for one in listed:
        by_name[one.offer.offered_class.name].append(one.offer.offered_class)
    classes = [_least(by_name[name]) for name in sorted(by_name)]
    references = _reference_rates(classes)
    return Catalog(
        classes=tuple(
            replace(offered, reference_rate=references[offered.accelerator, offered.count])
            for offered in classes
        ),
        offers=tuple(sorted(listed, key=lambda one: one.identity)),
    )


def _least(same: list[OfferedClass]) -> OfferedClass:
    """Return one class that every one of its offers can keep."""
    first = same[0]
    for other in same[1:]:
        if _kind(other) != _kind(first):
            raise CatalogConflict(
                f"class {first.name} stands for different capacity: {_kind(first)}, {_kind(other)}"
            )
    spot = [offered.rate_spot for offered in same if offered.rate_spot is not None]
    return replace(
        first,
        vcpus=min(offered.vcpus for offered in same),
        memory_gib=min(offered.memory_gib for offered in same),
        disk_gib=min(offered.disk_gib for offered in same),
        gang_capable=all(offered.gang_capable for offered in same),
        rate_on_demand=round_half_up(min(offered.rate_on_demand for offered in same)),
        rate_spot=round_half_up(min(spot)) if spot else None,
        speed=min(offered.speed for offered in same),
    )


def _kind(offered: OfferedClass) -> tuple[object, ...]:
    return (
        offered.accelerator,
        offered.form,
        offered.count,
        offered.accelerator_memory_gib,
        offered.arch,
        offered.region_class,
    )


def _reference_rates(classes: list[OfferedClass]) -> dict[tuple[str | None, int], Decimal]:
    families: dict[tuple[str | None, int], list[Decimal]] = defaultdict(list)
    for offered in classes:
        families[offered.accelerator, offered.count].append(offered.rate_on_demand)
    return {family: round_half_up(median(rates)) for family, rates in families.items()}
