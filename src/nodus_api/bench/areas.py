"""The areas of the benchmark, and how a run goes through them."""

import os
import platform
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

from nodus_api.bench import at_scale, looping, placing, publishing
from nodus_api.bench import commit_to_watch as delay
from nodus_api.bench.report import Report, Row
from nodus_api.bench.rig import Rig, running
from nodus_api.bench.soak.report import SoakReport
from nodus_api.bench.soak.run import Plan, soak
from nodus_api.clock import Clock

Area = Callable[[Rig, Clock, bool], Awaitable[list[Row]]]
Seeded = Callable[[int], Random]
PureArea = Callable[[Clock, bool, Seeded], list[Row]]
"""An area that computes only, without a product that was started for it."""


async def _delay(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = delay.FULL if full else delay.QUICK
    return await delay.commit_to_watch(rig, clock=clock, effort=effort)


async def _busy(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = delay.BUSY_FULL if full else delay.BUSY_QUICK
    return await delay.commit_to_watch(rig, clock=clock, effort=effort)


async def _publish(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = publishing.FULL if full else publishing.QUICK
    return await publishing.publish_rate(rig, clock=clock, effort=effort)


async def _snapshot(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = publishing.FULL if full else publishing.QUICK
    return await publishing.cost_with_old_snapshot(rig, clock=clock, effort=effort)


async def _attempts(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = at_scale.FULL if full else at_scale.QUICK
    return await at_scale.at_scale(rig, clock=clock, effort=effort)


async def _loop(rig: Rig, clock: Clock, full: bool) -> list[Row]:
    effort = looping.FULL if full else looping.QUICK
    return await looping.whole_loop(rig, clock=clock, effort=effort)


def _placement(clock: Clock, full: bool, seeded: Seeded) -> list[Row]:
    effort = placing.FULL if full else placing.QUICK
    return placing.placements(clock=clock, effort=effort, seeded=seeded)


_MEASURED: dict[str, Area] = {
    delay.AREA: _delay,
    delay.BUSY_AREA: _busy,
    publishing.PUBLISH_AREA: _publish,
    publishing.SNAPSHOT_AREA: _snapshot,
    at_scale.AREA: _attempts,
    looping.AREA: _loop,
}
_COMPUTED: dict[str, PureArea] = {placing.AREA: _placement}
AREAS = (*_MEASURED, *_COMPUTED)
STORAGE = (
    delay.BUSY_AREA,
    publishing.PUBLISH_AREA,
    publishing.SNAPSHOT_AREA,
    at_scale.AREA,
)
"""What storage, feed and watch cache must hold."""


async def measure(
    areas: Sequence[str],
    *,
    full: bool,
    clock: Clock,
    entropy: Callable[[int], bytes],
    seeded: Seeded,
) -> Report:
    """Run the named areas, each that needs a product on one started for it; nothing is left behind.

    Raises NotMeasured or a storage error.
    """
    rows: list[Row] = []
    for name in areas:
        if name in _COMPUTED:
            rows += _COMPUTED[name](clock, full, seeded)
            continue
        folder = _open_folder()
        try:
            async with running(folder, clock=clock, entropy=entropy) as rig:
                rows += await _MEASURED[name](rig, clock, full)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return Report(machine=_machine(), rows=tuple(rows))


async def run_soak(
    plan: Plan,
    *,
    clock: Clock,
    entropy: Callable[[int], bytes],
    chance: Callable[[], float],
    tell: Callable[[str], None],
) -> SoakReport:
    """Run a soak; its logs stay in their folder if anything went wrong, else nothing is left.

    Raises NotMeasured or a storage error.
    """
    folder = _open_folder()
    held = False
    try:
        report = await soak(plan, folder, clock=clock, entropy=entropy, chance=chance, tell=tell)
        held = report.held
    finally:
        if held:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            tell(f"The logs are kept in {folder}.")
    return report


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
