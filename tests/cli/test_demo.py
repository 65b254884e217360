"""The demo's program, and the demo itself."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.live import NODUS, environment

from nodus_api.cli import demo_fit


def test_the_fit_finds_the_curve_without_noise() -> None:
    times = [0.1 * i for i in range(40)]
    data = [(t, 3.0 * 2.718281828459045 ** (-0.7 * t) - 1.0) for t in times]

    assert demo_fit.fit(data) == pytest.approx((3.0, 0.7, -1.0), abs=1e-9)


@pytest.mark.parametrize("x", [(0.0, 0.0, 0.0), (1.0, -2.0, 3.0), (1e-3, 7.5, -1e3)])
def test_the_solver_solves(x: tuple[float, float, float]) -> None:
    matrix = [[0.0, 2.0, 1.0], [4.0, -1.0, 3.0], [1.0, 1.0, -2.0]]
    right = [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix]

    assert demo_fit.solve(matrix, right) == pytest.approx(x, abs=1e-9)


def test_the_check_tells_right_from_wrong() -> None:
    chance = random.Random(1)  # noqa: S311 -- noise, not secrets
    estimates = [chance.gauss(2.0, 0.1) for _ in range(400)]

    assert demo_fit.agrees(estimates, 2.0)
    assert not demo_fit.agrees(estimates, 2.1)


@pytest.mark.parametrize(
    ("slot", "epoch", "code"), [("0", "1", 0), ("1", "1", demo_fit.BROKEN), ("1", "2", 0)]
)
def test_one_slot_fails_once(slot: str, epoch: str, code: int) -> None:
    done = subprocess.run(  # noqa: S603 -- ours
        [sys.executable, demo_fit.__file__, "0.05", "1"],
        env={**os.environ, "NODUS_SLOT": slot, "NODUS_EPOCH": epoch},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == code, done.stdout
    if code == 0:
        assert re.fullmatch(r"\d+ fits: a=\S+ k=1\.\d+ c=0\.\d+ agree with .*\n", done.stdout)


@pytest.mark.slow  # the whole product, once
def test_the_demo_runs_from_nothing_to_the_bill(open_folder: Path) -> None:
    root = open_folder / "demo"
    done = subprocess.run(  # noqa: S603 -- ours
        [*NODUS, "demo", "--seconds", "1", "--data-dir", str(root)],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment(),
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Nodus is ready at https://127.0.0.1:" in done.stdout
    assert "The Attempts through plain HTTPS" in done.stdout
    assert "USD, as the Attempts themselves say." in done.stdout
    *_, last = done.stdout.splitlines()
    assert last.startswith(f"Everything is stopped. Its data stays in {root} ")
    assert len(re.findall(r"^decay-fit-1-e1-\w+ +Failed +CustomerExit +3 ", done.stdout, re.M)) == 1
    assert not (root / "database-url").exists()
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
