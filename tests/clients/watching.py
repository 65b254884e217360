"""Client programs as child processes, and what they tell."""

import asyncio
import json
import os
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodus_api.clock import SystemClock

_LINE = 1 << 24  # bytes; a store is one line
_PATIENCE = 30.0
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Told:
    """One line of a client, and when it came (monotonic seconds)."""

    at: float
    said: Mapping[str, Any]


@dataclass
class Program:
    """One process that runs one client or several; `what` they said, by client."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    told: dict[str, list[Told]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[str, int] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    code: int | None = None
    _process: "asyncio.subprocess.Process | None" = None
    _reader: "asyncio.Task[None] | None" = None

    async def start(self) -> None:
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment},
                limit=_LINE,
            )
        self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Ask it to end, by SIGTERM, and read all that it says until then; kill it if it stays."""
        if self._process is None or self._reader is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._reader
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
        self.code = await self._process.wait()
        self._process = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def errors(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            client = said.pop("client")
            self.told[client].append(Told(CLOCK.monotonic(), said))
            if "ready" in said:
                self.ready.add(client)
            if "event" in said:
                self.newest[client] = max(self.newest.get(client, 0), int(said["rv"]))
