"""Area `attempts`: a replica that holds many Attempts, its memory, load, old lists and pages."""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import cycle, islice

from nodus_api.bench.report import NotMeasured, Row, figure
from nodus_api.bench.rig import Rig
from nodus_api.bench.writer import Writer
from nodus_api.clock import Clock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed

AREA = "attempts"
_BATCH = 500
_FARTHEST = 262_144  # so many changes back the log is asked (storage.md section 6)
_NEAR = 10_000
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured: `changes` on top of so many Attempts in so many projects."""

    attempts: int
    projects: int
    changes: int
    rounds: int
    pages: int


QUICK = Effort(attempts=5000, projects=100, changes=5000, rounds=3, pages=50)
FULL = Effort(attempts=100_000, projects=100, changes=165_000, rounds=5, pages=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked of the replica; revisions are those whose state is listed."""

    url: str
    token: str
    project: str
    in_window: int
    in_log: int
    rounds: int
    pages: int


class ReplicaFailed(NotMeasured):
    """The measuring replica ended without figures."""


async def at_scale(rig: Rig, *, clock: Clock, effort: Effort) -> list[Row]:
    """Measure one replica in a process of its own; the targets are those of 100,000 Attempts.

    Raises ReplicaFailed.
    """
    database = Database(rig.database_url, role=Role.SCHEDULER)
    try:
        writer = Writer(database, AREA)
        now = clock.now().replace(microsecond=0)
        numbers = await writer.fill(effort.attempts, now=now, projects=effort.projects)
        turns = cycle(sorted(numbers, key=_mixed))
        for _ in range(0, effort.changes, _BATCH):
            await writer.change(list(islice(turns, _BATCH)))
        head = await Feed(database, clock=clock).head()
    finally:
        await database.close()
    near = max(head - _NEAR, head - effort.changes // 2)
    far = max(head - _FARTHEST + effort.rounds, head - effort.changes - effort.attempts // 2)
    asked = Questions(
        url=rig.database_url,
        token=rig.token,
        project="default",
        in_window=near,
        in_log=far,
        rounds=effort.rounds,
        pages=effort.pages,
    )
    return _rows(effort, head, asked, await _measured(asked))


def _mixed(no: int) -> int:
    """Return a place in an order that goes through all projects by turns, as busy ones change."""
    return no * 2_654_435_761 % 2**32


async def _measured(asked: Questions) -> Mapping[str, list[float]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "nodus_api.bench.replica"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    answered, _ = await process.communicate(json.dumps(asdict(asked)).encode())
    if process.returncode != 0:
        raise ReplicaFailed(f"the measuring replica ended with exit code {process.returncode}.")
    found: dict[str, list[float]] = json.loads(answered)
    return found


def _rows(
    effort: Effort, head: int, asked: Questions, found: Mapping[str, list[float]]
) -> list[Row]:
    back, near = head - asked.in_log, head - asked.in_window
    held = f"{effort.attempts} Attempts"
    cases = (
        ("load", f"load of {held}", "s", "< 10 s"),
        ("rss", f"memory, {held}, empty ring", "MB", "<= 400 MB"),
        ("window all", f"exact list, {near} changes back, window", "ms", "< 250 ms"),
        ("window project", "the same, one project", "ms", None),
        ("log all", f"exact list, {back} changes back, log", "ms", "< 2000 ms"),
        ("log project", "the same, one project", "ms", "< 200 ms"),
        ("join", "joining 500 documents", "ms CPU", None),
        ("page", "page of 500, no socket", "ms CPU", "< 0.5 ms"),
    )
    return [figure(AREA, case, unit, found[key], target) for key, case, unit, target in cases]
