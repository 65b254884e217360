"""Jobs that arrive at a simulated fleet, as many as are wanted, driven by the real scheduler."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from nodus_api.bench.simulation import fleet as fleets
from nodus_api.bench.simulation.publisher import Done, Plan, SeedUsed
from nodus_api.bench.simulation.virtual import Simulation
from nodus_api.clock import Clock, ManualClock
from nodus_api.scheduler import Pace, Retention
from nodus_api.storage import tables as t
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import Reign
from nodus_api.suppliers.simulated import Fleet, FleetModel, ProgramProfile, sample_fleet
from nodus_api.suppliers.simulated.chance import Spread

SLOTS = 20
_TICK = timedelta(seconds=5)
_FOR_EVER = timedelta(days=36_500)
_ALL = 2**31 - 1
_TAIL = timedelta(hours=12)
"""The last Job and its replacements are over by then, as a rule."""
_PROGRAMS = ProgramProfile(work=Spread(median=timedelta(minutes=4), sigma=0.7))
_HEARTBEAT = timedelta(seconds=50)
"""As far apart as no runner is suspected by it (SC-614): they are most of what is reported."""
_PACE = Pace(
    full_pass=timedelta(seconds=20),
    offers=timedelta(seconds=60),
    batch=400,
    placed_at_once=1600,
    supplier_calls=64,
)
"""More at once than a real loop: nobody waits for an answer meanwhile."""
_ENDS = ("Succeeded", "Failed", "Lost", "Stopped")


def fill_model(plan: Plan) -> FleetModel:
    """Return the fleet of a fill: room for all that live at once, with its usual losses."""
    machines = 100 + 2 * (plan.live or plan.attempts)
    return replace(sample_fleet(machines=machines), programs=_PROGRAMS, heartbeat=_HEARTBEAT)


def begins_at(plan: Plan, now: datetime) -> datetime:
    """Return the virtual time at which a fill begins, so that it ends by now, or at its speed."""
    span = plan.interval * (plan.attempts // SLOTS) + _TAIL
    past = span if plan.speed is None else span - span / plan.speed
    return now.replace(microsecond=0) - past


@dataclass(slots=True, kw_only=True)
class Filling:
    """Fills a database through the scheduler; `database` answers the simulation's clock."""

    database: Database
    plan: Plan
    clock: Clock
    """The real one, by which rate and speed are kept."""
    virtual: ManualClock
    tell: Callable[[Done], None] | None = None
    """Is told after each moment how far it is."""
    done: Done = field(default_factory=Done)
    simulation: Simulation = field(init=False)
    _left: int = 0
    _jobs: int = 0
    _began: float | None = None
    _start: datetime = field(init=False)
    _head: int = 0
    _hurry: bool = False

    def __post_init__(self) -> None:
        """Make the fleet, which begins at the virtual clock's time."""
        keep = self.plan.keep_finished
        self._start = self.virtual.now()
        self.simulation = Simulation(
            database=self.database,
            clock=self.virtual,
            fleet=Fleet(
                model=fill_model(self.plan),
                clock=self.virtual,
                seed=self.plan.seed,
                start=self._start,
            ),
            pace=_PACE,
            retention=Retention(finished=_FOR_EVER, count=_ALL if keep is None else keep),
            tick=_TICK,
            beats=False,
            told=self._moment_passed,
        )

    async def fill(self, reign: Reign) -> None:
        """Go on until nothing is left to do; may be called again in a later reign.

        Raises SeedUsed, FencedOff, StorageUnavailable.
        """
        if self._began is None:
            await self._begin()
        else:
            self.done.failures += 1
            await self.simulation.close()
            self.simulation.restart()
        await self.simulation.lead(reign)
        try:
            await self.simulation.run()
        finally:
            await self.simulation.close()
        catalog = CatalogStore(self.database, self.simulation.supplier.name)
        await fleets.close(catalog, reign.token, self.virtual.now())
        await self._count()

    def end_soon(self) -> None:
        """Begin nothing new, and let what lives end as fast as it goes."""
        self._left = 0
        self._hurry = True

    async def _begin(self) -> None:
        names = [{"name": self._project(number)} for number in range(self.plan.projects)]
        insert = postgresql.insert(t.projects).on_conflict_do_nothing()
        first = sa.select(t.workloads.c.uid).where(t.workloads.c.name == self._name(0))
        async with self.database.transaction() as connection:
            if await connection.scalar(first) is not None:
                raise SeedUsed
            await connection.execute(insert, names)
        self._head = await Feed(self.database, clock=self.clock).head()
        self._left = 0 if self._hurry else self.plan.attempts
        self._began = self.clock.monotonic()
        self.simulation.at(self._start, self._next_job)

    async def _next_job(self, simulation: Simulation) -> None:
        """Submit a Job, and let the next one arrive in its time."""
        slots = min(SLOTS, self._left)
        if not slots:
            return
        number = self._jobs
        spec = replace(fleets.SPECS[number % len(fleets.SPECS)], completions=slots)
        asked = replace(spec, parallelism=slots).to_json()
        await simulation.submit(self._name(number), asked, project=self._project(number))
        self._jobs, self._left = self._jobs + 1, max(self._left - slots, 0)
        if self._left:
            simulation.at(self._start + self._jobs * self.plan.interval, self._next_job)

    def _name(self, number: int) -> str:
        return f"sim-{self.plan.seed}-{number + 1}"

    def _project(self, number: int) -> str:
        return f"simulated-{number % self.plan.projects + 1}"

    async def _moment_passed(self, simulation: Simulation) -> None:
        """Say how far it is, and wait where a rate or a speed is wanted."""
        stages = simulation.transitions()
        self.done.commits = simulation.turns
        self.done.changes = sum(stages.values())
        self.done.ended = sum(stages.get(stage, 0) for stage in _ENDS)
        if self.tell is not None:
            self.tell(self.done)
        if self._hurry or self._began is None:
            return
        waits = [0.0]
        if self.plan.rate is not None:
            waits.append(self.done.changes / self.plan.rate)
        if self.plan.speed is not None:
            passed = simulation.clock.now() - self._start
            waits.append(passed.total_seconds() / self.plan.speed)
        wait = self._began + max(waits) - self.clock.monotonic()
        if wait > 0:
            await self.clock.sleep(wait)

    async def _count(self) -> None:
        """Count exactly, at the end."""
        made = sa.select(sa.func.count()).select_from(
            t.attempts.join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        )
        own = made.where(t.workloads.c.name.startswith(f"sim-{self.plan.seed}-", autoescape=True))
        async with self.database.single_reads() as connection:
            self.done.attempts = int(await connection.scalar(own) or 0)
        head = await Feed(self.database, clock=self.clock).head()
        self.done.changes = head - self._head
