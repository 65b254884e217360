"""A small streaming ASGI client: the response starts, then its body comes as it is sent.

httpx's transport waits for the whole body, so an endless watch would hang in it.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from nodus_api.apiserver.peer import STATE_KEY, Peer
from nodus_api.tasks import end, spawn

Message = MutableMapping[str, Any]
Application = Callable[
    [dict[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
PATIENCE = 10.0


@dataclass
class Response:
    """What came back; `headers` by lower-case name, those that came twice joined by a comma."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    header_names: list[str] = field(default_factory=list)

    def json(self) -> Any:
        return orjson.loads(self.text)

    @property
    def text(self) -> bytes:
        packed = self.headers.get("content-encoding") == "gzip"
        return gzip.decompress(self.body) if packed else self.body


class Stream:
    """A response whose body is still coming."""

    def __init__(self, response: Response, parts: "asyncio.Queue[bytes | None]") -> None:
        self.response = response
        self._parts = parts
        self._rest = b""
        self.ended = False

    async def line(self, patience: float = PATIENCE) -> bytes | None:
        """Return the next line, None at the clean end of the body."""
        async with asyncio.timeout(patience):
            while b"\n" not in self._rest:
                part = await self._parts.get()
                if part is None:
                    self.ended = True
                    return None
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def event(self, patience: float = PATIENCE) -> Any:
        """Return the next event of a watch, None at its end."""
        line = await self.line(patience)
        return None if line is None else orjson.loads(line)

    async def events(self, count: int, patience: float = PATIENCE) -> list[Any]:
        return [await self.event(patience) for _ in range(count)]

    def idle(self) -> bool:
        """Return whether nothing is waiting to be read."""
        return not self._rest and self._parts.empty()


class AsgiClient:
    """Sends requests to an application in process."""

    def __init__(
        self, app: Application, *, token: str | None = None, address: str = "192.0.2.1"
    ) -> None:
        self._app = app
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._address = address
        self.aborts = 0

    def _aborted(self) -> None:
        self.aborts += 1

    async def get(self, target: str, **headers: str) -> Response:
        return await self.request("GET", target, headers=headers)

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """Return the whole response; fails when it does not end in time."""
        async with self.open(method, target, headers=headers, body=body) as stream:
            async with asyncio.timeout(PATIENCE):
                while (part := await stream._parts.get()) is not None:
                    stream.response.body += part
            return stream.response

    async def abandon(self, method: str, target: str, **headers: str) -> list[Message]:
        """Leave in the middle of a request's body; return what was still sent."""
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        inbox.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
        inbox.put_nowait({"type": "http.disconnect"})
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(self._scope(method, target, headers), inbox.get, send)
        return sent

    def _scope(self, method: str, target: str, headers: dict[str, str] | None) -> dict[str, Any]:
        path, _, query = target.partition("?")
        sent = self._headers | {k.replace("_", "-").lower(): v for k, v in (headers or {}).items()}
        return {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "https",
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in sent.items()],
            "client": (self._address, 40000),
            "server": ("127.0.0.1", 8443),
            "state": {STATE_KEY: Peer(address=self._address, abort=self._aborted)},
        }

    @asynccontextmanager
    async def open(
        self,
        method: str,
        target: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> AsyncIterator[Stream]:
        """Send a request and give its response once it has started; leaving disconnects."""
        scope = self._scope(method, target, headers)
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
        started: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        parts: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.set_result(_response(message))
                return
            if message.get("body"):
                parts.put_nowait(bytes(message["body"]))
            if not message.get("more_body"):
                parts.put_nowait(None)

        async def run() -> None:
            try:
                await self._app(scope, inbox.get, send)
            except BaseException as error:
                if not started.done():
                    started.set_exception(error)
                raise

        task = spawn("asgi request", run())
        try:
            async with asyncio.timeout(PATIENCE):
                response = await started
            yield Stream(response, parts)
            inbox.put_nowait({"type": "http.disconnect"})
            async with asyncio.timeout(PATIENCE):
                await task
        finally:
            await end(task)


def _response(message: Message) -> Response:
    headers: dict[str, str] = {}
    names = []
    for raw_name, raw_value in message["headers"]:
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        names.append(name)
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Response(status=message["status"], headers=headers, header_names=names)
