"""The areas of the benchmark, and how a run goes through them."""

import os
import platform
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from nodus_api.bench import commit_to_watch as delay
from nodus_api.bench.report import Report, Row
from nodus_api.bench.rig import Rig, running
from nodus_api.clock import Clock

Area = Callable[[Rig, Clock, bool], Awaitable[list[Row]]]


async def _delay(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = delay.FULL if full else delay.QUICK
    return await delay.commit_to_watch(rig, clock=clock, effort=effort)


AREAS: dict[str, Area] = {delay.AREA: _delay}


async def measure(
    areas: Sequence[str], *, full: bool, clock: Clock, entropy: Callable[[int], bytes]
) -> Report:
    """Run the named areas, each on a product started for it alone; nothing is left behind.

    Raises NotMeasured or a storage error.
    """
    rows: list[Row] = []
    for name in areas:
        folder = _open_folder()
        try:
            async with running(folder, clock=clock, entropy=entropy) as rig:
                rows += await AREAS[name](rig, clock, full)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return Report(machine=_machine(), rows=tuple(rows))


def _open_folder() -> Path:
    """Make a folder below one that other accounts may traverse (storage.md section 10)."""
    parent = "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108 -- made by mkdtemp
    folder = Path(tempfile.mkdtemp(prefix="nodus-bench-", dir=parent))
    folder.chmod(0o711)
    return folder


def _machine() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": str(os.cpu_count()),
    }
