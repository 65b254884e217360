"""The real scheduler on a simulated fleet, in virtual time: no second is waited for.

The passes, the report server, the rows and their documents are the product's. What is not real:
the machines, and that time stands still until everything of a moment is done, then leaps to the
next moment at which something happens. So a week takes as long as its passes do, and one seed in
one database gives one history, bit for bit (SC-730, P-08).
"""

import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import sqlalchemy as sa

from nodus_api.clock import Clock, ManualClock, SystemClock, give_way
from nodus_api.kernel.placement import Decide, place
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.scheduler import Pace, Passes, Retention, Scheduler
from nodus_api.scheduler.reports import ReportServer
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.leader_store import LeaderStore, Reign
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.simulated import ASGIDesk, Fleet, FleetModel, SimulatedSupplier
from nodus_api.tasks import end, spawn
from nodus_api.workloads import intake
from nodus_api.workloads.validation import Manifest

_HOLDER = "nodus simulate"
_SHORTEST = 0.05
"""The shortest wait of the loop, as of a real one."""
_TURNS = 64
"""So often other tasks get their turn while no call comes back."""
_NAMESPACE = UUID("6b0a5e0e-52a4-5c8a-8b39-1f6f3a1d9d6b")

Arrival = Callable[["Simulation"], Awaitable[None]]


class NeverSettles(Exception):
    """A moment in which the passes found work without end; the fault is the loop's."""


@dataclass(slots=True, eq=False)
class Simulation:
    """One scheduler, its fleet and their clock. `database` answers this clock (`pinned_now`).

    `tick` is how much of what happens may be put together in one moment: longer ones are faster
    and coarser. Answers of the loop are then up to so much later.
    """

    database: Database
    clock: ManualClock
    fleet: Fleet
    pace: Pace = field(default_factory=Pace)
    retention: Retention = field(default_factory=Retention)
    tick: timedelta = timedelta(0)
    decide: Decide = place
    """What chooses where things run."""
    beats: bool = True
    """Whether it writes the leader's sign of life; not where somebody else does."""
    told: Callable[["Simulation"], Awaitable[None]] | None = None
    """Is awaited after each moment, before time moves on."""
    passes: Passes | None = None
    supplier: SimulatedSupplier = field(init=False)
    desk: ASGIDesk = field(init=False)
    scheduler: Scheduler = field(init=False)
    turns: int = 0
    """The passes that were made."""
    _woken: bool = True
    _due: float = 0.0
    _full_at: float = 0.0
    _arrivals: list[tuple[datetime, int, Arrival]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        """Join the parts as a scheduler process does."""
        self.supplier = SimulatedSupplier(self.fleet)
        self.restart()

    def restart(self) -> None:
        """Forget everything that a scheduler process has in memory, as a crash does."""
        self.passes = None
        self.scheduler = Scheduler(
            self.database,
            self.supplier,
            self.clock,
            holder=_HOLDER,
            pace=self.pace,
            retention=self.retention,
            decide=self.decide,
        )
        ids = (uuid5(_NAMESPACE, str(number)) for number in itertools.count())
        server = ReportServer(
            ReportStore(self.database),
            wake=self._wake,
            metrics=self.scheduler.metrics,
            new_id=lambda: next(ids),
        )
        self.desk = ASGIDesk(server)

    # -- what is asked for --------------------------------------------------------------------

    def at(self, moment: datetime, arrival: Arrival) -> None:
        """Let something arrive at a moment: a command, a change of the world, a look at it."""
        heapq.heappush(self._arrivals, (moment, next(self._numbers), arrival))

    async def submit(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        project: str = "default",
        kind: OwnerKind = OwnerKind.JOB,
    ) -> None:
        """Submit a workload now, through the intake."""
        given = {"template": {"command": ["simulated"]}} | dict(spec)
        whole = WorkloadSpec.from_json(kind, given).to_json()
        manifest = Manifest(kind=kind, name=name, project=project, spec=whole)
        key = f"{self.fleet.seed}/{project}/{kind}/{name}"
        async with self.database.transaction() as connection:
            await intake.submit(connection, manifest, key=key, asked_by=_HOLDER)
        self._woken = True

    async def ask(
        self,
        verb: intake.Verb,
        target: str,
        *,
        project: str = "default",
        kind: OwnerKind | None = OwnerKind.JOB,
        **body: Any,
    ) -> None:
        """Ask the loop for something now, through the intake."""
        key = f"{self.fleet.seed}/{verb}/{project}/{target}/{self.clock.now().isoformat()}"
        async with self.database.transaction() as connection:
            await intake.request(
                connection,
                verb,
                kind=kind,
                target=target,
                project=project,
                body=body,
                key=key,
                asked_by=_HOLDER,
            )
        self._woken = True

    def submit_at(
        self, moment: datetime, name: str, spec: Mapping[str, Any], *, project: str = "default"
    ) -> None:
        """Let a Job arrive at a moment."""

        async def arrive(simulation: Simulation) -> None:
            await simulation.submit(name, spec, project=project)

        self.at(moment, arrive)

    def ask_at(
        self, moment: datetime, verb: intake.Verb, target: str, *, project: str = "default"
    ) -> None:
        """Let something be asked of a Job at a moment."""

        async def arrive(simulation: Simulation) -> None:
            await simulation.ask(verb, target, project=project)

        self.at(moment, arrive)

    # -- the run ------------------------------------------------------------------------------

    async def lead(self, reign: Reign | None = None) -> Passes:
        """Begin a reign, or go on in one that somebody else holds."""
        if reign is None:
            reign = await LeaderStore(self.database).take_over(_HOLDER)
        self.passes = self.scheduler.passes(reign)
        self._woken, self._full_at = True, self.clock.monotonic()
        return self.passes

    async def run(self, until: datetime | None = None) -> None:
        """Go on until a moment, or until nothing is left to do and nothing arrives any more.

        Raises NeverSettles, and what a lost lead or database raises.
        """
        if self.passes is None:
            await self.lead()
        while until is None or self.clock.now() <= until:
            await self._moment()
            if self.told is not None:
                await self.told(self)
            if not self._arrivals and await self.is_over():
                return
            wait = await self._until_next()
            if until is not None and self.clock.now() + timedelta(seconds=wait) > until:
                await self.clock.advance((until - self.clock.now()).total_seconds())
                return
            await self.clock.advance(wait)

    async def crash(self) -> None:
        """Let the process die with what it had under way, and another one lead."""
        await self.close()
        self.restart()
        await self.lead()

    async def close(self) -> None:
        """End the calls that are under way."""
        if self.passes is not None:
            await self.passes.loop.calls.close()

    def transitions(self) -> Mapping[str, int]:
        """Return how often Attempts entered each stage, since the process began."""
        samples = [
            one
            for metric in self.scheduler.metrics.transitions.collect()
            for one in metric.samples
            if one.name.endswith("_total")
        ]
        return {one.labels["stage"]: int(one.value) for one in samples}

    async def is_over(self) -> bool:
        """Return whether nothing lives and nothing waits: no machine, no Attempt, no command."""
        if self.fleet.present() or self.fleet.mail.waiting:
            return False
        async with self.database.single_reads() as connection:
            return not await connection.scalar(_LEFT)

    async def _moment(self) -> None:
        """Do everything that there is to do at this moment."""
        for turn in itertools.count():
            if turn > _TURNS:
                raise NeverSettles(f"at {self.clock.now()}")
            self.fleet.catch_up()
            await self._let_arrive()
            passes = self.passes or await self.lead()
            await self._calls_back(passes)
            await self.fleet.mail.deliver(self.desk)
            now = self.clock.monotonic()
            full = now >= self._full_at
            answered = passes.loop.calls.answered
            if not (full or self._woken or answered or now >= self._due):
                return
            if full:
                self._full_at = now + self.pace.full_pass.total_seconds()
                await self._beat(passes)
            self._woken = False
            self._woken |= await passes.once(full=full)
            self.turns += 1
            await self._calls_back(passes)
            wait = await passes.until_next()
            self._due = self._full_at if wait is None else now + max(wait, _SHORTEST)

    async def _let_arrive(self) -> None:
        """Let arrive what is due; what fails, with a lost lead say, arrives again."""
        while self._arrivals and self._arrivals[0][0] <= self.clock.now():
            arriving = heapq.heappop(self._arrivals)
            try:
                await arriving[2](self)
            except BaseException:
                heapq.heappush(self._arrivals, arriving)
                raise

    async def _calls_back(self, passes: Passes) -> None:
        """Let calls come back, but for those that wait for time to pass."""
        calls, idle = passes.loop.calls, 0
        while calls.under_way > self.supplier.asleep and idle < _TURNS:
            before = calls.under_way, self.supplier.asleep
            await give_way()
            idle = idle + 1 if (calls.under_way, self.supplier.asleep) == before else 0

    async def _until_next(self) -> float:
        """Return the seconds until something happens again, at least one tick."""
        now = self.clock.now()
        moments = [self.fleet.next_event(), self._arrivals[0][0] if self._arrivals else None]
        waits = [(at - now).total_seconds() for at in moments if at is not None]
        if not self._arrivals or not await self.is_over():
            waits += [at - self.clock.monotonic() for at in (self._due, self._full_at)]
        return max(min(waits), self.tick.total_seconds(), 1e-6)

    async def _beat(self, passes: Passes) -> None:
        if self.beats:
            await LeaderStore(self.database).beat(passes.loop.reign.token)

    async def _wake(self) -> None:
        self._woken = True


@asynccontextmanager
async def simulation(
    url: str,
    model: FleetModel,
    *,
    seed: int,
    start: datetime,
    pace: Pace | None = None,
    retention: Retention | None = None,
    tick: timedelta = timedelta(0),
    decide: Decide = place,
) -> AsyncIterator[Simulation]:
    """Yield a simulation on a migrated database of its own, whose log is kept as a leader does.

    `start` is the virtual time of its begin, in UTC.
    """
    clock = ManualClock(start)
    database = Database(url, role=Role.SCHEDULER, plan_once=True, pinned_now=clock.now)
    made = Simulation(
        database=database,
        clock=clock,
        fleet=Fleet(model=model, clock=clock, seed=seed, start=start),
        pace=pace or Pace(),
        retention=retention or Retention(),
        tick=tick,
        decide=decide,
    )
    try:
        passes = await made.lead()
        keeper = made.scheduler.upkeep(passes.loop.reign)
        upkeep = spawn("upkeep of the log", _kept(keeper.look, SystemClock()))
        try:
            yield made
        finally:
            await end(upkeep)
            await made.close()
    finally:
        await database.close()


async def _kept(look: Callable[[], Awaitable[bool]], clock: Clock) -> None:
    """Look after the log's partitions as often as a leader does, in real time."""
    while True:
        await look()
        await clock.sleep(1.0)


def _exists(query: sa.Select[Any]) -> sa.ColumnElement[bool]:
    return sa.exists(query)


_LEFT = sa.select(
    sa.or_(
        _exists(sa.select(t.commands.c.no).where(t.commands.c.outcome.is_(None))),
        _exists(sa.select(t.workloads.c.uid).where(t.workloads.c.state == "Active")),
        _exists(sa.select(t.attempts.c.no).where(t.attempts.c.finished.is_(None))),
        _exists(sa.select(t.machines.c.no).where(t.machines.c.state != "Gone")),
        _exists(sa.select(t.runner_reports.c.n)),
    )
)
"""Whether anything is left to do."""
