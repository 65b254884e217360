"""A finished answer, and how it is sent: in pieces, with one gzip member or a content length."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nodus_api.apiserver.request import Request
from nodus_api.clock import give_way
from nodus_api.metav1.negotiation import JSON

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

GZIP_ABOVE = 131_072
"""Bodies longer than this are compressed for those who accept it (LW-057)."""

_THREAD_ABOVE = 16 * 1024  # smaller pieces are compressed faster than a thread is told of them


class Answer(Protocol):
    """Something that answers one request."""

    async def send(self, request: Request, receive: Receive, send: Send) -> None:
        """Send the whole response."""
        ...


@dataclass(slots=True, kw_only=True)
class BodyAnswer:
    """An answer whose body is known; `pieces` are its parts, in order."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    pieces: Iterable[bytes] = ()
    length: int = 0

    @classmethod
    def of(
        cls, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> "BodyAnswer":
        """Return an answer with one body; JSON unless the headers say otherwise."""
        return cls(
            status=status,
            headers={"Content-Type": JSON} | dict(headers or {}),
            pieces=(body,) if body else (),
            length=len(body),
        )

    async def send(self, request: Request, receive: Receive, send: Send) -> None:  # noqa: ARG002  Answer's form
        """Send the response; a HEAD gets its headers alone."""
        headers = dict(self.headers)
        packed = self.length > GZIP_ABOVE and accepts_gzip(request.header(b"accept-encoding"))
        if packed:
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
        elif self.status not in (204, 304):
            headers["Content-Length"] = str(self.length)
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
            }
        )
        if not request.head:
            await (self._send_gzip(send) if packed else self._send_plain(send))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_plain(self, send: Send) -> None:
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await give_way()

    async def _send_gzip(self, send: Send) -> None:
        # level 1 and one member for the body: some clients stop after the first member (LW-057)
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        for piece in self.pieces:
            if len(piece) > _THREAD_ABOVE:
                out = await asyncio.to_thread(packer.compress, piece)
            else:
                out = packer.compress(piece)
            if out:
                await send({"type": "http.response.body", "body": out, "more_body": True})
        await send({"type": "http.response.body", "body": packer.flush(), "more_body": True})


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Return whether gzip is a token of Accept-Encoding, not with q=0 (LW-057)."""
    for clause in (accept_encoding or "").split(","):
        token, _, parameters = clause.partition(";")
        if token.strip().lower() == "gzip":
            quality = parameters.replace(" ", "").lower()
            return not (quality.startswith("q=0") and not quality.strip("q=0."))
    return False
