"""Tables: LW-250 to LW-255; age texts: LW-252."""

from datetime import timedelta

import orjson
import pytest

from nodus_api.metav1 import table
from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.partial import LIST_END, indented, list_head, partial_object
from nodus_api.metav1.table import Column, IncludeObject, age

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-10, "<invalid>"),
        (-2, "<invalid>"),
        (-1.5, "0s"),
        (-1, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 1, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (400 * DAY, "400d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
        (100 * YEAR, "100y"),
    ],
)
def test_ages_read_as_kubectls(seconds: float, text: str) -> None:  # LW-252, field case A21
    assert age(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, IncludeObject.METADATA),
        ({"includeObject": ""}, IncludeObject.METADATA),
        ({"includeObject": "Metadata"}, IncludeObject.METADATA),
        ({"includeObject": "Object"}, IncludeObject.OBJECT),
        ({"includeObject": "None"}, IncludeObject.NONE),
    ],
)
def test_what_stands_beside_the_cells(
    values: dict[str, str], wanted: IncludeObject
) -> None:  # LW-254
    assert IncludeObject.parse(values) is wanted


def test_another_word_is_refused() -> None:  # LW-254, LW C-33
    with pytest.raises(BadRequest) as error:
        IncludeObject.parse({"includeObject": "X"})
    assert error.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "X": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


COLUMNS = table.definitions(
    [
        Column(name="Name", format="name", description="N."),
        Column(name="N", type="integer", description="I.", priority=1),
    ]
)


def test_a_table_has_every_key() -> None:  # LW-250
    body = b"%b%b,%b%b" % (
        table.head(
            "meta.k8s.io/v1",
            ListMeta(resource_version="7", continue_="t", remaining_item_count=0),
            COLUMNS,
        ),
        table.row(["a", None], b"{}"),
        table.row(["b", 2], None, completed="Succeeded"),
        LIST_END,
    )
    assert body.endswith(b"]}\n")
    assert orjson.loads(body) == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7", "continue": "t", "remainingItemCount": 0},
        "columnDefinitions": [
            {
                "name": "Name",
                "type": "string",
                "format": "name",
                "description": "N.",
                "priority": 0,
            },
            {"name": "N", "type": "integer", "format": "", "description": "I.", "priority": 1},
        ],
        "rows": [
            {"cells": ["a", None], "object": {}},
            {
                "cells": ["b", 2],
                "conditions": [{"type": "Completed", "status": "True", "reason": "Succeeded"}],
                "object": None,
            },
        ],
    }


def test_cells_cannot_act_on_a_terminal() -> None:  # field case E12
    row = table.row(["a\x1b]0;pwn\x07\r\b\u202eb", "grün\u3000日本", 7, None], b'{"a":"\\u001b"}')
    assert orjson.loads(row) == {
        "cells": ["a]0;pwnb", "grün\u3000日本", 7, None],
        "object": {"a": "\x1b"},
    }


def test_an_empty_list_has_no_null() -> None:  # LW-107
    body = list_head("AttemptList", "nodus.dev/v1", ListMeta(resource_version="7")) + LIST_END
    assert body == (
        b'{"kind":"AttemptList","apiVersion":"nodus.dev/v1","metadata":{"resourceVersion":"7"},"items":[]}\n'
    )


def test_bodies_for_people_are_indented() -> None:  # LW-019
    assert indented(b'{"a":[1]}') == b'{\n  "a": [\n    1\n  ]\n}\n'


def test_metadata_alone() -> None:  # LW-053
    assert partial_object(b'{"name":"a"}') == (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}'
    )
