"""The storage benchmark's machinery against the real product; no figure is judged here."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodus_api.bench import at_scale, commit_to_watch, publishing
from nodus_api.bench.report import Row
from nodus_api.bench.rig import Rig, running
from nodus_api.clock import SystemClock

CLOCK = SystemClock()


@pytest.fixture
async def rig(open_folder: Path) -> AsyncIterator[Rig]:
    folder = open_folder / "bench-storage"
    folder.mkdir(mode=0o711)
    async with running(folder, clock=CLOCK, entropy=os.urandom) as rig:
        yield rig


@pytest.mark.slow  # starts a Postgres, a server, and a replica that measures itself
async def test_every_case_is_measured(rig: Rig) -> None:
    effort = publishing.Effort(rounds=1, attempts=100, seconds=0.1, open_seconds=0.1)
    scale = at_scale.Effort(attempts=600, projects=3, changes=1000, rounds=2, pages=2)
    busy = commit_to_watch.Effort(
        area="busy", rounds=1, commits=3, attempts=60, at_once=50, every=0.05
    )

    rows = await at_scale.at_scale(rig, clock=CLOCK, effort=scale)

    assert len(rows) == 8
    assert all(row.median > 0 for row in rows)
    for measured in (
        await publishing.publish_rate(rig, clock=CLOCK, effort=effort),
        await publishing.cost_with_old_snapshot(rig, clock=CLOCK, effort=effort),
        await commit_to_watch.commit_to_watch(rig, clock=CLOCK, effort=busy),
    ):
        assert all(row.median > 0 for row in measured)
        assert with_ratio(measured)


def with_ratio(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.ratio is not None]
