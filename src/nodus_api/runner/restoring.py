"""The checkpoint to go on from, fetched and proven whole before the program starts (SC-143)."""

import errno
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nodus_api.runner.failures import plainly
from nodus_api.runner.final import CHECKPOINT_UNAVAILABLE, INTERNAL_ERROR
from nodus_api.runner.intent import Restore
from nodus_api.runner.trees import BadTree, copy_tree, remove_tree

# What this machine lacks is not the checkpoint's fault: the next machine restores the same one.
_OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The checkpoint lies in its place; `bytes` were read."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFetched:
    """Why the program cannot start: the error of the final report, and a sentence."""

    error: str
    message: str


def fetch(restore: Restore, target: Path, *, store: Path | None) -> Fetched | NotFetched:
    """Copy a checkpoint of `store`, the slot's own, to `target`; what it holds is checked.

    The program gets a copy, so that it cannot spoil the checkpoint for the next epoch.
    """
    source = _in_store(restore.uri, store)
    if source is None:
        return NotFetched(
            error=CHECKPOINT_UNAVAILABLE, message="the checkpoint is not in this slot's store"
        )
    remove_tree(target)
    try:
        measured = copy_tree(source, target)
    except BadTree as error:
        return NotFetched(error=CHECKPOINT_UNAVAILABLE, message=str(error))
    except OSError as error:
        ours = error.errno in _OF_THE_MACHINE
        return NotFetched(
            error=INTERNAL_ERROR if ours else CHECKPOINT_UNAVAILABLE,
            message=f"the checkpoint could not be fetched: {plainly(error)}",
        )
    if measured.sha256 != restore.sha256:
        remove_tree(target)
        return NotFetched(
            error=CHECKPOINT_UNAVAILABLE,
            message=f"the checkpoint is not what was stored: its checksum is {measured.sha256},"
            f" not {restore.sha256}",
        )
    return Fetched(bytes=measured.bytes)


def _in_store(uri: str, store: Path | None) -> Path | None:
    """Return the path of a checkpoint, None if it is none of the store's."""
    try:
        address = urlsplit(uri)
        path = Path(unquote(address.path)).resolve()
        ours = store is not None and path.is_relative_to(store.resolve())
    except (OSError, RuntimeError, ValueError):  # no path, or links in a circle
        return None
    return path if ours and address.scheme == "file" else None
