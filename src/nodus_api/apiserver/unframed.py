"""Answers of unknown length to HTTP/1.0, which has no chunks: the end of the connection ends them.

uvicorn would send them in chunks all the same (LW-127).
"""

from collections.abc import MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class UnframedSend:
    """Takes the place of a cycle's `send`."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Write a message of an ASGI response."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected or cycle.transport.is_closing():
            return
        if message["type"] == "http.response.start":
            cycle.response_started = True
            cycle.transport.write(self._head(message))
            return
        if body := message.get("body"):
            cycle.transport.write(body)
        if not message.get("more_body"):
            cycle.response_complete = True
            cycle.message_event.set()
            cycle.transport.close()
            cycle.on_response()

    def _head(self, message: MutableMapping[str, Any]) -> bytes:
        headers = [
            (name, value)
            for name, value in (*self._cycle.default_headers, *message["headers"])
            if name != b"connection"
        ]
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close"))]
        return b"".join((STATUS_LINE[message["status"]], *lines, b"\r\n"))
