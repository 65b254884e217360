"""A server in process on a real socket, with TLS or without."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
from tests.apiserver.conftest import ADMIN, Replica, fill, replica_of
from tests.watchcache.conftest import until
from tests.watchcache.feed_log import FeedLog

from nodus_api.apiserver import ServerOptions
from nodus_api.apiserver.serving import DrainingServer
from nodus_api.clock import Clock, ManualClock, SystemClock
from nodus_api.tasks import spawn
from nodus_api.tls import client_context, ensure_certificates, server_context
from nodus_api.watchcache import Window

AUTHORIZATION = {"Authorization": f"Bearer {ADMIN.text}"}
QUICK = ServerOptions(
    public_url="https://nodus.test",
    shutdown_delay=timedelta(0),
    shutdown_watch_grace=timedelta(0),
    header_timeout=timedelta(seconds=0.3),
    stuck_watch_timeout=timedelta(seconds=0.5),
    max_header_bytes=16 * 1024,
)
SEND_BUFFER = 64 * 1024


@dataclass
class Served:
    replica: Replica
    server: DrainingServer
    serving: "asyncio.Task[None]"
    port: int
    context: ssl.SSLContext
    http: httpx.AsyncClient

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """One connection, cut off at the end."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.context, server_hostname="localhost"
        )
        try:
            yield reader, writer
        finally:
            await cut_off(writer)

    async def exchange(self, raw: bytes) -> bytes:
        """Send bytes and return all that comes back until the server closes."""
        async with self.connect() as (reader, writer), asyncio.timeout(5):
            writer.write(raw)
            return await reader.read()


async def cut_off(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


@asynccontextmanager
async def served(
    certificates: Path,
    options: ServerOptions = QUICK,
    *,
    clock: Clock | None = None,
    window: Window | None = None,
    log: FeedLog | None = None,
    port: int = 0,
) -> AsyncIterator[Served]:
    """A server over TLS, of a log of its own or of one that others have, too."""
    files = ensure_certificates(certificates, names=["localhost", "127.0.0.1"], clock=SystemClock())
    assert files.ca is not None
    replica = replica_of(options=options, clock=clock or SystemClock(), window=window, log=log)
    if log is None:
        fill(replica)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # its connections' too: else the kernel takes megabytes for whoever reads nothing
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    listening.bind(("127.0.0.1", port))
    started = asyncio.Event()
    server = DrainingServer(replica.app, server_context(files), started.set)
    port = listening.getsockname()[1]
    serving = spawn("server", server.serve(sockets=[listening]))
    context = client_context(files.ca)
    async with asyncio.timeout(5):
        await started.wait()
    await until(lambda: replica.cache.ready and replica.app.access.view is not None)
    http = httpx.AsyncClient(
        base_url=f"https://localhost:{port}", verify=context, headers=AUTHORIZATION, timeout=5
    )
    try:
        yield Served(replica, server, serving, port, context, http)
    finally:
        await http.aclose()
        server.begin_drain()
        async with asyncio.timeout(10):
            while isinstance(replica.clock, ManualClock) and not serving.done():
                await replica.clock.advance(1)
                await asyncio.sleep(0.001)
            await serving


@asynccontextmanager
async def plain() -> AsyncIterator[tuple[Replica, int]]:
    """A server without TLS, and its port."""
    replica = replica_of(options=QUICK, clock=SystemClock())
    fill(replica)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    started = asyncio.Event()
    server = DrainingServer(replica.app, None, started.set)
    port = listening.getsockname()[1]
    serving = spawn("server", server.serve(sockets=[listening]))
    async with asyncio.timeout(5):
        await started.wait()
    await until(lambda: replica.cache.ready and replica.app.access.view is not None)
    try:
        yield replica, port
    finally:
        server.begin_drain()
        async with asyncio.timeout(10):
            await serving
