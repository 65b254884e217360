"""The files of a machine's work directory: their names, and how they are written and read."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

INTENT = "intent.json"
"""What to run; written before the runner is spawned."""
TOKEN = "token"  # noqa: S105 - the name of a file, not a secret
"""The runner's token (0600)."""
CA = "ca.crt"
"""The CA of the report server, if it speaks TLS."""
IDENTITY = "runner.json"
"""Which process is the runner; its existence is the claim to the directory."""
SPAWNED = "spawned.json"
"""Which process was spawned as the runner, as its spawner saw it."""
EXIT = "exit.json"
"""The final report, read by the supplier without the network (SC-644)."""
ORDER = "order.json"
"""An order that the supplier passes on; the runner reads it on SIGUSR1."""
DELETING = "deleting"
"""Exists once the supplier has begun to delete the machine."""
RECLAIM = "reclaim.json"
"""When the supplier takes the machine away, once it has announced that."""
UNFIT = "unfit.json"
"""What the host found wrong with the machine; the runner tells it among its checks."""
STDOUT = "stdout.log"
STDERR = "stderr.log"
LOG = "runner.log"
"""The runner's own log."""
RECORDS = (INTENT, IDENTITY, SPAWNED, EXIT, DELETING, RECLAIM)
"""What the supplier reads of a machine."""
WORK = "work"
"""Where the program starts if its spec names no directory."""
CHANNEL = "channel"
"""The folder in which program and runner talk of checkpoints (`channel.Channel`)."""
RESTORE = "restore"
"""The checkpoint that the program goes on from, as it was fetched."""

_RECORD_BYTES = 1 << 26
_NOT_FILES = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""How the opening of a link, a socket, or a device without a driver is refused."""


def write_json(path: Path, value: dict[str, Any], *, durable: bool = False) -> None:
    """Write a JSON object by atomic rename, mode 0600; `durable` waits for the disk."""
    write_text(path, json.dumps(value, ensure_ascii=False, separators=(",", ":")), durable=durable)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a file by atomic rename, mode 0600; `durable` waits for the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.rename(path)
    if durable:
        sync_directory(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file; None if there is no file or it holds none.

    What a program has put in its place is none either: a link, a folder, a FIFO whose opening
    would wait for ever, more than 64 MiB. Raises OSError if that cannot be known: too many open
    files must never look like a machine that is gone.
    """
    try:
        value = json.loads(_content(path))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _content(path: Path) -> bytes:
    """Return what a plain file holds; raises ValueError if it is none or too large, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NOT_FILES:
            raise ValueError(f"{path} is no file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is no file")
    with open(descriptor, "rb") as file:
        content = file.read(_RECORD_BYTES + 1)
    if len(content) > _RECORD_BYTES:
        raise ValueError(f"{path} is too large")
    return content


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
