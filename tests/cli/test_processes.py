"""Processes known by pid and start ticks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodus_api.cli import processes
from nodus_api.clock import SystemClock

Process = subprocess.Popen[bytes]
# `nodus_api` in the command line is how a process is known to be ours
WAITS = [sys.executable, "-c", "import signal; signal.pause()", "nodus_api"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\n"
    "while True: signal.pause()",
    "nodus_api",
]


@pytest.fixture
def started() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    for process in running:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def start(started: list[Process], command: list[str]) -> Process:
    process = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 -- ours
    started.append(process)
    arguments = Path(f"/proc/{process.pid}/cmdline")
    deadline = time.monotonic() + 10
    while command[-1].encode() not in arguments.read_bytes():  # shown slightly after the exec
        assert time.monotonic() < deadline
    return process


def test_a_process_is_its_pid_and_its_start() -> None:
    own = processes.identify(os.getpid())

    assert own is not None
    assert own.pid == os.getpid()
    assert own.start_ticks > 0
    assert processes.identify(2**22 - 1) is None


def test_a_zombie_does_not_live(started: list[Process]) -> None:
    process = start(started, [sys.executable, "-c", ""])
    assert process.stdout is not None
    process.stdout.read()  # its end
    assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT) is not None

    assert processes.identify(process.pid) is None


def test_a_recorded_process_is_found(tmp_path: Path, started: list[Process]) -> None:
    process = start(started, WAITS)
    processes.record(tmp_path, "serve", process.pid)

    found = processes.recorded(tmp_path)
    assert {name: one.pid for name, one in found.items()} == {"serve": process.pid}
    processes.forget(tmp_path, "serve")
    assert processes.recorded(tmp_path) == {}


def test_pid_and_start_must_both_match(tmp_path: Path, started: list[Process]) -> None:
    process = start(started, WAITS)
    own = processes.identify(process.pid)
    assert own is not None
    (tmp_path / "serve.pid").write_text(f"{own.pid} {own.start_ticks + 1}\n")
    (tmp_path / "other.pid").write_text("no numbers\n")

    assert processes.recorded(tmp_path) == {}
    assert processes.end_orphans(tmp_path, SystemClock()) == []
    assert list(tmp_path.glob("*.pid")) == []
    assert process.poll() is None


def test_a_process_that_is_not_ours_is_left_alone(tmp_path: Path, started: list[Process]) -> None:
    process = start(started, [sys.executable, "-c", "import signal; signal.pause()"])
    processes.record(tmp_path, "serve", process.pid)

    assert processes.end_orphans(tmp_path, SystemClock()) == []
    assert process.poll() is None


def test_a_part_to_adopt_is_left_alone(tmp_path: Path, started: list[Process]) -> None:
    process = start(started, WAITS)
    processes.record(tmp_path, "postgres", process.pid)

    assert processes.end_orphans(tmp_path, SystemClock(), keep=("postgres",)) == []
    assert process.poll() is None
    assert list(processes.recorded(tmp_path)) == ["postgres"]


def test_orphans_are_ended(tmp_path: Path, started: list[Process]) -> None:
    one, other = start(started, WAITS), start(started, WAITS)
    processes.record(tmp_path, "serve", one.pid)
    processes.record(tmp_path, "schedule", other.pid)

    assert processes.end_orphans(tmp_path, SystemClock()) == ["schedule", "serve"]
    assert (one.wait(5), other.wait(5)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert list(tmp_path.glob("*.pid")) == []


def test_an_orphan_that_does_not_listen_is_killed(tmp_path: Path, started: list[Process]) -> None:
    process = start(started, STUBBORN)
    assert process.stdout is not None
    process.stdout.readline()
    processes.record(tmp_path, "serve", process.pid)

    assert processes.end_orphans(tmp_path, SystemClock(), grace=0.2) == ["serve"]
    assert process.wait(5) == -signal.SIGKILL
