"""Where a machine's files lie, and how a work directory comes and goes in one step each."""

import errno
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from nodus_api.runner import files
from nodus_api.runner.files import read_json, write_json, write_text
from nodus_api.runner.trees import remove_tree

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_STAGING = ".new"
_TRASH = ".trash"
_TOMBSTONES = ".gone"
_WARM = ".warm"
_CHECKPOINTS = "checkpoints"
_TOMBSTONE_LIFE = timedelta(days=1)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How a system refuses to write where there is no room left."""

UNPLACED = ".unplaced"
"""Where, beside the checkpoints, each machine makes the copies that become some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What stays of a deleted machine: when it was seen to be gone, None while it is not."""

    gone_at: datetime | None


class WorkDirectories:
    """The machines of one root: `root/KEY/`, and what is coming and going beside them.

    `root/checkpoints/WORKLOAD/SLOT/EPOCH/SEQ` outlives the machines (SC-126).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoints = root / _CHECKPOINTS
        for folder in (root, *(root / name for name in (_STAGING, _TRASH, _TOMBSTONES, _WARM))):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def valid(self, key: str) -> bool:
        """Whether a key can name a machine here; no other ever reaches the file system."""
        return _KEY.fullmatch(key) is not None and key != _CHECKPOINTS

    def path(self, key: str) -> Path:
        """Return the work directory of a key."""
        return self.root / key

    def exists(self, key: str) -> bool:
        """Whether the machine's directory is there; raises OSError if that cannot be known.

        A file or a link in its place was put there by the program, and leads elsewhere.
        """
        return self.valid(key) and _is_directory(self.path(key))

    def remains(self, key: str) -> bool:
        """Whether the directory or a part of it is there; raises OSError if not known."""
        return _there(self.path(key)) or _there(self.root / _TRASH / key)

    def machines(self) -> list[str]:
        """Return the keys of all machines, in order."""
        return sorted(name for name in os.listdir(self.root) if self.valid(name))

    def make(self, key: str, intent: dict[str, Any], token: str) -> None:
        """Make a machine's directory, whole or not at all; the caller holds the lock."""
        staged = self.stage(key)
        write_json(staged / files.INTENT, intent)
        write_text(staged / files.TOKEN, token)
        staged.rename(self.path(key))

    def stage(self, key: str) -> Path:
        """Say that a machine is being made, before anything of it is; the caller holds the lock."""
        staged = self.root / _STAGING / key
        staged.mkdir(mode=0o700, exist_ok=True)
        return staged

    def abandoned(self) -> list[str]:
        """Return the keys of machines that were never made whole; the caller holds the lock.

        Whoever makes one holds it, too: its process has died.
        """
        return sorted(os.listdir(self.root / _STAGING))

    def unstage(self, key: str) -> None:
        """Remove what there is of a machine that was never made whole."""
        shutil.rmtree(self.root / _STAGING / key, ignore_errors=True)

    def warmth(self, key: str) -> Path:
        """Return where it lies what is known of a machine between two tenants (SC-343)."""
        return self.root / _WARM / key

    def vacate(self, key: str) -> None:
        """Put an empty directory in the place of a machine's; the caller holds the lock."""
        if self.exists(key) and os.listdir(self.path(key)):
            self.discard(key)
        self.path(key).mkdir(mode=0o700, exist_ok=True)

    def has_trash(self, key: str) -> bool:
        """Whether something that was discarded is not deleted yet."""
        return _there(self.root / _TRASH / key) or _there(self.checkpoints / UNPLACED / key)

    def discard(self, key: str) -> None:
        """Take a machine's directory away in one step; `empty_trash` frees its space."""
        with suppress(FileNotFoundError):
            self.path(key).rename(self.root / _TRASH / key)

    def empty_trash(self, key: str) -> None:
        """Delete what was discarded, and copies that the machine did not complete.

        Slow for a large tree, so not for an event loop.
        """
        remove_tree(self.checkpoints / UNPLACED / key)
        _remove(self.root / _TRASH / key)

    def hollow(self, key: str) -> None:
        """Delete all that a machine holds but the supplier's records of it. Slow, as above.

        A program that filled the disk leaves no room even for the note that its machine is gone.
        """
        remove_tree(self.checkpoints / UNPLACED / key)
        if self.exists(key):
            for name in sorted(set(os.listdir(self.path(key))) - set(files.RECORDS)):
                _remove(self.path(key) / name)

    def kept(self) -> list[UUID]:
        """Return the workloads that have checkpoints here, in order."""
        found = []
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.checkpoints)):
                with suppress(ValueError):  # not the folder of a workload
                    found.append(UUID(name))
        return found

    def drop(self, workload: UUID) -> bool:
        """Delete a workload's checkpoints; return whether nothing is left. Slow for large ones."""
        folder = self.checkpoints / str(workload)
        remove_tree(folder)
        return not _there(folder)

    def open_up(self, key: str) -> None:
        """Give a work directory back to its owner, which is us: its program may have closed it."""
        directory = self.path(key)
        with suppress(FileNotFoundError, NotADirectoryError):
            if not _is_directory(directory):
                return
            directory.chmod(0o700)
            for name in files.RECORDS:
                with suppress(FileNotFoundError):
                    if not (directory / name).is_symlink():
                        (directory / name).chmod(0o600)

    def condemn(self, key: str, at: datetime) -> datetime:
        """Mark a machine as being deleted; return since when it is, at most `at`.

        Later it cannot be, but for a clock that was set back or a program that wrote the mark.
        """
        mark = self.path(key) / files.DELETING
        with suppress(FileExistsError, FileNotFoundError):
            descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with _room_or_not(), open(descriptor, "w", encoding="ascii") as file:
                json.dump({"at": at.isoformat()}, file)
        return min(_moment(mark, "at") or at, at)

    def condemned(self, key: str) -> bool:
        """Whether the machine's deletion has begun."""
        return (self.path(key) / files.DELETING).exists()

    def bury(self, key: str, gone_at: datetime | None) -> None:
        """Write the tombstone; a moment once written stays."""
        known = self.tombstone(key)
        if known is not None and known.gone_at is not None:
            return
        stamp = gone_at.isoformat() if gone_at else None
        write_json(self.root / _TOMBSTONES / key, {"goneAt": stamp}, durable=True)

    def tombstone(self, key: str) -> Tombstone | None:
        """Return the tombstone of a key, None if it was never deleted, or long ago."""
        path = self.root / _TOMBSTONES / key
        return Tombstone(gone_at=_moment(path, "goneAt")) if _there(path) else None

    def forget(self, now: datetime) -> None:
        """Remove the tombstones that are older than a day."""
        oldest = (now - _TOMBSTONE_LIFE).timestamp()
        for entry in os.scandir(self.root / _TOMBSTONES):
            with suppress(FileNotFoundError):
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)


@contextmanager
def _room_or_not() -> Iterator[None]:
    """Let a full disk pass: the name alone is the mark, which holds no moment then."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise


def _remove(path: Path) -> None:
    """Delete a file or a tree, whatever its program made of it; raises OSError."""
    while _there(path):
        try:
            if not _is_directory(path):
                path.unlink()
                continue
            shutil.rmtree(path)
        except FileNotFoundError:
            continue  # another deletion is at the same tree
        except PermissionError:  # the program has closed its own folders
            for folder, _, _ in os.walk(path):
                Path(folder).chmod(0o700)
            shutil.rmtree(path)
        except RecursionError:
            _flatten(path)


def _flatten(top: Path) -> None:
    """Lift every folder of a tree to right below its top; files go on the way.

    For trees too deep for a recursion or a path. By descriptors, which no link leads astray.
    """
    names = itertools.count()
    above = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        waiting = _folders(above)
        while waiting:
            folder = os.open(
                waiting.pop(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above
            )
            try:
                for name in _folders(folder):
                    lifted = f"{top.name}.{next(names)}"
                    os.rename(name, lifted, src_dir_fd=folder, dst_dir_fd=above)
                    waiting.append(lifted)
            finally:
                os.close(folder)
    finally:
        os.close(above)


def _folders(descriptor: int) -> list[str]:
    """Return the folders in a folder, and remove what else is in it."""
    found = []
    for name in os.listdir(descriptor):
        if stat.S_ISDIR(os.lstat(name, dir_fd=descriptor).st_mode):
            found.append(name)
        else:
            os.unlink(name, dir_fd=descriptor)
    return found


def _moment(path: Path, name: str) -> datetime | None:
    """Return the moment that a record holds; None if it holds none."""
    try:
        moment = datetime.fromisoformat((read_json(path) or {})[name])
    except (KeyError, TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _there(path: Path) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True
