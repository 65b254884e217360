"""The area `loop`: whole lives on the real scheduler are counted; no figure is judged here."""

import os
from pathlib import Path

import pytest

from nodus_api.bench import looping
from nodus_api.bench.rig import running
from nodus_api.clock import SystemClock

CLOCK = SystemClock()
EFFORT = looping.Effort(attempts=20, live=400, running=10, passes=2)


@pytest.mark.slow  # starts a Postgres and a server, and lives 30 lives
async def test_every_case_is_measured(open_folder: Path) -> None:
    folder = open_folder / "bench-loop"
    folder.mkdir(mode=0o711)
    async with running(folder, clock=CLOCK, entropy=os.urandom) as rig:
        rows = await looping.whole_loop(rig, clock=CLOCK, effort=EFFORT)

    found = {row.case: row for row in rows}
    assert len(found) == 9
    assert all(row.median > 0 for row in rows)
    assert found["published"].target == "2000/s"
    assert found["changes a life"].median > 8  # a life that succeeds is published so often
    assert found["pass over 10 live"].samples == 2
