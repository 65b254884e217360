"""The program of the demo's Job: fits STEPS samples, saves as it goes, and checks its result.

Run as `python -m nodus_api.cli.demo.fit FOLDER JOB STEPS SECONDS`. Slot 1 finds its data broken in
the middle of its first epoch and exits 3; slot 2 does not do the last step of its first epoch, but
waits to lose its machine; slot 3 has work without end, until somebody stops it.
"""

import signal
import sys
from pathlib import Path

from nodus_api.cli.demo import decay, work

BROKEN = 3
BROKEN_SLOT = "1"
LOST_SLOT = "2"
ENDLESS_SLOT = "3"
SAVES = 8


def main(folder: Path, job: str, steps: int, seconds: float) -> int:
    """Do what is left of the work, and return the exit code."""
    diary, pace = work.Diary(folder, job), work.Pace(seconds / steps)
    fits = work.restored()
    while len(fits) < steps or diary.slot == ENDLESS_SLOT:
        i = len(fits)
        if (diary.slot, diary.epoch, i) == (BROKEN_SLOT, 1, steps // 2):
            sys.stderr.write("the data of this slot are broken at the first try\n")
            return BROKEN
        if (diary.slot, diary.epoch, i) == (LOST_SLOT, 1, steps - 1):
            while True:  # on a slow machine the drill may come late, but not too late
                signal.pause()
        fits.append(decay.step(i))
        diary.step(i)
        pace.keep()
        if len(fits) % max(steps // SAVES, 1) == 0 and len(fits) < steps:
            work.save(fits, steps)
    return 0 if diary.result(fits) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
