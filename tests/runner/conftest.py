"""A work directory, a report server, and runners that are started on them as real processes."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.runner.report_server import ReportServer

import nodus_api
from nodus_api.runner import files
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.session import members

SOURCE = str(Path(nodus_api.__file__).parent.parent)


@dataclass
class Bench:
    """One machine's directory beside one server."""

    root: Path
    server: ReportServer
    directory: Path
    runners: list[asyncio.subprocess.Process] = field(default_factory=list)

    def prepare(self, *command: str, **changes: Any) -> RunnerIntent:
        """Write the intent of a command."""
        intent = RunnerIntent(
            installation="6f1c3a52-1f1c-4c0e-9a70-0d3f9a6b2f10",
            machine="m1",
            attempt="0b6a7f0e-9a4e-4a6e-8f3c-2f7a5f6b1c11",
            epoch=changes.pop("epoch", 1),
            fence=1,
            command=command,
            report_to=changes.pop("report_to", f"unix:{self.server.path}"),
            environment={"PATH": os.environ["PATH"], **changes.pop("environment", {})},
            **changes,
        )
        files.write_json(self.directory / files.INTENT, asdict(intent))
        files.write_text(self.directory / files.TOKEN, "secret-of-m1\n")
        return intent

    async def run(self, *how: str) -> asyncio.subprocess.Process:
        """Start a runner on the directory, as a supplier does."""
        command = how or ("-P", "-S", "-m", "nodus_api.runner")
        with (self.directory / files.LOG).open("ab") as log:
            runner = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                str(self.directory),
                env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "OUR_SECRET": "hunter2"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.runners.append(runner)
        return runner

    async def finished(self, *, seconds: float = 20) -> int:
        """Return the exit code of the first runner once it has ended."""
        async with asyncio.timeout(seconds):
            return await self.runners[0].wait()

    async def until(self, fact: Callable[[], bool], *, seconds: float = 20) -> None:
        """Wait for a fact about files or processes."""
        async with asyncio.timeout(seconds):
            while not fact():  # noqa: ASYNC110 - other processes set no event of ours
                await asyncio.sleep(0.01)

    def exit_json(self) -> dict[str, Any]:
        """Return the final report of the directory."""
        content: dict[str, Any] = json.loads((self.directory / files.EXIT).read_bytes())
        return content

    def live(self) -> list[int]:
        """Return the live processes of the first runner's session."""
        return [stat.pid for stat in members(self.runners[0].pid)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """The path is short, because a socket's path has at most 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="nodus-"))
    directory = root / "m1"
    directory.mkdir()
    server = ReportServer(root / "runner.sock")
    await server.start()
    made = Bench(root, server, directory)
    yield made
    for runner in made.runners:
        for stat in members(runner.pid):
            with suppress(ProcessLookupError):
                os.kill(stat.pid, signal.SIGKILL)
        await runner.wait()
    await server.stop()
    shutil.rmtree(root)
