"""What a program may say to its runner, line by line."""

import json
import sys
import threading
from pathlib import Path

import pytest

from nodus_api.runner import trees
from nodus_api.runner.channel import ANSWERS, BadLine, Channel, Cursor, Line, read_line

HOME = Path("/machine/place")


def said(**line: object) -> Line:
    return read_line(json.dumps(line).encode(), home=HOME, at=1.0)


def test_a_cursor() -> None:  # SC-642
    assert said(completed=120, total=1000) == Line(at=1.0, cursor=Cursor(completed=120, total=1000))


def test_a_session_in_use() -> None:  # SC-807
    assert said(active=True) == Line(at=1.0)


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
        (b"{}", "has a checkpoint, completed and total, or active"),
        (b'{"active": false}', "has a checkpoint, completed and total, or active"),
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


def test_what_cannot_be_taken_ends_nothing_but_itself(tmp_path: Path) -> None:  # SC-641, SC-644
    """The end of a life waits for the channel: a fault in it must not let it wait for ever."""
    heard: list[Line] = []
    ended = threading.Event()

    def take(line: Line) -> None:
        if line.id is not None:
            raise RuntimeError("planted")
        heard.append(line)

    channel = Channel(tmp_path, home=HOME, heard=take, ended=ended.set)
    channel.open()
    with channel.progress.open("w") as written:
        written.write('{"checkpoint": {"dir": "state"}, "id": "a"}\n{"completed": 1, "total": 2}\n')
    channel.close()

    assert ended.wait(60)
    assert [one.cursor for one in heard] == [Cursor(completed=1, total=2)]
    answer = json.loads((tmp_path / ANSWERS / "a").read_text())
    assert answer == {"committed": False, "message": "the runner could not take it"}


def test_a_tree_that_cannot_be_copied_any_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # SC-710
    """A runner outlives an upgrade, which may take away the file of what it has not loaded."""
    trees.be_ready()
    assert "nodus_api.runner.tree_copies" in sys.modules
    monkeypatch.setitem(sys.modules, "nodus_api.runner.tree_copies", None)
    trees.be_ready()

    with pytest.raises(OSError, match="no tree can be copied"):
        trees.copy_tree(tmp_path, tmp_path / "copy")
