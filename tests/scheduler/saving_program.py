"""A program that sums squares and saves: `python saving_program.py FOLDER TOTAL EVERY HANG`.

It goes on from the checkpoint it is given, saves after each EVERY steps and waits for the commit.
In its first epoch it hangs once HANG steps are done. It tells FOLDER what it did: a line a step in
`steps`, `hanging`, and `result`.
"""

import json
import os
import select
import sys
from pathlib import Path


def main(folder: Path, total: int, every: int, hang: int) -> int:
    epoch = os.environ["NODUS_EPOCH"]
    done, result = 0, 0
    if "NODUS_RESTORE_DIR" in os.environ:
        saved = json.loads((Path(os.environ["NODUS_RESTORE_DIR"]) / "sum.json").read_text())
        done, result = saved["done"], saved["result"]
        given = os.environ["NODUS_CURSOR_COMPLETED"], os.environ["NODUS_CURSOR_TOTAL"]
        if given != (str(done), str(total)):
            return 9
    state = Path("state")
    state.mkdir()
    while done < total:
        if epoch == "1" and done == hang:
            (folder / "hanging").touch()
            select.select([], [], [])
        done += 1
        result += done * done
        with (folder / "steps").open("a") as steps:
            steps.write(f"{epoch}:{done}\n")
        if done % every == 0:
            (state / "sum.json").write_text(json.dumps({"done": done, "result": result}))
            save(state, done, total)
    (folder / "result").write_text(str(result))
    return 0


def save(state: Path, done: int, total: int) -> None:
    """Say it, and wait for the answer."""
    progress = Path(os.environ["NODUS_PROGRESS"])
    answer = progress.with_name("answers") / f"at-{done}"
    line = {"checkpoint": {"dir": str(state)}, "completed": done, "total": total, "id": answer.name}
    with progress.open("w") as fifo:
        fifo.write(json.dumps(line) + "\n")
    while not answer.exists():
        select.select([], [], [], 0.01)
    if not json.loads(answer.read_text())["committed"]:
        sys.exit(8)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *(int(one) for one in sys.argv[2:])))
