"""Runs the application under uvicorn, and ends it without losing a request (AS-095)."""

import socket
import ssl
from collections.abc import Sequence

from nodus_api.apiserver.app import ApiServer


async def serve(
    app: ApiServer, *, sockets: Sequence[socket.socket], ssl_context: ssl.SSLContext | None
) -> None:
    """Serve until SIGTERM or SIGINT, drain, and return; `ssl_context` None serves plain HTTP."""
    raise NotImplementedError
