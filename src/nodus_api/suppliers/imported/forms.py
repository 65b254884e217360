"""The mapping file: what the columns of a cloud do not say of its types and regions (SC-206).

    nebius:
      diskGiB: 100
      regions: {eu-: eu, us-: us}
      types:
        gpu-h100-sxm: {form: sxm, speed: 1.0, gang: true}

Regions and types are given by prefix; the longest that fits counts. Nothing is guessed: an
accelerator whose type is not named, or a region, is told and not taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from nodus_api.suppliers.imported.rows import (
    ARCHITECTURES,
    REGION_CLASSES,
    BadFile,
    BadRow,
    one_of,
    read_kind,
    read_number,
    read_size,
    read_whole,
)
from nodus_api.suppliers.imported.yaml_text import Item, expect, read_yaml

T = TypeVar("T")
_CLOUD = ("diskGiB", "incrementSeconds", "minimumSeconds", "regions", "types")
_TYPE = ("form", "speed", "gang", "arch", "diskGiB")
_YES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeForm:
    """What is known of the instance types with one prefix; `speed` as in SC-202."""

    form: str | None = None
    speed: Decimal | None = None
    gang: bool = False
    arch: str | None = None
    disk_gib: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """What is known of one cloud; GiB and seconds."""

    disk_gib: Decimal = Decimal(0)
    increment: int = 1
    minimum: int = 0
    regions: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, TypeForm] = field(default_factory=dict)

    def region_class(self, region: str) -> str:
        """Return the region class of a region. Raises BadRow if it is not mapped."""
        found = _longest(self.regions, region)
        if found is None:
            raise BadRow(f"region {region} is not in the mapping file")
        return found

    def type_form(self, instance_type: str) -> TypeForm | None:
        """Return what is known of a type, or None."""
        return _longest(self.types, instance_type)


def read_forms(text: str, cloud: str) -> Forms:
    """Return what a mapping file says of a cloud. Raises BadFile."""
    clouds = read_yaml(text).mapping("the mapping file")
    if cloud not in clouds:
        raise BadFile(
            f"it has no entry for {cloud}; it has {', '.join(map(repr, clouds)) or 'none'}"
        )
    found = clouds[cloud].mapping(cloud)
    expect(found, _CLOUD, cloud)
    regions = _entries(found, "regions")
    types = _entries(found, "types")
    with _Located(clouds[cloud]):
        numbers = {name: found[name].text(name) for name in _CLOUD[:3] if name in found}
        disk = _disk(numbers) if "diskGiB" in numbers else Decimal(0)
        increment = read_whole(numbers, "incrementSeconds") if "incrementSeconds" in numbers else 1
        minimum = read_whole(numbers, "minimumSeconds") if "minimumSeconds" in numbers else 0
        if not increment:
            raise BadRow("incrementSeconds is 0")
    return Forms(
        disk_gib=disk,
        increment=increment,
        minimum=minimum,
        regions={prefix: _region(item) for prefix, item in regions.items()},
        types={prefix: _type(prefix, item) for prefix, item in types.items()},
    )


class _Located:
    """Names the line of what cannot be read."""

    def __init__(self, item: Item) -> None:
        self._line = item.line

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tell a bad value as a bad file."""
        if isinstance(error, BadRow):
            raise BadFile(f"line {self._line}: {error}") from error


def _entries(found: dict[str, Item], name: str) -> dict[str, Item]:
    return found[name].mapping(name) if name in found else {}


def _region(item: Item) -> str:
    with _Located(item):
        known = {name: name for name in REGION_CLASSES}
        return one_of(item.text("a region class"), "region class", known)


def _type(prefix: str, item: Item) -> TypeForm:
    what = repr(prefix[:60])
    found = item.mapping(what)
    expect(found, _TYPE, what)
    given = {name: text for name, one in found.items() if (text := one.text(name))}
    form = speed = arch = disk = None
    gang = False
    with _Located(item):
        if "form" in given:
            form = read_kind(given["form"], "form")
        if "speed" in given:
            speed = read_speed(given)
        if "arch" in given:
            arch = one_of(given["arch"], "arch", ARCHITECTURES)
        if "diskGiB" in given:
            disk = _disk(given)
        if "gang" in given:
            gang = read_yes(given, "gang")
    return TypeForm(form=form, speed=speed, gang=gang, arch=arch, disk_gib=disk)


def _disk(fields: Mapping[str, str]) -> Decimal:
    return read_size(fields, "diskGiB", zero=True)


def read_speed(fields: Mapping[str, str]) -> Decimal:
    """Return `speed`, relative to one h100-sxm, 4 decimals. Raises BadRow."""
    speed = round(read_number(fields, "speed"), 4)
    if not 0 < speed <= 1000:
        raise BadRow(f"speed {fields['speed']} is not above 0 and at most 1000")
    return speed


def read_yes(fields: Mapping[str, str], name: str) -> bool:
    """Return `true` or `false`. Raises BadRow."""
    found = _YES.get(fields[name].strip().lower())
    if found is None:
        raise BadRow(f"{name} {fields[name][:60]!r} must be true or false")
    return found


def _longest(prefixes: Mapping[str, T], name: str) -> T | None:
    fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(fitting, key=len)] if fitting else None
