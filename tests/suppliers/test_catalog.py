"""The catalog that the loop writes (SC-201 to SC-204)."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.suppliers.catalog import CatalogConflict, ListedOffer, merge
from nodus_api.suppliers.supplier import OfferedClass, SupplierOffer


def a_class(name: str = "h100-sxm-80g-x1-eu", *, rate: str = "2.95") -> OfferedClass:
    return OfferedClass(
        name=name,
        accelerator="h100",
        form="sxm",
        count=1,
        accelerator_memory_gib=Decimal(80),
        vcpus=Decimal(16),
        memory_gib=Decimal(200),
        disk_gib=Decimal(500),
        arch="amd64",
        region_class="eu",
        gang_capable=True,
        rate_on_demand=Decimal(rate),
        rate_spot=Decimal("1.25"),
        speed=Decimal(1),
        reference_rate=Decimal(rate),
    )


def an_offer(offered: OfferedClass, instance_type: str = "type-a") -> SupplierOffer:
    return SupplierOffer(
        offered_class=offered, instance_type=instance_type, region="eu-1", cost_on_demand=Decimal(1)
    )


def test_a_class_promises_what_every_offer_of_it_gives() -> None:  # SC-204
    small = replace(
        a_class(rate="3.5"), vcpus=Decimal(8), rate_spot=None, gang_capable=False, speed=Decimal(2)
    )

    catalog = merge({"a": [an_offer(a_class())], "b": [an_offer(small)]})

    (offered,) = catalog.classes
    assert offered == replace(a_class(), vcpus=Decimal(8), gang_capable=False)
    assert [one.identity[0] for one in catalog.offers] == ["a", "b"]


def test_the_reference_rate_is_the_median_of_the_family() -> None:  # SC-202
    classes = [a_class(name, rate=rate) for name, rate in (("a", "1"), ("b", "2"), ("c", "9"))]

    catalog = merge({"s": [an_offer(offered, offered.name) for offered in classes]})

    assert {offered.reference_rate for offered in catalog.classes} == {Decimal(2)}


def test_one_name_for_two_kinds_is_refused() -> None:
    other = replace(a_class(), accelerator_memory_gib=Decimal(40))

    with pytest.raises(CatalogConflict, match="h100-sxm-80g-x1-eu"):
        merge({"a": [an_offer(a_class())], "b": [an_offer(other)]})


def test_a_class_that_nobody_offers_is_retired() -> None:  # SC-201
    catalog = merge({"a": [an_offer(a_class())]})

    assert catalog.retired(["old-2", a_class().name, "old-1"]) == ("old-1", "old-2")
    assert merge({}).retired(["old"]) == ("old",)


@given(order=st.permutations(["type-a", "type-b", "type-c"]))
def test_the_catalog_does_not_depend_on_the_order_of_offers(order: list[str]) -> None:  # P-16
    made = {name: an_offer(a_class(rate=str(index + 1)), name) for index, name in enumerate(order)}
    again = merge({"s": [made[name] for name in sorted(made)]})

    assert merge({"s": list(made.values())}) == again
    assert ListedOffer(supplier="s", offer=made["type-a"]) in again.offers
