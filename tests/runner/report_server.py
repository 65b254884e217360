"""A report server on a Unix socket that a test scripts: it keeps what came and answers as told."""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

Report = dict[str, Any]
Reply = tuple[int, dict[str, Any]]
Policy = Callable[[Report], Reply]

GRANT: Reply = (200, {"orders": [], "granted": True, "lastSeq": 0})
OK: Reply = (200, {"orders": []})
STALE: Reply = (409, {"kind": "Status", "reason": "StaleEpoch", "code": 409})


def granting(report: Report) -> Reply:
    """Let every program start at once."""
    return GRANT if report["kind"] == "canStart" else OK


@dataclass
class ReportServer:
    """Reports in order of arrival, the greatest number of them in flight at once, and waiting."""

    path: Path
    policy: Policy = granting
    reports: list[Report] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    most_in_flight: int = 0
    _in_flight: int = 0
    _server: asyncio.Server | None = None
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def start(self) -> None:
        """Listen; what an earlier server left of the socket is removed."""
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def listen_tls(self, context: ssl.SSLContext) -> int:
        """Listen on loopback with TLS instead; return the port."""
        await self.stop()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Go away, with the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        self.path.unlink(missing_ok=True)

    def kinds(self) -> list[str]:
        """Return the kinds that came, without heartbeats."""
        return [report["kind"] for report in self.reports if report["kind"] != "heartbeat"]

    async def wait_for(
        self, kind: str, *, count: int = 1, machine: str | None = None, seconds: float = 20
    ) -> Report:
        """Return the count-th report of a kind (of one machine), as soon as it has come."""

        def found() -> list[Report]:
            return [
                report
                for report in self.reports
                if report["kind"] == kind and machine in (None, report["machine"])
            ]

        async with asyncio.timeout(seconds), self._came:
            await self._came.wait_for(lambda: len(found()) >= count)
        return found()[count - 1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            headers = dict(
                line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line
            )
            body = await reader.readexactly(int(headers["Content-Length"]))
        except asyncio.IncompleteReadError:  # a runner that was killed
            writer.close()
            return
        assert head.startswith(b"POST /runner/v1/report HTTP/1.1\r\n")
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        report = json.loads(body)
        status, answer = self.policy(report)
        async with self._came:
            self.reports.append(report)
            self.tokens.add(headers["Authorization"])
            self._came.notify_all()
        content = json.dumps(answer).encode()
        self._in_flight -= 1
        head_line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        writer.write(f"{head_line}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        writer.close()
