"""Own fleets, in a YAML file of our own form (SC-208).

offers:
- instanceType: box-8
  region: hall-1
  regionClass: eu
  accelerator: h100
  form: sxm
  count: 8
  acceleratorMemoryGiB: 80
  vcpus: 128
  memoryGiB: 1600
  diskGiB: 4000
  speed: 1.0
  gang: true
  costOnDemand: 18.40
"""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from nodus_api.suppliers.imported.forms import read_speed, read_yes
from nodus_api.suppliers.imported.naming import class_name
from nodus_api.suppliers.imported.rows import (
    ARCHITECTURES,
    REGION_CLASSES,
    BadFile,
    BadRow,
    Collected,
    Identity,
    Listing,
    Row,
    identity_of,
    one_of,
    rate_of,
    read_kind,
    read_name,
    read_size,
    read_usd,
    read_whole,
)
from nodus_api.suppliers.imported.yaml_text import Item, expect, read_yaml, unknown
from nodus_api.suppliers.supplier import OfferedClass, SupplierOffer

_FIELDS = (
    "instanceType", "region", "zone", "regionClass", "accelerator", "form", "count",
    "acceleratorMemoryGiB", "vcpus", "memoryGiB", "diskGiB", "arch", "gang", "speed",
    "costOnDemand", "costSpot", "incrementSeconds", "minimumSeconds",
)  # fmt: skip
_REGIONS = {name: name for name in REGION_CLASSES}


def read_native(text: str, *, markup: Decimal) -> Listing:
    """Return the offers of an own fleet; `markup` makes a rate of a cost, 1.10 say.

    Raises BadFile if it is no YAML with a list `offers`.
    """
    whole = read_yaml(text).mapping("the file")
    expect(whole, ("offers",), "the file")
    if "offers" not in whole:
        raise BadFile("it has no list `offers`")
    found = Collected()
    for item in whole["offers"].sequence("offers"):
        fields: dict[str, str] = {}
        try:
            fields.update(_fields(item))
            found.add(Row(line=item.line, offer=_offer(fields, markup)))
        except (BadRow, BadFile) as error:
            cause = str(error).removeprefix(f"line {item.line}: ")
            found.reject(item.line, cause, identity_of(lambda f=fields: _identity(f)))  # type: ignore[misc]
    return found.listing()


def _fields(item: Item) -> dict[str, str]:
    found = item.mapping("an offer")
    for name, _ in unknown(found, _FIELDS):
        # the identity is told all the same, so that the offer stays as it was
        return {key: one.text(key) for key, one in found.items() if key in _FIELDS} | {
            "unknown": name
        }
    return {name: text for name, one in found.items() if (text := one.text(name).strip())}


def _identity(fields: Mapping[str, str]) -> Identity:
    return (
        read_name(fields, "instanceType"),
        read_name(fields, "region"),
        read_name(fields, "zone", empty=True),
    )


def _offer(fields: Mapping[str, str], markup: Decimal) -> SupplierOffer:
    if "unknown" in fields:
        raise BadRow(f"{fields['unknown'][:60]!r} is not known; known are {', '.join(_FIELDS)}")
    instance_type, region, zone = _identity(fields)
    cost = read_usd(fields, "costOnDemand")
    spot = read_usd(fields, "costSpot") if "costSpot" in fields else None
    increment = read_whole(fields, "incrementSeconds") if "incrementSeconds" in fields else 1
    if not increment:
        raise BadRow("incrementSeconds is 0")
    rate_spot = None if spot is None else rate_of(spot, markup)
    return SupplierOffer(
        offered_class=_class(fields, rate_of(cost, markup), rate_spot),
        instance_type=instance_type,
        region=region,
        zone=zone,
        cost_on_demand=cost,
        cost_spot=spot,
        increment=timedelta(seconds=increment),
        minimum=timedelta(
            seconds=read_whole(fields, "minimumSeconds") if "minimumSeconds" in fields else 0
        ),
    )


def _class(fields: Mapping[str, str], rate: Decimal, spot: Decimal | None) -> OfferedClass:
    accelerator, form, count, accelerator_memory = _accelerator(fields)
    vcpus, memory = read_size(fields, "vcpus"), read_size(fields, "memoryGiB")
    region_class = one_of(read_name(fields, "regionClass"), "regionClass", _REGIONS)
    return OfferedClass(
        name=class_name(
            accelerator=accelerator,
            form=form,
            count=count,
            accelerator_memory_gib=accelerator_memory,
            vcpus=vcpus,
            memory_gib=memory,
            region_class=region_class,
        ),
        accelerator=accelerator,
        form=form,
        count=count,
        accelerator_memory_gib=accelerator_memory,
        vcpus=vcpus,
        memory_gib=memory,
        disk_gib=read_size(fields, "diskGiB", zero=True),
        arch=one_of(fields.get("arch", "amd64"), "arch", ARCHITECTURES),
        region_class=region_class,
        gang_capable="gang" in fields and read_yes(fields, "gang"),
        rate_on_demand=rate,
        rate_spot=spot,
        speed=read_speed(fields) if "speed" in fields or accelerator else Decimal(1),
        reference_rate=rate,
    )


def _accelerator(
    fields: Mapping[str, str],
) -> tuple[str | None, str | None, int, Decimal | None]:
    if "accelerator" not in fields:
        for name in ("form", "count", "acceleratorMemoryGiB"):
            if name in fields:
                raise BadRow(f"{name} is given without accelerator")
        return None, None, 0, None
    count = read_whole(fields, "count")
    if not 0 < count <= 1024:
        raise BadRow("count is not from 1 to 1024")
    memory = read_whole(fields, "acceleratorMemoryGiB")
    if not memory:
        raise BadRow("acceleratorMemoryGiB is 0")
    form = read_kind(fields["form"], "form") if "form" in fields else None
    return read_kind(fields["accelerator"], "accelerator"), form, count, Decimal(memory)
