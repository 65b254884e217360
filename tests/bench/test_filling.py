"""A fill by the real scheduler on a simulated fleet: whole lives, exact counts, any reign."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from tests.conftest import START
from tests.history import rows
from tests.history.checking import assert_sound

from nodus_api.bench.simulation.filling import Filling, begins_at
from nodus_api.bench.simulation.publisher import Done, Plan, SeedUsed
from nodus_api.clock import ManualClock, SystemClock
from nodus_api.storage import tables as t
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.suppliers.simulated import truth

PLAN = Plan(attempts=22, projects=2, seed=3, live=400)


class Bench:
    """Fills on one database whose clock is the fill's."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.told: list[Done] = []
        self.made: list[Filling] = []

    def filling(self, plan: Plan = PLAN) -> Filling:
        made = Filling(
            database=self.database,
            plan=plan,
            clock=SystemClock(),
            virtual=self.clock,
            tell=lambda done: self.told.append(replace(done)),
        )
        self.made.append(made)
        return made

    async def fill(self, filling: Filling) -> None:
        await filling.fill(await LeaderStore(self.database).take_over("test"))

    async def stages(self) -> Counter[str]:
        async with self.database.single_reads() as connection:
            found = await connection.execute(sa.select(t.attempts.c.stage))
            return Counter(found.scalars().all())


@pytest.fixture
async def bench(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[Bench]:
    made = Bench(scheduler_database, clock)
    yield made
    for filling in made.made:
        await filling.simulation.close()


async def test_what_is_asked_for_lives_and_ends(bench: Bench) -> None:
    filling = bench.filling()
    await bench.fill(filling)

    stages, done = await bench.stages(), filling.done
    assert set(stages) <= {"Succeeded", "Failed", "Lost", "Stopped"}
    assert sum(stages.values()) == done.attempts >= PLAN.attempts
    kept = await rows.read(bench.database)
    assert done.changes == kept.log[-1].rev - kept.log[0].rev
    assert_sound(replace(rows.history_of(kept, truth.alive(filling.simulation.fleet)), quiet=True))
    progress = [one.ended for one in bench.told]
    assert progress == sorted(progress)
    assert progress[-1] == done.attempts
    _, offers = await CatalogStore(bench.database, "simulated").load()
    assert [one for one in offers if one.enabled] == []  # no scheduler places anything there
    with pytest.raises(SeedUsed):
        await bench.fill(bench.filling())


async def test_a_fill_goes_on_in_a_later_reign(bench: Bench) -> None:
    filling = bench.filling()

    def lose_the_lead(done: Done) -> None:
        if done.changes > 30:
            filling.tell = None
            raise FencedOff("another leads")

    filling.tell = lose_the_lead
    with pytest.raises(FencedOff):
        await bench.fill(filling)
    await bench.fill(filling)

    assert filling.done.failures == 1
    assert sum((await bench.stages()).values()) == filling.done.attempts >= PLAN.attempts
    assert truth.started_twice(filling.simulation.fleet) == []


async def test_who_is_told_to_end_begins_nothing_new(bench: Bench) -> None:
    filling = bench.filling(replace(PLAN, attempts=200))

    def end(done: Done) -> None:
        if done.changes:
            filling.end_soon()

    filling.tell = end
    await bench.fill(filling)

    assert 20 <= filling.done.attempts < 100
    assert truth.alive(filling.simulation.fleet) == []


def test_a_fill_begins_so_long_ago_that_it_ends_by_now() -> None:
    plan = Plan(attempts=2000, live=500)

    assert begins_at(plan, START) < START - plan.interval * 100
    slow = begins_at(replace(plan, speed=1.0), START)
    assert slow == START  # as fast as the time itself: it begins now
