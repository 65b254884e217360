"""`nodus checkpoint` by itself: what it writes, what it waits for, and what it refuses (SC-642)."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.cli.conftest import Nodus


class Channel:
    """The runner's end of a channel, played by the test."""

    def __init__(self, folder: Path) -> None:
        (folder / "answers").mkdir(parents=True)
        os.mkfifo(folder / "progress")
        self.folder = folder
        self._fifo = os.open(folder / "progress", os.O_RDWR)

    def heard(self) -> dict[str, Any]:
        """Wait for a line."""
        line: dict[str, Any] = json.loads(os.read(self._fifo, 65536))
        return line

    def reply(self, line: dict[str, Any], **answer: Any) -> None:
        (self.folder / "answers" / line["id"]).write_text(json.dumps(answer))

    def leave(self) -> None:
        """Stop listening, as a runner that was killed."""
        if self._fifo >= 0:
            os.close(self._fifo)
        self._fifo = -1


@pytest.fixture
def channel(nodus: Nodus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    made = Channel(tmp_path / "channel")
    monkeypatch.setenv("NODUS_PROGRESS", str(made.folder / "progress"))
    yield made
    made.leave()


async def saved(
    nodus: Nodus, channel: Channel, *arguments: str, **answer: Any
) -> tuple[Any, Result]:
    """Run the command, answer what it says, and return both."""
    running = asyncio.create_task(asyncio.to_thread(nodus, "checkpoint", *arguments))
    line = await asyncio.to_thread(channel.heard)
    channel.reply(line, **answer)
    result = await running
    del line["id"]
    return line, result


async def test_it_says_what_to_save_and_waits(
    nodus: Nodus, channel: Channel, tmp_path: Path
) -> None:
    line, result = await saved(
        nodus,
        channel,
        *("--dir", str(tmp_path), "--completed", "120", "--total", "1000"),
        committed=True,
        seq=7,
    )
    assert line == {"checkpoint": {"dir": str(tmp_path)}, "completed": 120, "total": 1000}
    assert (result.exit_code, result.stdout) == (0, "committed 7\n")
    assert list((channel.folder / "answers").iterdir()) == []


async def test_json_is_the_answer_itself(nodus: Nodus, channel: Channel, tmp_path: Path) -> None:
    line, result = await saved(
        nodus, channel, "--dir", str(tmp_path), "-o", "json", committed=True, seq=1
    )
    assert line == {"checkpoint": {"dir": str(tmp_path)}}
    assert json.loads(result.stdout) == {"committed": True, "seq": 1}


async def test_a_refusal_is_told(nodus: Nodus, channel: Channel, tmp_path: Path) -> None:
    _, result = await saved(
        nodus, channel, "--dir", str(tmp_path), committed=False, message="the disk is full"
    )
    assert result.exit_code == 1
    assert result.stderr == "Error: The checkpoint was not committed: the disk is full.\n"


def test_it_does_not_wait_for_ever(nodus: Nodus, channel: Channel, tmp_path: Path) -> None:
    result = nodus("checkpoint", "--dir", str(tmp_path), "--timeout", "50ms")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: No commit is known after 0.05 s; it may still come")


def test_a_runner_that_is_gone_is_no_reason_to_hang(
    nodus: Nodus, channel: Channel, tmp_path: Path
) -> None:
    channel.leave()
    result = nodus("checkpoint", "--dir", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: The runner cannot be reached: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--completed", "3"), "--completed and --total belong together"),
        (("--completed", "3", "--total", "2"), "--completed 3 is more than --total 2"),
        (("--timeout", "10"), "--timeout: "),
    ],
)
def test_bad_input_is_refused_and_nothing_said(
    nodus: Nodus, channel: Channel, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = nodus("checkpoint", "--dir", str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    os.set_blocking(channel._fifo, False)
    with pytest.raises(BlockingIOError):
        channel.heard()


def test_outside_a_program_it_says_so(
    nodus: Nodus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODUS_PROGRESS", raising=False)
    result = nodus("checkpoint", "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert "run this command in a program that Nodus started" in result.stderr
