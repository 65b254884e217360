"""What reading a file of offers gives, and how one field of it is read (SC-206)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal

from nodus_api.kernel.money import parse_decimal, round_half_up
from nodus_api.suppliers.supplier import SupplierOffer

Identity = tuple[str, str, str]
"""Instance type, region and zone: what is unique within one cloud."""

REGION_CLASSES = ("us", "ca", "eu", "uk", "in", "jp", "sg", "au", "me", "sa", "af", "other")
ARCHITECTURES: Mapping[str, str] = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "arm64": "arm64",
    "aarch64": "arm64",
}

_NAME = re.compile(r"[!-~]{1,128}", re.ASCII)
_KIND = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_LARGEST = 10_000_000


class BadFile(Exception):
    """The whole file cannot be read; the message says why and, if known, at which line."""


class BadRow(ValueError):
    """A row cannot be believed; the message is its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An offer and the line, from 1, where it stands."""

    line: int
    offer: SupplierOffer

    @property
    def identity(self) -> Identity:
        """What tells it from the other offers of its cloud."""
        return (self.offer.instance_type, self.offer.region, self.offer.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A row that is not taken; `identity` is None where it does not say which offer it is of."""

    line: int
    cause: str
    identity: Identity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A file as read: what is taken, what is rejected, and what is for nobody to rent.

    `skipped` are rows without a price, which a cloud lists and does not sell by the hour (SC-206).
    All are in the order of their lines.
    """

    rows: tuple[Row, ...]
    rejected: tuple[Rejection, ...]
    skipped: tuple[Rejection, ...] = ()


class Collected:
    """A listing as it grows, line by line."""

    def __init__(self) -> None:
        self._rows: dict[Identity, Row] = {}
        self._rejected: list[Rejection] = []
        self._skipped: list[Rejection] = []

    def add(self, row: Row) -> None:
        """Take an offer; a second of the same identity is rejected unless it says the same."""
        first = self._rows.setdefault(row.identity, row)
        if first is row:
            return
        if first.offer == row.offer:
            self.skip(row.line, f"repeats line {first.line}", row.identity)
        else:
            self.reject(row.line, f"contradicts line {first.line}", row.identity)

    def reject(self, line: int, cause: str, identity: Identity | None) -> None:
        """Note a row that cannot be believed."""
        self._rejected.append(Rejection(line=line, cause=cause, identity=identity))

    def skip(self, line: int, cause: str, identity: Identity | None) -> None:
        """Note a row that says nothing new."""
        self._skipped.append(Rejection(line=line, cause=cause, identity=identity))

    def listing(self) -> Listing:
        """Return what was collected."""
        return Listing(
            rows=tuple(self._rows.values()),
            rejected=tuple(self._rejected),
            skipped=tuple(self._skipped),
        )


def read_name(fields: Mapping[str, str], name: str, *, empty: bool = False) -> str:
    """Return a field that names something: printable ASCII without spaces, 128 at most.

    Raises BadRow; an empty field is refused unless `empty`.
    """
    text = fields.get(name, "").strip()
    if not text:
        if empty:
            return ""
        raise BadRow(f"{name} is empty")
    if not _NAME.fullmatch(text):
        raise BadRow(f"{name} is not a name: at most 128 letters, digits and signs, no spaces")
    return text


def read_kind(text: str, name: str) -> str:
    """Return an accelerator or form as class names spell it: `a100`, `rtx6000-ada`.

    Raises BadRow.
    """
    kind = text.strip().lower()
    if len(kind) > 40 or not _KIND.fullmatch(kind):
        raise BadRow(f"{name} {text[:60]!r} cannot be part of a class name")
    return kind


def read_number(fields: Mapping[str, str], name: str) -> Decimal:
    """Return a plain decimal number, digits as written. Raises BadRow."""
    text = fields.get(name, "").strip()
    if not text:
        raise BadRow(f"{name} is empty")
    return _within(text, name)


def read_size(fields: Mapping[str, str], name: str, *, zero: bool = False) -> Decimal:
    """Return vcpus or GiB with at most 2 decimals, rounded down: never more than there is.

    Raises BadRow; for what is less than a hundredth too, unless `zero`.
    """
    size = read_number(fields, name).quantize(Decimal("0.01"), rounding=ROUND_DOWN)
    if not (size or zero):
        raise BadRow(f"{name} is 0")
    return size


def read_usd(fields: Mapping[str, str], name: str) -> Decimal:
    """Return USD per hour, 6 digits half up. Raises BadRow."""
    return round_half_up(read_number(fields, name))


def read_whole(fields: Mapping[str, str], name: str) -> int:
    """Return a whole number, such as `8` or `8.0`. Raises BadRow."""
    number = read_number(fields, name)
    if number != number.to_integral_value():
        raise BadRow(f"{name} {fields[name].strip()[:60]} is not a whole number")
    return int(number)


def one_of(text: str, name: str, known: Mapping[str, str]) -> str:
    """Return what a word stands for. Raises BadRow."""
    try:
        return known[text.strip()]
    except KeyError:
        raise BadRow(
            f"{name} {text.strip()[:60]!r} is not known: {', '.join(sorted(known))}"
        ) from None


def rate_of(cost: Decimal, markup: Decimal) -> Decimal:
    """Return the rate of a cost, USD per hour, 6 digits half up (SC-208)."""
    return round_half_up(cost * markup)


def identity_of(read: Callable[[], Identity]) -> Identity | None:
    """Return the identity of a row, or None if it does not have one."""
    try:
        return read()
    except BadRow:
        return None


def _within(text: str, name: str) -> Decimal:
    try:
        number = parse_decimal(text) if len(text) <= 40 else None
    except ValueError:
        number = None
    if number is None:
        raise BadRow(f"{name} {text[:60]!r} is not a plain decimal number")
    if number >= _LARGEST:
        raise BadRow(f"{name} {text} is too large: it must be below {_LARGEST}")
    return number
