"""A local fleet in a directory of its own, with a report server that lets programs start."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from nodus_api.clock import SystemClock
from nodus_api.suppliers.local import LocalSupplier
from tests.runner.report_server import ReportServer
from tests.suppliers.conformance import INSTALLATION


@dataclass
class LocalFleet:
    root: Path
    server: ReportServer
    supplier: LocalSupplier

    def restarted(self) -> LocalSupplier:
        return a_supplier(self.root, self.server)


def a_supplier(root: Path, server: ReportServer, *, slots: int = 2) -> LocalSupplier:
    return LocalSupplier(
        root / "machines",
        installation=INSTALLATION,
        runner_socket=server.path,
        slots=slots,
        rate=Decimal("0.06"),
        clock=SystemClock(),
        delete_grace=timedelta(seconds=1),
    )


@pytest.fixture
async def fleet() -> AsyncIterator[LocalFleet]:
    """The path is short, because a socket's path has at most 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="nodus-"))
    server = ReportServer(root / "runner.sock")
    await server.start()
    local = LocalFleet(root, server, a_supplier(root, server))
    yield local
    async for view in local.supplier.list_owned(INSTALLATION):
        await local.supplier.delete(view.handle)
    await server.stop()
    shutil.rmtree(root)
