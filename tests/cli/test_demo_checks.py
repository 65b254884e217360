"""The demo's checks: they pass what must be, and see each kind of a difference."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from nodus_api.cli.demo import fit
from nodus_api.cli.demo.checks import LIVES, Life, complaints
from nodus_api.cli.demo.story import FIT, PAIR, RANKS, STEPS

START = datetime(2026, 1, 1, tzinfo=UTC)
RATE = "0.06"
SAVED = 2
CURSOR = 24
Attempts = list[dict[str, Any]]


def at(seconds: int) -> str:
    return f"{START + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def usd(seconds: int) -> str:
    exact = Decimal(RATE) * seconds / 3600
    return str(exact.quantize(Decimal("0.000001"), ROUND_HALF_UP))


def name_of(job: str, slot: str, epoch: int) -> str:
    return f"{job}-{slot}-e{epoch}-aaaaa"


def attempt(life: Life) -> dict[str, Any]:
    """Return an Attempt that ran 10 s of its epoch's minute, and was charged 10 s."""
    job, slot, epoch, phase, reason, trigger = life
    begin = 60 * epoch
    lost = any(other[:3] == (job, slot, epoch + 1) for other in LIVES)
    status: dict[str, Any] = {
        "phase": phase,
        "placement": {"rateUSDPerHour": RATE},
        "timings": {
            "queuedTime": at(begin - 10),
            "acquiredTime": at(begin),
            "billingStartTime": at(begin),
            "registeredTime": at(begin),
            "commandStartedTime": at(begin),
            "finishedTime": at(begin + 10),
            "deletionProvenTime": at(begin + 10),
        },
        "checkpoints": {"count": SAVED, "lastSeq": SAVED},
        "actual": {
            "costUSD": usd(10),
            "hours": "0.002778",
            "segments": {
                "bootUSD": "0.000000",
                "runningUSD": usd(10),
                "restoreUSD": "0.000000",
                "teardownUSD": "0.000000",
            },
        },
    }
    spec: dict[str, Any] = {"slot": slot, "epoch": epoch}
    if reason:
        status["reason"] = reason
    if trigger:
        status["interruption"] = {"trigger": trigger, "time": at(begin + 10), "lostSeconds": 0}
        if lost:
            status["interruption"]["recoverySeconds"] = 50
    if lost:
        status["supersededBy"] = name_of(job, slot, epoch + 1)
    if epoch == 2:
        spec["restoreFrom"] = {"seq": SAVED, "cursor": {"completed": CURSOR, "total": STEPS}}
    return {
        "metadata": {
            "name": name_of(job, slot, epoch),
            "labels": {"nodus.dev/job": job},
            "ownerReferences": [{"uid": job}],
        },
        "spec": spec,
        "status": status,
    }


def diary_of(folder: Path) -> Path:
    """Write what the programs of these lives would have noted."""
    for job, slot, epoch, phase, *_ in LIVES:
        with (folder / "starts").open("a") as starts:
            starts.write(f"{job} {slot} {epoch} 1\n")
        share, first = (1, 0) if job == FIT else (RANKS, int(slot))
        begun = CURSOR if epoch == 2 else 0
        done = range(begun + first, STEPS if phase == "Succeeded" else CURSOR, share)
        with (folder / f"steps-{job}-{slot}").open("a") as steps:
            steps.writelines(f"{epoch} {i}\n" for i in done)
        if phase == "Succeeded":
            result = json.dumps({"steps": STEPS, "means": [1, 2, 3]})
            (folder / f"result-{job}-{slot}").write_text(result)
    return folder


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return diary_of(tmp_path)


ALL_WELL = [attempt(life) for life in LIVES]


def found(attempts: Attempts, name: str) -> dict[str, Any]:
    (one,) = (one for one in attempts if one["metadata"]["name"] == name)
    return one


def test_what_must_be_passes(diary: Path) -> None:
    assert complaints(ALL_WELL, diary) == []


def _set(name: str, *path: str, value: Any) -> Callable[[Attempts], None]:
    def change(attempts: Attempts) -> None:
        target = found(attempts, name)
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


WRONG: dict[str, tuple[Callable[[Attempts], None], str]] = {
    "another outcome": (
        _set(name_of(FIT, "0", 1), "status", "phase", value="Failed"),
        "missing: decay-fit 0 epoch 1 Succeeded",
    ),
    "an epoch too many": (
        lambda attempts: attempts.append(attempt((FIT, "0", 2, "Succeeded", "", ""))),
        "not expected: decay-fit 0 epoch 2 Succeeded",
    ),
    "a start that is not told": (
        lambda attempts: found(attempts, name_of(FIT, "0", 1))["status"]["timings"].pop(
            "commandStartedTime"
        ),
        "started, but the API does not say so",
    ),
    "a lost checkpoint": (
        _set(name_of(FIT, "2", 2), "spec", "restoreFrom", "seq", value=SAVED - 1),
        f"its predecessor saved {SAVED} last",
    ),
    "a cursor of another checkpoint": (
        _set(name_of(PAIR, "1", 2), "spec", "restoreFrom", "cursor", "completed", value=12),
        "did not do the steps that were left",
    ),
    "a wrong sum": (
        _set(name_of(FIT, "0", 1), "status", "actual", "costUSD", value="0.000168"),
        "segments give",
    ),
    "more lost than was run": (
        _set(name_of(FIT, "2", 1), "status", "interruption", "lostSeconds", value=11),
        "ran 10 s and lost 11 s of them",
    ),
    "a wrong recovery": (
        _set(name_of(FIT, "2", 1), "status", "interruption", "recoverySeconds", value=1),
        "was back after 50 s, but recoverySeconds says 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_difference_is_said(diary: Path, case: str) -> None:
    change, said = WRONG[case]
    attempts = copy.deepcopy(ALL_WELL)
    change(attempts)

    assert any(said in one for one in complaints(attempts, diary)), complaints(attempts, diary)


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("starts", f"{FIT} 0 1 2\n", "started 2 times"),
        ("starts", f"{FIT} 0 7 2\n", "started, but the API does not say so"),
        (f"steps-{FIT}-2", "2 24\n", "did not do the steps that were left"),
    ],
)
def test_what_a_program_notes_too_much_is_said(
    diary: Path, file: str, line: str, said: str
) -> None:
    with (diary / file).open("a") as notes:
        notes.write(line)

    assert any(said in one for one in complaints(ALL_WELL, diary))


def test_another_result_is_said(diary: Path) -> None:
    (diary / f"result-{PAIR}-1").write_text('{"steps": 96, "means": [1, 2, 4]}')
    (diary / f"result-{FIT}-{fit.BROKEN_SLOT}").unlink()

    said = complaints(ALL_WELL, diary)

    assert len([one for one in said if "the result of" in one]) == 2


def test_a_program_that_never_ran_is_said(diary: Path) -> None:
    starts = (diary / "starts").read_text().splitlines()
    (diary / "starts").write_text("\n".join(starts[1:]) + "\n")

    assert any("never started, but the API says so" in one for one in complaints(ALL_WELL, diary))
