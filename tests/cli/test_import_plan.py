"""What an import changes: decided on values, with no bad row ever changing anything (SC-208)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from nodus_api.cli.import_plan import ImportPlan, plan_import
from nodus_api.storage.catalog_store import Offer
from nodus_api.storage.import_store import Stock
from nodus_api.suppliers.imported import Listing, read_native

ONE = Decimal(1)
EMPTY = Stock(classes={}, retired=frozenset(), offers={})
Given = Mapping[str, object]

BOX = {
    "instanceType": "box", "region": "r", "regionClass": "eu", "vcpus": 8, "memoryGiB": 32,
    "diskGiB": 10, "costOnDemand": "1",
}  # fmt: skip


def listing(*offers: Given) -> Listing:
    lines = (", ".join(f"{name}: {value}" for name, value in one.items()) for one in offers)
    return read_native("offers: [" + ",\n".join(f"{{{one}}}" for one in lines) + "]", markup=ONE)


def after(stock: Stock, plan: ImportPlan) -> Stock:
    """Return the stock once the plan's edit is written."""
    edit = plan.edit
    offers: dict[tuple[str, str, str], Offer] = {
        (one.instance_type, one.region, one.zone): one
        for one in stock.offers.get(edit.supplier, ())
    }
    offers |= {(one.instance_type, one.region, one.zone): one for one in edit.offers}
    retired = dict.fromkeys(stock.retired, True) | {one.name: gone for one, gone in edit.classes}
    return Stock(
        classes={**stock.classes, **{one.name: one for one, _ in edit.classes}},
        retired=frozenset(name for name, gone in retired.items() if gone),
        offers={**stock.offers, edit.supplier: list(offers.values())},
    )


def imported(stock: Stock, cloud: str, offers: Sequence[Given], markup: Decimal = ONE) -> Stock:
    return after(stock, plan_import(stock, cloud, listing(*offers), markup))


def test_a_class_of_two_clouds_promises_what_both_give() -> None:  # SC-204, SC-208
    stock = imported(EMPTY, "a", [{**BOX, "diskGiB": 50, "costOnDemand": 2, "costSpot": 1}])
    stock = imported(stock, "b", [{**BOX, "costOnDemand": 3}], Decimal("1.5"))
    one = stock.classes["cpu-8c-32g-eu"]
    # b's own rate as its reader made it is 3; a's cost of 2 with the markup is 3, too
    assert (one.disk_gib, one.rate_on_demand, one.rate_spot) == (
        Decimal(10), Decimal(3), Decimal("1.5"),
    )  # fmt: skip
    stock = imported(stock, "a", [{**BOX, "instanceType": "other", "vcpus": 4}])
    one = stock.classes["cpu-8c-32g-eu"]
    assert (one.rate_on_demand, one.rate_spot) == (Decimal(3), None)  # b's alone now
    assert stock.retired == frozenset()
    stock = imported(stock, "b", [])
    assert stock.retired == {"cpu-8c-32g-eu"}  # SC-201: still known
    assert "cpu-8c-32g-eu" in stock.classes
    assert imported(stock, "b", [BOX]).retired == frozenset()


def test_reference_rates_are_those_of_the_family_over_all_clouds() -> None:  # SC-202
    stock = imported(EMPTY, "a", [BOX])
    stock = imported(stock, "b", [{**BOX, "vcpus": 4, "costOnDemand": 3}])
    assert {one.reference_rate for one in stock.classes.values()} == {Decimal(2)}
    stock = imported(stock, "b", [])
    assert stock.classes["cpu-8c-32g-eu"].reference_rate == 1


def test_an_operator_s_drain_stays() -> None:
    stock = imported(EMPTY, "a", [BOX])
    (one,) = stock.classes.values()
    stock = replace(stock, classes={one.name: replace(one, enabled=False)})
    assert not imported(stock, "a", [{**BOX, "costOnDemand": 5}]).classes[one.name].enabled


def test_a_name_stands_for_one_architecture() -> None:  # SC-201: names do not tell
    arm = {**BOX, "instanceType": "arm", "arch": "arm64"}
    plan = plan_import(EMPTY, "a", listing(arm, BOX), ONE)
    (rejected,) = plan.rejected
    assert rejected.line == 1
    assert "cpu-8c-32g-eu stands for 0 amd64 eu already, and this is 0 arm64 eu" in rejected.cause
    stock = imported(EMPTY, "a", [arm])
    assert len(plan_import(stock, "b", listing(BOX), ONE).rejected) == 1


def test_what_the_running_supplier_offers_is_its_own() -> None:
    stock = imported(EMPTY, "local", [BOX])
    other = {**BOX, "instanceType": "other", "vcpus": 4, "costOnDemand": 9}
    plan = plan_import(stock, "a", listing(BOX, other), ONE)
    assert [one.line for one in plan.rejected] == [1]
    assert "the supplier that runs here" in plan.rejected[0].cause
    assert [one.name for one, _ in plan.edit.classes] == ["cpu-4c-32g-eu"]  # no reference rate
    assert plan.edit.classes[0][0].reference_rate == 9


def test_a_bad_row_that_names_no_offer_retires_nothing() -> None:
    stock = imported(EMPTY, "a", [BOX, {**BOX, "instanceType": "two"}])
    plan = plan_import(stock, "a", listing(BOX, {**BOX, "instanceType": ""}), ONE)
    assert plan.nothing_retired
    assert plan.edit.offers == []
    assert plan.edit.classes == []


@st.composite
def fleets(draw: st.DrawFn) -> list[dict[str, object]]:
    """Offers with names of their own; sizes and prices differ."""
    names = draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=5))
    return [
        {
            **BOX,
            "instanceType": name,
            "vcpus": draw(st.integers(1, 2)),
            "diskGiB": draw(st.integers(0, 2)),
            "costOnDemand": draw(st.integers(0, 3)),
            "regionClass": draw(st.sampled_from(["eu", "us"])),
            "arch": draw(st.sampled_from(["amd64", "amd64", "arm64"])),
        }
        | draw(st.sampled_from([{}, {"costSpot": 1}, {"accelerator": "h100", "speed": 1,
             "count": 1, "acceleratorMemoryGiB": 80}]))
        for name in names
    ]  # fmt: skip


BAD = st.sampled_from(
    [{"costOnDemand": "-1"}, {"vcpus": "many"}, {"regionClass": "mars"}, {"colour": "red"},
     {"form": "sxm"}, {"diskGiB": ""}, {"gang": "perhaps"}]
)  # fmt: skip


def offers_of(stock: Stock, cloud: str) -> dict[str, Offer]:
    return {one.instance_type: one for one in stock.offers.get(cloud, ())}


@given(
    first=fleets(),
    other=fleets(),
    second=fleets(),
    bad=st.dictionaries(st.sampled_from("abcdef"), BAD),
)
def test_no_bad_row_changes_anything(
    first: list[dict[str, object]],
    other: list[dict[str, object]],
    second: list[dict[str, object]],
    bad: dict[str, dict[str, object]],
) -> None:  # SC-208
    stock = imported(imported(EMPTY, "a", first), "b", other)
    good = [one for one in second if one["instanceType"] not in bad]
    bad_rows = [{**BOX, "instanceType": name} | fault for name, fault in bad.items()]
    plan = plan_import(stock, "a", listing(*good, *bad_rows), ONE)
    new = after(stock, plan)
    rejected = dict.fromkeys(one.identity[0] for one in plan.rejected if one.identity)
    assert rejected.keys() >= bad.keys()
    was, now = offers_of(stock, "a"), offers_of(new, "a")
    alone = offers_of(after(stock, plan_import(stock, "a", listing(*good), ONE)), "a")
    for name in "abcdef":
        if name in rejected:
            assert now.get(name) == was.get(name)
        else:
            assert now.get(name) == alone.get(name)
    assert offers_of(new, "b") == offers_of(stock, "b")
    same = [one for one in first if one["instanceType"] not in bad]
    beside = plan_import(stock, "a", listing(*same, *bad_rows), ONE)
    assert (beside.edit.offers, beside.edit.classes) == ([], [])
    again = plan_import(new, "a", listing(*good, *bad_rows), ONE)
    assert (again.edit.offers, again.edit.classes) == ([], [])  # idempotent
    on_offer = {one.offering for offers in new.offers.values() for one in offers if one.enabled}
    assert on_offer == new.classes.keys() - new.retired
