"""A rank of a gang that counts in step with the others: `gang_program.py FOLDER TOTAL HANG`.

The ranks meet at NODUS_RENDEZVOUS: rank 0 listens, the others connect, and every step is one
exchange over TCP. After each step all save and wait for the commit. In the first gang epoch they
hang once HANG steps are done, and FOLDER gets `hanging-RANK` with the process's number.
"""

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

RANK, SIZE = int(os.environ["NODUS_RANK"]), int(os.environ["NODUS_SIZE"])
HOST, _, PORT = os.environ["NODUS_RENDEZVOUS"].rpartition(":")
PATIENCE_SECONDS = 60.0


def main(folder: Path, total: int, hang: int) -> int:
    done = 0
    if "NODUS_RESTORE_DIR" in os.environ:
        saved = json.loads((Path(os.environ["NODUS_RESTORE_DIR"]) / "state.json").read_text())
        done = saved["done"]
    note(folder, f"from {done} seq {os.environ.get('NODUS_RESTORE_SEQ', 'none')}")
    peers = meet()
    while done < total:
        if os.environ["NODUS_GANG_EPOCH"] == "1" and done == hang:
            (folder / f"hanging-{RANK}").write_text(str(os.getpid()))
            select.select([], [], [])
        done += 1
        agree(peers, done)
        save(done, total)
    note(folder, f"to {done}")
    return 0


def note(folder: Path, text: str) -> None:
    with (folder / f"notes-{RANK}").open("a") as notes:
        notes.write(f"{os.environ['NODUS_GANG_EPOCH']} {os.environ['NODUS_RENDEZVOUS']} {text}\n")


def meet() -> list[socket.socket]:
    """Return the connections: rank 0's to all others, another one's to rank 0."""
    if RANK == 0:
        with socket.create_server((HOST, int(PORT))) as server:
            return [server.accept()[0] for _ in range(SIZE - 1)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:  # rank 0 may not listen yet
        with suppress(ConnectionRefusedError):
            return [socket.create_connection((HOST, int(PORT)))]
        select.select([], [], [], 0.05)
    sys.exit(7)


def agree(peers: list[socket.socket], done: int) -> None:
    """Exchange the step with every peer; all must be at the same one."""
    for peer in peers:
        peer.sendall(f"{done}\n".encode())
    for peer in peers:
        line = b""
        while not line.endswith(b"\n"):
            line += peer.recv(64) or sys.exit(6)
        if int(line) != done:
            sys.exit(5)


def save(done: int, total: int) -> None:
    """Save, and wait for the answer: it comes once every rank has saved."""
    state = Path("state")
    state.mkdir(exist_ok=True)
    (state / "state.json").write_text(json.dumps({"done": done}))
    progress = Path(os.environ["NODUS_PROGRESS"])
    answer = progress.with_name("answers") / f"at-{done}"
    line = {"checkpoint": {"dir": "state"}, "completed": done, "total": total, "id": answer.name}
    with progress.open("w") as fifo:
        fifo.write(json.dumps(line) + "\n")
    while not answer.exists():
        select.select([], [], [], 0.01)
    if not json.loads(answer.read_text())["committed"]:
        sys.exit(8)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *(int(one) for one in sys.argv[2:])))
