"""A world whose scheduler dies, is cancelled or errs at one site, and is followed by the next one.

The clock stands: programs, machines and users act at fixed moments, so that two lives differ by
nothing but what the fault costs. A runner says its word until it is answered, as real ones do; each
word keeps the moment of its event (SC-615).
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from tests.scheduler.failpoints import Failpoints, Killed, Process
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import Runner, World

from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.scheduler import Passes, Scheduler
from nodus_api.storage import tables as t
from nodus_api.storage.errors import StorageError
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.report_store import Standing
from nodus_api.suppliers.supplier import (
    Ambiguous,
    DeletionObservation,
    FaultInjection,
    MachineIntent,
    MachineView,
    NoCapacity,
    Notice,
    SupplierCaps,
    Verdict,
)

T = TypeVar("T")

TURNS = 40
_TRUTH = (
    "machines",
    "intents",
    "deleted",
    "made",
    "ended",
    "asked_to_go",
    "doubts",
    "caps",
    "offered",
    "injections",
    "announced",
)
TAKES = timedelta(seconds=1)


@dataclass
class TrueSupplier(FakeSupplier):
    """The fake supplier, with a truth to compare the books with: what began when, and ended when.

    A deletion has no effect until it is asked for a second later: every proof needs several looks.
    """

    caps: SupplierCaps = field(default_factory=lambda: SupplierCaps(sync_delete=True))
    made: dict[str, datetime] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    asked_to_go: dict[str, datetime] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    """How the first create of an Attempt (`slot/epoch`) is answered: Ambiguous `before` or `after`
    its effect, or that there is `none`.
    """
    made_again: list[str] = field(default_factory=list)

    async def create(self, intent: MachineIntent) -> MachineView:
        doubt = self.doubts.pop(f"{intent.incarnation.slot}/{intent.epoch}", "")
        if doubt == "none":
            raise NoCapacity("nothing is free")
        if doubt == "before":
            raise Ambiguous("the call never came")
        if intent.key in self.ended:
            self.made_again.append(intent.key)
        view = await super().create(intent)
        self.made.setdefault(intent.key, self.clock.now())
        if doubt == "after":
            raise Ambiguous("the answer was lost")
        return view

    def truth(self) -> dict[str, Any]:
        """Return a copy of everything that happened here, but for calls that changed nothing."""
        return {name: copy.copy(getattr(self, name)) for name in _TRUTH}

    def living(self) -> Mapping[str, Any]:
        """Return what is true of the machines that are there now, and what is still in doubt."""
        made = {key: self.made.get(key) for key in self.machines}
        asked = {key: self.asked_to_go.get(key) for key in self.machines}
        faults = [one for one in self.injections if one[0] in self._handles()]
        return {
            "machines": dict(self.machines),
            "made": made,
            "asked": asked,
            "faults": faults,
        } | self.doubts

    def _handles(self) -> set[str]:
        return {one.handle for one in self.machines.values()}

    def _shown(self, one: MachineView) -> bool:
        """Whether it was made long enough ago to be found and listed."""
        made = self.made.get(one.key)
        return made is None or self.clock.now() >= made + self.caps.visibility_delay

    async def find(self, key: str) -> MachineView | None:
        found = await super().find(key)
        return found if found is not None and self._shown(found) else None

    async def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        async for one in super().list_owned(installation):
            if self._shown(one):
                yield one

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        if (handle, fault) not in self.injections:  # the same fault of one machine is made once
            await super().inject(handle, fault)

    async def notices(self) -> AsyncIterator[Notice]:
        async for notice in super().notices():
            if notice.handle in self._handles():
                yield notice

    def come_back(self, truth: Mapping[str, Any]) -> None:
        """Become what was kept of a moment."""
        for name, value in truth.items():
            setattr(self, name, copy.copy(value))

    async def delete(self, handle: str) -> None:
        for key, one in list(self.machines.items()):
            if one.handle == handle:
                asked = self.asked_to_go.setdefault(key, self.clock.now())
                if self.clock.now() < asked + TAKES:
                    return
                self.ended[key] = self.clock.now()
        await super().delete(handle)

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        look = await super().prove_deleted(handle)
        if look.verdict is Verdict.GONE:
            assert all(one.handle != handle for one in self.machines.values())
        return look


@dataclass
class MortalWorld(World):
    """`database` is the pool, which tests read; `process` is the scheduler that lives now."""

    points: Failpoints = field(default_factory=Failpoints)
    gap: float = 0.0
    """Seconds without a scheduler after each death."""
    process: Process | None = None
    deaths: int = 0
    starts: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """Program starts of each Attempt (its name and epoch): the machines on which they were."""
    moment: datetime | None = None
    """When what is said now happened."""
    steps: int = 0
    """How much of the script was begun: time that passes, words, orders."""
    mourned: Callable[[], Awaitable[None]] | None = None
    """What is done whenever a process was killed, before another one comes."""
    replay: bool = False
    """Whether every report is sent twice (P-07)."""

    def new_process(self) -> Process:
        self.passes = None
        self.process = Process(self.points, self.database, self.supplier)
        return self.process

    async def live_until_settled(self, seconds: float = 0.0) -> None:
        """Let time pass, then let schedulers come and go until one leaves nothing to do."""
        self.steps += 1
        await self.clock.advance(seconds)
        while not await self._part_of_a_life():
            self.deaths += 1
            assert self.deaths < 5, "the scheduler dies again and again"
            await self.clock.advance(self.gap)

    async def _part_of_a_life(self) -> bool:
        """Make passes until nothing is left to do; False if the process died, or lost its lead."""
        process = self.process or self.new_process()
        process.main = asyncio.create_task(self._turns(process), name="a scheduler's life")
        await asyncio.wait({process.main})
        error = None if process.main.cancelled() else process.main.exception()
        if error is not None and not isinstance(error, Killed | StorageError):
            raise error
        if error is None and not process.main.cancelled() and not process.dead:
            return True
        await self._bury(process)
        return False

    async def _bury(self, process: Process) -> None:
        """End what a process left running: nothing of it may reach another site."""
        killed, process.dead = process.dead, True
        self.process = None
        if self.passes is not None:
            for errands in self.passes.loop.calls.all():
                for task in list(errands._under_way.values()):
                    task.cancel()
                    await asyncio.wait({task})
                    if not task.cancelled():
                        task.exception()
        if killed and self.mourned is not None:
            await self.mourned()

    async def _turns(self, process: Process) -> None:
        passes = self.passes
        if passes is None:
            passes = self.passes = await self._take_over(process)
        await LeaderStore(process.database).beat(passes.loop.reign.token)
        for turn in range(TURNS):
            again = await passes.once(full=turn == 0)
            await passes.loop.calls.settled()
            process.alive()
            if not again and passes.loop.calls.idle:
                return
        raise AssertionError("the passes never settle")

    async def _take_over(self, process: Process) -> Passes:
        reign = await LeaderStore(process.database).take_over(f"scheduler {self.deaths}")
        scheduler = Scheduler(process.database, process.supplier, self.clock, pace=self.pace)
        return scheduler.passes(reign)

    async def say(self, intent: MachineIntent, kind: str, **body: Any) -> Standing | None:
        """Send a runner's word until it is answered; it tells of this moment, whenever it comes."""
        at = self.moment or self.clock.now()
        runner = self.runners.setdefault(intent.key, Runner(self.database, intent))
        runner.n += 1
        answer = await self._answered(lambda: self._report(runner, kind, at, body))
        if self.replay:
            kept = await self.rows(t.runner_reports)
            again = await self._answered(lambda: self._report(runner, kind, at, body))
            assert await self.rows(t.runner_reports) == kept
            assert (again is None) == (answer is None)
        return answer

    async def _report(
        self, runner: Runner, kind: str, at: datetime, body: dict[str, Any]
    ) -> Standing | None:
        process = self.process or self.new_process()
        age = (self.clock.now() - at).total_seconds()
        sender = Runner(process.database, runner.intent)
        return await sender.report(kind, age=age, n=runner.n, **body)

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until it is answered: another process may have to answer it."""
        self.steps += 1
        for _ in range(3):
            task = asyncio.ensure_future(call())
            await asyncio.wait({task})
            if task.cancelled():
                continue
            error = task.exception()
            if error is None:
                return task.result()
            if isinstance(error, Killed):
                assert self.process is not None
                await self._bury(self.process)
                self.deaths += 1
                await self.clock.advance(self.gap)
            elif not isinstance(error, StorageError):
                raise error
        raise AssertionError("a report is never answered")

    async def order(
        self, key: str, verb: str, target: str = "train", kind: str | None = "Job", **body: Any
    ) -> None:
        """Write a user's command; its key is the same in every life."""
        self.steps += 1
        row = {
            "key": key,
            "project": "default",
            "verb": verb,
            "kind": kind,
            "target": target,
            "body": body,
            "asked_by": "test",
        }
        async with self.database.transaction() as connection:
            await connection.execute(sa.insert(t.commands).values(row))

    async def order_job(self, key: str, target: str = "train", **spec: Any) -> None:
        given = {"template": {"command": ["true"]}} | spec
        whole = WorkloadSpec.from_json(OwnerKind.JOB, given).to_json()
        await self.order(key, "submit", target, spec=whole)

    async def reigns_anew(self) -> None:
        """Let another process lead from here on; the last one gave signs of life until now."""
        self.passes = self.process = None
        async with self.database.transaction() as connection:
            await connection.execute(sa.update(t.leader_heartbeat).values(at=self.clock.now()))

    async def comes(self, moment: datetime) -> None:
        """Move the clock to a moment of the script."""
        left = (moment - self.clock.now()).total_seconds()
        assert left >= 0, f"the clock is past {moment} already"
        await self.clock.advance(left)
        self.moment = moment
