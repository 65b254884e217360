"""Runs the application under uvicorn, and ends it without losing a request (AS-095)."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

from nodus_api.apiserver.app import ApiServer
from nodus_api.apiserver.protocol import NodusProtocol
from nodus_api.tasks import spawn

BACKLOG = 4096
GRACEFUL_SECONDS = 5
POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


async def serve(
    app: ApiServer,
    *,
    sockets: Sequence[socket.socket],
    ssl_context: ssl.SSLContext | None,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, drain, and return; the sockets are closed then.

    `ssl_context` None serves plain HTTP. `started` is called once connections are accepted. A
    second signal ends the server at once, with the signal's own exit code.
    """
    await DrainingServer(app, ssl_context, started).serve(sockets=list(sockets))


class DrainingServer(uvicorn.Server):
    """uvicorn, whose first signal begins a drain instead of closing the listeners."""

    def __init__(
        self,
        app: ApiServer,
        ssl_context: ssl.SSLContext | None,
        started: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(_config(app, ssl_context))
        self._app = app
        self._tls = ssl_context is not None
        self._told = started
        self._draining: asyncio.Task[None] | None = None
        self._signalled = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then tell so."""
        self._loop = asyncio.get_running_loop()
        if self._tls and not type(self._loop).__module__.startswith("uvloop"):
            # the standard loop takes six times the memory for each TLS watch (AS-041)
            log.warning("the event loop is not uvloop, so TLS connections take more memory")
        await super().startup(sockets=sockets)
        if self._told is not None:
            self._told()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; the second is uvicorn's."""
        if self._signalled or self._loop is None:
            super().handle_exit(sig, frame)
            return
        # uvicorn raises a signal that it has recorded again at its end, so it never learns of this
        self._signalled = True
        self._loop.call_soon_threadsafe(self.begin_drain)

    def begin_drain(self) -> None:
        """Go through the steps of AS-095, then exit."""
        if self._draining is None:
            log.info("draining before the end")
            self._draining = spawn("drain", self._drain())

    async def _drain(self) -> None:
        try:
            await self._app.drain()
            async with asyncio.timeout(self._app.options.request_timeout.total_seconds()):
                while self._app.in_flight.requests or self._app.in_flight.watches:
                    await self._app.clock.sleep(POLL_SECONDS)
        except TimeoutError:
            log.warning("requests were still running at the end of the drain")
        finally:
            self.should_exit = True


def _config(app: ApiServer, ssl_context: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=NodusProtocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # it would believe X-Forwarded-For of anybody on this machine (AS-037)
        reset_contextvars=True,
        backlog=BACKLOG,
        timeout_keep_alive=int(app.options.keep_alive.total_seconds()),
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        ssl_context_factory=None if ssl_context is None else lambda *_: ssl_context,
    )
