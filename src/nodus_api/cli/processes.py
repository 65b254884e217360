"""Processes known by pid and start: their records in D/run, and how one is ended.

A pid alone may have been given to another program; with the start ticks of /proc
(field 22 of stat) it names one process for as long as the machine runs.
"""

import logging
import os
import signal
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nodus_api.clock import Clock

_MARK = b"nodus_api"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process of this machine."""

    pid: int
    start_ticks: int


def identify(pid: int) -> ProcessId | None:
    """Return the living process of this pid, or None (a zombie does not live)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before may hold spaces
    return None if fields[0] in "ZX" else ProcessId(pid, int(fields[19]))


def record(run_dir: Path, name: str, pid: int) -> None:
    """Write D/run/NAME.pid."""
    process = identify(pid)
    if process is not None:
        part = run_dir / f".{name}.pid"
        part.write_text(f"{process.pid} {process.start_ticks}\n")
        part.replace(run_dir / f"{name}.pid")


def forget(run_dir: Path, name: str) -> None:
    """Remove D/run/NAME.pid."""
    (run_dir / f"{name}.pid").unlink(missing_ok=True)


def recorded(run_dir: Path) -> dict[str, ProcessId]:
    """Return the recorded processes that still live, pid and start ticks both as recorded."""
    found = {}
    for path in sorted(run_dir.glob("*.pid")):
        process = _read(path)
        if process is not None and identify(process.pid) == process:
            found[path.stem] = process
    return found


def end_orphans(
    run_dir: Path, clock: Clock, *, keep: Collection[str] = (), grace: float = 10.0
) -> list[str]:
    """End what a killed `nodus up` left running, and return the names; `grace` in seconds.

    Parts named in `keep` are left to be adopted, and so is what is no process of ours.
    """
    orphans = {
        name: process
        for name, process in recorded(run_dir).items()
        if name not in keep and _is_ours(process.pid)
    }
    for name, process in orphans.items():
        _log.warning(
            "A process of an earlier `nodus up` is ended", extra={"part": name, "pid": process.pid}
        )
        _signal(process, signal.SIGTERM)
    deadline = clock.monotonic() + grace
    for process in orphans.values():
        if not await_end(process, clock, deadline):
            _signal(process, signal.SIGKILL)
            await_end(process, clock, clock.monotonic() + 5.0)
    for path in run_dir.glob("*.pid"):
        if path.stem not in keep:
            path.unlink(missing_ok=True)
    return list(orphans)


def await_end(process: ProcessId, clock: Clock, deadline: float) -> bool:
    """Wait until a process that is not our child has ended; False if it lives past `deadline`."""
    pause = threading.Event()
    while identify(process.pid) == process:
        if clock.monotonic() >= deadline:
            return False
        pause.wait(0.02)
    return True


def _signal(process: ProcessId, number: signal.Signals) -> None:
    if identify(process.pid) == process:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _read(path: Path) -> ProcessId | None:
    try:
        pid, ticks = path.read_text().split()
        return ProcessId(int(pid), int(ticks))
    except (OSError, ValueError):
        return None


def _is_ours(pid: int) -> bool:
    # D/run belongs to the database's account: its files alone shall not choose whom root kills
    try:
        return _MARK in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
