"""How classes and offers are shown: values for JSON, and lines for people."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal

from nodus_api.cli.tabular import render_table
from nodus_api.kernel.money import format_rate
from nodus_api.kernel.offering import OfferingClass
from nodus_api.storage.catalog_store import Offer

Value = str | int | bool | list[str] | None
Shown = Mapping[str, Value]

CLASS_HEADINGS = {
    "CLASS": "name",
    "ARCH": "arch",
    "VCPUS": "vcpus",
    "MEMORY GIB": "memoryGiB",
    "DISK GIB": "diskGiB",
    "ON-DEMAND": "rateOnDemand",
    "SPOT": "rateSpot",
    "REFERENCE": "referenceRateUSDPerHour",
    "STATE": "state",
}
RESTRICTED_HEADINGS = CLASS_HEADINGS | {"OPEN TO": "openTo"}
"""Where some class is not open to all."""
OFFER_HEADINGS = {
    "SUPPLIER": "supplier",
    "INSTANCE TYPE": "instanceType",
    "REGION": "region",
    "ZONE": "zone",
    "CLASS": "class",
    "ON-DEMAND": "costOnDemand",
    "SPOT": "costSpot",
    "STATE": "state",
}
_NUMBERS = frozenset({"VCPUS", "MEMORY GIB", "DISK GIB", "ON-DEMAND", "SPOT", "REFERENCE"})


def class_json(
    one: OfferingClass, *, retired: bool, open_to: Collection[str] | None = None
) -> Shown:
    """Return the public facts of a class (SC-202); numbers are decimal strings.

    `open_to` are the projects that may use it, None for all.
    """
    return {
        "name": one.name,
        "accelerator": one.accelerator,
        "form": one.form,
        "count": one.count,
        "acceleratorMemoryGiB": _optional(one.accelerator_memory_gib, _plain),
        "vcpus": _plain(one.vcpus),
        "memoryGiB": _plain(one.memory_gib),
        "diskGiB": _plain(one.disk_gib),
        "arch": one.arch,
        "regionClass": one.region_class,
        "gangCapable": one.gang_capable,
        "rateOnDemand": format_rate(one.rate_on_demand),
        "rateSpot": _optional(one.rate_spot, format_rate),
        "enabled": one.enabled,
        "speed": _plain(one.speed),
        "referenceRateUSDPerHour": format_rate(one.reference_rate),
        "state": "retired" if retired else "on offer" if one.enabled else "disabled",
        "openTo": None if open_to is None else sorted(open_to),
    }


def offer_json(supplier: str, one: Offer) -> Shown:
    """Return the private facts of an offer (SC-203): for operators alone."""
    second = timedelta(seconds=1)
    return {
        "supplier": supplier,
        "instanceType": one.instance_type,
        "region": one.region,
        "zone": one.zone,
        "class": one.offering,
        "costOnDemand": format_rate(one.cost_on_demand),
        "costSpot": _optional(one.cost_spot, format_rate),
        "billingIncrementSeconds": one.increment // second,
        "minimumSeconds": one.minimum // second,
        "state": "on offer" if one.enabled else "retired",
    }


def listed(headings: Mapping[str, str], shown: Sequence[Shown]) -> str:
    """Return a table with those columns; what there is not is a dash."""
    rows = [[_cell(one[key]) for key in headings.values()] for one in shown]
    return render_table(list(headings), rows, right=_NUMBERS)


def _cell(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "-" if value in (None, "") else str(value)


def _optional(value: Decimal | None, show: Callable[[Decimal], str]) -> str | None:
    return None if value is None else show(value)


def _plain(value: Decimal) -> str:
    """Return a number without the zeros that the database adds."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
