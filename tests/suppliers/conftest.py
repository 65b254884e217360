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
from tests.suppliers.conformance import INSTALLATION, Does, a_moment

from nodus_api.clock import Clock, SystemClock
from nodus_api.suppliers.local import LocalSupplier
from nodus_api.suppliers.supplier import Program


@dataclass
class LocalFleet:
    root: Path
    server: ReportServer
    supplier: LocalSupplier
    clock: Clock = field(default_factory=SystemClock)

    def restarted(self) -> LocalSupplier:
        return a_supplier(self.root, self.server)

    def program(self, name: str, does: Does) -> Program:
        """Return a shell that writes down its start and does the rest."""
        lines = []
        if does.on_stop is not None:
            lines.append(f"trap 'exit {does.on_stop}' TERM")
        if does.ignores_stop:
            lines.append("trap '' TERM")
        lines.append(f"echo started >> {self.root}/{name}.starts")
        if does.waits:
            lines.append(f"while [ ! -e {self.root}/{name}.end ]; do sleep 0.02; done")
        last = f"exit {does.exit_code}" if does.signal is None else f"kill -{does.signal} $$"
        return Program(command=("/bin/sh", "-c", "; ".join((*lines, last))))

    def unstartable(self) -> Program:
        return Program(command=("/no/such/program",))

    def starts(self, name: str) -> int:
        file = self.root / f"{name}.starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def tell_to_end(self, name: str) -> None:
        (self.root / f"{name}.end").touch()

    async def pause(self) -> None:
        await a_moment()


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
