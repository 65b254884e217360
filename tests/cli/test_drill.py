"""`nodus drill`: what it refuses, what it says, and a drill of a real machine (SC-630)."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import Result
from tests.cli.conftest import Nodus
from tests.cli.live import Up, eventually, job

from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database


def refusal(result: Result) -> str:
    """Return the sentence of a refused command."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0].removeprefix("Error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trigger", "flood"], "give --trigger as one of preemption, node-loss, heartbeat, read"),
        (["--trigger", "node-loss", "--notice", "30s"], "A node-loss comes without a notice"),
        (["--trigger", "readiness", "--notice", "0s"], "leave --notice out"),
        (["--trigger", "preemption", "--notice", "30"], "is not a duration"),
        (["--trigger", "preemption", "--notice", "-5s"], "is not a duration"),
        (["--trigger", "preemption", "--notice", "2h"], "whole seconds up to 1h"),
        (["--trigger", "preemption", "--notice", "1500ms"], "whole seconds up to 1h"),
        (["--trigger", "preemption", "--notice", ""], "is not a duration"),
    ],
)
def test_wrong_arguments_are_refused(
    nodus: Nodus, arguments: list[str], said: str, tmp_path: Path
) -> None:
    result = nodus("drill", "train-0-e1-k7f3q", *arguments, "--data-dir", tmp_path)

    assert said in refusal(result)
    assert list(tmp_path.iterdir()) == []


def test_a_trigger_is_asked_for(nodus: Nodus, tmp_path: Path) -> None:
    result = nodus("drill", "train-0-e1-k7f3q", "--data-dir", tmp_path)

    assert result.exit_code == 2
    assert "Missing option '--trigger'" in result.stderr


@pytest.mark.parametrize("name", ["train-0-e1-k7f3q", "", "x' OR '1'='1", "TRAIN", "a/b", "%"])
async def test_an_attempt_that_is_not_there_is_refused(
    nodus: Nodus, scheduler_database: Database, clean_database: str, name: str
) -> None:
    asked = ("drill", name, "--trigger", "node-loss", "--database-url", clean_database)
    result = await asyncio.to_thread(nodus, *asked)

    assert refusal(result).startswith(f"There is no Attempt {name!r} in project default: ")
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(t.commands)) == 0


# over a real `nodus up` -------------------------------------------------------------------------


@pytest.fixture
def owner(up: Up) -> Iterator[str]:
    """A Job whose program notes SIGTERM, saves, and goes; stopped in the end."""
    name = f"drilled-{uuid.uuid4().hex[:6]}"
    yield name
    up.nodus("stop", name, check=False)


PROGRAM = """
mkdir state; echo $NODUS_EPOCH > state/data
save() {
  echo "{\\"checkpoint\\": {\\"dir\\": \\"state\\"}, \\"id\\": \\"$1\\"}" > $NODUS_PROGRESS
  while [ ! -e $(dirname $NODUS_PROGRESS)/answers/$1 ]; do sleep 0.02; done
}
trap 'save last; exit 143' TERM
[ $NODUS_EPOCH = 1 ] || exit 0
while :; do sleep 0.05; done
"""


def running(up: Up, owner: str) -> str:
    """Submit the Job, and return the name of its first Attempt once it runs."""
    manifest = job(owner, PROGRAM, checkpoint={"restartable": True}, stopGraceSeconds=120)
    up.nodus("submit", "-f", "-", stdin=manifest)

    def runs() -> str:
        found = up.attempts(owner)
        first = found[0] if found else {}
        runs = first.get("status", {}).get("phase") == "Running"
        return str(first["metadata"]["name"]) if runs else ""

    return eventually(runs)


def test_a_preemption_drill_saves_and_goes_on(up: Up, owner: str) -> None:  # scenario 20
    name = running(up, owner)

    said = up.nodus("drill", name, "--trigger", "preemption", "--notice", "2m")

    assert said.stdout == f"{name} is told to stop, and its machine is taken away in 2m.\n"
    eventually(lambda: len(up.attempts(owner)) == 2, 60)
    eventually(lambda: up.attempts(owner)[1]["status"]["phase"] == "Succeeded", 60)
    first, second = up.attempts(owner)
    status = first["status"]
    assert (status["reason"], status["exitCode"]) == ("Preempted", 143)
    assert status["interruption"]["trigger"] == "Drill"
    assert status["interruption"]["lostSeconds"] <= 20  # the save's own way, on a loaded machine
    assert second["spec"]["restoreFrom"]["seq"] == status["checkpoints"]["lastSeq"] == 1

    told = up.nodus("explain", name).stdout
    as_if = "as if the owner of interruptible capacity had taken it back (Drill)"
    assert f"Preempted: in a drill, {as_if}; the program exited with 143.\n" in told

    late = up.nodus("drill", name, "--trigger", "node-loss", check=False)
    assert refusal(late) == (
        f"{name}: it has ended (Lost): drill an Attempt that is Starting or Running."
    )


def test_a_node_loss_drill_is_found_lost_and_replaced(up: Up, owner: str) -> None:
    name = running(up, owner)  # scenario 41

    said = up.nodus("drill", name, "--trigger", "node-loss")

    assert said.stdout == (
        f"The machine of {name} dies without a word; it is found lost in seconds.\n"
    )
    eventually(lambda: len(up.attempts(owner)) == 2, 60)
    eventually(lambda: up.attempts(owner)[1]["status"]["phase"] == "Succeeded", 60)
    status = up.attempts(owner)[0]["status"]
    assert (status["reason"], status["interruption"]["trigger"]) == ("NodeLost", "Drill")
    assert status["actual"]["costUSD"] == "0.000000"  # no checkpoint: all of it was lost


def test_a_silent_runner_and_what_cannot_be_drilled(up: Up, owner: str) -> None:
    name = running(up, owner)

    refused = up.nodus("drill", name, "--trigger", "readiness", check=False)
    assert refusal(refused) == (
        f"{name}: it is Running, and readiness is checked before that: drill it with node-loss."
    )
    said = up.nodus("drill", name, "--trigger", "heartbeat")
    assert said.stdout.startswith(f"The runner of {name} falls silent; it is given up after 10")
    again = up.nodus("drill", name, "--trigger", "node-loss", check=False)
    assert f"{name}: a heartbeat drill of it is under way since " in refusal(again)
    queued = up.nodus("drill", name, "--trigger", "node-loss", "--no-wait")
    assert queued.stdout == f"The node-loss drill of {name} is queued for the scheduler.\n"
    assert up.attempts(owner)[0]["status"]["phase"] == "Running"
