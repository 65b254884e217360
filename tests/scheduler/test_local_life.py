"""Real processes: the whole loop with the local supplier, the runner and the report socket."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest
import sqlalchemy as sa
from tests.history import rows
from tests.history.checking import assert_sound
from tests.history.processes import running
from tests.scheduler.world import World

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.scheduler import Scheduler
from nodus_api.scheduler.listening import unix_socket
from nodus_api.scheduler.reports import ReportServer
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.local import LocalSupplier
from nodus_api.tasks import spawn


@dataclass
class LocalWorld:
    """The real thing but for the command line: one database, one host, one socket."""

    database: Database
    supplier: LocalSupplier
    socket: Path
    world: World
    installation: UUID

    @asynccontextmanager
    async def scheduling(self) -> AsyncIterator[Scheduler]:
        """Run a scheduler and its report server, and end both as a crash would."""
        scheduler = Scheduler(self.database, self.supplier, SystemClock())
        server = ReportServer(
            ReportStore(self.database),
            wake=scheduler.wake,
            metrics=scheduler.metrics,
            new_id=uuid4,
        )
        stop = asyncio.Event()
        tasks = [
            spawn("scheduler", scheduler.run(stop)),
            spawn("reports", server.serve([unix_socket(self.socket)], stop)),
        ]
        try:
            yield scheduler
        finally:
            stop.set()
            for task in tasks:
                await task

    async def proven(self) -> bool:
        """Whether the first Attempt's machine is proven gone."""
        status = (await self.world.documents()).get("0/1", {}).get("status", {})
        return "deletionProvenTime" in status.get("timings", {})

    def stage_is(self, stage: str) -> Callable[[], Awaitable[bool]]:
        async def reached() -> bool:
            status = (await self.world.documents()).get("0/1", {}).get("status", {})
            return bool(status.get("progress", {}).get("stage") == stage)

        return reached

    async def until(self, what: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not await what():
                await SystemClock().sleep(0.05)


@pytest.fixture
async def local(clean_database: str) -> AsyncIterator[LocalWorld]:
    root = Path(tempfile.mkdtemp(prefix="nodus-"))
    database = Database(clean_database, role=Role.SCHEDULER)
    async with database.transaction(read_only=True) as connection:
        installation: UUID = (await connection.execute(sa.select(t.installation.c.id))).scalar_one()
    supplier = LocalSupplier(
        root / "machines",
        installation=installation,
        runner_socket=root / "runner.sock",
        slots=2,
        rate=Decimal("0.06"),
        clock=SystemClock(),
        delete_grace=timedelta(seconds=1),
    )
    world = World(database, ManualClock(SystemClock().now()), supplier)
    yield LocalWorld(database, supplier, root / "runner.sock", world, installation)
    kept = await rows.read(database)
    assert_sound(rows.history_of(kept, running(root / "machines", kept.machines)))
    async for view in supplier.list_owned(installation):
        await supplier.delete(view.handle)
    await database.close()
    shutil.rmtree(root)


async def test_a_real_process_lives_and_is_proven_gone(local: LocalWorld) -> None:
    world = local.world
    await world.submit(template={"command": [sys.executable, "-c", "print('worked')"]})
    async with local.scheduling():
        await local.until(local.proven)
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["exitCode"] == 0
    assert (await world.workload())["state"] == "Succeeded"


async def test_a_running_program_outlives_its_scheduler(local: LocalWorld) -> None:  # SC-710
    world, folder = local.world, local.socket.parent
    program = (
        "import pathlib, time\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "with open(folder / 'starts', 'a') as starts: starts.write('started\\n')\n"
        "while not (folder / 'go').exists(): time.sleep(0.02)\n"
        "raise SystemExit(3)\n"
    )
    await world.submit(template={"command": [sys.executable, "-c", program]})
    async with local.scheduling():
        await local.until(local.stage_is("Running"))
    tokens = [row["token"] for row in await world.rows(t.leader)]

    (folder / "go").touch()
    (machine,) = [view async for view in local.supplier.list_owned(local.installation)]

    async def ended() -> bool:
        seen = await local.supplier.observe([machine.handle])
        return seen[machine.handle].exit is not None

    await local.until(ended)  # nobody schedules: the end is kept on the machine
    assert await world.stage() == "Running"

    async with local.scheduling():
        await local.until(local.proven)
    status = await world.status()
    assert (status["reason"], status["exitCode"]) == ("CustomerExit", 3)
    assert (folder / "starts").read_text().splitlines() == ["started"]  # P-05
    assert [row["token"] for row in await world.rows(t.leader)] == [tokens[0] + 1]
    assert len(await world.rows(t.machines)) == 1


async def test_a_running_program_is_stopped(local: LocalWorld) -> None:  # T17
    world = local.world
    program = "import time; time.sleep(600)"
    await world.submit(template={"command": [sys.executable, "-c", program]}, stopGraceSeconds=5)
    async with local.scheduling() as scheduler:
        await local.until(local.stage_is("Running"))
        await world.ask("stop")
        await scheduler.wake()
        await local.until(local.proven)
    status = await world.status()
    assert (status["phase"], status["reason"], status["signal"]) == ("Cancelled", "Stopped", 15)
    assert status["interruption"]["trigger"] == "User"


async def test_one_scheduler_leads_and_the_other_takes_over(  # SC-601, SC-604
    local: LocalWorld, clean_database: str
) -> None:
    stop = asyncio.Event()
    schedulers = [
        Scheduler(local.database, local.supplier, SystemClock(), holder=name)
        for name in ("one", "two")
    ]
    tasks = [spawn("scheduler", scheduler.run(stop)) for scheduler in schedulers]
    operator = await asyncpg.connect(clean_database)
    try:

        async def one_leads() -> bool:
            return sum(scheduler.leading for scheduler in schedulers) == 1

        await local.until(one_leads)
        leader = next(one for one in schedulers if one.leading)
        await operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND granted AND objid = 7237381"
        )

        async def another_leads() -> bool:
            return not leader.leading and await one_leads()

        await local.until(another_leads)
        assert [row["token"] for row in await local.world.rows(t.leader)] == [2]
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        await operator.close()
    assert not any(scheduler.leading for scheduler in schedulers)
