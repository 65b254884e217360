"""Which of all faults at all sites a test run tries: some, by a seed it prints, or every one."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.scheduler.failpoints import Fault, Kind, Site

SWEEP = "NODUS_SWEEP"
"""`full`: every site with every fault. A number: so many runs. A text: those whose name has it."""
SEED = "NODUS_SWEEP_SEED"


@dataclass(frozen=True)
class Run:
    """One fault at one site of one moment."""

    moment: int
    number: int
    site: Site
    fault: Fault

    def __str__(self) -> str:
        return f"moment {self.moment}, site {self.number} ({self.site}): {self.fault}"


def a_seed() -> int:
    """Return the seed that is asked for, else another one each time."""
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(1_000_000))


def chosen(runs: Sequence[Run], seed: int, number: int) -> list[Run]:
    """Return the runs to make, by default so many: half of them where something takes effect."""
    wanted = os.environ.get(SWEEP, str(number))
    if wanted == "full":
        return list(runs)
    if not wanted.isdigit():
        return [run for run in runs if wanted in str(run)]
    half, dice = int(wanted) // 2, random.Random(seed)  # noqa: S311 - a choice of tests
    effects = [run for run in runs if run.site.kind is not Kind.STATEMENT]
    others = [run for run in runs if run.site.kind is Kind.STATEMENT]
    return [
        *dice.sample(effects, min(half, len(effects))),
        *dice.sample(others, min(half, len(others))),
    ]
