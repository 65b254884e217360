"""The lines of a watch stream (LW-127 to LW-142): one event, compact, one newline."""

from collections.abc import Sequence
from enum import Enum

import orjson

from nodus_api.metav1 import table
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.partial import partial_object
from nodus_api.metav1.status import Status
from nodus_api.metav1.table import Cell, IncludeObject

INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
"""The annotation of the bookmark that ends the initial events (LW-138)."""


class EventType(Enum):
    """The types of events; any other kills a client's watch (LW-128)."""

    ADDED = b"ADDED"
    MODIFIED = b"MODIFIED"
    DELETED = b"DELETED"
    BOOKMARK = b"BOOKMARK"
    ERROR = b"ERROR"


def frame(event: EventType, obj: bytes) -> bytes:
    """Return the line of an event around the compact JSON of its object."""
    return b'{"type":"%b","object":%b}\n' % (event.value, obj)


def error(status: Status) -> bytes:
    """Return the last line of a stream that fails: a plain Status in every form (LW-140)."""
    return frame(EventType.ERROR, orjson.dumps(status.to_wire()))


def bookmark(kind: str, api_version: str, rev: int, *, ends_initial: bool = False) -> bytes:
    """Return a bookmark: every matching change up to `rev` has been sent (LW-136, LW-138)."""
    return frame(
        EventType.BOOKMARK,
        _bookmark_object(kind, api_version, _bookmark_metadata(rev, ends_initial)),
    )


def partial_bookmark(api_version: str, rev: int, *, ends_initial: bool = False) -> bytes:
    """Return a bookmark for a watch of metadata (LW-142)."""
    return bookmark("PartialObjectMetadata", api_version, rev, ends_initial=ends_initial)


def table_event(
    event: EventType, row: bytes, rev: int, *, api_version: str, columns: bytes | None
) -> bytes:
    """Return an event of a Table watch: one row (LW-141).

    `columns` are given in a watcher's first event only, be it a bookmark.
    """
    head = table.head(api_version, ListMeta(resource_version=str(rev)), columns)
    return frame(event, b"%b%b]}" % (head, row))


def table_bookmark(
    rev: int,
    *,
    api_version: str,
    columns: bytes | None,
    width: int,
    include: IncludeObject = IncludeObject.METADATA,
    kind: str,
    kind_version: str,
    ends_initial: bool = False,
) -> bytes:
    """Return a bookmark of a Table watch, `width` cells wide.

    Its row object tells the version: metadata alone, or with includeObject=Object an object of
    `kind` in `kind_version`; with includeObject=None only the bookmark that ends the initial
    events has one (LW-141).
    """
    metadata = _bookmark_metadata(rev, ends_initial)
    obj = None
    if include is IncludeObject.OBJECT:
        obj = _bookmark_object(kind, kind_version, metadata)
    elif ends_initial or include is IncludeObject.METADATA:
        obj = partial_object(metadata, api_version=api_version)
    cells: Sequence[Cell] = ["", *[None] * (width - 1)]
    return table_event(
        EventType.BOOKMARK, table.row(cells, obj), rev, api_version=api_version, columns=columns
    )


def _bookmark_object(kind: str, api_version: str, metadata: bytes) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b","metadata":%b}' % (
        kind.encode(),
        api_version.encode(),
        metadata,
    )


def _bookmark_metadata(rev: int, ends_initial: bool) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": str(rev)}
    if ends_initial:
        metadata["annotations"] = INITIAL_EVENTS_END
    return orjson.dumps(metadata)
