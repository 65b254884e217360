"""Tables, as kubectl shows them (LW-141, LW-250 to LW-255)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import orjson

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import quote
from nodus_api.metav1.objects import ListMeta

Cell = str | int | float | bool | None
"""A cell is JSON of its column's type; None prints as empty (LW-251)."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: all five keys are always on the wire (LW-250). Priority 1 shows with `-o wide`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str
    priority: int = 0

    def to_wire(self) -> dict[str, Any]:
        """Return the column's definition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


class IncludeObject(Enum):
    """What stands beside a row's cells (LW-254)."""

    METADATA = "Metadata"
    OBJECT = "Object"
    NONE = "None"

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "IncludeObject":
        """Return what a query asks for. Raises BadRequest for an unknown word."""
        word = values.get("includeObject", "")
        try:
            return cls(word or "Metadata")
        except ValueError:
            raise BadRequest(
                f"Unable to convert to Table as requested: includeObject: Invalid value: "
                f"{quote(word)}: must be 'Metadata', 'Object', 'None', or empty",
                fix="Use includeObject=Metadata, Object or None, or leave it out.",
            ) from None


def definitions(columns: Sequence[Column]) -> bytes:
    """Return the column definitions of a Table."""
    return orjson.dumps([column.to_wire() for column in columns])


def head(api_version: str, metadata: ListMeta, columns: bytes | None) -> bytes:
    """Return the start of a Table; rows joined by commas and `partial.LIST_END` follow.

    `columns` come from `definitions`; without them the Table is a later event of a watch (LW-141).
    """
    return b'{"kind":"Table","apiVersion":"%b","metadata":%b,"columnDefinitions":%b,"rows":[' % (
        api_version.encode(),
        orjson.dumps(metadata.to_wire()),
        b"null" if columns is None else columns,
    )


def row(cells: Sequence[Cell], obj: bytes | None, *, completed: str | None = None) -> bytes:
    """Return a row: its cells, the bytes of its object or none, its end if it has one (LW-255).

    `completed` is the phase of an object that is done. Cells lose what could act on a
    terminal: control characters and marks that turn the direction of text.
    """
    conditions = b""
    if completed is not None:
        conditions = b',"conditions":[{"type":"Completed","status":"True","reason":%b}]' % (
            orjson.dumps(completed)
        )
    return b'{"cells":%b%b,"object":%b}' % (
        orjson.dumps([_harmless(cell) for cell in cells]),
        conditions,
        b"null" if obj is None else obj,
    )


def age(elapsed: timedelta) -> str:
    """Return how long ago something was, as kubectl writes ages (LW-252)."""
    seconds = int(elapsed.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    return _short(seconds) if seconds < 8 * _HOUR else _long(seconds)


def _harmless(cell: Cell) -> Cell:
    if isinstance(cell, str) and not cell.isprintable():
        return _UNPRINTABLE.sub("", cell)
    return cell


def _short(seconds: int) -> str:
    minutes = seconds // _MINUTE
    if minutes < 10:
        return f"{minutes}m{_rest(seconds % _MINUTE, 's')}"
    if minutes < 180:
        return f"{minutes}m"
    return f"{minutes // 60}h{_rest(minutes % 60, 'm')}"


def _long(seconds: int) -> str:
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return f"{seconds // _DAY}d{_rest(seconds % _DAY // _HOUR, 'h')}"
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return f"{seconds // _YEAR}y{_rest(seconds % _YEAR // _DAY, 'd')}"
    return f"{seconds // _YEAR}y"


def _rest(count: int, unit: str) -> str:
    return f"{count}{unit}" if count else ""
