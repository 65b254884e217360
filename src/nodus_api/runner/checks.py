"""What the runner sees of its machine before the program starts, and what is not as promised."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodus_api.runner.files import UNFIT, read_json
from nodus_api.runner.intent import RunnerIntent

_GIB = 1024**3


def checks(intent: RunnerIntent, directory: Path) -> dict[str, Any]:
    """Return the `checks` of the report `registered`; `failed` is there if one failed (SC-012).

    The disk is the promise that a host shared by many breaks by itself: what others write counts
    against what was free when the machine was granted.
    """
    seen: dict[str, Any] = {"cpus": len(os.sched_getaffinity(0))}
    failed = [*_disk(intent, directory), *_found_unfit(directory)]
    return seen | ({"failed": failed} if failed else {})


def _disk(intent: RunnerIntent, directory: Path) -> list[str]:
    if intent.disk_bytes is None:
        return []
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if free >= intent.disk_bytes:
        return []
    return [f"disk: {intent.disk_bytes / _GIB:.1f} GiB asked for, {free / _GIB:.1f} GiB free"]


def _found_unfit(directory: Path) -> list[str]:
    """Return what the host itself says is wrong with the machine (SC-630)."""
    with suppress(OSError):  # what cannot be read was not found
        failed = (read_json(directory / UNFIT) or {}).get("failed")
        if isinstance(failed, list):
            return [str(one) for one in failed]
    return []
