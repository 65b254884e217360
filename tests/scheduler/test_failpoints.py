"""The scheduler is killed, refused or cancelled at any statement, commit and supplier call (G3)."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest
from tests.conftest import START, FirstRows, SharedDatabases
from tests.scheduler.failpoints import FAULTS, Plan
from tests.scheduler.lives import LIVES, Life, Reference, Telling
from tests.scheduler.mortal_world import MortalWorld, TrueSupplier
from tests.scheduler.saved_rows import RowKeeper
from tests.scheduler.sweeping import SEED, Run, a_seed, chosen

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Role

pytestmark = pytest.mark.slow  # many whole lives
RUNS = 8
SHOWN = 5
"""Runs a life in every test run; which ones, the seed decides."""
GAP_SECONDS = 45.0
"""Without a scheduler after a death, in some runs: limits move then (SC-614)."""
LATE_EVERY = 4
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

    def world(self, gap: float = 0.0) -> MortalWorld:
        clock = self.databases.clock = ManualClock(START)
        pool = self.databases.by_role[Role.SCHEDULER]
        return MortalWorld(pool, clock, TrueSupplier(clock), gap=gap)

    async def reference(self) -> Reference:
        return await Telling(self.world(), self.life, self.keeper).tell()

    async def run(self, reference: Reference, run: Run, *, late: bool, to_the_end: bool) -> bool:
        world = self.world(GAP_SECONDS if late else 0.0)
        plan = Plan(run.number, run.fault)
        telling = Telling(world, self.life, self.keeper, reference)
        try:
            return await telling.tell_from(run.moment, plan, to_the_end=to_the_end)
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
async def test_a_fault_anywhere_changes_nothing_but_time(  # P-05, P-08, P-09, P-10, P-11, SC-606
    life: Life,
    keeper: RowKeeper,
    shared_databases: SharedDatabases,
) -> None:
    seed = a_seed()
    sweep = Sweep(life, keeper, shared_databases)
    reference = await sweep.reference()
    runs = all_runs(reference)
    picked = chosen(runs, seed, RUNS)
    to_the_end, failures = 0, list[Exception]()
    for run in picked:
        dice = random.Random(f"{seed} {run}")  # noqa: S311 - a choice of tests
        late, whole = dice.randrange(LATE_EVERY) == 0, dice.randrange(TO_THE_END_EVERY) == 0
        try:
            to_the_end += await sweep.run(reference, run, late=late, to_the_end=whole)
        except Exception as error:  # noqa: BLE001 - whatever a run comes to, the next is tried
            failures.append(error)
    report(life, reference, f"{len(picked)} of {len(runs)} runs, {to_the_end} to the end", seed)
    if failures:
        raise ExceptionGroup(f"{len(failures)} runs; repeat with {SEED}={seed}", failures[:SHOWN])


def report(life: Life, reference: Reference, runs: str, seed: int) -> None:
    """Say what was tried; `pytest -rP` or `-s` shows it."""
    sites = Counter(site.kind for moment in reference.sites for site in moment)
    kinds = ", ".join(f"{number} {kind}s" for kind, number in sorted(sites.items()))
    print(f"life {life.name}: {sites.total()} failpoints ({kinds}); {runs}; {SEED}={seed}")  # noqa: T201


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
async def test_every_report_may_come_twice(  # P-07, SC-641
    life: Life, keeper: RowKeeper, first_rows: FirstRows, shared_databases: SharedDatabases
) -> None:
    sweep = Sweep(life, keeper, shared_databases)
    once = await sweep.reference()
    await first_rows.restore()
    world = sweep.world()
    world.replay = True
    twice = await Telling(world, life, keeper).tell()
    assert twice.documents == once.documents
    assert twice.standings == once.standings
