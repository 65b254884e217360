"""Who runs a work directory: (pid, start ticks, boot id), the runner's claim to it (SC-710)."""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from nodus_api.runner.files import DELETING, IDENTITY, SPAWNED, read_json, write_json
from nodus_api.runner.session import ProcessStat, age_of, boot_id, process_stat
from nodus_api.runner.times import wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process, not mistaken for another after pid reuse or a reboot; it leads its session."""

    pid: int
    start_ticks: int
    boot_id: str
    started_at: datetime

    def process(self) -> ProcessStat | None:
        """Return the process if it is still in the process table, a zombie too."""
        if self.boot_id != boot_id():
            return None
        stat = process_stat(self.pid)
        return stat if stat and stat.start_ticks == self.start_ticks else None

    def session(self) -> int | None:
        """Return its session's number, None if that session cannot have members any more.

        The kernel gives a number away again only when no process, group or session has it: so a
        process that has the pid and other start ticks proves that the session is empty.
        """
        if self.boot_id != boot_id():
            return None
        stat = process_stat(self.pid)
        return self.pid if stat is None or stat.start_ticks == self.start_ticks else None


def identity_of(pid: int) -> Identity:
    """Return the identity of a process that is there, as ourselves or a child; raises OSError."""
    stat = process_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"/proc does not show process {pid}")
    return Identity(
        pid=stat.pid,
        start_ticks=stat.start_ticks,
        boot_id=boot_id(),
        started_at=wall() - timedelta(seconds=age_of(stat)),
    )


def claim(directory: Path) -> bool:
    """Make this process the directory's runner; False if another is, or the machine is deleted.

    The record is linked into place, so that it is whole and only one process can win. The mark of
    deletion is read after that and written before the deleter reads the record: one of the two
    sees the other.
    """
    whole = directory / f"{IDENTITY}.{os.getpid()}"
    try:
        write_identity(whole, identity_of(os.getpid()))
        try:
            os.link(whole, directory / IDENTITY)
        finally:
            whole.unlink(missing_ok=True)
    except (FileExistsError, FileNotFoundError):
        return False
    return not (directory / DELETING).exists()


def write_identity(path: Path, identity: Identity) -> None:
    """Write an identity to a file, whole."""
    record = {
        "pid": identity.pid,
        "startTicks": identity.start_ticks,
        "bootId": identity.boot_id,
        "startedAt": identity.started_at.isoformat(),
    }
    write_json(path, record)


def read_identity(directory: Path) -> Identity | None:
    """Return the identity of the runner that has claimed a directory; None if none has."""
    return _read(directory / IDENTITY)


def read_spawned(directory: Path) -> Identity | None:
    """Return the identity of the runner that was spawned last; None if that is not known."""
    return _read(directory / SPAWNED)


def _read(path: Path) -> Identity | None:
    record = read_json(path)
    if record is None:
        return None
    try:
        identity = Identity(
            pid=int(record["pid"]),
            start_ticks=int(record["startTicks"]),
            boot_id=str(record["bootId"]),
            started_at=datetime.fromisoformat(record["startedAt"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # the program could write the file too
    return identity if identity.pid > 1 and identity.started_at.tzinfo is not None else None
