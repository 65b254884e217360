"""The judge itself: a loss, a repetition and a wrong order are seen, wherever they are."""

import json
from datetime import UTC, datetime

import pytest
from tests.clients import judging
from tests.clients.judging import States
from tests.clients.watching import Told
from tests.history.facts import Row
from tests.history.scope import Scope
from tests.history.truth import Truth

AT = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING = Scope(project=None, name=None)
LOG = ["A:a", "A:b", "M:a", "M:b", "D:b", "M:a", "A:c", "M:a"]
"""Kind and object of the revisions from 1 on."""


def row(rev: int, kind: str, name: str) -> Row:
    metadata = {"resourceVersion": "", "namespace": "default", "name": name}
    doc = json.dumps({"metadata": metadata}).encode()
    return Row(rev=rev, kind=kind, tx=rev, at=AT, uid=name, project="default", name=name, doc=doc)


STATES = States(Truth([row(rev, *one.split(":")) for rev, one in enumerate(LOG, 1)]), EVERYTHING)


def told(text: str) -> list[Told]:
    """Return lines from words like `state`, `resume:4`, `relist` and `M:a:3`."""
    kinds = {"A": "ADDED", "M": "MODIFIED", "D": "DELETED"}
    lines: list[dict[str, object]] = []
    for word in text.split():
        first, *rest = word.split(":")
        if first in kinds:
            lines.append({"event": kinds[first], "uid": rest[0], "name": rest[0], "rv": rest[1]})
        else:
            lines.append({"stream": first, "from": rest[0] if rest else ""})
    return [Told(0.0, line) for line in lines]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("state A:a:1 A:b:2 M:a:3 M:b:4 D:b:5 M:a:6", 6),
        ("state A:b:2 A:a:3 M:b:4 D:b:5 M:a:6", 3),  # in another order than the log's
        ("state A:a:3 D:b:5 M:a:6", None),  # b was never there
        ("resume:3 M:b:4 D:b:5 M:a:6", 3),
        ("resume:3 M:b:4 resume:4 D:b:5", 2),
        ("state A:a:3 A:b:4 D:b:5 state A:a:6 A:c:7 M:a:8", 3),
        ("state A:a:3 A:b:4 relist M:a:6 D:b:4 A:c:7 M:a:8", 2),
        ("state A:a:1 A:b:2 M:a:3 D:b:5 M:a:6", None),  # lost
        ("state A:a:1 A:b:2 M:a:3 M:b:4 D:b:5 A:c:7", None),  # lost
        ("state A:a:1 A:b:2 M:a:3 M:a:3 M:b:4", None),  # twice
        ("state A:a:1 A:b:2 M:b:4 M:a:3 D:b:5", None),  # out of order
        ("resume:3 M:b:4 M:a:6", None),  # lost
        ("resume:3 M:b:4 resume:3 M:b:4", None),  # resumed from too far back
        ("resume:2 A:a:3", None),  # of another type
    ],
)
def test_what_fits_the_log(text: str, changes: int | None) -> None:
    def judged() -> int:
        return judging.followed(judging.segments_of(told(text)), STATES)

    if changes is None:
        with pytest.raises(AssertionError):
            judged()
    else:
        assert judged() == changes


@pytest.mark.parametrize("text", ["M:a:3 M:a:8 D:b:5", "A:a:1 A:b:2"])
def test_versions_may_be_left_out_where_told_so(text: str) -> None:
    judging.rising(judging.seen_of(told(text)), STATES)


@pytest.mark.parametrize("text", ["M:a:6 M:a:3", "M:a:3 M:a:3", "M:a:4"])
def test_versions_of_an_object_rise_all_the_same(text: str) -> None:
    with pytest.raises(AssertionError):
        judging.rising(judging.seen_of(told(text)), STATES)


def test_lists_are_compared_with_their_version() -> None:
    truth = Truth([row(rev, *one.split(":")) for rev, one in enumerate(LOG, 1)])
    right = Told(0.0, {"list": "4", "items": [["a", "3"], ["b", "4"]]})
    wrong = Told(0.0, {"list": "5", "items": [["a", "3"], ["b", "4"]]})

    assert judging.listed([right], truth, EVERYTHING) == 1
    with pytest.raises(AssertionError, match="list at 5"):
        judging.listed([wrong], truth, EVERYTHING)
