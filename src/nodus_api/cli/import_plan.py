"""What an import changes: a listing against all that is known, decided before anything is written.

An offer that a rejected row is of stays as it was. Sizes of an offer are not kept with it, so that
a class that others offer too promises the least of what it promised and what is new (SC-204).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from nodus_api.kernel.money import round_half_up
from nodus_api.kernel.offering import Family, OfferingClass
from nodus_api.scheduler.offered import kept_class, kept_offer
from nodus_api.storage.catalog_store import Offer
from nodus_api.storage.import_store import Edit, Stock
from nodus_api.suppliers.catalog import merge
from nodus_api.suppliers.imported import Listing, Rejection, Row
from nodus_api.suppliers.imported.rows import Identity, rate_of
from nodus_api.suppliers.supplier import OfferedClass

RUNNING = ("kubernetes", "local", "simulated")
"""Suppliers that tell the loop themselves what they offer; an import leaves it alone."""

Kind = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Names of what is new, different, and no longer on offer, each in order."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import writes, and what is told of it; `unchanged` counts offers."""

    edit: Edit
    offers: Changes
    classes: Changes
    unchanged: int
    rejected: tuple[Rejection, ...]
    skipped: tuple[Rejection, ...]
    nothing_retired: bool
    """A rejected row does not say which offer it is of: it may be of any."""


def plan_import(stock: Stock, cloud: str, listing: Listing, markup: Decimal) -> ImportPlan:
    """Return what the listing of a cloud changes; a second time, nothing (SC-208).

    Rates are the least cost of a class times `markup`, 6 digits half up.
    """
    rows, refused = _admitted(stock, listing.rows)
    rejected = sorted([*listing.rejected, *refused], key=lambda one: one.line)
    before = {_identity(one): one for one in stock.offers.get(cloud, ())}
    given = {row.identity: kept_offer(row.offer) for row in rows}
    unnamed = any(one.identity is None for one in rejected)
    kept = frozenset(one.identity for one in rejected if one.identity is not None)
    after = {
        key: given[key] if key in given else _left(old, key in kept or unnamed)
        for key, old in before.items()
    } | {key: new for key, new in given.items() if key not in before}
    offers = _differing(before, after)
    offered = [kept_class(one) for one in merge({cloud: [row.offer for row in rows]}).classes]
    classes = _Classes(stock, cloud, after.values(), given, markup)
    edited = classes.edited(offered, _touched(offers, before))
    return ImportPlan(
        edit=Edit(
            supplier=cloud,
            classes=[
                (one, gone)
                for name, (one, gone) in edited.items()
                if (one, gone) != (stock.classes.get(name), name in stock.retired)
            ],
            offers=list(offers.values()),
        ),
        offers=_changes(
            {" ".join(filter(None, key)): one.enabled for key, one in offers.items()},
            {" ".join(filter(None, key)): one.enabled for key, one in before.items()},
        ),
        classes=_changes(
            {
                name: not gone
                for name, (one, gone) in edited.items()
                if (one, gone) != (stock.classes.get(name), name in stock.retired)
            },
            {name: name not in stock.retired for name in stock.classes},
        ),
        unchanged=sum(1 for key in given if key not in offers),
        rejected=tuple(rejected),
        skipped=listing.skipped,
        nothing_retired=unnamed,
    )


class _Classes:
    """The classes as they are once the offers of a cloud are as planned."""

    def __init__(
        self,
        stock: Stock,
        cloud: str,
        after: Iterable[Offer],
        given: Mapping[Identity, Offer],
        markup: Decimal,
    ) -> None:
        self._stock, self._markup = stock, markup
        self._running = running_classes(stock)
        others: dict[str, list[Offer]] = defaultdict(list)
        for supplier, offers in stock.offers.items():
            if supplier != cloud:
                for offer in offers:
                    if offer.enabled:
                        others[offer.offering].append(offer)
        for offer in after:
            if offer.enabled and _identity(offer) not in given:
                others[offer.offering].append(offer)
        self._others: Mapping[str, Sequence[Offer]] = others

    def edited(
        self, offered: Sequence[OfferingClass], touched: Collection[str]
    ) -> dict[str, tuple[OfferingClass, bool]]:
        """Return classes and whether they are retired, by name: all that may differ."""
        found = {one.name: (self._shared(one), False) for one in offered}
        for name in sorted(touched):
            if name not in found and name not in self._running:
                found[name] = self._without(self._stock.classes[name])
        return self._referred(found)

    def _shared(self, one: OfferingClass) -> OfferingClass:
        """Return a class that its other offers can keep, too."""
        others = self._others.get(one.name, ())
        old = self._stock.classes.get(one.name)
        if old is None:
            return one
        one = replace(one, enabled=old.enabled)
        if not others:
            return one
        return self._rated(
            replace(
                one,
                vcpus=min(one.vcpus, old.vcpus),
                memory_gib=min(one.memory_gib, old.memory_gib),
                disk_gib=min(one.disk_gib, old.disk_gib),
                gang_capable=one.gang_capable and old.gang_capable,
                speed=min(one.speed, old.speed),
            ),
            others,
            [one.rate_on_demand],
            [] if one.rate_spot is None else [one.rate_spot],
        )

    def _without(self, old: OfferingClass) -> tuple[OfferingClass, bool]:
        """Return a class that the cloud no longer offers: as the others do, or retired."""
        others = self._others.get(old.name, ())
        return (self._rated(old, others, [], []), False) if others else (old, True)

    def _rated(
        self,
        one: OfferingClass,
        others: Sequence[Offer],
        on_demand: list[Decimal],
        spot: list[Decimal],
    ) -> OfferingClass:
        rates = [*on_demand, *(rate_of(other.cost_on_demand, self._markup) for other in others)]
        spots = [
            *spot,
            *(
                rate_of(other.cost_spot, self._markup)
                for other in others
                if other.cost_spot is not None
            ),
        ]
        return replace(one, rate_on_demand=min(rates), rate_spot=min(spots, default=None))

    def _referred(
        self, found: dict[str, tuple[OfferingClass, bool]]
    ) -> dict[str, tuple[OfferingClass, bool]]:
        """Return the classes with the reference rates of their families (SC-202)."""
        all_of = {
            name: (one, name in self._stock.retired)
            for name, one in self._stock.classes.items()
            if name not in self._running
        } | found
        rates: dict[Family, list[Decimal]] = defaultdict(list)
        for one, gone in all_of.values():
            if not gone:
                rates[one.family].append(one.rate_on_demand)
        families = {one.family for one, _ in found.values()}
        return {
            name: (
                replace(one, reference_rate=round_half_up(median(rates[one.family])))
                if not gone
                else one,
                gone,
            )
            for name, (one, gone) in all_of.items()
            if one.family in families
        }


def running_classes(stock: Stock) -> frozenset[str]:
    """Return the classes that a running supplier offers or has offered."""
    return frozenset(
        offer.offering for supplier in RUNNING for offer in stock.offers.get(supplier, ())
    )


def _admitted(stock: Stock, rows: Sequence[Row]) -> tuple[list[Row], list[Rejection]]:
    """Return the rows whose class stands for what they are; where none does yet, amd64 is first.

    Names do not tell architectures apart, and stand for one kind of capacity for ever (SC-201).
    """
    kinds = {name: _kind(one) for name, one in stock.classes.items()}
    running = running_classes(stock)
    admitted, refused = [], []
    for row in sorted(rows, key=lambda row: (row.offer.offered_class.arch != "amd64", row.line)):
        offered = row.offer.offered_class
        cause = None
        if offered.name in running:
            cause = f"class {offered.name} is what the supplier that runs here offers itself"
        elif (kind := kinds.setdefault(offered.name, _kind(offered))) != _kind(offered):
            was, new = _words(kind), _words(_kind(offered))
            cause = f"class {offered.name} stands for {was} already, and this is {new}"
        if cause is None:
            admitted.append(row)
        else:
            refused.append(Rejection(line=row.line, cause=cause, identity=row.identity))
    return admitted, refused


def _kind(one: OfferedClass | OfferingClass) -> Kind:
    return (
        one.accelerator,
        one.form,
        one.count,
        one.accelerator_memory_gib,
        one.arch,
        one.region_class,
    )


def _words(kind: Kind) -> str:
    return " ".join(str(one) for one in kind if one is not None)


def _identity(offer: Offer) -> Identity:
    return (offer.instance_type, offer.region, offer.zone)


def _left(old: Offer, kept: bool) -> Offer:
    """Return an offer that the listing does not give: as it was, or no longer on offer."""
    return old if kept else replace(old, enabled=False)


def _differing(
    before: Mapping[Identity, Offer], after: Mapping[Identity, Offer]
) -> dict[Identity, Offer]:
    """Return the offers that are new or not as they were; numbers are the database's alone."""
    return {
        key: one
        for key, one in after.items()
        if key not in before or replace(one, no=None) != replace(before[key], no=None)
    }


def _touched(offers: Mapping[Identity, Offer], before: Mapping[Identity, Offer]) -> list[str]:
    """Return the classes that changed offers are no longer, or newly, behind."""
    names = {one.offering: None for one in offers.values()}
    names |= {before[key].offering: None for key in offers if key in before}
    return list(names)


def _changes(after: Mapping[str, bool], before: Mapping[str, bool]) -> Changes:
    """Sort what differs by what happened to it; both say whether it is on offer."""
    return Changes(
        added=tuple(sorted(key for key, on in after.items() if on and not before.get(key))),
        changed=tuple(sorted(key for key, on in after.items() if on and before.get(key))),
        retired=tuple(sorted(key for key, on in after.items() if not on)),
    )
