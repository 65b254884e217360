"""Machines that nobody uses are deleted at every leader change, wherever a leader dies (SC-611)."""

import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import sqlalchemy as sa
from tests.conftest import START, SharedDatabases
from tests.scheduler.failpoints import FAULTS, Failpoints, Plan, Site
from tests.scheduler.mortal_world import MortalWorld, TrueSupplier
from tests.scheduler.saved_rows import RowKeeper, SavedRows
from tests.scheduler.sweeping import SEED, Run, a_seed, chosen, my_part
from tests.scheduler.world import Runner

from nodus_api.clock import ManualClock
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Role
from nodus_api.suppliers.supplier import MachineCondition, MachineView

pytestmark = pytest.mark.slow  # many whole lives
ANOTHER = UUID("5e1f0000-0000-4000-8000-000000000001")
NO_ROW, ROW_GONE, LEFT = "no row", "its row is Gone", "its Attempt ended long ago"
LONG_AFTER = 601.0
"""Past the 10 minutes after which an Attempt's unreleased machine is nobody's."""
SWEEPS = 3
RUNS = 6
BETWEEN_SWEEPS = 301.0


@dataclass
class Scene:
    """Rows and machines as a leader leaves them: three orphans, a machine in use, two strangers."""

    rows: SavedRows
    supplier: dict[str, Any]
    seconds: float
    used: str
    """The key of the machine in use, whose runner beats."""
    said: int
    causes: dict[str, str]
    """Why a machine is an orphan, by its key."""
    kept: set[str]
    """Keys of machines that no sweep may touch."""


def a_world(databases: SharedDatabases) -> MortalWorld:
    clock = databases.clock = ManualClock(START)
    return MortalWorld(databases.by_role[Role.SCHEDULER], clock, TrueSupplier(clock))


@pytest.fixture
async def keeper(clean_database: str) -> AsyncIterator[RowKeeper]:
    connection = await asyncpg.connect(clean_database)
    yield RowKeeper(connection)
    await connection.close()


@pytest.fixture
async def scene(keeper: RowKeeper, shared_databases: SharedDatabases) -> Scene:
    world = a_world(shared_databases)
    supplier = world.supplier
    assert isinstance(supplier, TrueSupplier)
    await world.order_job("first", completions=3, parallelism=3)
    await world.live_until_settled()
    slots = {one.incarnation.slot: one for one in supplier.intents.values()}
    ours = supplier.machines[slots["0"].key]
    for slot in ("0", "1", "2"):
        await world.say(slots[slot], "registered", checks={})
        await world.live_until_settled(1)
        await world.say(slots[slot], "canStart")
        await world.live_until_settled(1)
        await world.say(slots[slot], "started")
    for slot in ("1", "2"):
        await world.say(slots[slot], "exited", exitCode=0, signal=None, oom=False)
    left = supplier.machines[slots["2"].key]
    await world.live_until_settled()
    await world.live_until_settled(3)
    gone, forgotten = slots["1"].key, slots["2"].key
    assert gone in supplier.ended
    supplier.machines |= {
        gone: _machine(gone, ours.installation),  # it comes back, as from a restored image
        forgotten: left,
        "0" * 64: _machine("0" * 64, ours.installation),
        "1" * 64: _machine("1" * 64, ANOTHER),
        "2" * 64: _machine("2" * 64, None),
    }
    supplier.ended.clear()
    supplier.asked_to_go.clear()
    await _forget(world, forgotten)
    await world.clock.advance(LONG_AFTER)
    return Scene(
        rows=await keeper.save(),
        supplier=supplier.truth(),
        seconds=world.clock.monotonic(),
        used=slots["0"].key,
        said=world.runners[slots["0"].key].n,
        causes={"0" * 64: NO_ROW, gone: ROW_GONE, forgotten: LEFT},
        kept={slots["0"].key, "1" * 64, "2" * 64},
    )


async def _forget(world: MortalWorld, key: str) -> None:
    """Make an ended Attempt's machine one that nobody released: no step of the product can."""
    no = sa.select(t.machines.c.no).where(t.machines.c.key == key).scalar_subquery()
    state = {"state": "Registered", "releasing": None, "gone": None, "next_try": None}
    async with world.database.transaction() as connection:
        await connection.execute(
            sa.update(t.leases)
            .where(t.leases.c.machine == no)
            .values(held=sa.func.tstzrange(sa.func.lower(t.leases.c.held), sa.null()))
        )
        await connection.execute(sa.update(t.machines).where(t.machines.c.key == key).values(state))


def _machine(key: str, installation: UUID | None) -> MachineView:
    return MachineView(
        handle=f"h-{key[:12]}",
        key=key,
        condition=MachineCondition.RUNNING,
        billing_start=START,
        installation=installation,
    )


async def swept(
    keeper: RowKeeper, databases: SharedDatabases, scene: Scene, plan: Plan | None = None
) -> MortalWorld:
    """Let a new leader sweep the scene, and the next ones if it dies; return the world after."""
    world = a_world(databases)
    assert isinstance(world.supplier, TrueSupplier)
    await keeper.restore(scene.rows)
    world.supplier.come_back(copy.copy(scene.supplier))
    await world.clock.advance(scene.seconds)
    world.points = Failpoints(plan)
    used = world.supplier.intents[scene.used]
    world.runners[scene.used] = Runner(world.database, used, scene.said)
    for _ in range(SWEEPS):
        await world.say(used, "heartbeat")
        await world.live_until_settled()
        await world.clock.advance(BETWEEN_SWEEPS)
    return world


async def assert_clean(world: MortalWorld, scene: Scene) -> None:
    supplier = world.supplier
    assert isinstance(supplier, TrueSupplier)
    assert set(supplier.machines) == scene.kept  # scenario 10: a stranger is not touched
    noted = {row["handle"]: row for row in await world.rows(t.orphans)}
    assert len(noted) == len(await world.rows(t.orphans)), "an orphan is recorded twice"
    causes = {f"h-{key[:12]}": cause for key, cause in scene.causes.items()}
    assert {handle: row["cause"] for handle, row in noted.items()} == causes
    assert [handle for handle, row in noted.items() if row["gone"] is None] == []


async def test_a_new_leader_sweeps_at_once(  # scenarios 9, 10, SC-611
    keeper: RowKeeper, shared_databases: SharedDatabases, scene: Scene
) -> None:
    world = await swept(keeper, shared_databases, scene)
    await assert_clean(world, scene)
    found = {row["found"] for row in await world.rows(t.orphans)}
    assert {(at - START).total_seconds() for at in found} == {scene.seconds}


async def test_a_leader_may_die_anywhere_in_its_sweep(  # SC-611, P-08
    keeper: RowKeeper, shared_databases: SharedDatabases, scene: Scene
) -> None:
    world = await swept(keeper, shared_databases, scene)
    sites = [(no, one) for no, one in enumerate(world.points.sites) if _of_a_sweep(one)]
    runs = [Run(0, no, site, fault) for no, site in sites for fault in FAULTS[site.kind]]
    seed = a_seed()
    picked = my_part(chosen(runs, seed, RUNS))
    for run in picked:
        try:
            plan = Plan(run.number, run.fault)
            await assert_clean(await swept(keeper, shared_databases, scene, plan), scene)
        except BaseException as error:
            error.add_note(f"{run}; {SEED}={seed}")
            raise
    some = f"{len(picked)} of {len(runs)} runs; {SEED}={seed}"
    print(f"orphan sweep: {len(sites)} failpoints; {some}")  # noqa: T201


def _of_a_sweep(site: Site) -> bool:
    return "sweep_orphans" in site.name or "releasing." in site.name
