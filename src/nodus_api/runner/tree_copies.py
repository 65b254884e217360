"""How a tree is copied and measured: apart from `trees`, because most programs save nothing.

The modules for checksums and for removing trees take a tenth of a runner's start to load.
"""

import hashlib
import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from nodus_api.runner.files import sync_directory
from nodus_api.runner.trees import BadTree, Measured

_CHUNK_BYTES = 1 << 20
_DEEPEST = 100
_NO_FILE = "{} is neither a file, a directory nor a link"
_ON_FILES, _ON_FOLDERS = 0o600, 0o700


def copy_tree(source: Path, target: Path) -> Measured:
    """Do what `trees.copy_tree` says."""
    if not source.is_dir():
        raise BadTree(f"there is no directory {source}")
    if target.resolve().is_relative_to(source.resolve()):
        raise BadTree(f"{source} holds the place where checkpoints are kept")
    manifest = _Manifest()
    try:
        _copy_folder(source, target, "", manifest, _DEEPEST)
    except BaseException:
        remove_tree(target)
        raise
    return Measured(bytes=manifest.bytes, sha256=manifest.digest.hexdigest())


def remove_tree(path: Path) -> None:
    """Do what `trees.remove_tree` says."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path, ignore_errors=True)


class _Manifest:
    """What is copied so far, as a running checksum."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = hashlib.sha256()

    def add(self, kind: str, path: str, **details: object) -> None:
        # ASCII with escapes, because a name need not be text.
        line = json.dumps({"kind": kind, "path": path, **details}, sort_keys=True)
        self.digest.update(line.encode("ascii") + b"\n")


def _copy_folder(source: Path, target: Path, path: str, manifest: _Manifest, levels: int) -> None:
    if levels == 0:
        raise BadTree(f"{source} lies too deep: at most {_DEEPEST} folders in one another")
    mode = stat.S_IMODE(source.stat().st_mode) & 0o777 | _ON_FOLDERS
    target.mkdir()
    target.chmod(mode)
    manifest.add("folder", path, mode=mode)
    with os.scandir(source) as found:
        entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        inner = f"{path}/{entry.name}" if path else entry.name
        if entry.is_symlink():
            goal = os.readlink(entry.path)
            os.symlink(goal, target / entry.name)
            manifest.add("link", inner, target=goal)
        elif entry.is_dir(follow_symlinks=False):
            _copy_folder(source / entry.name, target / entry.name, inner, manifest, levels - 1)
        elif entry.is_file(follow_symlinks=False):
            _copy_file(source / entry.name, target / entry.name, inner, manifest)
        else:  # not even opened: a socket cannot be, and a device may act on it
            raise BadTree(_NO_FILE.format(source / entry.name))
    sync_directory(target)


def _copy_file(source: Path, target: Path, path: str, manifest: _Manifest) -> None:
    # Not blocking: it may have become a FIFO, whose opening would wait for a writer for ever.
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(reading, "rb", buffering=0) as origin:
        status = os.fstat(reading)
        if not stat.S_ISREG(status.st_mode):
            raise BadTree(_NO_FILE.format(source))
        mode = stat.S_IMODE(status.st_mode) & 0o777 | _ON_FILES
        digest, size = hashlib.sha256(), 0
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(writing, "wb", buffering=0) as copy:
            os.fchmod(writing, mode)
            while chunk := origin.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                _write(copy.fileno(), chunk)
            os.fsync(writing)
    manifest.bytes += size
    manifest.add("file", path, mode=mode, size=size, sha256=digest.hexdigest())


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
