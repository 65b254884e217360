"""Which of all faults at all sites a test run tries: some, by a seed it prints, or every one."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.scheduler.failpoints import Fault, Kind, Site

SWEEP = "NODUS_SWEEP"
"""`crash`: death at every site; each state that deaths leave is told on from, once with the next
leader there at once and once late. `full`: every site with every fault. A number: so many runs. A
text: those whose name has it.
"""
CRASH = "crash"
SEED = "NODUS_SWEEP_SEED"
PART = "NODUS_SWEEP_PART"
"""`1/4`: the first of four parts of the runs, to be made at the same time or one by one."""
LATE = "NODUS_SWEEP_LATE"
"""`0` or `1`: no run, or every one, is without a scheduler for some time after a death."""


@dataclass(frozen=True)
class Run:
    """One fault at one site of one moment."""

    moment: int
    number: int
    site: Site
    fault: Fault
    state: str = ""
    """What it leaves, if that was seen before."""

    def __str__(self) -> str:
        return f"moment {self.moment}, site {self.number} ({self.site}): {self.fault}"


def a_seed() -> int:
    """Return the seed that is asked for, else another one each time."""
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(1_000_000))


def is_asked() -> bool:
    """Return whether a sweep is asked for, not what every test run tries."""
    return SWEEP in os.environ


def is_crash() -> bool:
    """Return whether death at every site is asked for, and nothing else."""
    return os.environ.get(SWEEP) == CRASH


def told_apart(deaths: Sequence[Run]) -> list[Run]:
    """Return one death for each state that deaths leave: from equal states equal things follow."""
    return list({death.state: death for death in reversed(deaths)}.values())[::-1]


def my_part(runs: Sequence[Run]) -> list[Run]:
    """Return those of the runs that this process shall make."""
    mine, _, parts = (os.environ.get(PART) or "1/1").partition("/")
    return list(runs[int(mine) - 1 :: int(parts)])


def lateness(dice: random.Random, every: int) -> Sequence[bool]:
    """Return whether nobody leads for some time after the deaths of a run; both ways in a crash."""
    drawn, given = dice.randrange(every) == 0, os.environ.get(LATE)
    if given is not None:
        return [given == "1"]
    return [False, True] if is_crash() else [drawn]


def chosen(runs: Sequence[Run], seed: int, number: int) -> list[Run]:
    """Return the runs to make, by default so many: half of them where something takes effect."""
    wanted = os.environ.get(SWEEP, str(number))
    if wanted == "full":
        return list(runs)
    if wanted == CRASH:
        return [run for run in runs if run.fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER)]
    if not wanted.isdigit():
        return [run for run in runs if wanted in str(run)]
    half, dice = int(wanted) // 2, random.Random(seed)  # noqa: S311 - a choice of tests
    effects = [run for run in runs if run.site.kind is not Kind.STATEMENT]
    others = [run for run in runs if run.site.kind is Kind.STATEMENT]
    return [
        *dice.sample(effects, min(half, len(effects))),
        *dice.sample(others, min(half, len(others))),
    ]
