"""Requests byte by byte on a real socket, and answers read as a strict client reads them."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.apiserver.conftest import ADMIN
from tests.apiserver.serving import Served

PATIENCE = 30.0


@dataclass
class Answer:
    """One response; `headers` by lower-case name, several of one name in order."""

    status: int
    headers: dict[bytes, list[bytes]] = field(default_factory=dict)
    body: bytes = b""
    closes: bool = False

    def header(self, name: str) -> str:
        """Return a header that must be there exactly once."""
        [value] = self.headers[name.encode()]
        return value.decode("latin-1")

    def json(self) -> Any:
        return orjson.loads(self.body)


class Connection:
    """One connection; requests go out one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, raw: bytes, *, head: bool = False) -> Answer:
        """Send a request and read the whole answer."""
        self.writer.write(raw)
        async with asyncio.timeout(PATIENCE):
            return await self.answer(head=head)

    async def answer(self, *, head: bool = False) -> Answer:
        """Read one answer; a body is framed by its length, by chunks, or by the end."""
        got = await self.head()
        if head or got.status in (204, 304):
            return got
        if b"transfer-encoding" in got.headers:
            assert got.header("transfer-encoding") == "chunked"
            assert b"content-length" not in got.headers
            while chunk := await self.chunk():
                got.body += chunk
        elif b"content-length" in got.headers:
            got.body = await self.reader.readexactly(int(got.header("content-length")))
        else:
            assert got.closes
            got.body = await self.reader.read()
        return got

    async def head(self) -> Answer:
        """Read the status line and the headers."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        version, status, _ = lines[0].split(b" ", 2)
        assert version == b"HTTP/1.1"
        got = Answer(int(status))
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            got.headers.setdefault(name.lower(), []).append(value.strip())
        got.closes = b"close" in got.headers.get(b"connection", [])
        return got

    async def chunk(self) -> bytes:
        """Read one chunk; the empty one ends a body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]


@asynccontextmanager
async def connected(port: int, context: ssl.SSLContext | None) -> AsyncIterator[Connection]:
    """A connection, cut off at the end."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        port,
        ssl=context,
        server_hostname="localhost" if context is not None else None,
        limit=2**22,
    )
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def request(
    method: str,
    target: str | bytes,
    *lines: str | bytes,
    body: bytes = b"",
    token: str | None = ADMIN.text,
    version: str = "1.1",
) -> bytes:
    """Return a request as it goes over the wire; `lines` are further headers."""
    line = target.encode("latin-1") if isinstance(target, str) else target
    head = [b"%b %b HTTP/%b" % (method.encode(), line, version.encode()), b"Host: nodus.test"]
    if token is not None:
        head.append(b"Authorization: Bearer " + token.encode())
    head += [line.encode("latin-1") if isinstance(line, str) else line for line in lines]
    if body:
        head.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def left_unread(one: Served, raw: bytes) -> ssl.SSLSocket:
    """Ask, read the headers, and no more: what comes then fills the kernel's buffer and waits.

    A stream of asyncio would go on reading into buffers of its own: slowly, as the window is
    small, so that its peer is long not stuck.
    """
    sock = socket.socket()
    sock.settimeout(PATIENCE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    sock.connect(("127.0.0.1", one.port))
    client = one.context.wrap_socket(sock, server_hostname="localhost")
    client.sendall(raw)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    return client
