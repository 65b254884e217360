"""Broken lists, gets and views, and the finding that each gives."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.history.checking import findings
from tests.history.examples import (
    ALL,
    HEAD,
    LOG,
    ONE,
    RUNNING,
    TRUTH,
    a_get,
    a_list,
    a_stream,
    at,
    broken,
    encoded,
)
from tests.history.facts import Answer, Head, History

TARGETS = (ALL, ONE, f"{ONE}?{RUNNING}", f"{ALL}?labelSelector=nodus.dev%2Fjob%3Da")


def a_history(*answers: Answer, **more: Any) -> History:
    return replace(History(log=LOG, answers=answers), **more)


def retold(answer: Answer, change: Callable[[Any], None]) -> Answer:
    told = json.loads(answer.body)
    change(told)
    return replace(answer, body=encoded(told))


def pages(target: str, rev: int, size: int) -> list[Answer]:
    """Return the chunked list that a sound server gives."""
    chain = [a_list(f"{target}limit={size}", rev, size=size, more="t0")]
    while chain[-1].continues:
        n = len(chain)
        chain.append(
            a_list(
                f"{target}limit={size}&continue=t{n - 1}",
                rev,
                start=n * size,
                size=size,
                more=f"t{n}",
                asked=200 + n,
            )
        )
    return chain


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rev", sorted({TRUTH.commit_end(rev) for rev in range(1, HEAD + 1)}))
def test_a_sound_list_gives_nothing(target: str, rev: int) -> None:
    assert findings(a_history(a_list(target, rev))) == []


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("query", ["?", f"?{RUNNING}&"])
def test_sound_pages_give_nothing(size: int, query: str) -> None:
    for rev in (4, 8, 10, HEAD):
        assert findings(a_history(*pages(f"{ALL}{query}", rev, size))) == []


def test_an_item_too_few() -> None:  # H-12
    def lacking(told: Any) -> None:
        del told["items"][1]

    assert broken(a_history(retold(a_list(ALL, 8), lacking))) == [
        ("H-12", "the state at 8 has b1 at 8", "the list has it not")
    ]


def test_an_item_of_another_version() -> None:  # H-12
    newer = a_list(ONE, 8)
    (stale,) = [item for item in a_list(ONE, 6).items if item.name == "a1"]
    (fresh,) = [item for item in newer.items if item.name == "a1"]
    mixed = replace(newer, body=newer.body.replace(fresh.body, stale.body))
    assert broken(a_history(mixed)) == [
        ("H-12", "the state at 8 has no such version, or once", "the list has a1 at 6"),
        ("H-12", "the state at 8 has a1 at 7", "the list has it not"),
    ]


def test_a_list_out_of_order() -> None:  # H-12, LW-106
    def turned(told: Any) -> None:
        told["items"].reverse()

    assert broken(a_history(retold(a_list(ONE, 8), turned))) == [
        ("H-12", "the state at 8 has a1 at 7 at this place", "the list has b1 at 8")
    ]


def test_an_object_that_the_selector_excludes() -> None:  # H-12, H-10
    whole = a_list(ONE, 8)
    mixed = replace(a_list(ONE, 12), target=f"{ONE}?{RUNNING}")
    assert findings(a_history(replace(whole, target=f"{ONE}?{RUNNING}"))) == []
    found = broken(a_history(mixed))
    assert (
        "H-12",
        "the state at 12 has no such version, or once",
        "the list has b1 at 12",
    ) in found


def test_a_list_that_tells_the_wrong_version() -> None:  # H-12
    def later(told: Any) -> None:
        told["metadata"]["resourceVersion"] = "12"

    found = broken(a_history(retold(a_list(ONE, 11), later)))
    assert ("H-12", "the state at 12 has b1 at 12", "the list has it not") in found


def test_another_version_than_the_exact_one() -> None:  # H-16
    exact = f"{ONE}?resourceVersion=7&resourceVersionMatch=Exact"
    assert findings(a_history(a_list(exact, 7))) == []
    assert broken(a_history(a_list(exact, 8))) == [
        ("H-16", "7 was asked for exactly", "the answer is at 8")
    ]


def test_a_list_older_than_was_known() -> None:  # H-13
    heads = (Head(asked=at(150), answered=at(151), rev=12),)
    assert findings(a_history(a_list(ONE, 12), heads=heads)) == []
    assert findings(a_history(a_list(f"{ONE}?resourceVersion=0", 8), heads=heads)) == []
    assert broken(a_history(a_list(ONE, 11), heads=heads)) == [
        ("H-13", "12 was known when the list was asked for", "it is at 11")
    ]
    given = a_list(f"{ONE}?resourceVersion=12&resourceVersionMatch=NotOlderThan", 11)
    assert broken(a_history(given)) == [("H-14", "12 was asked for, or newer", "it is 11")]


def test_a_get_older_than_was_known() -> None:  # H-13
    heads = (Head(asked=at(150), answered=at(151), rev=12),)
    assert findings(a_history(a_get("b1", 12), heads=heads)) == []
    assert broken(a_history(a_get("b1", 8), heads=heads)) == [
        ("H-13", "b1 at 12 was known when it was asked for", "the answer is b1 at 8")
    ]


def test_pages_of_two_versions() -> None:  # H-15
    first, second = pages(f"{ALL}?", 8, 2)
    later = pages(f"{ALL}?", 11, 2)[1]
    found = broken(a_history(first, replace(later, target=second.target)))
    assert ("H-15", "the first page is at 8", "a later one is at 11") in found


def test_pages_with_a_hole() -> None:  # H-15
    chain = pages(f"{ALL}?", HEAD - 2, 1)
    assert len(chain) == 4
    hole = [chain[0], replace(chain[2], target=chain[1].target), chain[3]]
    found = broken(a_history(*hole))
    assert ("H-15", "the state at 12 has a2 at 10", "the list has it not") in found


def test_pages_that_repeat_an_object() -> None:  # H-15
    chain = pages(f"{ALL}?", 8, 1)
    twice = [chain[0], replace(chain[1], body=chain[1].body.replace(*_swap(chain))), chain[2]]
    found = broken(a_history(*twice))
    assert ("H-15", "the state at 8 has no such version, or once", "the list has a1 at 7") in found


def test_a_wrong_count_of_what_is_left() -> None:  # H-15, LW-111
    def more(told: Any) -> None:
        told["metadata"]["remainingItemCount"] = 7

    first, *rest = pages(f"{ALL}?", 8, 1)
    assert broken(a_history(retold(first, more), *rest)) == [
        ("H-15", "2 objects are left after this page", "remainingItemCount is 7")
    ]


def test_an_unfinished_list_is_the_beginning_of_one() -> None:  # H-15
    assert findings(a_history(*pages(f"{ALL}?", 12, 1)[:2])) == []


def test_other_bytes_of_one_version() -> None:  # H-22
    sound = a_get("b1", 12)
    spaced = replace(sound, body=sound.body.replace(b",", b", "))
    assert broken(a_history(spaced)) == [
        ("H-22", f"the log has {sound.body!r}", f"here uid-b1 at 12 is {spaced.body!r}")
    ]


def test_two_replicas_that_differ_in_a_departure() -> None:  # H-22
    target = f"{ONE}?watch=1&resourceVersion=5&{RUNNING}"
    one, two = a_stream(target, client="one"), a_stream(target, client="two")
    events = tuple(
        replace(event, body=event.body + b" ") if event.type == "DELETED" else event
        for event in two.events
    )
    found = broken(a_history(streams=(one, replace(two, events=events))))
    assert [rule for rule, *_ in found].count("H-22") == 2  # a1 at 9, b1 at 12


def a_view(kind: str, cells: list[Any], **metadata: Any) -> Answer:
    found = TRUTH.state(12)["uid-b1"]
    shown = json.loads(found.body)["metadata"] | metadata
    body: dict[str, Any] = {"kind": kind, "metadata": {}, "items": [{"metadata": shown}]}
    if kind == "Table":
        names = [{"name": name} for name in ("Name", "Phase", "Age")]
        row = {"cells": cells, "object": {"metadata": shown}}
        body = {"kind": kind, "metadata": {}, "columnDefinitions": names, "rows": [row]}
    return replace(a_list(ONE, 12), accept=f"as={kind}", body=encoded(body))


def test_a_view_that_is_no_function_of_the_body() -> None:  # H-22
    sound = a_view("Table", ["b1", "Succeeded", "5s"])
    older = a_view("Table", ["b1", "Succeeded", "9s"])
    metadata = a_view("PartialObjectMetadataList", [])
    assert findings(a_history(sound, older, metadata)) == []

    other = a_view("Table", ["b1", "Running", "5s"])
    assert broken(a_history(sound, other)) == [
        (
            "H-22",
            "one Table has {'Name': 'b1', 'Phase': 'Succeeded'}",
            "another has {'Name': 'b1', 'Phase': 'Running'}",
        )
    ]
    labelled = a_view("PartialObjectMetadataList", [], labels={})
    assert [rule for rule, *_ in broken(a_history(labelled))] == ["H-22"]


def _swap(chain: list[Answer]) -> tuple[bytes, bytes]:
    return chain[1].items[0].body, chain[0].items[0].body
