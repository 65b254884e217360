"""What the demo's programs share: the diary they keep, their checkpoints, and their result.

A program's machine is deleted at its end; the diary is a folder that stays, so that the demo can
compare what happened with what the API says. `STARTS` has a line for every program that started,
`steps-NAME` a line for every step done, and `result-NAME` the result.
"""

import json
import os
import select
import sys
import time
from pathlib import Path

from nodus_api.cli.demo import decay

STARTS = "starts"
_LOOK_SECONDS = 0.02
_SAVED = "fits.json"


class Diary:
    """One program's notes: `NAME` is Job and slot."""

    def __init__(self, folder: Path, job: str) -> None:
        self.slot, self.epoch = os.environ["NODUS_SLOT"], int(os.environ["NODUS_EPOCH"])
        self._folder = folder
        self._name = f"{job}-{self.slot}"
        self._note(STARTS, f"{job} {self.slot} {self.epoch} {os.getpid()}")

    def step(self, i: int) -> None:
        """Note that step `i` was done."""
        self._note(f"steps-{self._name}", f"{self.epoch} {i}")

    def result(self, fits: list[decay.Vector]) -> bool:
        """Note the result, whole or not at all, and return whether it agrees with the truth."""
        found = json.dumps({"steps": len(fits), "means": decay.means(fits)})
        part = self._folder / f".result-{self._name}"
        part.write_text(found)
        part.replace(self._folder / f"result-{self._name}")
        well = decay.well(fits)
        sys.stdout.write(f"{found} {'agree with' if well else 'differ from'} {decay.TRUTH}\n")
        return well

    def _note(self, name: str, line: str) -> None:
        with (self._folder / name).open("a") as notes:
            notes.write(f"{line}\n")


class Pace:
    """Lets a step take its time, so that a short life has something to show."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic()

    def keep(self) -> None:
        """Wait until the step's time is over."""
        self._due = max(self._due + self._seconds, time.monotonic())
        select.select([], [], [], max(self._due - time.monotonic(), 0.0))


def restored() -> list[decay.Vector]:
    """Return the fits of the checkpoint to go on from; none at the beginning.

    Ends the program if what it is told of the checkpoint is not what is in it.
    """
    folder = os.environ.get("NODUS_RESTORE_DIR")
    if folder is None:
        return []
    fits = [(a, k, c) for a, k, c in json.loads((Path(folder) / _SAVED).read_text())]
    if os.environ["NODUS_CURSOR_COMPLETED"] != str(len(fits)):
        sys.exit("the checkpoint is not the one that the cursor tells of")
    return fits


def save(fits: list[decay.Vector], total: int) -> None:
    """Save the fits as a checkpoint, and wait until it is committed."""
    state = Path("state")
    state.mkdir(exist_ok=True)
    (state / _SAVED).write_text(json.dumps(fits))
    progress = Path(os.environ["NODUS_PROGRESS"])
    answer = progress.with_name("answers") / f"at-{len(fits)}"
    line = {
        "checkpoint": {"dir": str(state.absolute())},
        "completed": len(fits),
        "total": total,
        "id": answer.name,
    }
    with progress.open("w") as fifo:
        fifo.write(json.dumps(line) + "\n")
    while not answer.exists():
        select.select([], [], [], _LOOK_SECONDS)
    if not json.loads(answer.read_text())["committed"]:
        sys.exit("the checkpoint was refused")
