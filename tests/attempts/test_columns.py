"""kubectl's table of Attempts: LW-253 to LW-256."""

from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
from tests.attempts.examples import EXAMPLES, FINISHED, NOW, QUEUED

from nodus_api.attempts.columns import COLUMNS, cells, completed
from nodus_api.attempts.projection import render
from nodus_api.attempts.resource import read_only


def row(name: str, now: datetime = NOW) -> dict[str, Any]:
    """The cells of an example by the names of their columns."""
    found = cells(orjson.loads(render(EXAMPLES[name]).doc), now)
    return dict(zip((column.name for column in COLUMNS), found, strict=True))


def test_the_columns_are_the_specified_ones() -> None:  # LW-253, LW-256, LW C-22
    assert [(c.name, f"{c.type}/{c.format}".rstrip("/"), c.priority) for c in COLUMNS] == [
        ("Name", "string/name", 0),
        ("Phase", "string", 0),
        ("Reason", "string", 0),
        ("Offering", "string", 0),
        ("Cost", "string", 0),
        ("Runtime", "string", 0),
        ("Age", "string", 0),
        ("Stage", "string", 1),
        ("Slot", "string", 1),
        ("Epoch", "integer/int64", 1),
        ("Rank", "string", 1),
        ("Region", "string", 1),
        ("Rate", "string", 1),
        ("Profile", "string", 1),
        ("Interruption", "string", 1),
        ("Exit", "integer/int32", 1),
        ("Superseded-By", "string", 1),
    ]


def test_every_column_is_described_by_one_sentence() -> None:  # LW-256
    by_name = {column.name: column.description for column in COLUMNS}
    assert by_name["Phase"] == "The Attempt's phase."
    assert by_name["Rate"] == (
        "The capacity's rate in USD an hour, fixed at placement for the Attempt's life."
    )
    assert all(text.endswith(".") and ". " not in text for text in by_name.values())


def test_a_finished_attempt() -> None:  # LW-256
    assert row("failed-lost") == {
        "Name": "train-0-e1-k7f3q",
        "Phase": "Failed",
        "Reason": "Preempted",
        "Offering": "h100-sxm-80g-x1-eu",
        "Cost": "$2.527778",
        "Runtime": "120m",
        "Age": "179m",
        "Stage": "Lost",
        "Slot": "0",
        "Epoch": 1,
        "Rank": None,
        "Region": "eu",
        "Rate": "1.25",
        "Profile": "Balanced",
        "Interruption": "PreemptionNotice",
        "Exit": None,
        "Superseded-By": "train-0-e2-k7f3q",
    }


def test_an_attempt_that_was_never_tried() -> None:  # LW-256
    found = row("queued")
    empty = ("Reason", "Offering", "Cost", "Runtime", "Rank", "Region", "Rate", "Profile", "Exit")
    assert [found[name] for name in empty] == [None] * len(empty)


def test_a_waiting_attempt_says_for_what() -> None:  # LW-256
    assert row("waiting")["Reason"] == "(Capacity)"
    moved = orjson.loads(render(EXAMPLES["waiting"]).doc)
    moved["status"]["phase"] = "Provisioning"
    assert cells(moved, NOW)[2] is None  # while Queued alone


def test_ages_move_with_the_moment() -> None:  # LW-252, LW-256
    assert row("running", QUEUED + timedelta(seconds=110))["Runtime"] == "5s"
    assert row("running", QUEUED + timedelta(seconds=110))["Age"] == "110s"
    assert row("succeeded", FINISHED + timedelta(days=9))["Runtime"] == "120m"
    assert row("succeeded", FINISHED + timedelta(days=9))["Age"] == "9d"


def test_a_zero_is_shown() -> None:  # LW-219, LW-256
    assert row("succeeded")["Exit"] == 0
    assert row("running-gang")["Rank"] == "0/4"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("succeeded", "Succeeded"),
        ("failed-lost", "Failed"),
        ("cancelled", "Cancelled"),
        ("running", None),
        ("queued", None),
    ],
)
def test_rows_that_are_done_say_so(name: str, phase: str | None) -> None:  # LW-255
    assert completed(orjson.loads(render(EXAMPLES[name]).doc)) == phase


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
def test_a_write_is_told_what_to_do_instead(verb: str) -> None:  # LW-009, LW-010
    error = read_only(verb)
    assert error.message == f'{verb} is not supported on resources of kind "attempts.nodus.dev"'
    assert "`nodus " in error.fix
