"""The lines of a watch: LW-127 to LW-142."""

from typing import Any

import orjson
import pytest

from nodus_api.metav1 import table, watch_event
from nodus_api.metav1.errors import Expired
from nodus_api.metav1.table import Column, IncludeObject
from nodus_api.metav1.watch_event import EventType

COLUMNS = table.definitions([Column(name="Name", format="name", description="N.")])
META = "meta.k8s.io/v1"
END = {"k8s.io/initial-events-end": "true"}


def read(line: bytes) -> dict[str, Any]:
    """The event on a line, which must be one (LW-127)."""
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    found: dict[str, Any] = orjson.loads(line)
    return found


@pytest.mark.parametrize("event", [EventType.ADDED, EventType.MODIFIED, EventType.DELETED])
def test_an_event_wraps_the_object_as_it_is(event: EventType) -> None:  # LW-127, LW-128
    line = watch_event.frame(event, b'{"kind":"Attempt"}')
    assert line == b'{"type":"%b","object":{"kind":"Attempt"}}\n' % event.value


def test_a_bookmark_has_kind_version_and_nothing_else() -> None:  # LW-136
    assert watch_event.bookmark("Attempt", "nodus.dev/v1", 9) == (
        b'{"type":"BOOKMARK","object":{"kind":"Attempt","apiVersion":"nodus.dev/v1",'
        b'"metadata":{"resourceVersion":"9"}}}\n'
    )


def test_the_bookmark_that_ends_the_initial_events_says_so() -> None:  # LW-138, field case A01
    event = read(watch_event.bookmark("Attempt", "nodus.dev/v1", 9, ends_initial=True))
    assert event["object"]["metadata"] == {"resourceVersion": "9", "annotations": END}


def test_a_bookmark_of_metadata() -> None:  # LW-142
    event = read(watch_event.partial_bookmark(META, 9))
    assert event["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": META,
        "metadata": {"resourceVersion": "9"},
    }


def test_an_error_is_a_plain_status() -> None:  # LW-140, LW C-71
    error = Expired.watch(1, 5)
    event = read(watch_event.error(error.to_status(request_id="r")))
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"], status["message"]) == (
        "Status",
        410,
        "Expired",
        "too old resource version: 1 (4)",
    )


def test_a_table_event_has_one_row_and_columns_once() -> None:  # LW-141, LW C-77
    row = table.row(["a"], b"{}")
    first = read(
        watch_event.table_event(EventType.ADDED, row, 7, api_version=META, columns=COLUMNS)
    )
    later = read(
        watch_event.table_event(EventType.MODIFIED, row, 8, api_version=META, columns=None)
    )
    assert first["object"]["columnDefinitions"] == orjson.loads(COLUMNS)
    assert later == {
        "type": "MODIFIED",
        "object": {
            "kind": "Table",
            "apiVersion": META,
            "metadata": {"resourceVersion": "8"},
            "columnDefinitions": None,
            "rows": [{"cells": ["a"], "object": {}}],
        },
    }


@pytest.mark.parametrize(
    ("include", "ends", "kind", "version"),
    [
        (IncludeObject.METADATA, False, "PartialObjectMetadata", META),
        (IncludeObject.METADATA, True, "PartialObjectMetadata", META),
        (IncludeObject.OBJECT, False, "Attempt", "nodus.dev/v1"),
        (IncludeObject.OBJECT, True, "Attempt", "nodus.dev/v1"),
        (IncludeObject.NONE, False, None, None),
        (IncludeObject.NONE, True, "PartialObjectMetadata", META),
    ],
)
def test_a_table_bookmark_tells_the_version(
    include: IncludeObject, ends: bool, kind: str | None, version: str | None
) -> None:  # LW-141
    event = read(
        watch_event.table_bookmark(
            9,
            api_version=META,
            columns=None,
            width=3,
            include=include,
            kind="Attempt",
            kind_version="nodus.dev/v1",
            ends_initial=ends,
        )
    )
    row = event["object"]["rows"][0]
    assert event["object"]["metadata"] == {"resourceVersion": "9"}
    assert row["cells"] == ["", None, None]
    metadata = {"resourceVersion": "9"} | ({"annotations": END} if ends else {})
    wanted = {"kind": kind, "apiVersion": version, "metadata": metadata}
    assert row["object"] == (wanted if kind else None)
