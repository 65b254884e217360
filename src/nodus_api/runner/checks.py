"""What the runner sees of its machine before the program starts, and what is not as promised."""

import os
import shutil
from pathlib import Path
from typing import Any

from nodus_api.runner.intent import RunnerIntent

_GIB = 1024**3


def checks(intent: RunnerIntent, directory: Path) -> dict[str, Any]:
    """Return the `checks` of the report `registered`; `failed` is there if one failed (SC-012).

    The disk is the promise that a host shared by many breaks by itself: what others write counts
    against what was free when the machine was granted.
    """
    seen: dict[str, Any] = {"cpus": len(os.sched_getaffinity(0))}
    failed = _disk(intent, directory)
    return seen | ({"failed": [failed]} if failed else {})


def _disk(intent: RunnerIntent, directory: Path) -> str | None:
    if intent.disk_bytes is None:
        return None
    free = shutil.disk_usage(directory).free
    if free >= intent.disk_bytes:
        return None
    return f"disk: {intent.disk_bytes / _GIB:.1f} GiB asked for, {free / _GIB:.1f} GiB free"
