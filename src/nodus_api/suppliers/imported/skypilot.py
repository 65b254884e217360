"""The public price lists in SkyPilot's format, `catalogs/v8/CLOUD/vms.csv` (SC-206)."""

import ast
import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from nodus_api.suppliers.imported.forms import Forms, TypeForm
from nodus_api.suppliers.imported.naming import class_name
from nodus_api.suppliers.imported.rows import (
    ARCHITECTURES,
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
from nodus_api.suppliers.supplier import OfferedClass, SupplierOffer

_COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo",
    "Price", "SpotPrice", "Region",
)  # fmt: skip
_MEMORY = re.compile(r"-([0-9]+)GB$", re.ASCII)
_LONGEST_INFO = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accelerator:
    name: str | None = None
    count: int = 0
    memory_gib: Decimal | None = None


def read_skypilot(text: str, forms: Forms, *, markup: Decimal) -> Listing:
    """Return the offers of a price list; `markup` makes a rate of a cost, 1.10 say.

    Raises BadFile if it is no table with the columns that are needed.
    """
    found = Collected()
    for line, fields in _lines(text):
        identity = None if fields is None else identity_of(lambda f=fields: _identity(f))  # type: ignore[misc]
        if fields is None:
            found.reject(line, "it has more or fewer fields than the first line", None)
        elif not fields["Price"].strip():
            found.skip(line, "Price is empty", identity)
        else:
            try:
                found.add(Row(line=line, offer=_offer(fields, forms, markup)))
            except BadRow as error:
                found.reject(line, str(error), identity)
    return found.listing()


def _lines(text: str) -> Iterator[tuple[int, Mapping[str, str] | None]]:
    """Yield each row with the line of its start; None where fields and columns do not match."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        missing = [name for name in _COLUMNS if name not in columns]
        if missing:
            raise BadFile(f"line 1: columns are missing: {', '.join(missing)}")
        if len(columns) != len(dict.fromkeys(columns)):
            raise BadFile("line 1: a column stands twice")
        line = reader.line_num + 1
        for fields in reader:
            if fields:
                whole = len(fields) == len(columns)
                yield line, dict(zip(columns, fields, strict=True)) if whole else None
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadFile(f"line {reader.line_num}: it is not CSV ({error})") from error


def _identity(fields: Mapping[str, str]) -> Identity:
    return (
        read_name(fields, "InstanceType"),
        read_name(fields, "Region"),
        read_name(fields, "AvailabilityZone", empty=True),
    )


def _offer(fields: Mapping[str, str], forms: Forms, markup: Decimal) -> SupplierOffer:
    instance_type, region, zone = _identity(fields)
    form = forms.type_form(instance_type)
    accelerator = _accelerator(fields)
    if accelerator.name is not None and (form is None or form.speed is None):
        raise BadRow(f"no form and speed of {instance_type} in the mapping file")
    cost = read_usd(fields, "Price")
    if not cost:
        raise BadRow("Price is 0")
    spot = read_usd(fields, "SpotPrice") if fields["SpotPrice"].strip() else None
    if spot is not None and not spot:
        raise BadRow("SpotPrice is 0")
    known = form or TypeForm()
    vcpus, memory = read_size(fields, "vCPUs"), read_size(fields, "MemoryGiB")
    region_class = forms.region_class(region)
    shape = known.form if accelerator.name is not None else None
    return SupplierOffer(
        offered_class=OfferedClass(
            name=class_name(
                accelerator=accelerator.name,
                form=shape,
                count=accelerator.count,
                accelerator_memory_gib=accelerator.memory_gib,
                vcpus=vcpus,
                memory_gib=memory,
                region_class=region_class,
            ),
            accelerator=accelerator.name,
            form=shape,
            count=accelerator.count,
            accelerator_memory_gib=accelerator.memory_gib,
            vcpus=vcpus,
            memory_gib=memory,
            disk_gib=forms.disk_gib if known.disk_gib is None else known.disk_gib,
            arch=_arch(fields, known),
            region_class=region_class,
            gang_capable=known.gang,
            rate_on_demand=rate_of(cost, markup),
            rate_spot=None if spot is None else rate_of(spot, markup),
            speed=Decimal(1) if known.speed is None else known.speed,
            reference_rate=rate_of(cost, markup),
        ),
        instance_type=instance_type,
        region=region,
        zone=zone,
        cost_on_demand=cost,
        cost_spot=spot,
        increment=timedelta(seconds=forms.increment),
        minimum=timedelta(seconds=forms.minimum),
    )


def _arch(fields: Mapping[str, str], known: TypeForm) -> str:
    if text := fields.get("Arch", "").strip():
        return one_of(text, "Arch", ARCHITECTURES)
    return known.arch or "amd64"


def _accelerator(fields: Mapping[str, str]) -> _Accelerator:
    """Return what a row says of accelerators; a count of `8.0` or of nothing at all is known."""
    name = fields["AcceleratorName"].strip()
    count = read_whole(fields, "AcceleratorCount") if fields["AcceleratorCount"].strip() else 0
    if not name:
        if count:
            raise BadRow("AcceleratorCount is given without AcceleratorName")
        return _Accelerator()
    if not 0 < count <= 1024:
        raise BadRow(f"AcceleratorCount of {name[:60]!r} is not from 1 to 1024")
    return _Accelerator(
        name=read_kind(_MEMORY.sub("", name), "AcceleratorName"),
        count=count,
        memory_gib=_memory_gib(fields["GpuInfo"]),
    )


def _memory_gib(text: str) -> Decimal:
    """Return the memory of one accelerator, whole GiB rounded down.

    GpuInfo is a Python literal. Its total is of one accelerator in some files and of all in
    others, so that only the size of the first counts.
    """
    try:
        info: Any = ast.literal_eval(text.strip()) if len(text) <= _LONGEST_INFO else None
        size = info["Gpus"][0]["MemoryInfo"]["SizeInMiB"]
    except (ValueError, TypeError, SyntaxError, LookupError, MemoryError, RecursionError):
        raise BadRow("GpuInfo does not say Gpus[0].MemoryInfo.SizeInMiB") from None
    if isinstance(size, bool) or not isinstance(size, int | float) or not 1024 <= size < 2**30:
        raise BadRow("Gpus[0].MemoryInfo.SizeInMiB of GpuInfo is no size from 1 GiB")
    return Decimal(int(size) // 1024)
