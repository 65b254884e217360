"""The demo's program, and the demo itself."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.live import NODUS, begun, environment, eventually

from nodus_api.cli import processes
from nodus_api.cli.demo import decay, fit, pair
from nodus_api.cli.demo.story import starts
from nodus_api.runner.files import INTENT
from nodus_api.suppliers.local.processes import Processes


def test_the_fit_finds_the_curve_without_noise() -> None:
    times = [0.1 * i for i in range(40)]
    data = [(t, 3.0 * 2.718281828459045 ** (-0.7 * t) - 1.0) for t in times]

    assert decay.fit(data) == pytest.approx((3.0, 0.7, -1.0), abs=1e-9)


@pytest.mark.parametrize("x", [(0.0, 0.0, 0.0), (1.0, -2.0, 3.0), (1e-3, 7.5, -1e3)])
def test_the_solver_solves(x: tuple[float, float, float]) -> None:
    matrix = [[0.0, 2.0, 1.0], [4.0, -1.0, 3.0], [1.0, 1.0, -2.0]]
    right = [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix]

    assert decay.solve(matrix, right) == pytest.approx(x, abs=1e-9)


def test_the_check_tells_right_from_wrong() -> None:
    chance = random.Random(1)  # noqa: S311 -- noise, not secrets
    estimates = [chance.gauss(2.0, 0.1) for _ in range(400)]

    assert decay.agrees(estimates, 2.0)
    assert not decay.agrees(estimates, 2.1)


class Machine:
    """What a program finds around it, without a runner: its folder, and answers to its saves."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "answers").mkdir()
        os.mkfifo(folder / "progress")
        self.environment = {
            **os.environ,
            "NODUS_PROGRESS": str(folder / "progress"),
            **environment,
        }
        self.saved: list[dict[str, Any]] = []
        self.fits: list[Any] = []
        self._thread = threading.Thread(target=self._answer, daemon=True)

    def run(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        self._thread.start()
        return subprocess.Popen(  # noqa: S603 -- ours
            [sys.executable, "-m", module, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _answer(self) -> None:
        while True:
            for line in (self.folder / "progress").read_text().splitlines():
                asked = json.loads(line)
                self.saved.append(asked)
                saved = Path(asked["checkpoint"]["dir"]) / "fits.json"
                self.fits = json.loads(saved.read_text())
                answer = self.folder / "answers" / asked["id"]
                part = answer.with_suffix(".part")
                part.write_text(json.dumps({"committed": True, "seq": len(self.saved)}))
                part.replace(answer)


def ended(running: "subprocess.Popen[str]") -> tuple[int, str]:
    out, err = running.communicate(timeout=60)
    return running.returncode, out + err


@pytest.mark.parametrize(
    ("slot", "epoch", "code"), [("0", "1", 0), ("1", "1", fit.BROKEN), ("1", "2", 0)]
)
def test_one_slot_fails_once(tmp_path: Path, slot: str, epoch: str, code: int) -> None:
    machine = Machine(tmp_path / "machine", NODUS_SLOT=slot, NODUS_EPOCH=epoch)
    running = machine.run(fit.__name__, str(tmp_path), "job", "24", "0.1")

    assert ended(running)[0] == code
    steps = (tmp_path / f"steps-job-{slot}").read_text().splitlines()
    assert steps == [f"{epoch} {i}" for i in range(24 if code == 0 else 12)]
    assert [one["completed"] for one in machine.saved] == list(range(3, len(steps) + 1, 3))[:7]


def test_the_slot_that_is_drilled_does_not_end_before(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", NODUS_SLOT=fit.LOST_SLOT, NODUS_EPOCH="1")
    running = machine.run(fit.__name__, str(tmp_path), "job", "24", "0.1")
    steps = tmp_path / f"steps-job-{fit.LOST_SLOT}"
    eventually(lambda: steps.exists() and len(steps.read_text().splitlines()) == 23)

    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(1)
    running.kill()
    assert ended(running)[0] == -signal.SIGKILL
    assert len(steps.read_text().splitlines()) == 23


def test_a_restored_fit_ends_at_the_same_result(tmp_path: Path) -> None:
    whole = Machine(tmp_path / "whole", NODUS_SLOT="0", NODUS_EPOCH="1")
    assert ended(whole.run(fit.__name__, str(tmp_path), "job", "24", "0.1"))[0] == 0
    restore = tmp_path / "restore"
    restore.mkdir()
    (restore / "fits.json").write_text(json.dumps(whole.fits[:9]))

    second = Machine(
        tmp_path / "second",
        NODUS_SLOT="2",
        NODUS_EPOCH="2",
        NODUS_RESTORE_DIR=str(restore),
        NODUS_CURSOR_COMPLETED="9",
    )
    assert ended(second.run(fit.__name__, str(tmp_path), "job", "24", "0.1"))[0] == 0

    assert (tmp_path / "result-job-0").read_text() == (tmp_path / "result-job-2").read_text()
    assert (tmp_path / "steps-job-2").read_text().split("\n")[0] == "2 9"


def test_a_checkpoint_that_is_not_the_cursor_s_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fits.json").write_text("[]")
    machine = Machine(
        tmp_path / "machine",
        NODUS_SLOT="0",
        NODUS_EPOCH="2",
        NODUS_RESTORE_DIR=str(tmp_path),
        NODUS_CURSOR_COMPLETED="9",
    )
    code, said = ended(machine.run(fit.__name__, str(tmp_path), "job", "24", "0.1"))

    assert code == 1
    assert "not the one that the cursor tells of" in said


def test_a_pair_ends_at_the_result_of_one(tmp_path: Path) -> None:
    alone = Machine(tmp_path / "alone", NODUS_SLOT="0", NODUS_EPOCH="1")
    assert ended(alone.run(fit.__name__, str(tmp_path), "one", "24", "0.1"))[0] == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = f"127.0.0.1:{free.getsockname()[1]}"
    ranks = [
        Machine(
            tmp_path / f"rank-{rank}",
            NODUS_SLOT=str(rank),
            NODUS_EPOCH="1",
            NODUS_RANK=str(rank),
            NODUS_SIZE="2",
            NODUS_RENDEZVOUS=rendezvous,
        ).run(pair.__name__, str(tmp_path), "two", "24", "0.1")
        for rank in (1, 0)
    ]

    assert [ended(one)[0] for one in ranks] == [0, 0]
    results = [tmp_path / name for name in ("result-one-0", "result-two-0", "result-two-1")]
    assert len({one.read_text() for one in results}) == 1
    assert (tmp_path / "steps-two-1").read_text().splitlines()[:2] == ["1 1", "1 3"]


def test_a_rank_that_is_left_alone_waits_to_be_stopped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rank_0:
        machine = Machine(
            tmp_path / "rank-1",
            NODUS_SLOT="1",
            NODUS_EPOCH="1",
            NODUS_RANK="1",
            NODUS_SIZE="2",
            NODUS_RENDEZVOUS=f"127.0.0.1:{rank_0.getsockname()[1]}",
        )
        running = machine.run(pair.__name__, str(tmp_path), "two", "24", "0.1")
        met, _ = rank_0.accept()
        with met, met.makefile() as said:
            assert said.readline() == "1\n"
    assert running.stderr is not None
    assert running.stderr.readline() == "another rank is gone\n"
    running.terminate()

    assert ended(running)[0] == -signal.SIGTERM


@pytest.mark.slow  # the whole product, once
def test_the_demo_runs_from_nothing_to_the_bill(open_folder: Path) -> None:
    root = open_folder / "demo"
    done = subprocess.run(  # noqa: S603 -- ours
        [*NODUS, "demo", "--seconds", "3", "--data-dir", str(root)],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(),
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nodus is ready at https://127.0.0.1:" in done.stdout
    assert "The Attempts through plain HTTPS" in done.stdout
    assert "USD, as the Attempts themselves say." in done.stdout
    assert "\nChecked: every program started once;" in done.stdout
    *_, last = done.stdout.splitlines()
    assert last.startswith(f"Everything is stopped. Its data stays in {root} ")
    assert len(re.findall(r"^decay-fit-1-e1-\w+ +Failed +CustomerExit +3 ", done.stdout, re.M)) == 1
    assert not (root / "database-url").exists()
    assert list((root / "run").glob("*.pid")) == []


def demo(root: Path) -> "AbstractContextManager[subprocess.Popen[str]]":
    """Run the demo as a child, in a session of its own."""
    return begun(
        [*NODUS, "demo", "--data-dir", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow  # the whole product, until its programs run
def test_a_demo_that_is_interrupted_leaves_no_program_behind(open_folder: Path) -> None:
    root = open_folder / "demo-interrupted"
    with demo(root) as child:
        eventually(lambda: list(starts(root / "diary")), 120)
        machines = [one for one in (root / "machines").iterdir() if (one / INTENT).exists()]
        living = processes.recorded(root / "run")
        os.kill(int((root / "lock").read_text()), signal.SIGKILL)  # `nodus up` stops nothing more
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=120)

    assert child.returncode == 130, said
    assert said.endswith("Interrupted.\n")
    assert machines
    eventually(lambda: all(Processes(one).empty() for one in machines))
    assert sorted(living) == ["postgres", "schedule", "serve"]
    assert [one for one in living.values() if processes.identify(one.pid) == one] == []


@pytest.mark.slow  # `nodus up` starts and stops
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_told_to_end_ends_what_it_started(
    open_folder: Path, number: signal.Signals
) -> None:
    root = open_folder / f"demo-{number.name}"
    with demo(root) as child:
        eventually(lambda: processes.recorded(root / "run"), 60)
        up = processes.identify(int((root / "lock").read_text()))
        living = processes.recorded(root / "run")
        child.send_signal(number)
        said, _ = child.communicate(timeout=120)

    assert child.returncode == -number, said
    assert "Traceback" not in said
    assert "postgres" in living
    assert up is not None
    assert [one for one in (up, *living.values()) if processes.identify(one.pid) == one] == []
    assert list((root / "run").glob("*.pid")) == []


def test_a_demo_that_cannot_start_says_where_the_logs_are(open_folder: Path) -> None:
    root = open_folder / "demo-blocked"
    root.mkdir()
    (root / "run").write_text("a file in the way")
    done = subprocess.run(  # noqa: S603 -- ours
        [*NODUS, "demo", "--data-dir", str(root)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )

    assert done.returncode == 1
    assert "The demo did not succeed: `nodus up` ended at once" in done.stderr
    assert f"The log is {root}/logs/up.log" in done.stderr
