"""Objects, lists and events in the form that was asked for: JSON, Table or metadata alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson

from nodus_api.attempts import columns as attempt_columns
from nodus_api.attempts import resource
from nodus_api.attempts.projection import metadata_of
from nodus_api.metav1 import namespaces, table, watch_event
from nodus_api.metav1.errors import GroupResource
from nodus_api.metav1.negotiation import Form, Representation
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.partial import LIST_END, indented, list_head, partial_object
from nodus_api.metav1.table import Cell, Column, IncludeObject
from nodus_api.metav1.times import parse_time
from nodus_api.metav1.watch_event import EventType

_INDENT = orjson.OPT_INDENT_2
PIECE = 256
"""Objects a piece of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceForm:
    """How one resource is shown."""

    resource: GroupResource
    kind: str
    list_kind: str
    api_version: str
    columns: Sequence[Column]
    cells: Callable[[dict[str, Any], datetime], Sequence[Cell]]
    completed: Callable[[dict[str, Any]], str | None]
    metadata_of: Callable[[bytes], bytes]
    definitions: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Encode the column definitions once."""
        object.__setattr__(self, "definitions", table.definitions(self.columns))


def _namespace_metadata(body: bytes) -> bytes:
    return orjson.dumps(orjson.loads(body)["metadata"])


def _namespace_cells(obj: dict[str, Any], now: datetime) -> Sequence[Cell]:
    metadata = obj["metadata"]
    created = parse_time(metadata["creationTimestamp"])
    return namespaces.cells(metadata["name"], created=created, now=now)


ATTEMPT_FORM = ResourceForm(
    resource=resource.ATTEMPTS,
    kind=resource.KIND,
    list_kind=resource.LIST_KIND,
    api_version=resource.GROUP_VERSION,
    columns=attempt_columns.COLUMNS,
    cells=attempt_columns.cells,
    completed=attempt_columns.completed,
    metadata_of=metadata_of,
)
NAMESPACE_FORM = ResourceForm(
    resource=namespaces.NAMESPACES,
    kind=namespaces.KIND,
    list_kind=namespaces.LIST_KIND,
    api_version="v1",
    columns=namespaces.COLUMNS,
    cells=_namespace_cells,
    completed=lambda _: None,
    metadata_of=_namespace_metadata,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """One resource in one representation, ages as of `now`; a watch moves it on with `at`."""

    form: ResourceForm
    representation: Representation
    include: IncludeObject
    now: datetime

    def at(self, now: datetime) -> "Rendering":
        """Return the same with ages as of another moment."""
        return replace(self, now=now)

    def object(self, body: bytes) -> bytes:
        """Return the body of a get."""
        if self.representation.form is Form.TABLE:
            rev = orjson.loads(body)["metadata"]["resourceVersion"]
            head = self._table_head(ListMeta(resource_version=rev), self.form.definitions)
            return head + self.item(body) + LIST_END
        return self.item(body) + b"\n"

    def item(self, body: bytes) -> bytes:
        """Return an object as it stands in a list: itself, its metadata, or a Table's row."""
        match self.representation.form:
            case Form.TABLE:
                return self._row(body)
            case Form.PARTIAL | Form.PARTIAL_LIST:
                return self._partial(body)
            case _:
                return body

    def list_head(self, metadata: ListMeta) -> bytes:
        """Return the start of a list; items joined by commas and LIST_END follow."""
        match self.representation.form:
            case Form.TABLE:
                return self._table_head(metadata, self.form.definitions)
            case Form.PARTIAL_LIST:
                return list_head(
                    "PartialObjectMetadataList", self.representation.api_version, metadata
                )
            case _:
                return list_head(self.form.list_kind, self.form.api_version, metadata)

    def list_pieces(self, bodies: Sequence[bytes]) -> Iterator[bytes]:
        """Give the items of a list, some at a time, joined by commas."""
        plain = self.representation.form is Form.JSON
        for at in range(0, len(bodies), PIECE):
            some = bodies[at : at + PIECE]
            items = some if plain else map(self.item, some)
            yield b",".join((b"", *items) if at else items)  # a comma before it, without a copy

    # -- watch -------------------------------------------------------------------------------

    def event(self, event: EventType, body: bytes, rev: int, *, first: bool) -> bytes:
        """Return one line of a watch; a Table tells its columns in the first (LW-141)."""
        if self.representation.form is Form.TABLE:
            return watch_event.table_event(
                event,
                self._row(body),
                rev,
                api_version=self.representation.api_version,
                columns=self.form.definitions if first else None,
            )
        return watch_event.frame(event, self.item(body))

    def bookmark(self, rev: int, *, first: bool, ends_initial: bool = False) -> bytes:
        """Return a bookmark of this form."""
        match self.representation.form:
            case Form.TABLE:
                return watch_event.table_bookmark(
                    rev,
                    api_version=self.representation.api_version,
                    columns=self.form.definitions if first else None,
                    width=len(self.form.columns),
                    include=self.include,
                    kind=self.form.kind,
                    kind_version=self.form.api_version,
                    ends_initial=ends_initial,
                )
            case Form.PARTIAL | Form.PARTIAL_LIST:
                return watch_event.partial_bookmark(
                    self.representation.api_version, rev, ends_initial=ends_initial
                )
            case _:
                return watch_event.bookmark(
                    self.form.kind, self.form.api_version, rev, ends_initial=ends_initial
                )

    # -- parts -------------------------------------------------------------------------------

    def _table_head(self, metadata: ListMeta, columns: bytes) -> bytes:
        return table.head(self.representation.api_version, metadata, columns)

    def _row(self, body: bytes) -> bytes:
        parsed = orjson.loads(body)
        shown: bytes | None = None
        if self.include is IncludeObject.METADATA:
            shown = self._partial(body)
        elif self.include is IncludeObject.OBJECT:
            shown = body
        return table.row(
            self.form.cells(parsed, self.now), shown, completed=self.form.completed(parsed)
        )

    def _partial(self, body: bytes) -> bytes:
        return partial_object(
            self.form.metadata_of(body), api_version=self.representation.api_version
        )


def indented_list(head: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Give a list indented, a piece at a time, equal to the whole indented at once (LW-019)."""
    opening, _, ending = indented(head + LIST_END).rpartition(b"[]")
    yield opening + b"["
    any_item = False
    for piece in pieces:
        for item in orjson.loads(b"[" + piece.removeprefix(b",") + b"]"):
            text = orjson.dumps(item, option=_INDENT).replace(b"\n", b"\n    ")
            yield (b",\n    " if any_item else b"\n    ") + text
            any_item = True
    yield (b"\n  ]" if any_item else b"]") + ending
