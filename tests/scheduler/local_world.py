"""The whole loop over the local supplier: real processes, a real socket, a real database."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import sqlalchemy as sa
from tests.history import rows
from tests.history.checking import assert_sound
from tests.history.processes import running
from tests.scheduler.world import World

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.scheduler import Scheduler
from nodus_api.scheduler.context import Pace
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
    async def scheduling(self, *, pace: Pace | None = None) -> AsyncIterator[Scheduler]:
        """Run a scheduler and its report server, and end both as a crash would."""
        scheduler = Scheduler(self.database, self.supplier, SystemClock(), pace=pace)
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


@asynccontextmanager
async def a_local_world(
    database_url: str, *, slots: int = 2, now: Callable[[], datetime] | None = None
) -> AsyncIterator[LocalWorld]:
    """Yield a world of real processes; `now` is the database's clock, None for its own."""
    root = Path(tempfile.mkdtemp(prefix="nodus-"))
    database = Database(database_url, role=Role.SCHEDULER, plan_once=True, pinned_now=now)
    async with database.transaction(read_only=True) as connection:
        installation: UUID = (await connection.execute(sa.select(t.installation.c.id))).scalar_one()
    supplier = LocalSupplier(
        root / "machines",
        installation=installation,
        runner_socket=root / "runner.sock",
        slots=slots,
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
