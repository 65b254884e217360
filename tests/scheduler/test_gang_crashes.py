"""The scheduler dies between any two transactions of a gang's life: the result is the same."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.gangs import SHA, stages, submit_gang
from tests.scheduler.invariants import check_quiet
from tests.scheduler.test_crashes import WAYS, MortalDatabase, deaths_until_told
from tests.scheduler.world import Runner, World

from nodus_api.clock import ManualClock
from nodus_api.storage import tables as t
from nodus_api.storage.checkpoint_store import Verdict
from nodus_api.storage.engine import Role
from nodus_api.storage.report_store import Standing
from nodus_api.suppliers.supplier import NoCapacity

pytestmark = pytest.mark.slow  # many whole lives
SIZE = 3
NO_MACHINE = 1
"""The gang epoch in which rank 2 gets no machine, while the others do."""
CRASHES = 2
"""The gang epoch in which rank 1's program fails after one checkpoint."""


@pytest.fixture
async def mortal(clean_database: str, clock: ManualClock) -> AsyncIterator[MortalDatabase]:
    database = MortalDatabase(
        clean_database, role=Role.SCHEDULER, plan_once=True, pinned_now=clock.now
    )
    yield database
    await database.close()


@pytest.mark.parametrize("late", WAYS)
async def test_dying_at_any_transaction_never_splits_a_gang(
    mortal: MortalDatabase, clean_database: str, clock: ManualClock, late: bool | None
) -> None:  # P-08, P-23, P-24
    world = World(mortal, clock, FakeSupplier(clock))
    world.fake.refused[2] = NoCapacity("gone")
    await submit_gang(world, SIZE, restart={"maxRetries": 1})
    script = Script(world)

    assert await deaths_until_told(world, mortal, script.goes_on, longest=13, late=late) >= 10
    assert await stages(world, NO_MACHINE) == ["Stopped Released"] * SIZE
    assert await stages(world, CRASHES) == [
        "Stopped Released", "Failed CustomerExit", "Stopped Released",
    ]  # fmt: skip
    assert await stages(world, 3) == ["Succeeded"] * SIZE
    slots = {row["slot"]: row["retries_used"] for row in await world.rows(t.slots)}
    assert slots == {"0": 1, "1": 0, "2": 0}
    seqs = [(row["slot"], row["seq"], row["epoch"]) for row in await world.rows(t.checkpoints)]
    assert sorted(seqs) == [(str(rank), seq, seq + 1) for rank in range(SIZE) for seq in (1, 2)]
    assert all(starts == 1 for starts in script.starts.values())  # P-05
    assert await world.rows(t.machine_events) == []
    await check_quiet(world)
    history = rows.history_of(await rows.read(mortal), world.fake.machines)
    assert_sound(replace(history, quiet=True))


class Script:
    """What the ranks and their runners do, whatever the scheduler does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runners: dict[str, Runner] = {}
        self._stage: dict[str, str] = {}
        self.starts: dict[str, int] = {}

    async def goes_on(self) -> bool:
        """Let every runner say its next word; False once the job is over."""
        fake = self._world.fake
        for key, intent in list(fake.intents.items()):
            runner = self._runners.setdefault(key, Runner(self._world.database, intent))
            if key in fake.machines:
                await self._speak(key, runner)
        async with self._world.database.transaction(read_only=True) as connection:
            state = (await connection.execute(sa.select(t.workloads.c.state))).scalar()
        return state in (None, "Active") or bool(fake.machines)

    async def _speak(self, key: str, runner: Runner) -> None:
        stage = self._stage.get(key, "new")
        if stage == "new":
            if await runner.report("registered", checks={}):
                self._stage[key] = "registered"
        elif stage == "registered":
            standing = await runner.report("canStart")
            if standing is not None and standing.won:
                self.starts[key] = self.starts.get(key, 0) + 1
                await runner.report("started")
                self._stage[key] = "started"
        elif stage in ("started", "saved"):
            await self._work(key, runner)

    async def _work(self, key: str, runner: Runner) -> None:
        """Save once, then end: by failing, by order, or well."""
        failing = runner.intent.epoch == CRASHES
        saved = self._stage[key] == "saved"
        if saved and failing and runner.intent.incarnation.slot == "1":
            await self._end(key, runner, 3)
            return
        said = runner.report("heartbeat") if saved else self._save(runner)
        standing = await said
        if standing is not None and any(one["kind"] == "stop" for one in standing.orders):
            await self._end(key, runner, 143, stopAgeMs=0)
        elif saved and not failing:
            await self._end(key, runner, 0)
        elif standing is not None and standing.verdict is Verdict.COMMITTED:
            self._stage[key] = "saved"

    async def _save(self, runner: Runner) -> Standing | None:
        seq = runner.intent.epoch - 1
        place = f"file:///{runner.intent.incarnation.slot}/{seq}"
        return await runner.report("checkpoint", seq=seq, bytes=7, uri=place, sha256=SHA)

    async def _end(self, key: str, runner: Runner, code: int, **fields: int) -> None:
        await runner.report("exited", exitCode=code, signal=None, oom=False, **fields)
        self._stage[key] = "exited"
