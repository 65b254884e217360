"""A program's own side of its channel, and a report server that commits when a test says so."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.runner.conftest import Bench
from tests.runner.report_server import Reply, Report

from nodus_api.runner import files

OUT_OF_SEQUENCE = {
    "kind": "Status",
    "reason": "Conflict",
    "code": 409,
    "message": "out of sequence",
}


def refusal(last_seq: int) -> Reply:
    """Answer as the report server does to a checkpoint that does not follow."""
    cause = {"reason": "OutOfSequence", "field": "lastSeq", "message": str(last_seq)}
    return 409, {**OUT_OF_SEQUENCE, "details": {"causes": [cause]}}


@dataclass
class Ledger:
    """A slot: starts programs, and commits what follows its last seq while `committing`."""

    last_seq: int = 0
    committing: bool = True
    orders: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, report: Report) -> Reply:
        body: dict[str, Any] = {"orders": self.orders}
        match report["kind"]:
            case "canStart":
                return 200, {**body, "granted": True, "lastSeq": self.last_seq}
            case "checkpoint":
                return self._verdict(report["seq"], body)
            case _:
                return 200, body

    def _verdict(self, seq: int, body: dict[str, Any]) -> Reply:
        if seq == self.last_seq + 1 and self.committing:
            self.last_seq = seq
        if seq == self.last_seq:
            return 200, {**body, "committed": seq}
        if seq == self.last_seq + 1:
            return 200, {**body, "retryMs": 20}
        return refusal(self.last_seq)


@dataclass
class Side:
    """What a program would do, done by the test in its stead."""

    channel: Path

    def say(self, **line: Any) -> None:
        with (self.channel / "progress").open("w") as fifo:
            fifo.write(json.dumps(line) + "\n")

    def committed(self) -> str | None:
        path = self.channel / "committed"
        return path.read_text().strip() if path.exists() else None

    def answer(self, id: str) -> dict[str, Any] | None:
        return files.read_json(self.channel / "answers" / id)


async def a_program(bench: Bench, **changes: Any) -> Side:
    """Start a program that waits for the file `go`; its slot's store lies beside the machine."""
    go = bench.root / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done"
    bench.prepare("/bin/sh", "-c", script, **keeping(bench), **{"heartbeat": 0.05, **changes})
    await bench.run()
    await bench.server.wait_for("started")
    return Side(bench.directory / files.CHANNEL)


def keeping(bench: Bench) -> dict[str, str]:
    """Return the fields of an intent by which a machine can keep checkpoints."""
    return {"checkpoints": str(store(bench)), "copies": str(bench.root / "copies")}


def store(bench: Bench) -> Path:
    return bench.root / "store" / "0"


def kept(bench: Bench, epoch: int = 1) -> list[str]:
    """Return what lies in the store of an epoch, hidden copies too."""
    folder = store(bench) / str(epoch)
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def a_state(folder: Path, text: str = "weights") -> Path:
    """Make a directory worth saving."""
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    (folder / "inner" / "data").write_text(text)
    link = folder / "latest"
    if not link.is_symlink():
        link.symlink_to("inner/data")
    return folder
