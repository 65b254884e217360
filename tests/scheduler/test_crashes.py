"""The scheduler dies between any two transactions and is started again: the result is the same."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.sweeping import is_asked
from tests.scheduler.world import Runner, World

from nodus_api.clock import ManualClock
from nodus_api.storage import tables as t
from nodus_api.storage.driver import Deadline
from nodus_api.storage.engine import Database, Role

WAYS = (True, False) if is_asked() else (None,)
"""Whether death comes late: when a transaction begins, else when the one before was committed. In
rows both leave the same, so that every run tries them in turn, and a sweep each everywhere.
"""


class Killed(BaseException):
    """The process died here: no handler of the product may catch it."""


class MortalDatabase(Database):
    """A database whose user dies at the start or at the end of its n-th writing transaction."""

    lives: int | None = None
    committed: bool = False
    died: int = 0

    @contextlib.asynccontextmanager
    async def transaction(
        self, read_only: bool = False, *, deadline: Deadline | None = None
    ) -> AsyncIterator[AsyncConnection]:
        if not read_only and self.lives is not None:
            self.lives -= 1
            if self.lives < 0 and not self.committed:
                self._die()
        async with super().transaction(read_only, deadline=deadline) as connection:
            yield connection
        if not read_only and self.lives is not None and self.lives < 0:
            self._die()

    def dies_after(self, transactions: int, *, late: bool) -> None:
        """Let the user die once so many were committed: late, when the next one begins."""
        self.committed = not late and transactions > 0
        self.lives = transactions - self.committed

    def _die(self) -> None:
        self.lives = None
        self.died += 1
        raise Killed


@pytest.fixture
async def mortal(clean_database: str, clock: ManualClock) -> AsyncIterator[MortalDatabase]:
    database = MortalDatabase(
        clean_database, role=Role.SCHEDULER, plan_once=True, pinned_now=clock.now
    )
    yield database
    await database.close()


async def deaths_until_told(
    world: World,
    mortal: MortalDatabase,
    goes_on: Callable[[], Awaitable[bool]],
    *,
    longest: int,
    late: bool | None,
) -> int:
    """Tell a life to its end, its scheduler dying on the way; return how many times it died.

    Each scheduler has fewer than `longest` writing transactions; taking over and one beat are
    three of them. What must hold is checked after each turn. The last one lives. `late` as in WAYS.
    """
    deaths = 0
    for turn in range(400):
        in_turn = turn % 2 == 0  # `longest` is odd: each number comes both ways
        mortal.dies_after(turn * 5 % longest, late=in_turn if late is None else late)
        try:
            await world.lead()
            await world.settle()
        except Killed:
            deaths += 1
        finally:
            if world.passes is not None:
                await world.passes.loop.calls.settled()
        mortal.lives = None
        await check(world)
        if not await goes_on():
            break
        await world.clock.advance(1)
    await world.lead()
    await world.settle()
    return deaths


@pytest.mark.parametrize("late", WAYS)
async def test_dying_at_any_transaction_changes_nothing(  # P-08, scenario 8
    mortal: MortalDatabase, clean_database: str, clock: ManualClock, late: bool | None
) -> None:
    """A program that crashes once and is retried; the scheduler dies at each transaction in turn.

    Every death is followed by a new scheduler with a new token. Programs go on meanwhile, as
    real ones do.
    """
    world = World(mortal, clock, FakeSupplier(clock))
    await world.submit(completions=2, restart={"maxRetries": 1})
    script = Script(world)

    assert await deaths_until_told(world, mortal, script.goes_on, longest=11, late=late) >= 10
    assert await script.outcomes() == {
        "0/1": ("Failed", "CustomerExit", 3),
        "0/2": ("Succeeded", None, 0),
        "1/1": ("Failed", "CustomerExit", 3),
        "1/2": ("Succeeded", None, 0),
    }
    assert all(starts == 1 for starts in script.starts.values())  # P-05
    assert len(set(world.fake.creates)) == 4
    await check_quiet(world)
    history = rows.history_of(await rows.read(mortal), world.fake.machines)
    assert_sound(replace(history, quiet=True))


async def test_every_pass_may_be_made_by_another_process(world: World) -> None:  # SC-605
    """Nothing that a pass leaves in memory is needed by the next."""
    await world.submit(restart={"maxRetries": 1})
    script = Script(world)
    for _ in range(60):
        for _ in range(2):  # the first pass of each asks the supplier, the second takes it up
            passes = await world.lead()
            await passes.once()
            await passes.loop.calls.settled()
            await passes.once()
        if not await script.goes_on():
            break
        await world.clock.advance(2)
    assert await script.outcomes() == {
        "0/1": ("Failed", "CustomerExit", 3),
        "0/2": ("Succeeded", None, 0),
    }
    assert list(script.starts.values()) == [1, 1]
    assert len(world.fake.creates) == 2


class Script:
    """What the programs and their runners do, whatever the scheduler does."""

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
        query = sa.select(t.workloads.c.state)
        async with self._world.database.transaction(read_only=True) as connection:
            state = (await connection.execute(query)).scalar()
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
        elif stage == "started":
            code = 3 if runner.intent.epoch == 1 else 0
            await runner.report("exited", exitCode=code, signal=None, oom=False)
            self._stage[key] = "exited"

    async def outcomes(self) -> dict[str, tuple[str, str | None, int | None]]:
        documents: dict[str, dict[str, Any]] = await self._world.documents()
        return {
            key: (
                one["status"]["phase"],
                one["status"].get("reason"),
                one["status"].get("exitCode"),
            )
            for key, one in sorted(documents.items())
        }
