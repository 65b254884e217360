"""The supervisor, with real processes, in a process of its own."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodus_api.cli import processes
from nodus_api.clock import SystemClock

# One supervised child that waits, as `nodus up` would supervise serve and schedule.
SUPERVISE = """
import sys
from pathlib import Path
from nodus_api.cli.supervisor import Child, Supervisor
from nodus_api.clock import SystemClock

run, command = Path(sys.argv[1]), sys.argv[2:]
with Supervisor(run, SystemClock()) as supervisor:
    supervisor.start(Child(name="part", command=command))
    supervisor.run(lambda: (run / "part.ready").exists(), lambda: print("ready", flush=True))
print("stopped", flush=True)
"""
CHILD = """
import pathlib, signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
pathlib.Path(sys.argv[1], "part.ready").touch()
signal.pause()
"""
Supervised = subprocess.Popen[str]


def eventually(condition: Callable[[], object], seconds: float = 15.0) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < deadline, "the condition did not come true"
        os.sched_yield()


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    running: list[Supervised] = []

    def begin(child: str = CHILD) -> Supervised:
        command = [sys.executable, "-c", textwrap.dedent(child), str(tmp_path), "nodus_api"]
        running.append(
            subprocess.Popen(  # noqa: S603 -- ours
                [sys.executable, "-c", SUPERVISE, str(tmp_path), *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
        return running[-1]

    yield begin
    for process in running:
        process.kill()
    processes.end_orphans(tmp_path, SystemClock(), grace=1.0)  # they hold the pipes open
    for process in running:
        process.communicate(timeout=10)


def pid_of(run: Path) -> int:
    found = processes.recorded(run)
    return found["part"].pid if "part" in found else 0


def test_it_announces_and_stops_on_sigterm(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    process = supervise()
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    child = processes.recorded(tmp_path)["part"]

    process.send_signal(signal.SIGTERM)

    assert process.stdout.readline() == "stopped\n"
    assert process.wait(15) == 0
    assert processes.identify(child.pid) != child
    assert list(tmp_path.glob("*.pid")) == []


def test_ctrl_c_stops_it_too(supervise: Callable[..., Supervised]) -> None:
    process = supervise()
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    assert process.wait(15) == 0


def test_a_killed_child_is_started_again(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    process = supervise()
    assert process.stdout is not None
    process.stdout.readline()
    first = pid_of(tmp_path)
    (tmp_path / "part.ready").unlink()

    os.kill(first, signal.SIGKILL)

    eventually(lambda: pid_of(tmp_path) not in (0, first))
    eventually((tmp_path / "part.ready").exists)
    assert process.poll() is None


def test_a_child_that_refuses_its_input_ends_it_with_2(
    supervise: Callable[..., Supervised],
) -> None:
    process = supervise("import sys; sys.exit(2)")

    _, said = process.communicate(timeout=15)

    assert process.returncode != 0
    assert "`nodus part` refused to start" in said


def test_children_of_a_killed_supervisor_are_found_and_ended(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    process = supervise()
    assert process.stdout is not None
    process.stdout.readline()
    child = processes.recorded(tmp_path)["part"]
    process.kill()
    process.wait()
    assert processes.identify(child.pid) == child

    assert processes.end_orphans(tmp_path, SystemClock()) == ["part"]
    assert processes.identify(child.pid) != child
