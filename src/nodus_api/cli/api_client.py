"""A small HTTPS client of the public API: what a kubeconfig says, get, and watch line by line.

It is on the standard library alone, so that `--wait` and `nodus demo` see what any client sees.
"""

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

from nodus_api.cli.errors import Refused
from nodus_api.tasks import spawn
from nodus_api.tls import client_context

ATTEMPTS = "/apis/nodus.dev/v1/namespaces/{}/attempts"
_CONNECT_SECONDS = 10.0
_HANDSHAKE_SECONDS = 1.0
_LIMIT = 4 * 1024 * 1024
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ApiUnreachable(Exception):
    """The server cannot be reached, or went away in the middle of an answer."""


class ApiRefusal(Exception):
    """The server answered with a Status that is no success."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {code})")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiClient:
    """One user of one server; every request has its own connection."""

    server: str
    context: ssl.SSLContext = field(repr=False)
    token: str = field(repr=False)
    namespace: str | None = None
    """What the kubeconfig's context names, for commands without -n."""

    @classmethod
    def from_kubeconfig(cls, path: Path) -> "ApiClient":
        """Read server, CA, token and namespace of the current context. Raises Refused."""
        try:
            config = yaml.safe_load(path.read_text())
            context = _named(config, "contexts", config["current-context"])["context"]
            cluster = _named(config, "clusters", context["cluster"])["cluster"]
            user = _named(config, "users", context["user"])["user"]
            ca = b64decode(cluster["certificate-authority-data"]).decode()
            return cls(
                server=cluster["server"],
                context=client_context(ca_data=ca),
                token=user["token"],
                namespace=str(context.get("namespace") or "") or None,
            )
        except FileNotFoundError:
            raise Refused(
                f"There is no kubeconfig {path}: start `nodus up`, or make one with"
                " `nodus kubeconfig` and give it with --kubeconfig."
            ) from None
        except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            raise Refused(
                f"{path} cannot be used as a kubeconfig ({type(error).__name__}): give one with a"
                " server, certificate-authority-data and a token, such as `nodus kubeconfig` makes."
            ) from error

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Return status and body. Raises ApiUnreachable."""
        async with self._answer(path, query, "application/json") as (status, body):
            return status, b"".join([piece async for piece in body])

    async def get_json(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the decoded body of a success. Raises ApiUnreachable and ApiRefusal."""
        status, body = await self.get(path, query)
        if status != 200:
            raise ApiRefusal(status, _message(body))
        return json.loads(body)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a watch until the server ends it cleanly.

        Raises ApiUnreachable when the connection breaks, ApiRefusal when the watch is refused.
        """
        wanted = {**query, "watch": "true"}
        async with self._answer(path, wanted, "application/json") as (status, body):
            if status != 200:
                raise ApiRefusal(status, _message(b"".join([piece async for piece in body])))
            rest = b""
            async for piece in body:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)

    @asynccontextmanager
    async def _answer(
        self, path: str, query: Mapping[str, str] | None, accept: str
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        parts = urlsplit(self.server)
        host, port = parts.hostname or "localhost", parts.port or 443
        target = quote(path, safe="/") + (f"?{urlencode(query)}" if query else "")
        try:
            reader, writer = await _connected(
                asyncio.open_connection(host, port, ssl=self.context, limit=_LIMIT)
            )
        except (OSError, TimeoutError) as error:
            raise ApiUnreachable(
                f"{self.server} cannot be reached ({str(error) or type(error).__name__})."
            ) from error
        try:
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: {accept}\r\n"
                f"Authorization: Bearer {self.token}\r\nUser-Agent: nodus-cli\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            await writer.drain()
            status, headers = await _head(reader)
            async with aclosing(_body(reader, headers)) as body:
                yield status, body
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ApiUnreachable(f"{self.server} went away ({type(error).__name__}).") from error
        finally:
            writer.transport.abort()


async def _connected(opening: Coroutine[Any, Any, _Streams]) -> _Streams:
    """Return the connection; raise TimeoutError if it takes too long.

    A handshake that is cut off may end all the same, and uvloop then logs an error: whoever is
    cancelled waits for it, for a second at most.
    """
    task = spawn("connection", opening)
    try:
        await asyncio.wait((task,), timeout=_CONNECT_SECONDS)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=_HANDSHAKE_SECONDS)
        if task.done() and not task.cancelled() and task.exception() is None:
            task.result()[1].transport.abort()
        raise
    finally:
        task.cancel()
    if not task.done():
        raise TimeoutError
    return task.result()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(lines[0].split(" ", 2)[1]), headers


async def _body(
    reader: asyncio.StreamReader, headers: Mapping[str, str]
) -> AsyncGenerator[bytes, None]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while piece := await reader.read(65536):
            yield piece


def _named(config: Any, kind: str, name: str) -> Any:
    for entry in config[kind]:
        if entry["name"] == name:
            return entry
    raise KeyError(name)


def _message(body: bytes) -> str:
    try:
        status = json.loads(body)
        return str(status.get("message") or status)
    except ValueError:
        return body.decode(errors="replace").strip()
