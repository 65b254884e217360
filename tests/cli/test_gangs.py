"""A gang with `nodus up`: submitted, seen by rank, and started again as one (SC-134)."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.live import Up, eventually, job

PROGRAM = Path(__file__).parent.parent / "scheduler" / "gang_program.py"


def a_gang(name: str, folder: Path, *, total: int, hang: int) -> str:
    words = [sys.executable, str(PROGRAM), str(folder), str(total), str(hang)]
    return job(
        name,
        f"exec {shlex.join(words)}",
        completions=2,
        gang=True,
        checkpoint={"restartable": True},
        restart={"maxRetries": 1},
        stopGraceSeconds=1,
    )


def test_a_gang_meets_saves_and_succeeds(up: Up, open_folder: Path) -> None:  # SC-130, SC-142
    folder = open_folder / "meeting"
    folder.mkdir()
    manifest = a_gang("meeting", folder, total=2, hang=9)
    done = up.nodus("submit", "-f", "-", "--wait", stdin=manifest)

    assert done.stdout.splitlines()[-1] == "job/meeting succeeded."
    served = sorted(up.attempts("meeting"), key=lambda one: int(one["spec"]["gang"]["rank"]))
    assert [one["spec"]["gang"]["rank"] for one in served] == [0, 1]
    assert len({one["spec"]["gang"]["id"] for one in served}) == 1
    assert all(one["status"]["checkpoints"] == {"count": 2, "lastSeq": 2} for one in served)


@pytest.mark.slow  # real processes that wait for one another
def test_a_killed_rank_starts_the_gang_again(up: Up, open_folder: Path) -> None:  # scenario 30
    folder = open_folder / "falling"
    folder.mkdir()
    up.nodus("submit", "-f", "-", stdin=a_gang("falling", folder, total=3, hang=2))
    hanging = [folder / f"hanging-{rank}" for rank in range(2)]
    eventually(lambda: all(one.exists() and one.read_text() for one in hanging), 90)
    os.kill(int(hanging[1].read_text()), signal.SIGKILL)

    def ended() -> bool:
        second = [one for one in up.attempts("falling") if one["spec"]["epoch"] == 2]
        return len(second) == 2 and all(one["status"]["phase"] == "Succeeded" for one in second)

    eventually(ended, 90)
    attempts = up.attempts("falling")
    first = {one["spec"]["slot"]: one["status"] for one in attempts if one["spec"]["epoch"] == 1}
    assert (first["0"]["reason"], first["1"]["reason"]) == ("Released", "CustomerExit")
    second = [one["spec"] for one in attempts if one["spec"]["epoch"] == 2]
    assert [one["restoreFrom"]["seq"] for one in second] == [2, 2]
    assert [one["gang"]["epoch"] for one in second] == [2, 2]
