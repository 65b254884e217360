"""A local fleet in a directory of its own, with a report server that lets programs start."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from tests.runner.report_server import ReportServer
from tests.suppliers.conformance import INSTALLATION

from nodus_api.clock import Clock, SystemClock
from nodus_api.suppliers.local import LocalSupplier


@dataclass
class LocalFleet:
    root: Path
    server: ReportServer
    supplier: LocalSupplier
    clock: Clock = field(default_factory=SystemClock)

    def restarted(self) -> LocalSupplier:
        return a_supplier(self.root, self.server)


def a_supplier(
    root: Path, server: ReportServer, *, environment: Mapping[str, str] | None = None
) -> LocalSupplier:
    return LocalSupplier(
        root / "machines",
        installation=INSTALLATION,
        runner_socket=server.path,
        slots=2,
        rate=Decimal("0.06"),
        clock=SystemClock(),
        environment=environment,
        delete_grace=timedelta(seconds=1),
    )


@asynccontextmanager
async def local_fleet() -> AsyncIterator[LocalFleet]:
    """A fleet of its own; the path is short, because a socket's path has at most 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="nodus-"))
    server = ReportServer(root / "runner.sock")
    await server.start()
    local = LocalFleet(root, server, a_supplier(root, server))
    yield local
    async for view in local.supplier.list_owned(INSTALLATION):
        await local.supplier.delete(view.handle)
    await server.stop()
    shutil.rmtree(root)


@pytest.fixture
async def fleet() -> AsyncIterator[LocalFleet]:
    async with local_fleet() as made:
        yield made
