"""Streams that begin or end wrongly, that stand still, or that wait for another's reader."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.history.checking import findings
from tests.history.examples import ALL, LOG, ONE, START, a_stream, at, bookmark, broken
from tests.history.facts import Event, Head, History, Stop, Stream, event_of

FROM_5 = f"{ALL}?watch=1&resourceVersion=5"
MARKED = (
    f"{ONE}?watch=1&resourceVersion=8&allowWatchBookmarks=true&labelSelector=nodus.dev%2Fjob%3Dz"
)


def a_history(*streams: Stream, **more: Any) -> History:
    return replace(History(log=LOG, streams=streams), **more)


def an_error(code: int, second: int = 400) -> Event:
    return event_of(b'{"type":"ERROR","object":{"kind":"Status","code":%d}}\n' % code, at(second))


# -- H-06 ------------------------------------------------------------------------------------------


def an_idle(*marks: Event, ended: int = 300) -> Stream:
    return Stream(target=MARKED, client="ann", asked=at(100), events=marks, ended=at(ended))


def test_a_filtered_stream_that_stands_still() -> None:  # H-06, LW-137
    heads = (Head(asked=at(149), answered=at(150), rev=11),)
    assert findings(a_history(an_idle(bookmark(11, second=215)), heads=heads)) == []
    assert findings(a_history(an_idle(ended=214), heads=heads)) == []  # it had no time
    said = "11 was known at 00:02:30"
    assert broken(a_history(an_idle(), heads=heads)) == [
        ("H-06", said, "the stream was at 0 at 00:03:35")
    ]
    for late in (bookmark(11, second=216), bookmark(10, second=215)):
        assert (said) in [one for _, one, _ in broken(a_history(an_idle(late), heads=heads))]


def test_what_another_stream_was_told_is_known() -> None:  # H-06
    other = a_stream(FROM_5, upto=11)
    quiet = an_idle()
    assert [rule for rule, *_ in broken(a_history(other, quiet))] == ["H-06"]
    unmarked = replace(quiet, target=MARKED.replace("allowWatchBookmarks=true&", ""))
    assert findings(a_history(other, unmarked)) == []


# -- H-18, H-20 ------------------------------------------------------------------------------------


def test_410_after_events() -> None:  # H-18 (etcd #19179), LW-146
    stream = a_stream(FROM_5)
    gone = replace(stream, events=(*stream.events, an_error(410)))
    assert broken(a_history(gone)) == [("H-18", "MODIFIED a1 at 6 came first", "then 410")]


def test_a_watch_from_before_the_log() -> None:  # H-18: the boundary is exact
    heads = (Head(asked=at(40), answered=at(41), rev=14, oldest=7),)
    boundary = a_stream(f"{ALL}?watch=1&resourceVersion=6")
    assert findings(a_history(boundary, heads=heads)) == []
    refused = replace(a_stream(FROM_5), events=(an_error(410),))
    assert findings(a_history(refused, heads=heads)) == []
    assert broken(a_history(a_stream(FROM_5), heads=heads)) == [
        ("H-18", "the log began at 7", "MODIFIED a1 at 6 came after 5")
    ]
    assert findings(a_history(a_stream(FROM_5, asked=30), heads=heads)) == []  # it was open before


def test_what_follows_an_error() -> None:  # H-20
    stream = a_stream(FROM_5, upto=7)
    ended = replace(stream, events=(*stream.events, an_error(500)))
    assert findings(a_history(ended)) == []
    again = replace(stream, events=(stream.events[0], an_error(504), *stream.events[1:]))
    assert broken(a_history(again)) == [
        ("H-20", "ERROR 504 came", "then MODIFIED a1 at 7 came".removesuffix(" came"))
    ]


def test_an_error_of_another_kind() -> None:  # H-20
    stream = replace(a_stream(FROM_5), events=(an_error(403),))
    assert broken(a_history(stream)) == [
        ("H-20", "an ERROR has one of (410, 500, 503, 504)", "403 came")
    ]


def test_a_stream_that_breaks() -> None:  # H-20
    stream = replace(a_stream(FROM_5, upto=8), ending="cut", ended=at(120))
    assert findings(a_history(stream)) == []  # nobody noted what was cut off
    assert findings(a_history(stream, kills=(at(110),))) == []
    for kills in ((), (at(130),)):
        assert broken(a_history(stream, kills=kills)) == [
            ("H-20", "nobody had cut anything off", "the stream broke")
        ]


# -- H-21 ------------------------------------------------------------------------------------------

STOP = Stop(client="slow", since=at(99), until=at(130))


def shown_at(stream: Stream, second: float) -> Stream:
    moment = START + timedelta(seconds=second)
    return replace(stream, events=tuple(replace(one, at=moment) for one in stream.events))


@pytest.mark.parametrize(("second", "late"), [(100.25, False), (100.3, True)])
def test_a_stream_that_waits_for_a_stopped_reader(second: float, late: bool) -> None:  # H-21
    """All others know of the changes at second 100."""
    slow = [
        a_stream(FROM_5, upto=6, client="slow"),
        a_stream(f"{ALL}?watch=1&resourceVersion=6", client="slow", asked=131),
    ]
    healthy = shown_at(a_stream(FROM_5, client="bob"), second)
    heads = (
        Head(asked=at(98), answered=at(98), rev=5),
        Head(asked=at(100), answered=at(100), rev=14),
    )
    history = a_history(*slow, healthy, stops=(STOP,), heads=heads)
    said = "MODIFIED a1 at 6 was known while slow read nothing"
    assert broken(history) == ([("H-21", said, "it came 0.300 s later")] if late else [])


def test_a_stopped_reader_that_never_goes_on() -> None:  # H-21
    slow = a_stream(FROM_5, upto=6, client="slow")
    assert [rule for rule, *_ in broken(a_history(slow, stops=(STOP,)))] == ["H-21"]
    after = a_stream(f"{ALL}?watch=1&resourceVersion=6", client="slow", asked=131)
    assert findings(a_history(slow, after, stops=(STOP,))) == []
