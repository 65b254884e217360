"""The soak's processes: replicas that may be killed, and the two that write."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodus_api.bench.rig import serve_command

_STOP_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class Replica:
    """A `nodus serve` on a port of its own, and how much memory each of its processes took."""

    url: str
    folder: Path
    port: int
    samples: list[tuple[float, float]] = field(default_factory=list)
    """Of the process that runs now: seconds since the soak began, and MB."""
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it anew."""
        self.samples = []
        with (self.folder / f"serve-{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- our own program
                serve_command(self.url, self.folder, self.port),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """End it at once, as a machine that dies."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def sample(self, at: float) -> None:
        """Take note of its memory."""
        if self._process is None:
            return
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except OSError:
            return
        self.samples.append((at, pages * os.sysconf("SC_PAGE_SIZE") / 1e6))

    @property
    def died(self) -> bool:
        """Whether it ended by itself."""
        return self._process is not None and self._process.poll() is not None


@dataclass(slots=True)
class Program:
    """One of our programs, which tells in JSON what it did when SIGTERM ends it."""

    name: str
    process: asyncio.subprocess.Process

    async def end(self) -> dict[str, Any] | None:
        """End it and return what it did; None if it failed."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                answered, _ = await self.process.communicate()
        except TimeoutError:
            await self.kill()
            return None
        if self.process.returncode != 0:
            return None
        told: dict[str, Any] = json.loads(answered)
        return told

    async def kill(self) -> None:
        """End it at once."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def start(
    name: str, words: Sequence[str], log: Path, given: str = "", **environment: str
) -> Program:
    """Start a Python module with a JSON on its standard input, its log in a file."""
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            env={**os.environ, **environment},
        )
    assert process.stdin is not None  # noqa: S101 - a pipe
    process.stdin.write(given.encode())
    process.stdin.close()
    return Program(name, process)
