"""The data directory of `nodus up`: made, checked, locked, and what it holds."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nodus_api.cli.errors import Refused
from nodus_api.cli.options import DATABASE_URL_FILE


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The paths below D."""

    root: Path

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return self.root / "run"

    @property
    def certs(self) -> Path:
        """CA, leaf and their keys."""
        return self.root / "certs"

    @property
    def ca(self) -> Path:
        """The CA that clients trust."""
        return self.root / "ca.crt"

    @property
    def token(self) -> Path:
        """The admin token, 0600."""
        return self.root / "token"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig, 0600."""
        return self.root / "kubeconfig"

    @property
    def database_url(self) -> Path:
        """Where the database is while `nodus up` runs, 0600."""
        return self.root / DATABASE_URL_FILE

    @property
    def runner_socket(self) -> Path:
        """Where runners of this machine report."""
        return self.run / "runner.sock"

    @property
    def machines(self) -> Path:
        """The local supplier's machines."""
        return self.root / "machines"

    @property
    def logs(self) -> Path:
        """Log files of `nodus demo`."""
        return self.root / "logs"

    def write_private(self, path: Path, text: str) -> None:
        """Replace a file of mode 0600 in one step."""
        part = path.with_name(f".{path.name}.new")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        part.replace(path)


def open_data_directory(root: Path) -> DataDirectory:
    """Make D if it is missing, and check that it can be written.

    As root it is 0711, since the database's own account must pass through it. Raises Refused.
    """
    root = root.absolute()
    try:
        missing = [folder for folder in (root, *root.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
        if not root.is_dir():
            raise NotADirectoryError(20, "Not a directory")
        probe = root / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"The data directory {root} cannot be written ({error.strerror}):"
            " give one that this user can write with --data-dir."
        ) from error
    return DataDirectory(root)


def take_lock(directory: DataDirectory) -> IO[str]:
    """Lock D for this `nodus up` until the returned file is closed; no child inherits the lock.

    Raises Refused when another one holds it.
    """
    file = (directory.root / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise Refused(
            f"The data directory {directory.root} is in use by another `nodus up`"
            f"{f' (pid {holder})' if holder else ''}: stop that one, or choose another directory"
            " with --data-dir."
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
