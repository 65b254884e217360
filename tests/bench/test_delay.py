"""The benchmark's own machinery against the real product; no figure is judged here."""

import os
from pathlib import Path

from nodus_api.bench.commit_to_watch import Effort, commit_to_watch
from nodus_api.bench.rig import running
from nodus_api.clock import SystemClock


async def test_every_change_reaches_both_readers(open_folder: Path) -> None:
    folder = open_folder / "bench"
    folder.mkdir(mode=0o711)
    clock = SystemClock()

    async with running(folder, clock=clock, entropy=os.urandom) as rig:
        effort = Effort(rounds=2, commits=5, attempts=3)
        alone, watch = await commit_to_watch(rig, clock=clock, effort=effort)

    assert (alone.case, watch.case) == ("the feed alone", "watch over TLS")
    assert (alone.samples, watch.samples) == (10, 10)
    assert min(alone.median, watch.median) > 0
    assert watch.ratio is not None
