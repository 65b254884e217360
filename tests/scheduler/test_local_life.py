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

import pytest
import sqlalchemy as sa
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
    yield LocalWorld(database, supplier, root / "runner.sock", world)
    async for view in supplier.list_owned(installation):
        await supplier.delete(view.handle)
    await database.close()
    shutil.rmtree(root)


async def test_a_real_process_lives_and_is_proven_gone(local: LocalWorld) -> None:
    world = local.world
    await world.submit(template={"command": [sys.executable, "-c", "print('worked')"]})
    async with local.scheduling():

        async def proven() -> bool:
            documents = await world.documents()
            status = documents.get("0/1", {}).get("status", {})
            return "deletionProvenTime" in status.get("timings", {})

        await local.until(proven)
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["exitCode"] == 0
    assert (await world.workload())["state"] == "Succeeded"
