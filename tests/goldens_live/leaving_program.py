"""A program that saves when it is told to leave: `leaving_program.py FOLDER`.

It tells FOLDER that it is `ready`, waits for SIGTERM, saves, waits until `leave` is there, and
exits 143. Given a checkpoint, it looks whether that is the one it saved, and is done.
"""

import json
import os
import select
import signal
import sys
from pathlib import Path

STATE = {"done": 7}


def main(folder: Path) -> int:
    if "NODUS_RESTORE_DIR" in os.environ:
        saved = json.loads((Path(os.environ["NODUS_RESTORE_DIR"]) / "state.json").read_text())
        return 0 if saved == STATE else 9
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    (folder / "ready").touch()
    signal.sigwait({signal.SIGTERM})
    save()
    wait_for(folder / "leave")
    return 143


def save() -> None:
    """Say it, and wait for the answer."""
    state = Path("state")
    state.mkdir()
    (state / "state.json").write_text(json.dumps(STATE))
    progress = Path(os.environ["NODUS_PROGRESS"])
    answer = progress.with_name("answers") / "last"
    line = {"checkpoint": {"dir": "state"}, "completed": 7, "total": 9, "id": answer.name}
    with progress.open("w") as fifo:
        fifo.write(json.dumps(line) + "\n")
    wait_for(answer)


def wait_for(path: Path) -> None:
    while not path.exists():
        select.select([], [], [], 0.01)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
