"""A client that watches, is cut off at random, and goes on elsewhere from where it was."""

import asyncio
import math
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from nodus_api.bench.soak.history import History
from nodus_api.clock import Clock

_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')
_MEAN_CONNECTION_SECONDS = 30.0
_LATER = (b"429", b"503")
_PATIENCE_SECONDS = 90.0
"""A stream that says nothing for so long, not even a bookmark, is dead."""
_WINDOW_SECONDS = 295.0
"""Whoever was told nothing for so long, cut off before each bookmark, may have to list again."""


class _Refused(Exception):
    """The server answers later, or not there."""


@dataclass(slots=True, kw_only=True)
class Watcher:
    """One watcher; `chance` gives uniform numbers in [0, 1)."""

    history: History
    ports: Sequence[int]
    token: str
    tls: ssl.SSLContext
    clock: Clock
    chance: Callable[[], float]
    position: int
    streams: int = 0
    cuts: int = 0
    """Streams that this side ended in the middle."""
    relisted: int = 0
    """How often its version had left the window, and it began anew with a list."""
    longest_away: float = 0.0
    """The longest time without a stream, in seconds."""
    _writer: asyncio.StreamWriter | None = None
    _streams: bool = False
    _lost: float = 0.0
    _moved: float = 0.0

    async def run(self) -> None:
        """Watch until cancelled, or until something came that may not come."""
        self._lost = self._moved = self.clock.monotonic()
        while not self.history.broken:
            port = self.ports[int(self.chance() * len(self.ports))]
            life = -math.log(1 - self.chance()) * _MEAN_CONNECTION_SECONDS
            try:
                async with asyncio.timeout(life):
                    async for rev, line in self._lines(port):
                        self.position, self._moved = rev, self.clock.monotonic()
                        self.history.came(rev, line)
            except TimeoutError:
                self.cuts += 1
            except (OSError, EOFError, ValueError, _Refused):
                await self.clock.sleep(0.1 + self.chance())
            finally:
                if self._writer is not None:
                    self._writer.transport.abort()
                    self._writer = None
                if self._streams:
                    self._lost, self._streams = self.clock.monotonic(), False

    async def _lines(self, port: int) -> AsyncIterator[tuple[int, bytes | None]]:
        """Give each event's revision and line, None for a bookmark's, until the stream ends."""
        reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.tls, server_hostname="localhost", limit=1 << 20
        )
        self._writer.write(
            self._request(f"{self.history.scope.target}&resourceVersion={self.position}")
        )
        status = (await reader.readuntil(b"\r\n")).split(b" ", 2)[1]
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        if status in _LATER:
            raise _Refused
        if status != b"200":
            self.history.breach(f"a resume at {self.position} was answered with {status.decode()}")
            return
        self.streams += 1
        self._streams = True
        self.longest_away = max(self.longest_away, self.clock.monotonic() - self._lost)
        rest = b""
        while chunk := await _chunk(reader):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                found = _REVISION.search(line)
                if self._outlasted(line):
                    await self._list(port)
                    return
                if found is None or line.startswith(b'{"type":"ERROR"'):
                    self.history.breach(f"after {self.position} came {line[:300].decode()}")
                    return
                bookmark = line.startswith(b'{"type":"BOOKMARK"')
                yield int(found[1]), None if bookmark else line + b"\n"
        if rest:
            self.history.breach(f"a stream ended in mid-line after {self.position}")

    def _request(self, target: str, *more: str) -> bytes:
        lines = (f"GET {target} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {self.token}")
        return "\r\n".join([*lines, *more, "", ""]).encode()

    def _outlasted(self, line: bytes) -> bool:
        """Whether it is told that its version has left the window, and may be."""
        expired = line.startswith(b'{"type":"ERROR"') and b'"code":410' in line
        return expired and self.clock.monotonic() - self._moved > _WINDOW_SECONDS

    async def _list(self, port: int) -> None:
        """List, and go on from there, as a client does that is told 410."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.tls, server_hostname="localhost"
        )
        try:
            writer.write(self._request(f"{self.history.scope.listed}&limit=1", "Connection: close"))
            found = _REVISION.search(await reader.read())
        finally:
            writer.transport.abort()
        if found is None:
            raise _Refused
        self.position, self._moved = int(found[1]), self.clock.monotonic()
        self.history.listed(self.position)
        self.relisted += 1


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """Return the next piece of a chunked body; empty is its clean end. Raises EOFError."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        size = int(await reader.readuntil(b"\r\n"), 16)
        return (await reader.readexactly(size + 2))[:-2]
