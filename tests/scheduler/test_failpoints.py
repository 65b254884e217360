"""The scheduler is killed, refused or cancelled at any statement, commit and supplier call (G3)."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import asyncpg
import pytest
from tests.conftest import START, SharedDatabases
from tests.scheduler.failpoints import FAULTS
from tests.scheduler.life_scripts import LIVES, Life
from tests.scheduler.lives import Reference, Telling, ToldAlready
from tests.scheduler.mortal_world import MortalWorld, TrueSupplier
from tests.scheduler.saved_rows import RowKeeper, an_onlooker
from tests.scheduler.sweeping import (
    SEED,
    Run,
    a_seed,
    chosen,
    is_asked,
    is_crash,
    lateness,
    my_part,
    told_apart,
)

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Role

pytestmark = pytest.mark.slow  # many whole lives
RUNS = 2
"""Runs a life in every test run; which ones, the seed decides."""
SHOWN = 5
SAID_EVERY = 25
"""A sweep of more runs says after so many how far it is."""
GAP_SECONDS = 45.0
"""Without a scheduler after a death, in some runs: limits move then (SC-614)."""
LATE_EVERY = 4
REPLAYED_EVERY = 2
"""In one of so many runs a life that can be is told with each report sent twice, too."""
TO_THE_END_EVERY = 10
"""So many runs are told to the end, even when nothing tells them from the reference any more."""


@pytest.fixture
async def keeper(clean_database: str) -> AsyncIterator[RowKeeper]:
    connection = await asyncpg.connect(clean_database)
    yield RowKeeper(connection)
    await connection.close()


@dataclass
class Sweep:
    """The runs of one life."""

    life: Life
    keeper: RowKeeper
    databases: SharedDatabases
    known: set[tuple[str, float]] = field(default_factory=set)
    """States left by deaths, from which the life was told on; and the gaps."""

    def world(self, gap: float = 0.0) -> MortalWorld:
        clock = self.databases.clock = ManualClock(START)
        pool = self.databases.by_role[Role.SCHEDULER]
        return MortalWorld(pool, clock, TrueSupplier(clock), gap=gap)

    async def reference(self, url: str = "") -> Reference:
        """Tell the life without a fault; with the database's address, see what deaths leave."""
        telling = Telling(self.world(), self.life, self.keeper)
        if not url:
            return await telling.tell()
        with an_onlooker(url) as onlooker:
            return await telling.tell(onlooker)

    async def every_report_twice(self, reference: Reference) -> None:
        """Tell the life with each report sent twice: it is the same as with each sent once."""
        world = self.world()
        await self.keeper.restore(reference.kept[0].rows)
        world.replay = True
        twice = await Telling(world, self.life, self.keeper).tell()
        assert twice.documents == reference.documents
        assert twice.standings == reference.standings

    async def run(self, reference: Reference, run: Run, *, late: bool, to_the_end: bool) -> bool:
        world = self.world(GAP_SECONDS if late else 0.0)
        telling = Telling(world, self.life, self.keeper, reference)
        try:
            return await telling.tell_from(run, to_the_end=to_the_end, known=self.known)
        except BaseException as error:
            error.add_note(f"life {self.life.name}, {run}; late {late}; hit {world.points.hit}")
            raise


def all_runs(reference: Reference) -> list[Run]:
    return [
        Run(moment, number, site, fault)
        for moment, sites in enumerate(reference.sites)
        for number, site in enumerate(sites)
        for fault in FAULTS[site.kind]
    ]


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
async def test_a_fault_anywhere_changes_nothing_but_time(  # P-05, P-07..P-11, SC-606, SC-641
    life: Life,
    keeper: RowKeeper,
    clean_database: str,
    shared_databases: SharedDatabases,
) -> None:
    seed = a_seed()
    sweep = Sweep(life, keeper, shared_databases)
    reference = await sweep.reference(clean_database if is_crash() else "")
    runs = told_apart(reference.deaths) if is_crash() else all_runs(reference)
    picked = my_part(runs if is_crash() else chosen(runs, seed, RUNS))
    tally, failures = Counter[str](), list[Exception]()
    say(describe(life, reference, len(picked), len(runs), seed))
    ways = [(run, late) for run in picked for late in lateness(dice_of(seed, run), LATE_EVERY)]
    for number, (run, late) in enumerate(ways, 1):
        every = TO_THE_END_EVERY * (4 if is_crash() else 1)
        whole = dice_of(seed, run).randrange(every) == 0
        tally[run.fault.value] += 1
        try:
            tally["told to the end"] += await sweep.run(reference, run, late=late, to_the_end=whole)
        except ToldAlready:
            tally["left a state that was told on from"] += 1
        except Exception as error:  # noqa: BLE001 - whatever a run comes to, the next is tried
            failures.append(error)
            say(f"FAILED {life.name}, {run}; late {late}: {error!r:.2000}")
        if number % SAID_EVERY == 0 or number == len(ways):
            done = f"{number} of {len(ways)} runs, {len(failures)} failed"
            say(f"life {life.name}: {done}, {dict(tally)}")
    if life.replayed and seed % REPLAYED_EVERY == 0 and not is_asked():
        await sweep.every_report_twice(reference)
    if failures:
        raise ExceptionGroup(f"{len(failures)} runs; repeat with {SEED}={seed}", failures[:SHOWN])


def dice_of(seed: int, run: Run) -> random.Random:
    """Return a run's own dice: they fall the same whichever other runs are made."""
    return random.Random(f"{seed} {run}")  # noqa: S311 - a choice of tests


def describe(life: Life, reference: Reference, picked: int, runs: int, seed: int) -> str:
    """Return what is tried."""
    sites = Counter(site.kind for moment in reference.sites for site in moment)
    kinds = ", ".join(f"{number} {kind}s" for kind, number in sorted(sites.items()))
    some = f"{picked} of {runs} runs"
    if reference.deaths:
        some += f", one for each state that {len(reference.deaths)} deaths leave"
    return f"life {life.name}: {sites.total()} failpoints ({kinds}); {some}; {SEED}={seed}"


def say(what: str) -> None:
    """Say how far a sweep is; `pytest -rP` or `-s` shows it."""
    print(what, flush=True)  # noqa: T201
