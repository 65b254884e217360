"""What a program may say to its runner, line by line."""

import json
from pathlib import Path

import pytest

from nodus_api.runner.channel import BadLine, Cursor, Line, read_line

HOME = Path("/machine/place")


def said(**line: object) -> Line:
    return read_line(json.dumps(line).encode(), home=HOME, at=1.0)


def test_a_cursor() -> None:  # SC-642
    assert said(completed=120, total=1000) == Line(at=1.0, cursor=Cursor(completed=120, total=1000))


@pytest.mark.parametrize(
    ("given", "meant"), [("state", "/machine/place/state"), ("/data/state", "/data/state")]
)
def test_a_checkpoint(given: str, meant: str) -> None:
    assert said(checkpoint={"dir": given}, id="a-1") == Line(
        at=1.0, directory=Path(meant), id="a-1"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "has a checkpoint, or completed and total"),
        (b'{"completed": 3}', "whole numbers"),
        (b'{"completed": 4, "total": 3}', "whole numbers"),
        (b'{"completed": -1, "total": 3}', "whole numbers"),
        (b'{"completed": true, "total": 3}', "whole numbers"),
        (b'{"completed": 1.5, "total": 3}', "whole numbers"),
        (b'{"completed": 1, "total": 9223372036854775808}', "whole numbers"),
        (b'{"checkpoint": "dir"}', "a checkpoint is"),
        (b'{"checkpoint": {"dir": ""}}', "a checkpoint is"),
        (b'{"checkpoint": {"dir": "a\\u0000"}}', "a checkpoint is"),
        (b'{"checkpoint": {"dir": "a\\ud800"}}', "a checkpoint is"),
        (b'{"completed": 1, "total": 2, "id": "../etc"}', "an id is"),
        (b'{"completed": 1, "total": 2, "id": 7}', "an id is"),
    ],
)
def test_what_cannot_be_followed_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        read_line(line, home=HOME, at=1.0)


def test_a_refusal_reaches_who_waits() -> None:
    with pytest.raises(BadLine) as refused:
        said(checkpoint={}, id="mine")
    assert refused.value.id == "mine"
