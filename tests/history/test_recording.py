"""How a recorded watch goes on, and how bytes are cut out of what came."""

import pytest
from tests.history.examples import ALL, ONE, RUNNING, START, a_list, bookmark
from tests.history.facts import event_of
from tests.history.recording import WATCHES, Following

_GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'


def test_a_watch_goes_on_after_its_last_version() -> None:
    following = Following(client="ann", target=f"{ONE}?watch=1&resourceVersion=0&{RUNNING}")
    assert following.resumed() == f"{ONE}?watch=1&resourceVersion=0&{RUNNING}"

    following.take(bookmark(7))
    assert following.resumed() == f"{ONE}?watch=1&{RUNNING}&resourceVersion=7"


def test_a_watch_begins_anew_after_410() -> None:
    following = Following(client="ann", target=WATCHES["everything"])
    following.take(bookmark(7))
    assert "sendInitialEvents" not in following.resumed()
    following.take(event_of(_GONE, START))
    assert following.resumed() == WATCHES["everything"]


def test_an_event_keeps_its_bytes() -> None:
    body = b'{"kind":"Attempt","metadata":{"resourceVersion":"5","uid":"u","name":"a"},"n":1.50}'
    event = event_of(b'{"type":"ADDED","object":%b}\n' % body, START)
    assert (event.type, event.rev, event.uid, event.body) == ("ADDED", 5, "u", body)


@pytest.mark.parametrize("line", [b"{}\n", b'{"type": "ADDED","object":{"metadata":{}}}\n', b"\n"])
def test_a_line_of_another_form_is_refused(line: bytes) -> None:  # LW-127
    with pytest.raises((AssertionError, KeyError, ValueError)):
        event_of(line, START)


def test_items_keep_their_bytes() -> None:
    listed = a_list(ALL, 8)
    assert [item.name for item in listed.items] == ["a1", "b1", "c1"]
    assert all(item.body in listed.body for item in listed.items)
    assert a_list(ALL, 1).items == ()
