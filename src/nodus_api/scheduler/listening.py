"""How the scheduler process speaks HTTP: a small ASGI application over sockets it is given.

Two listeners use it, reports and health (SC-645); neither needs routing, so there is none.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from nodus_api.metav1.errors import RequestEntityTooLarge
from nodus_api.tasks import end, spawn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One whole answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        """Write the answer."""
        headers = {
            "content-type": self.content_type,
            "content-length": str(len(self.body)),
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        } | {name.lower(): value for name, value in self.headers.items()}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": self.body})


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return the request's body; raises RequestEntityTooLarge beyond `limit` bytes."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        body += bytes(message.get("body", b""))
        if len(body) > limit:
            raise RequestEntityTooLarge(limit)
        if not message.get("more_body", False):
            return body


def unix_socket(path: Path) -> socket.socket:
    """Bind a Unix socket that only this user may use (mode 0600), in place of a stale one."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


async def serve(
    app: Application,
    *,
    sockets: Sequence[socket.socket],
    stop: asyncio.Event,
    ssl_context: ssl.SSLContext | None = None,
) -> None:
    """Serve until `stop` is set, then end open requests within 5 s.

    The sockets are bound, not listening yet; they are closed in the end.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    config.load()
    config.ssl = ssl_context
    server = _Server(config)
    serving = spawn("a listener of the scheduler", server.serve(list(sockets)))
    stopping = spawn("stop of a listener", stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        await end(stopping)
        await end(serving)


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handlers: the process has one owner of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield
