"""The whole loop on the simulated fleet: whatever goes wrong, nothing leaks and every sum is exact.

SC-731 to SC-733, P-05, P-08 to P-13, P-15, P-28. The history's own checkers look at the log, the
documents and the ledger; here is added what only the fleet's truth can tell.
"""

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from tests.conftest import START, FirstRows, SharedDatabases
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.walk.mortal import Killed, MortalDatabase
from tests.suppliers.conformance import an_intent
from tests.suppliers.simulated_fleet import CLASS, a_class, a_model

from nodus_api.bench.simulation.virtual import Simulation
from nodus_api.clock import ManualClock
from nodus_api.kernel.money import cumulative_usd
from nodus_api.scheduler import Pace
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.suppliers.simulated import (
    FaultKind,
    FaultPlan,
    Fleet,
    FleetModel,
    PriceChange,
    ProgramProfile,
    Scripted,
    Trace,
    sample_fleet,
    truth,
)
from nodus_api.suppliers.simulated.chance import Chance, Spread
from nodus_api.workloads.intake import Verb

SHORT = ProgramProfile(work=Spread(median=timedelta(minutes=6), sigma=0.5))
SECOND = timedelta(seconds=1)
QUIET = Pace(full_pass=timedelta(seconds=10))
"""Full passes are far enough apart to be few, and near enough for the shortest limits."""
TOO_OFTEN = {FaultKind.AUTH_LOST, FaultKind.RATE_LIMIT}
"""Drawn at each call: they stand in tests of their own."""
NEEDS_ANOTHER = {FaultKind.NOTICE_TWICE, FaultKind.ZOMBIE}
"""Kinds that show only where another thing happens: a notice, a loss."""
CRASHES = 40
CANCELS = 30
SEEDS = range(int(os.environ.get("NODUS_FLEETS", "2")))


class World:
    """A simulation on the test's database, and what its end must be."""

    def __init__(
        self,
        database: Database,
        clock: ManualClock,
        first_rows: FirstRows,
        shared: SharedDatabases,
    ) -> None:
        self._database = database
        self._clock = clock
        self._first_rows = first_rows
        self._shared = shared
        self.made: list[Simulation] = []

    def begin(
        self,
        model: FleetModel,
        *,
        seed: int = 1,
        pace: Pace | None = None,
        tick: float = 1.0,
        database: Database | None = None,
    ) -> Simulation:
        made = Simulation(
            database=database or self._database,
            clock=self._clock,
            fleet=Fleet(model=model, clock=self._clock, seed=seed, start=START),
            pace=pace or QUIET,
            tick=timedelta(seconds=tick),
        )
        self.made.append(made)
        return made

    async def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        async with self._database.single_reads() as connection:
            query = sa.select(table).order_by(*table.primary_key)
            return [dict(row) for row in (await connection.execute(query)).mappings()]

    async def documents(self) -> dict[str, dict[str, Any]]:
        """Return the documents by `owner/slot/epoch`."""
        found = {}
        for row in await self.rows(t.attempt_objects):
            one = json.loads(row["doc"])
            owner = one["metadata"]["ownerReferences"][0]["name"]
            found[f"{owner}/{one['spec']['slot']}/{one['spec']['epoch']}"] = one
        return found

    async def check_end(self, simulation: Simulation) -> None:
        """Check everything that must hold once nothing is left to do."""
        fleet = simulation.fleet
        assert truth.alive(fleet) == []  # P-09
        assert truth.started_twice(fleet) == []  # P-05
        assert truth.misspoken(fleet) == []
        machines = {row["key"]: row for row in await self.rows(t.machines)}
        handles = {row["handle"]: row for row in machines.values()}
        for machine in fleet.machines.values():
            row = handles.get(machine.handle) or machines.get(machine.key)
            assert row is not None, f"{machine.handle} has no row"
            assert row["state"] == "Gone"
            assert machine.gone is not None
            if row["handle"] == machine.handle:
                assert row["gone"] >= _floor(machine.gone), machine  # P-10
        await self._starts_were_granted(fleet)
        await self._nobody_is_named()
        kept = await rows.read(self._database)
        assert_sound(replace(rows.history_of(kept, truth.alive(fleet)), quiet=True))

    async def _nobody_is_named(self) -> None:
        """P-26, SC-203: no document holds a supplier's word for what it has, or its handle."""
        private = {str(row["handle"]) for row in await self.rows(t.machines) if row["handle"]}
        private |= {str(row["key"]) for row in await self.rows(t.machines)}
        for row in await self.rows(t.supplier_offers):
            private |= {f"{row['supplier']}", f"{row['instance_type']}"}
        assert len(private) > 2
        for row in await self.rows(t.attempt_objects):
            document = bytes(row["doc"]).decode()
            assert [name for name in sorted(private) if name in document] == []

    async def _starts_were_granted(self, fleet: Fleet) -> None:
        """P-05, SC-341: every program that truly started had won; what is shown is when it did."""
        shown = {(row["uid"], row["epoch"]): row for row in await self.rows(t.attempts)}
        leases = await self.rows(t.leases)
        won = {row["attempt"] for row in leases if row["won"]}
        for run in fleet.runs:
            row = shown[run.attempt, run.epoch]
            assert row["no"] in won, f"{row['name']} started, and no machine of it had won"
            if row["command_started"] is not None:
                assert row["command_started"] == _floor(run.started), row["name"]
        ran = {(run.attempt, run.epoch) for run in fleet.runs}
        for key, row in shown.items():
            assert row["command_started"] is None or key in ran, row["name"]

    async def check_machine_time(self, simulation: Simulation) -> None:
        """SC-733: no leaked machine-second, nothing billed that was not there.

        Charged and covered seconds together are what the machine truly was there, to the second
        at both ends; but for clocks that are off, of which the supplier's word stands.
        """
        billed: dict[int, float] = defaultdict(float)
        for row in await self.rows(t.cost_segments):
            billed[row["machine"]] += (row["to_ts"] - row["from_ts"]).total_seconds()
        for row in await self.rows(t.machines):
            machine = simulation.fleet.machines.get(row["handle"])
            if machine is None or machine.granted is None or machine.skew:
                continue
            assert machine.gone is not None
            true = (machine.gone - machine.granted).total_seconds()
            if row["billing_start"] is not None:
                assert abs(billed[row["no"]] - true) <= 1, machine.name

    async def empty(self) -> None:
        """Begin anew: the same first rows, the same clock."""
        await self._first_rows.restore()
        self._clock = ManualClock(START)
        self._shared.clock = self._clock


@pytest.fixture
async def world(
    scheduler_database: Database,
    clock: ManualClock,
    first_rows: FirstRows,
    shared_databases: SharedDatabases,
) -> AsyncIterator[World]:
    made = World(scheduler_database, clock, first_rows, shared_databases)
    yield made
    for simulation in made.made:
        await simulation.close()


async def test_a_job_lives_its_whole_life(world: World) -> None:  # scenario 1
    """Scenario 1. Given an empty fleet and the sample catalog, when a minimal Job is submitted,
    then Pending to Succeeded; all seven milestones; the cost is the clock's (SC-501)."""
    simulation = world.begin(sample_fleet())
    await simulation.submit("train", {"template": {"env": {"SIMULATED_SECONDS": "100"}}})

    await simulation.run()

    (document,) = (await world.documents()).values()
    status = document["status"]
    assert status["progress"]["stage"] == "Succeeded"
    times = {name: at for name, at in status["timings"].items() if name.endswith("Time")}
    assert len(times) == 7
    begun, over = (
        datetime.fromisoformat(times[name]) for name in ("billingStartTime", "deletionProvenTime")
    )
    rate = Decimal(status["placement"]["rateUSDPerHour"])
    whole = cumulative_usd(rate, int((over - begun).total_seconds()))
    assert Decimal(status["actual"]["costUSD"]) == whole
    await world.check_end(simulation)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_goes_wrong_nothing_leaks(world: World, seed: int) -> None:
    simulation = world.begin(faulty(0.08), seed=seed, tick=2.0)
    some_jobs(simulation, 4)

    await simulation.run()

    await world.check_end(simulation)
    await world.check_machine_time(simulation)


@pytest.mark.slow  # a whole run for each kind
@pytest.mark.parametrize("kind", sorted(FaultPlan.every(1).rates))
async def test_one_kind_of_fault_that_happens_often_leaks_nothing(
    world: World, kind: FaultKind
) -> None:  # SC-732
    rate = 0.05 if kind is FaultKind.RATE_LIMIT else 0.5
    model = replace(faulty(0), faults=FaultPlan(rates={kind: rate}))
    for seed in range(2, 10):  # until chance has it come, which two machines may be too few for
        await world.empty()
        simulation = world.begin(model, seed=seed, tick=2.0)
        some_jobs(simulation, 1)

        await simulation.run()

        await world.check_end(simulation)
        await world.check_machine_time(simulation)
        if simulation.fleet.happened[kind] > 0 or kind in NEEDS_ANOTHER:
            return
    pytest.fail("the fault never came")


async def test_a_proof_that_is_taken_back_proves_nothing(world: World) -> None:  # SC-610
    model = a_model(faults=FaultPlan(rates={FaultKind.DELETED_BACK: 1.0}))
    simulation = world.begin(model)
    await simulation.submit("train", {"template": {"env": {"SIMULATED_SECONDS": "60"}}})

    await simulation.run()

    await world.check_end(simulation)
    await world.check_machine_time(simulation)


async def test_one_seed_gives_one_history(world: World) -> None:  # SC-730
    told = []
    for _ in range(2):
        await world.empty()
        simulation = world.begin(faulty(0.08), seed=11, tick=2.0)
        some_jobs(simulation, 2)
        await simulation.run()
        documents = [row["doc"] for row in await world.rows(t.attempt_objects)]
        told.append((simulation.clock.now(), simulation.fleet.happened, documents))

    assert told[0] == told[1]


async def test_a_crash_between_any_two_moments_changes_nothing_that_counts(world: World) -> None:
    """P-08, as far as it can be told apart from the delay: nothing leaks, nothing runs twice."""
    simulation = world.begin(faulty(0.05), seed=5, tick=2.0)
    some_jobs(simulation, 2)
    for minutes in range(1, 20, 2):
        simulation.at(START + timedelta(minutes=minutes), crash)

    await simulation.run()

    await world.check_end(simulation)
    await world.check_machine_time(simulation)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_crash_at_any_statement_leaks_nothing(
    clean_database: str, world: World, clock: ManualClock, seed: int
) -> None:
    """P-08, P-09: the process dies at a statement or commit, again and again, and another leads."""
    database = MortalDatabase(clean_database, pinned_now=clock.now)
    simulation = world.begin(faulty(0.05), seed=seed, tick=2.0, database=database)
    some_jobs(simulation, 1)
    chance, crashes = Chance(seed), 0
    while crashes < CRASHES:
        database.left = 1 + int(chance.uniform(f"crash {crashes}") * 240)
        with contextlib.suppress(Killed):
            await simulation.run()
            break
        crashes += 1
        database.left = None
        await simulation.crash()
    database.left = None

    await simulation.run()

    assert crashes > 10
    await world.check_end(simulation)
    await world.check_machine_time(simulation)
    await database.close()


async def test_spot_that_is_taken_away_goes_on_where_it_saved(world: World) -> None:
    spot = Trace(points=((timedelta(0), 2), (timedelta(minutes=10), 0), (timedelta(minutes=12), 2)))
    model = a_model(a_class(spot_capacity=spot, notice=timedelta(seconds=30)))  # SC-731
    simulation = world.begin(model)
    await simulation.submit(
        "train",
        {
            "template": {"env": {"SIMULATED_SECONDS": "1200"}},
            "checkpoint": {"restartable": True, "intervalSeconds": 120},
            "placement": {"interruptible": "Require"},
        },
    )

    await simulation.run()

    found = await world.documents()
    first, second = found["train/0/1"]["status"], found["train/0/2"]["status"]
    assert first["reason"] == "Preempted"  # scenario 20
    assert first["interruption"]["trigger"] == "PreemptionNotice"
    assert first["interruption"]["lostSeconds"] <= 5
    assert found["train/0/2"]["spec"]["restoreFrom"]["cursor"]["completed"] > 0
    assert second["progress"]["stage"] == "Succeeded"
    await world.check_end(simulation)


async def test_a_machine_that_dies_is_replaced(world: World) -> None:  # scenario 21
    dies = Scripted(kind=FaultKind.NODE_LOST, at=timedelta(minutes=4), match="*/train/0/1")
    simulation = world.begin(a_model(programs=SHORT, faults=FaultPlan(scripts=(dies,))))
    await simulation.submit("train", {"template": {"env": {"SIMULATED_SECONDS": "400"}}})

    await simulation.run()

    found = await world.documents()
    assert found["train/0/1"]["status"]["reason"] == "NodeLost"
    assert found["train/0/2"]["status"]["progress"]["stage"] == "Succeeded"
    assert simulation.fleet.happened[FaultKind.NODE_LOST] == 1
    await world.check_end(simulation)


async def test_storms_of_refusals_pass_by(world: World) -> None:
    storms = tuple(
        Scripted(kind=FaultKind.RATE_LIMIT, at=at, until=at + timedelta(minutes=1))
        for at in (timedelta(0), timedelta(minutes=3), timedelta(minutes=8))
    )
    simulation = world.begin(a_model(programs=SHORT, faults=FaultPlan(scripts=storms)))
    some_jobs(simulation, 1)

    await simulation.run()

    assert simulation.fleet.happened[FaultKind.RATE_LIMIT] > 3
    await world.check_end(simulation)
    await world.check_machine_time(simulation)


async def test_a_price_that_rises_mid_run_changes_no_bill(world: World) -> None:  # scenario 42
    rises = PriceChange(at=timedelta(minutes=2), offering=CLASS, factor=Decimal(10))
    simulation = world.begin(a_model(prices=(rises,)))
    await simulation.submit("old", {"template": {"env": {"SIMULATED_SECONDS": "600"}}})
    later = {"template": {"env": {"SIMULATED_SECONDS": "60"}}}
    simulation.submit_at(START + timedelta(minutes=5), "new", later)

    await simulation.run()

    rates = {
        name: one["status"]["placement"]["rateUSDPerHour"]
        for name, one in (await world.documents()).items()
    }
    assert rates == {"old/0/1": "0.06", "new/0/1": "0.60"}
    await world.check_end(simulation)


async def test_a_late_machine_that_no_row_knows_is_deleted(world: World) -> None:
    simulation = world.begin(a_model(a_class(capacity=Trace.always(4))))
    ours = (await world.rows(t.installation))[0]["id"]
    theirs = UUID("00000000-0000-4000-8000-000000000000")

    async def appear(one: Simulation) -> None:
        for key, whose in (("late", ours), ("other", theirs)):
            one.fleet.make(replace(an_intent(key), installation=whose))

    simulation.at(START + timedelta(minutes=1), appear)
    await simulation.run(START + timedelta(minutes=12))

    late, other = simulation.fleet.machines.values()
    assert late.deleting is not None  # scenario 9
    assert other.deleting is None  # scenario 10
    (orphan,) = await world.rows(t.orphans)
    assert (orphan["handle"], orphan["gone"] is not None) == (late.handle, True)


async def test_the_start_deadline_ends_what_no_machine_is_free_for(world: World) -> None:
    simulation = world.begin(a_model(a_class(capacity=Trace.always(0))))  # scenario 3
    await simulation.submit("train", {})

    await simulation.run()

    (document,) = (await world.documents()).values()
    assert document["status"]["reason"] == "NoCapacity"
    assert simulation.clock.now() >= START + timedelta(hours=1)
    assert simulation.fleet.machines == {}


async def test_a_stop_while_everything_goes_wrong_ends_all(world: World) -> None:
    simulation = world.begin(faulty(0.1), seed=3, tick=2.0)
    some_jobs(simulation, 2)
    for number in range(2):
        at = START + timedelta(minutes=4 + number)
        simulation.ask_at(at, Verb.STOP, f"job-{number}")

    await simulation.run()

    await world.check_end(simulation)
    await world.check_machine_time(simulation)
    states = {row["state"] for row in await world.rows(t.workloads)}
    assert states <= {"Stopped", "Succeeded", "Failed"}


async def test_a_cancel_at_any_moment_leaves_no_machine(world: World) -> None:
    """Field case D03: Jobs are stopped at every stage, on a supplier that takes its time."""
    slow = Spread(median=timedelta(seconds=5), sigma=0.5)
    room = a_class(capacity=Trace.always(CANCELS), grant=slow, boot=slow, teardown=slow)
    simulation = world.begin(a_model(room), tick=0.25)
    met: set[str] = set()
    forever = {"template": {"env": {"SIMULATED_SECONDS": "3600"}}, "stopGraceSeconds": 5}
    for number in range(CANCELS):
        owner = f"job-{number}"
        begun = START + timedelta(seconds=number)

        async def stop(one: Simulation, owner: str = owner) -> None:
            shown = (await world.documents()).get(f"{owner}/0/1")
            met.add(shown["status"]["progress"]["stage"] if shown else "not there yet")
            await one.ask(Verb.STOP, owner)

        simulation.submit_at(begun, owner, forever)
        simulation.at(begun + number * timedelta(seconds=0.8), stop)

    await simulation.run()

    assert met >= {"Acquiring", "Starting", "Running"}
    for document in (await world.documents()).values():
        status = document["status"]
        assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
        assert status["interruption"]["trigger"] == "User"
    await world.check_end(simulation)
    await world.check_machine_time(simulation)


def faulty(rate: float) -> FleetModel:
    """A small fleet where every kind of fault happens so often."""
    rates = {kind: p for kind, p in FaultPlan.every(rate).rates.items() if kind not in TOO_OFTEN}
    return replace(
        sample_fleet(machines=6),
        programs=SHORT,
        faults=FaultPlan(rates=rates),
        heartbeat=timedelta(seconds=25),
    )


def some_jobs(simulation: Simulation, jobs: int) -> None:
    """Let Jobs arrive, a minute apart: some restartable, every third a gang of two."""
    for number in range(jobs):
        gang = number % 3 == 2
        spec: dict[str, Any] = {
            "completions": 2,
            "gang": gang,
            "checkpoint": {"restartable": gang or number % 2 == 0, "intervalSeconds": 60},
            "restart": {"maxRetries": 1},
        }
        if not gang:
            spec["parallelism"] = 2
        at = START + timedelta(minutes=number)
        simulation.submit_at(at, f"job-{number}", spec)


async def crash(simulation: Simulation) -> None:
    """Let the scheduler process die, with what it had under way, and another one lead."""
    await simulation.crash()


def _floor(at: datetime) -> datetime:
    return at.replace(microsecond=0)
