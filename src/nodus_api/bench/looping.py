"""Area `loop`: the whole scheduler on the simulated fleet, in virtual time (SC-606, SC-730).

`turnover`: Jobs arrive, are placed, run, report, end, and are proven gone; what it costs and how
long it takes to publish one change of an Attempt, reports, rows, documents and log included.
`pass`: one full pass over Attempts that all run and want nothing. Time passes only when all of a
moment is done, so nothing is ever waited for, and how long it takes is what the work takes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from nodus_api.bench.report import NotMeasured, Row, figure
from nodus_api.bench.rig import Rig
from nodus_api.bench.server_cpu import Used
from nodus_api.bench.simulation.filling import Filling, begins_at
from nodus_api.bench.simulation.leading import lead
from nodus_api.bench.simulation.publisher import Plan
from nodus_api.bench.simulation.virtual import Simulation
from nodus_api.clock import Clock, ManualClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.leader_store import Reign
from nodus_api.suppliers.simulated import Fleet, FleetModel, sample_fleet

AREA = "loop"
_HOLDER = "nodus bench"
_RETENTION = timedelta(hours=1)
_TICK = timedelta(seconds=5)
_LOOK_EVERY = timedelta(seconds=20)
_SLOTS = 500
"""Of each Job whose Attempts all live at once."""
_PATIENCE = timedelta(minutes=30)
"""Within this virtual time all of them run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    attempts: int
    """Lives from the first queue to the proven deletion, replacements on top."""
    live: int
    """About so many of them at once."""
    running: int
    """Attempts that a pass finds alive and in no need of anything."""
    passes: int


QUICK = Effort(attempts=1000, live=400, running=1000, passes=5)
FULL = Effort(attempts=20_000, live=4000, running=10_000, passes=15)


async def whole_loop(rig: Rig, *, clock: Clock, effort: Effort) -> list[Row]:
    """Measure both. Raises NotMeasured where not all lives ended, or not all Attempts run."""
    return [
        *await _turnover(rig, clock, effort),
        *await _idle_pass(rig, clock, effort),
    ]


async def _turnover(rig: Rig, clock: Clock, effort: Effort) -> list[Row]:
    plan = Plan(attempts=effort.attempts, live=effort.live, projects=4)
    virtual = ManualClock(begins_at(plan, clock.now()))
    async with _two(rig, virtual) as (pinned, database):
        filling = Filling(database=pinned, plan=plan, clock=clock, virtual=virtual)
        before, began = await Used.now(database), clock.monotonic()
        await _led(database, filling.fill, clock)
        wall = clock.monotonic() - began
        here, server = (await Used.now(database)).since(before)
    done = filling.done
    if filling.done.failures or done.attempts < effort.attempts:
        raise NotMeasured(f"{done.attempts} of {effort.attempts} lives were lived")
    changes, moves = done.changes, sum(filling.simulation.transitions().values())
    reports = filling.simulation.fleet.mail.delivered
    return [
        _one("published", "/s", changes / wall, "2000/s"),
        _one("stages entered", "/s", moves / wall),
        _one("published, by CPU", "/s CPU", changes / (here + server)),
        _one("CPU a change, scheduler", "ms CPU", here / changes * 1000),
        _one("CPU a change, Postgres", "ms CPU", server / changes * 1000),
        _one("changes a life", "changes", changes / done.attempts),
        _one("reports a life", "reports", reports / done.attempts),
    ]


async def _idle_pass(rig: Rig, clock: Clock, effort: Effort) -> list[Row]:
    """Time full passes over Attempts that run for ever."""
    virtual = ManualClock(clock.now().replace(microsecond=0))
    walls, costs = list[float](), list[float]()
    async with _two(rig, virtual) as (pinned, database):
        fleet = Fleet(model=_reliable(effort.running), clock=virtual, seed=1, start=virtual.now())
        simulation = Simulation(
            database=pinned, clock=virtual, fleet=fleet, tick=_TICK, beats=False
        )

        async def work(reign: Reign) -> None:
            passes = await simulation.lead(reign)
            try:
                await _until_all_run(simulation, effort.running)
                for _ in range(effort.passes):
                    before, began = await Used.now(database), clock.monotonic()
                    await passes.once(full=True)
                    await passes.until_next()
                    walls.append((clock.monotonic() - began) * 1000)
                    costs.append(sum((await Used.now(database)).since(before)) * 1000)
            finally:
                await simulation.close()

        await _led(database, work, clock)
    case = f"pass over {effort.running} live"
    return [
        figure(AREA, case, "ms", walls, "< 1000 ms at 10,000"),
        figure(AREA, f"{case}, CPU", "ms CPU", costs, None),
    ]


def _reliable(machines: int) -> FleetModel:
    """Return a fleet that loses nothing."""
    model = sample_fleet(machines=machines)
    kept = [replace(one, reclaims_per_hour=0.0, losses_per_hour=0.0) for one in model.classes]
    return replace(model, classes=tuple(kept))


async def _until_all_run(simulation: Simulation, count: int) -> None:
    """Submit Attempts, and go on until all run and nothing is due."""
    for number in range(0, count, _SLOTS):
        slots = min(_SLOTS, count - number)
        spec = {
            "template": {"command": ["simulated"], "env": {"SIMULATED_SECONDS": "forever"}},
            "completions": slots,
            "parallelism": slots,
        }
        await simulation.submit(f"bench-{number}", spec)
    end = simulation.clock.now() + _PATIENCE
    while simulation.transitions().get("Running", 0) < count:
        if simulation.clock.now() >= end:
            raise NotMeasured(f"not all of {count} Attempts run")
        await simulation.run(simulation.clock.now() + _LOOK_EVERY)
    await simulation.run(simulation.clock.now())


@asynccontextmanager
async def _two(rig: Rig, virtual: ManualClock) -> AsyncIterator[tuple[Database, Database]]:
    """Yield the database as the simulation sees it, by its clock, and as the lead does."""
    pinned = Database(rig.database_url, role=Role.SCHEDULER, plan_once=True, pinned_now=virtual.now)
    database = Database(rig.database_url, role=Role.SCHEDULER)
    try:
        yield pinned, database
    finally:
        await pinned.close()
        await database.close()


async def _led(database: Database, work: Callable[[Reign], Awaitable[None]], clock: Clock) -> None:
    await lead(database, work, clock=clock, holder=_HOLDER, take_over=False, retention=_RETENTION)


def _one(case: str, unit: str, value: float, target: str | None = None) -> Row:
    return figure(AREA, case, unit, [value], target)
