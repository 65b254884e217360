"""Broken streams, and the finding that each gives."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history import examples
from tests.history.checking import findings
from tests.history.examples import ALL, HEAD, LOG, ONE, RUNNING, a_stream, at, bookmark, broken
from tests.history.facts import Event, Head, History, Stream, event_of

FROM_5 = f"{ALL}?watch=1&resourceVersion=5"
STATE = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
TARGETS = (
    FROM_5,
    f"{ONE}?watch=1&resourceVersion=1",
    f"{ONE}?watch=1&resourceVersion=3&{RUNNING}",
    f"{ONE}?watch=1&resourceVersion=1&fieldSelector=status.phase%21%3DRunning",
    f"{ALL}?watch=1&resourceVersion=1&labelSelector=nodus.dev%2Fjob%3Da",
    f"{ALL}?watch=1&resourceVersion=2&labelSelector=nodus.dev%2Fjob%21%3Da",
    f"{ALL}?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Db1",
    f"{ALL}?watch=1&resourceVersion=1&labelSelector=nodus.dev%2Fjob%20in%20(a,c),nodus.dev%2Fjob",
    f"{ALL}?watch=1&resourceVersion=1&labelSelector=%21nodus.dev%2Fjob",
    f"{ALL}?{STATE}",
    f"{ONE}?{STATE}&{RUNNING}",
    f"{ONE}?watch=1&resourceVersion=0",
    f"{ONE}?watch=1&{RUNNING}",
)


def a_history(*streams: Stream, **more: object) -> History:
    return replace(History(log=LOG, streams=streams), **more)  # type: ignore[arg-type]  # by name


def changed(target: str, change: Callable[[list[Event]], list[Event]]) -> History:
    """Return a history whose one stream is a sound one, broken by `change`."""
    stream = a_stream(target, state_at=8)
    return a_history(replace(stream, events=tuple(change(list(stream.events)))))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("state_at", [1, 4, 8, 10, 13, 14])
@pytest.mark.parametrize("upto", [9, 10, 14])
def test_a_sound_stream_gives_nothing(target: str, state_at: int, upto: int) -> None:
    # a state is never inside a commit, as 9 is
    stream = a_stream(target, state_at=min(state_at, 8 if upto == 9 else upto), upto=upto)
    assert findings(a_history(stream)) == []


def test_versions_that_fall(  # H-01
) -> None:
    def swapped(events: list[Event]) -> list[Event]:
        return [events[1], events[0], *events[2:]]

    assert ("H-01", "MODIFIED a1 at 7 came", "then MODIFIED a1 at 6") in broken(
        changed(FROM_5, swapped)
    )


def test_a_resume_that_goes_back() -> None:  # H-01, H-02
    before = a_stream(f"{ALL}?watch=1&resourceVersion=5", upto=9)
    after = a_stream(f"{ALL}?watch=1&resourceVersion=9", asked=60)
    again = replace(after, events=(before.events[-1], *after.events))

    assert findings(a_history(before, after)) == []
    found = broken(a_history(before, again))
    assert ("H-01", "the client had 9", "after its resume MODIFIED a1 at 9 came") in found
    assert ("H-02", "the watch started from 9", "MODIFIED a1 at 9 came") in found


def test_an_event_twice() -> None:  # H-02
    found = broken(changed(FROM_5, lambda events: [*events, events[-1]]))
    assert ("H-02", "MODIFIED a2 at 14 came", "then MODIFIED a2 at 14 again") in found


def test_an_event_too_few() -> None:  # H-03
    assert broken(changed(FROM_5, lambda events: [*events[:2], *events[3:]])) == [
        ("H-03", "the log has MODIFIED b1 at 8, up to 14", "the stream has MODIFIED a1 at 9")
    ]


def test_events_made_one() -> None:  # H-03: no coalescing (LW-131)
    assert broken(changed(f"{ONE}?watch=1&resourceVersion=5", lambda events: events[1:])) == [
        ("H-03", "the log has MODIFIED a1 at 6, up to 14", "the stream has MODIFIED a1 at 7"),
        (
            "H-04",
            f"the first change after 5 is MODIFIED a1 at 6: {_body(6)!r}",
            f"the stream began with MODIFIED a1 at 7: {_body(7)!r}",
        ),
    ]


def test_an_event_that_a_bookmark_passed_over() -> None:  # H-03
    stream = a_stream(FROM_5, upto=7)
    past = replace(stream, events=(*stream.events, bookmark(8)))
    assert broken(a_history(past)) == [
        ("H-03", "the log has MODIFIED b1 at 8, up to 8", "the stream has no more")
    ]


def test_an_event_from_outside() -> None:  # H-03, H-10
    other = a_stream(f"{ALL}?watch=1&resourceVersion=3", upto=4)
    stream = a_stream(f"{ONE}?watch=1&resourceVersion=3")
    mixed = replace(stream, events=(*other.events, *stream.events))
    assert (
        "H-03",
        "the log has MODIFIED a1 at 5, up to 14",
        "the stream has ADDED c1 at 4",
    ) in broken(a_history(mixed))


def test_other_bytes_after_a_resume() -> None:  # H-04
    def respelled(events: list[Event]) -> list[Event]:
        return [replace(events[0], body=events[0].body + b" "), *events[1:]]

    found = broken(changed(FROM_5, respelled))
    assert [rule for rule, *_ in found] == ["H-04", "H-22"]
    assert found[0][1:] == (
        f"the first change after 5 is MODIFIED a1 at 6: {_body(6)!r}",
        f"the stream began with MODIFIED a1 at 6: {_body(6) + b' '!r}",
    )


def test_410_within_the_window() -> None:  # H-04
    gone = event_of(b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n', at(310))
    stream = replace(a_stream(FROM_5), events=(gone,))

    assert findings(a_history(stream)) == []  # the change after 5 is of second 5
    young = replace(stream, events=(replace(gone, at=at(303)),))
    assert broken(a_history(young)) == [
        ("H-04", "5 is younger than the window of 0:05:00", "the watch was answered with 410")
    ]


def test_a_bookmark_out_of_place() -> None:  # H-05
    late = changed(FROM_5, lambda events: [*events[:2], bookmark(8), *events[2:]])
    assert broken(late) == [("H-05", "a bookmark told 8", "then MODIFIED b1 at 8 came")]
    again = changed(FROM_5, lambda events: [*events, bookmark(HEAD)])
    assert broken(again) == [("H-05", "14 was sent", "then BOOKMARK - at 14 came")]


def test_a_bookmark_ahead_of_the_log() -> None:  # H-05
    stream = a_stream(f"{ALL}?watch=1&resourceVersion=5", upto=9)
    ahead = replace(stream, events=(*stream.events, bookmark(12, second=100)))
    heads = (Head(asked=at(101), answered=at(102), rev=10),)
    assert ("H-05", "the log's head was 10 afterwards", "BOOKMARK - at 12 came") in broken(
        a_history(ahead, heads=heads)
    )


def test_a_wrong_type() -> None:  # H-08
    def as_added(events: list[Event]) -> list[Event]:
        return [replace(one, type="ADDED") if one.rev == 8 else one for one in events]

    assert broken(changed(FROM_5, as_added)) == [
        ("H-08", "the log gives MODIFIED b1 at 8", "ADDED b1 at 8")
    ]


def test_a_departure_told_as_a_change() -> None:  # H-08: prev_sel
    def stays(events: list[Event]) -> list[Event]:
        return [replace(one, type="MODIFIED") if one.rev == 9 else one for one in events]

    found = broken(changed(f"{ONE}?watch=1&resourceVersion=5&{RUNNING}", stays))
    assert found[0] == ("H-08", "the log gives DELETED a1 at 9", "MODIFIED a1 at 9")


def test_modified_before_added() -> None:  # H-08
    def unintroduced(events: list[Event]) -> list[Event]:
        return [one for one in events if one.rev != 8 or one.type == "BOOKMARK"]

    found = broken(changed(f"{ONE}?{STATE}", unintroduced))
    assert ("H-08", "MODIFIED b1 at 12 came", "no ADDED of b1 before it") in found


def test_deleted_with_the_state_after() -> None:  # H-09
    after = _body(12)

    def newer(events: list[Event]) -> list[Event]:
        return [replace(one, body=after) if one.rev == 12 else one for one in events]

    stream = a_stream(f"{ONE}?watch=1&resourceVersion=5&{RUNNING}")
    before = next(one.body for one in stream.events if one.rev == 12)
    assert b'"phase":"Running"' in before
    assert b'"resourceVersion":"12"' in before
    assert broken(changed(f"{ONE}?watch=1&resourceVersion=5&{RUNNING}", newer)) == [
        (
            "H-09",
            f"the last matching state of b1 is {before!r}",
            f"DELETED b1 at 12 carries {after!r}",
        ),
        ("H-10", "the request selects what it names", "DELETED b1 at 12 is none of it"),
    ]


def test_deleted_with_the_version_before() -> None:  # H-09
    def older(events: list[Event]) -> list[Event]:
        return [
            replace(one, body=one.body.replace(b'"13"', b'"11"')) if one.rev == 13 else one
            for one in events
        ]

    assert [rule for rule, *_ in broken(changed(FROM_5, older))] == ["H-09"]


def test_a_state_that_lacks_an_object() -> None:  # H-11
    def lacking(events: list[Event]) -> list[Event]:
        return events[1:]

    assert broken(changed(f"{ALL}?{STATE}", lacking))[0] == (
        "H-11",
        "the state at 8 has c1 at 4",
        "the stream has it not",
    )


def test_a_state_that_has_what_is_gone() -> None:  # H-11
    stream = a_stream(f"{ALL}?{STATE}", state_at=13)
    (gone,) = a_stream(f"{ALL}?watch=1&resourceVersion=10", upto=11).events
    ghost = replace(gone, type="ADDED")
    found = broken(a_history(replace(stream, events=(ghost, *stream.events))))
    assert ("H-11", "the state at 13 has no such version", "the stream has ADDED a1 at 11") in found


def test_a_state_that_is_mixed_of_two() -> None:  # H-11
    stream = a_stream(f"{ALL}?{STATE}", state_at=7)
    (newer,) = a_stream(f"{ALL}?watch=1&resourceVersion=7", upto=8).events
    mixed = [one for one in stream.events[:3] if one.name != "b1"]
    events = (*mixed, replace(newer, type="ADDED"), *stream.events[3:])
    found = broken(a_history(replace(stream, events=events)))
    assert ("H-11", "the state at 7 has no such version", "the stream has ADDED b1 at 8") in found
    assert ("H-11", "the state at 7 has b1 at 3", "the stream has it not") in found


def test_a_state_older_than_was_known() -> None:  # H-11
    told = a_stream(f"{ALL}?watch=1&resourceVersion=5", upto=12)
    early = a_stream(f"{ALL}?{STATE}", state_at=8, upto=12, client="bob", asked=99)
    late = replace(early, asked=at(101))

    assert findings(a_history(told, early)) == []
    assert broken(a_history(told, late)) == [
        (
            "H-11",
            "12 was known, or given, when the watch was asked for",
            "it began with the state at 8",
        )
    ]


def test_a_state_without_a_bookmark_that_never_was() -> None:  # H-11
    stream = a_stream(f"{ALL}?watch=1&resourceVersion=0", state_at=8, upto=8)
    never = stream.events[1:]
    assert broken(a_history(replace(stream, events=never))) == [
        (
            "H-11",
            "the stream begins with a state",
            "no state of the log begins with ADDED a1 at 7, ADDED b1 at 8",
        )
    ]


def test_a_stream_cut_in_its_state_is_sound() -> None:  # H-11
    stream = a_stream(f"{ALL}?{STATE}", state_at=12)
    for size in range(4):
        cut = replace(stream, events=stream.events[:size], ending="cut")
        assert findings(a_history(cut)) == []


def test_what_is_not_understood_is_refused() -> None:
    for query in (
        "shardSelector=x",
        "labelSelector=a%3E5",
        "fieldSelector=%21a",
        "labelSelector=(",
    ):
        with pytest.raises(ValueError, match="not understood"):
            examples.scope(f"{ALL}?{query}")


@given(st.sampled_from(TARGETS), st.data())
def test_no_single_fault_goes_unseen(target: str, data: st.DataObject) -> None:
    stream = a_stream(target, state_at=data.draw(st.integers(1, HEAD)))
    events = list(stream.events)
    objects = [n for n, one in enumerate(events) if one.type != "BOOKMARK"]
    if not objects:
        return
    n = data.draw(st.sampled_from(objects))
    one = events[n]
    fault = data.draw(st.sampled_from(["drop", "repeat", "type", "body", "version"]))
    if fault == "drop":
        events[n : n + 1] = []
    elif fault == "repeat":
        events.append(one)
    elif fault == "type":
        events[n] = replace(one, type="ADDED" if one.type != "ADDED" else "DELETED")
    elif fault == "body":
        events[n] = replace(one, body=one.body.replace(b'"epoch":', b'"epoch":1'))
    else:
        events[n] = replace(one, rev=one.rev + 1)

    unseen = findings(a_history(replace(stream, events=tuple(events)))) == []
    # a last event that has not come yet is no fault, nor is a state that ends one earlier
    assert not unseen or (fault == "drop" and n == max(objects))


def _body(rev: int) -> bytes:
    (found,) = a_stream(f"{ALL}?watch=1&resourceVersion={rev - 1}", upto=rev).events
    return found.body
