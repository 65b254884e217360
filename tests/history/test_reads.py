"""Broken reads of named revisions, of halves of commits and of shards, and what each gives."""

import json
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
    bookmark,
    broken,
    encoded,
)
from tests.history.facts import Answer, Head, History, Stream
from tests.history.scope import hash_of

EXACT = "resourceVersionMatch=Exact"
LOWER = "shardSelector=shardRange(object.metadata.uid,'0x0000000000000000','0x9324000000000000')"
UPPER = "shardSelector=shardRange(object.metadata.uid,'0x9324000000000000','0x10000000000000000')"


def a_history(*answers: Answer, **more: Any) -> History:
    return replace(History(log=LOG, answers=answers), **more)


def refused(target: str, status: int, *causes: str, asked: int = 200) -> Answer:
    found = [{"reason": one} for one in causes]
    body = encoded({"kind": "Status", "code": status, "details": {"causes": found}})
    return Answer(
        target=target, client="ann", asked=at(asked), answered=at(asked + 1), body=body,
        status=status,
    )  # fmt: skip


# -- H-07 ------------------------------------------------------------------------------------------


def test_a_list_inside_a_commit() -> None:  # H-07: 9 and 10 are one commit
    half = a_list(ONE, 9)
    assert broken(a_history(half)) == [
        ("H-07", "a commit goes from 9, or before, to 10", "the list is at 9")
    ]
    chosen = replace(half, target=f"{ONE}?resourceVersion=9&{EXACT}")
    paged = replace(half, target=f"{ONE}?resourceVersion=9&limit=100")
    assert findings(a_history(chosen)) == []  # H-16 wins
    assert findings(a_history(paged)) == []  # exact too (LW-101)


def test_a_bookmark_inside_a_commit() -> None:  # H-07
    stream = a_stream(f"{ALL}?watch=1&resourceVersion=5", upto=8)
    half = replace(stream, events=(*stream.events, bookmark(9)))
    assert ("H-07", "a commit goes from 9, or before, to 10", "a bookmark is at 9") in broken(
        a_history(streams=(half,))
    )


def test_half_of_a_commit_that_was_known() -> None:  # H-07, H-13
    told = a_stream(f"{ALL}?watch=1&resourceVersion=8", upto=9)
    assert findings(a_history(a_list(ONE, 10), streams=(told,))) == []
    assert broken(a_history(a_list(ONE, 9), streams=(told,)))[1:] == [
        (
            "H-07",
            "9 was known when it was asked for, of a commit up to 10",
            "the answer lacks the rest of that commit",
        )
    ]


def test_a_get_of_the_other_half() -> None:  # H-07
    """After a change of 3 was told, 4 of the same commit is there."""
    log = (*LOG, *_pair(HEAD))
    told = replace(a_list(ONE), body=a_list(ONE).body.replace(b'"14"}', b'"15"}', 1), status=429)
    heads = (Head(asked=at(150), answered=at(151), rev=15),)
    stale = a_get("b1", 12)
    assert broken(replace(a_history(stale, heads=heads), log=log)) == [
        (
            "H-07",
            "15 was known when it was asked for, of a commit up to 16",
            "the answer lacks the rest of that commit",
        )
    ]
    assert findings(a_history(told)) == []


def _pair(head: int) -> list[Any]:
    """Return one more commit, of a change of a2 and one of b1."""
    last = {row.uid: row for row in LOG}
    rows = [last["uid-a2"], last["uid-b1"]]
    return [replace(row, rev=head + n, tx=99, at=at(99), kind="M") for n, row in enumerate(rows, 1)]


# -- H-10 ------------------------------------------------------------------------------------------


def test_a_list_with_an_object_of_another_project() -> None:  # H-10
    mixed = replace(a_list(ALL, 8), target=ONE)
    assert ("H-10", "the request selects what it names", "c1 at 4 is none of it") in broken(
        a_history(mixed)
    )


def test_two_shards_are_the_whole_and_share_nothing() -> None:  # H-10, LW-162
    lower, upper = a_list(f"{ALL}?{LOWER}", 8), a_list(f"{ALL}?{UPPER}", 8)
    names = [[item.name for item in one.items] for one in (lower, upper, a_list(ALL, 8))]
    assert sorted(names[0] + names[1]) == names[2]
    assert all(names)
    assert findings(a_history(lower, upper)) == []

    both = replace(a_list(ALL, 8), target=f"{ALL}?{UPPER}")
    found = broken(a_history(lower, both))
    uid = lower.items[0].uid
    assert (
        "H-10",
        f"another shard has {uid}: {lower}",
        f"{lower.items[0]} is shown here too",
    ) in found
    assert ("H-10", "the request selects what it names", f"{lower.items[0]} is none of it") in found


def test_an_event_in_the_wrong_shard() -> None:  # H-10
    stream = a_stream(f"{ALL}?watch=1&resourceVersion=1&{LOWER}")
    other = a_stream(f"{ALL}?watch=1&resourceVersion=1&{UPPER}", client="bob")
    assert findings(a_history(streams=(stream, other))) == []
    assert {one.uid for one in (*stream.changes, *other.changes)} == set(TRUTH.lives())
    mixed = replace(stream, events=other.events)
    assert {"H-03", "H-10"} <= {rule for rule, *_ in broken(a_history(streams=(mixed,)))}


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("example", 0x430B1483C8D66041)],
)
def test_hashes(text: str, hashed: int) -> None:  # LW-162
    assert hash_of(text) == hashed


# -- H-13, H-14 ------------------------------------------------------------------------------------


def test_what_is_known_is_found() -> None:  # H-13
    heads = (Head(asked=at(150), answered=at(151), rev=12),)
    assert findings(a_history(refused(f"{ONE}/a1", 404), heads=heads)) == []  # it goes at 13
    assert findings(a_history(refused(f"{ONE}/b1", 404))) == []  # of the time before it was made
    assert broken(a_history(refused(f"{ONE}/b1", 404), heads=heads)) == [
        ("H-13", "b1 at 12 was known when it was asked for, and is there yet", "the answer is 404")
    ]


def test_a_client_that_goes_back() -> None:  # H-14
    first, second = a_list(ONE, 12, asked=200), a_list(ONE, 11, asked=210)
    assert findings(a_history(a_list(ONE, 11, asked=200), a_list(ONE, 12, asked=210))) == []
    assert ("H-14", "12 was what ann had", "it is 11") in broken(a_history(first, second))
    other = replace(second, client="bob")
    assert [rule for rule, *_ in broken(a_history(first, other))] == ["H-13"]


def test_an_object_that_goes_back() -> None:  # H-14
    first, second = a_get("b1", 12, asked=200), a_get("b1", 8, asked=210)
    assert ("H-14", "12 was what ann had", "it is b1 at 8") in broken(a_history(first, second))
    given = replace(a_get("b1", 8), target=f"{ONE}/b1?resourceVersion=12")
    assert broken(a_history(given)) == [("H-14", "12 was asked for, or newer", "it is b1 at 8")]
    assert findings(a_history(replace(given, target=f"{ONE}/b1?resourceVersion=0"))) == []


# -- H-16, H-17 ------------------------------------------------------------------------------------


def test_an_exact_state_of_another_revision() -> None:  # H-16
    target = f"{ONE}?resourceVersion=7&{EXACT}"

    def retold(answer: Answer) -> Answer:
        told = json.loads(answer.body)
        told["metadata"]["resourceVersion"] = "7"
        return replace(answer, target=target, body=encoded(told))

    assert findings(a_history(a_list(target, 7), refused(target, 410))) == []
    assert findings(a_history(refused(target, 503))) == []
    assert ("H-16", "the state at 7 has b1 at 3", "the list has it not") in broken(
        a_history(retold(a_list(ONE, 8)))
    )
    assert broken(a_history(refused(target, 404))) == [
        ("H-16", "7 was asked for exactly", "the answer is 404")
    ]


def test_a_page_of_an_exact_state() -> None:  # H-16
    target = f"{ALL}?resourceVersion=8&limit=2"
    assert findings(a_history(a_list(target, 8, size=2, more="t"))) == []
    assert ("H-16", "8 was asked for exactly", "the answer is at 12") in broken(
        a_history(a_list(target, 12, size=2, more="t"))
    )


@pytest.mark.parametrize("match", ["", "&resourceVersionMatch=NotOlderThan", f"&{EXACT}"])
def test_a_revision_that_is_not_there_yet(match: str) -> None:  # H-17
    target = f"{ALL}?resourceVersion=20{match}"
    assert findings(a_history(refused(target, 504, "ResourceVersionTooLarge"))) == []
    assert findings(a_history(refused(target, 429))) == []
    said = "the head was 14 afterwards"
    assert broken(a_history(refused(target, 504))) == [("H-17", said, "the answer to 20 is 504")]
    assert ("H-17", said, "the answer to 20 is 410") in broken(a_history(refused(target, 410)))


def test_a_revision_that_came_later() -> None:  # H-17
    early = (Head(asked=at(300), answered=at(301), rev=10),)
    answer = a_list(f"{ALL}?resourceVersion=12", 12)
    assert findings(a_history(answer)) == []
    assert ("H-17", "the head was 10 afterwards", "the answer to 12 is 200") in broken(
        a_history(answer, heads=early)
    )


def test_a_bookmark_up_to_where_the_watch_starts() -> None:  # H-17 (etcd #20221)
    stream = Stream(
        target=f"{ONE}?watch=1&resourceVersion=20&allowWatchBookmarks=1&{RUNNING}",
        client="ann",
        asked=at(50),
        events=(bookmark(14),),
    )
    assert broken(a_history(streams=(stream,))) == [
        ("H-17", "the watch started from 20", "BOOKMARK - at 14 came")
    ]
