"""The client of the public API, cancelled while it connects: as `--wait` may be."""

import asyncio
import logging
from pathlib import Path

import pytest
import uvloop

from nodus_api.cli.api_client import ApiClient
from nodus_api.clock import SystemClock
from nodus_api.tasks import end, spawn
from nodus_api.tls import client_context, ensure_certificates, server_context

TIMES = 300
APART = 0.000_03  # seconds; the last comes well after a handshake


def test_a_cancelled_connection_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whenever it comes; of a handshake that is cut off uvloop says 'Fatal error'."""
    files = ensure_certificates(tmp_path, names=["localhost"], clock=SystemClock())
    assert files.ca is not None
    context = client_context(files.ca)

    async def cancelled() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.transport.abort()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server_context(files))
        port = server.sockets[0].getsockname()[1]
        client = ApiClient(server=f"https://localhost:{port}", context=context, token=tmp_path.name)
        for number in range(TIMES):
            asking = spawn("asking", client.get("/"))
            await asyncio.sleep(number * APART)
            await end(asking)
        server.close()

    with caplog.at_level(logging.WARNING, logger="asyncio"):
        uvloop.run(cancelled())

    assert caplog.messages == []
