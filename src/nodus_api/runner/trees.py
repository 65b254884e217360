"""A directory as one value: copied whole to stay, with its size and its checksum (SC-641)."""

import os
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType


class BadTree(Exception):
    """The directory is none, or holds what cannot be kept; a sentence for its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The bytes of all files, and the checksum of the whole in hex."""

    bytes: int
    sha256: str


def copy_tree(source: Path, target: Path) -> Measured:
    """Copy a directory to a place where nothing is, wait for the disk, and measure what was read.

    The checksum is the SHA-256 of one JSON line an entry, in order of their paths' bytes folder
    by folder: its kind, path and mode, and the size and SHA-256 of a file or the target of a
    link. Times and owners are not part of it, and owners' own rights are always set: so a copy
    of a copy has the same checksum. Raises BadTree, OSError; then nothing of the copy is left.
    """
    measured: Measured = _copies().copy_tree(source, target)
    return measured


def remove_tree(path: Path) -> None:
    """Remove a tree as far as that is possible; what is not there is no error."""
    if os.path.lexists(path):
        _copies().remove_tree(path)


def be_ready() -> None:
    """Load what copying needs: a later upgrade may take its file away, and runners outlive one."""
    with suppress(OSError):  # who copies is told
        _copies()


def _copies() -> ModuleType:
    try:
        return import_module("nodus_api.runner.tree_copies")
    except ImportError as error:
        raise OSError(f"no tree can be copied: {error}") from error
