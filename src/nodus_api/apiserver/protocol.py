"""Our subclass of uvicorn's httptools protocol: the peer, header limits and timers (AS-027).

httptools refuses smuggled framing that other parsers accept, but bounds neither the size of a
header block nor the time it may take (AS-036): that is done here. Each request's scope gets the
`Peer`, so that the application can cut a stuck connection off.
"""

import asyncio
import logging
import re
import socket
import sys
from array import array
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from nodus_api.apiserver.app import ApiServer
from nodus_api.apiserver.chain import PathMethodNotAllowed
from nodus_api.apiserver.peer import STATE_KEY, Peer
from nodus_api.apiserver.request import ids_of
from nodus_api.apiserver.unframed import UnframedSend
from nodus_api.metav1.errors import APIError, BadRequest, RequestEntityTooLarge

WRITE_BUFFER_BYTES = 256 * 1024
USER_TIMEOUT_MS = 60_000
KEEPALIVE_SECONDS = 30
CLOSE_SECONDS = 0.5
_TCP_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_BYTES_ACKED = slice(120, 128)  # an u64 of the kernel's struct tcp_info
_HOST = re.compile(rb"[A-Za-z0-9!$%&'()*+,\-.:;=\[\]_~]*")  # httpguts.ValidHostHeader of Go
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ \r\n]+ HTTP/1\.[01]\r?\n")
_TCP_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", 18)

log = logging.getLogger(__name__)


class _Refused(Exception):
    """The request was answered while its headers were read."""


class _Parser(httptools.HttpRequestParser):
    """Reads on behind a request to upgrade, which is never done (LW-149).

    The parser stops there: what came in the same piece is of the other protocol for it, and uvicorn
    drops it.
    """

    def feed_data(self, data: "bytes | bytearray | memoryview | array[int]") -> None:
        """Parse all of `data`."""
        rest = bytes(data)
        while rest:
            try:
                super().feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            else:
                return


class NodusProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The signature is uvicorn's; the application in `config` is an ApiServer."""
        super().__init__(config, server_state, app_state, _loop)
        if not isinstance(config.app, ApiServer):
            raise TypeError("this protocol serves an ApiServer")
        self._server: ApiServer = config.app
        self.parser = _Parser(self)
        # as uvicorn sets it: of requests sent at once, what stands behind the last one is left
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.headers = []
        self._header_bytes = 0
        self._in_headers = True
        self._received = b""  # what is being parsed
        self._unread = 0  # bytes of a body that came after its answer
        self._timer: asyncio.TimerHandle | None = None
        self._lost = False
        self._answered: RequestResponseCycle | None = None  # the one whose answer is under way
        self._streams = False
        self._behind_stream = 0  # bytes that came while a stream was under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Note the peer, and wait for the first request."""
        peername = transport.get_extra_info("peername")
        address = peername[0] if isinstance(peername, tuple) else ""
        # kept, since a transport under TLS that was cut off answers no question any more
        sock = _tcp_socket(transport)
        self.app_state = {
            **self.app_state,
            STATE_KEY: Peer(
                address=address,
                abort=transport.abort,
                begin_stream=lambda: self._begin_stream(sock),
                acknowledged=lambda: _acknowledged(sock),
            ),
        }
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        _set_options(sock)
        self._arm_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._lost = True
        self._disarm_timer()
        if self._answered is not None and not self._answered.response_complete:
            # uvicorn tells the request that was read last, which may wait behind this one
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # request and connection hold each other, and garbage is seldom looked for
        for cycle in (self.cycle, self._answered, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                vars(cycle).pop("send", None)  # our own, which refers to the cycle
        self.app_state = {}
        self.pipeline.clear()
        self._answered = None
        self.cycle = self.scope = None  # type: ignore[assignment]  # as before the first request

    def data_received(self, data: bytes) -> None:
        """Read on, within the bounds of a header block (AS-089), and of what a stream delays."""
        if self._streams:
            self._behind_stream += len(data)
            if self._behind_stream > self._most_behind_stream:
                self.transport.abort()
                return
        if self._in_headers:
            self._header_bytes += len(data)
        self._received = data
        super().data_received(data)
        self._received = b""
        if self._streams:
            self.flow.resume_reading()
        if self._in_headers and self._header_bytes > self._server.options.max_header_bytes:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        if not self._in_headers:
            self._in_headers = True
            self._header_bytes = 0
        self._unread = 0
        if self._timer is None:
            self._arm_timer()

    def on_headers_complete(self) -> None:
        """Start the request, unless its header block is too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._in_headers = False
        self._header_bytes = 0
        self._disarm_timer()
        if size > self._server.options.max_header_bytes:
            self._refuse_headers()
            raise _Refused
        if (problem := self._host_problem()) is not None:
            self._refuse(BadRequest(problem, fix="Send one header `Host: NAME` or `NAME:PORT`."))
            raise _Refused
        if self.parser.should_upgrade() and self._has_body():
            problem = "a request to upgrade the connection may have no body"
            self._refuse(BadRequest(problem, fix="Send the request without the header `Upgrade`."))
            raise _Refused
        if len(self.url) > self._server.options.max_url_bytes:
            # before uvicorn parses it, which cannot read one of 64 KiB and calls it malformed
            self._refuse_url()
            raise _Refused
        super().on_headers_complete()
        if not self.pipeline:
            self._answered = self.cycle
        if self.parser.get_http_version() == "1.0":
            # before the request's task runs for the first time
            self.cycle.send = UnframedSend(self.cycle)  # type: ignore[assignment,method-assign]

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; what follows an answer has a limit and a time (AS-091)."""
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread += len(body)
            if self._unread > self._server.options.max_body_bytes:
                self.transport.close()
            elif self._timer is None:
                self._arm_timer()

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self._disarm_timer()

    def on_response_complete(self) -> None:
        """Go on with the request that waits, if one does."""
        self._streams = False
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if following is not None:
            self._answered = following

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP by a Status (LW-201); a method that is none of HTTP's by 405."""
        # the parser stops at a method that it does not know, and only the line tells it from noise
        unknown = isinstance(sys.exception(), httptools.HttpParserInvalidMethodError)
        if unknown and _REQUEST_LINE.match(self._received):
            self._refuse(PathMethodNotAllowed(("GET", "HEAD")))
        else:
            fix = "Send an HTTP/1.1 request with method GET or HEAD; see RFC 9112 for its form."
            self._refuse(BadRequest(msg, fix=fix))

    def shutdown(self) -> None:
        """Close an idle connection; a client that does not answer the close is cut off."""
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(CLOSE_SECONDS, self._cut_off_when_flushed)

    def _cut_off_when_flushed(self) -> None:
        if self._lost:
            return  # the client closed in time; its transport answers no question any more
        if self.transport.get_write_buffer_size():
            self.loop.call_later(CLOSE_SECONDS, self._cut_off_when_flushed)
        else:
            self.transport.abort()

    # -- refusals ------------------------------------------------------------------------------

    def _host_problem(self) -> str | None:
        """Return what is wrong with Host, in the words of Go's net/http, or None (RFC 9112, 3.2).

        Two of them are how a request is read as one host's by a proxy and as another's by us.
        """
        hosts = [value for name, value in self.headers if name == b"host"]
        if not hosts and self.parser.get_http_version() != "1.0":
            return "missing required Host header"
        if len(hosts) > 1:
            return "too many Host headers"
        if hosts and not _HOST.fullmatch(hosts[0]):
            return "malformed Host header"
        return None

    def _has_body(self) -> bool:
        """Whether a body follows; the parser reads none behind an upgrade, but the next request."""
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in self.headers
        )

    def _refuse_url(self) -> None:
        self._refuse(
            RequestEntityTooLarge(
                self._server.options.max_url_bytes, status=HTTPStatus.REQUEST_URI_TOO_LONG
            )
        )

    def _refuse_headers(self) -> None:
        self._refuse(
            RequestEntityTooLarge(
                self._server.options.max_header_bytes,
                status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        )

    def _refuse(self, error: APIError) -> None:
        """Write an answer by hand, since no request has begun, and close."""
        if self.transport.is_closing():
            return
        audit_id, request_id = ids_of(self.headers, self._server.new_id)
        body = self._server.statuses.status(error, request_id).encode()
        own = error.headers.items()
        headers = (
            *self.server_state.default_headers,
            *((k.lower().encode(), v.encode()) for k, v in own if k != "Connection"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"audit-id", audit_id.encode("latin-1")),
            (b"cache-control", b"no-cache, private"),
            (b"vary", b"Accept, Accept-Encoding"),
            (b"x-content-type-options", b"nosniff"),
            (b"connection", b"close"),
        )
        lines = [b"%b: %b\r\n" % header for header in headers]
        head = b"".join((STATUS_LINE[int(error.http_status)], *lines, b"\r\n"))
        # what follows the answer to a HEAD would be read as another answer (LW-007)
        self.transport.write(head if self.parser.get_method() == b"HEAD" else head + body)
        # the chain never learns of it, and the requestId must be found all the same (LW-202)
        log.info(
            "request",
            extra={
                "request_id": request_id,
                "code": int(error.http_status),
                "cause": error.message,
            },
        )
        self.transport.close()

    # -- streams -------------------------------------------------------------------------------

    @property
    def _most_behind_stream(self) -> int:
        """So many bytes may come while a stream is under way: one more request's."""
        return self._server.options.max_header_bytes + self._server.options.max_body_bytes

    def _begin_stream(self, sock: socket.socket | None) -> None:
        """Ready the connection for an answer that may stand still for an hour.

        uvicorn stops reading while a request waits behind another: then nothing would tell that
        the client left (LW-148), so it is read on, up to a limit.
        """
        _bound_buffer(sock)
        self._streams = True
        self._behind_stream = 0
        self.flow.resume_reading()

    # -- timer (AS-090) ------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        seconds = self._server.options.header_timeout.total_seconds()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _disarm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        log.info("a connection sent no complete request in time")
        self.transport.abort()


_GONE = (OSError, ValueError)
"""How asyncio, and uvloop, refuse a question to a connection that is closed."""


def _tcp_socket(transport: asyncio.Transport) -> socket.socket | None:
    sock: socket.socket | None = transport.get_extra_info("socket")
    return sock if sock is not None and sock.family in _TCP_FAMILIES else None


def _bound_buffer(sock: socket.socket | None) -> None:
    if sock is not None:
        with suppress(*_GONE):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)


def _acknowledged(sock: socket.socket | None) -> int | None:
    """Return `tcpi_bytes_acked`: the fill of a buffer says nothing under TLS (AS-093)."""
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
    except _GONE:
        return None
    return int.from_bytes(info[_BYTES_ACKED], sys.byteorder) if len(info) >= 128 else None


def _set_options(sock: socket.socket | None) -> None:
    """Send at once what was written (LW-129), and find out about dead peers (AS-090, LW-151)."""
    if sock is None:
        return
    # asyncio sets it only on sockets made with the protocol's number, so not on ours; without it an
    # answer in two writes waits 40 ms for the client's acknowledgement of the first
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
