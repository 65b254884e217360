"""One request to both servers, and what each answered, in words that both share."""

import asyncio
import base64
import binascii
import re
import ssl
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml
from tests.apiserver.conftest import ADMIN
from tests.apiserver.raw import PATIENCE, Answer, Connection, request
from tests.differential import openapi_shape
from tests.differential.pair import Pair, Side

from nodus_api.attempts.columns import COLUMNS
from nodus_api.attempts.resource import GROUP

HEADERS = (
    *("allow", "audit-id", "cache-control", "content-encoding", "content-type", "etag"),
    *("location", "retry-after", "vary", "warning", "www-authenticate", "x-content-type-options"),
)
"""The headers that are compared; of a tag or a made id only that there is one."""
_VERSION = re.compile(r"(resource version: |resourceVersion: |current: |\()(\d+)")
_AGE = re.compile(r"(<invalid>|(\d+[smhdy]){1,2})")
_AGES = ("Runtime", "Age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request; versions in it are symbols (pair.py), the same for both servers."""

    target: str
    method: str = "GET"
    headers: tuple[str, ...] = ()
    body: bytes = b""
    token: str | None = ADMIN.text

    def __str__(self) -> str:
        body = [self.body.decode()] if self.body else []
        who = "" if self.token == ADMIN.text else " as another" if self.token else " as nobody"
        return " ".join([self.method, self.target, *self.headers, *body]) + who

    def raw(self, side: Side) -> bytes:
        """Return the bytes that go to one server."""
        return request(
            self.method,
            side.fill(self.target),
            *map(side.fill, self.headers),
            body=self.body,
            token=self.token,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where the two answers differ; what is not there is MISSING."""

    path: str
    kube: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.path}: kube {_short(self.kube)}, ours {_short(self.ours)}"


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


@dataclass
class Both:
    """A connection to each server, made anew when it was closed."""

    pair: Pair
    _open: dict[str, Connection] = field(default_factory=dict)

    async def ask(self, one: Ask) -> tuple[Any, Any]:
        """Return the two answers, comparable."""
        kube, ours = await asyncio.gather(*(self._ask(one, side) for side in self.pair.sides))
        return kube, ours

    async def close(self) -> None:
        for connection in self._open.values():
            connection.writer.transport.abort()
        self._open.clear()

    async def _ask(self, one: Ask, side: Side) -> Any:
        head = one.method == "HEAD"
        for again in (True, False):
            connection = self._open.get(side.name) or await connect(side.port, side.context)
            self._open[side.name] = connection
            try:
                got = await connection.ask(one.raw(side), head=head)
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                self._open.pop(side.name).writer.transport.abort()
                if not again:
                    return {"status": "the connection was closed"}
                continue
            if got.closes:
                self._open.pop(side.name).writer.transport.abort()
            return comparable(got, side)
        raise AssertionError


async def connect(port: int, context: ssl.SSLContext) -> Connection:
    """Open one connection."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost", limit=2**24
        )
    return Connection(reader, writer)


async def ask_all(pair: Pair, asks: Sequence[Ask], workers: int = 8) -> list[tuple[Any, Any]]:
    """Ask everything, some at a time; the answers are in the order of the requests."""
    found: dict[int, tuple[Any, Any]] = {}
    left = iter(enumerate(asks))

    async def work() -> None:
        both = Both(pair)
        try:
            for at, one in left:
                found[at] = await both.ask(one)
        finally:
            await both.close()

    await asyncio.gather(*(work() for _ in range(workers)))
    return [found[at] for at in range(len(asks))]


def comparable(got: Answer, side: Side) -> dict[str, Any]:
    """Return an answer as a tree whose parts should be equal."""
    kept = {
        name: b", ".join(got.headers[name.encode()]).decode("latin-1")
        for name in HEADERS
        if name.encode() in got.headers
    }
    for name in ("audit-id", "etag"):
        if len(kept.get(name, "")) > 30:
            kept[name] = "there"
    found: dict[str, Any] = {"status": got.status, "header": kept}
    if got.body:
        body = got.body
        if kept.get("content-encoding") == "gzip":
            body, found["rest"] = _unzipped(body)
        found["body"] = decoded(body, kept.get("content-type", ""), side)
        found["layout"] = (body.startswith(b"{\n  "), len(body) - len(body.rstrip()))
    return found


def _unzipped(body: bytes) -> tuple[bytes, int]:
    """Return the first member of a body, and how many bytes follow it (LW-057)."""
    member = zlib.decompressobj(wbits=31)
    return member.decompress(body), len(member.unused_data)


def decoded(body: bytes, content_type: str, side: Side) -> Any:
    """Return a body as a tree, or as the text that it is."""
    if content_type.startswith("application/json") or body.startswith(b'{"paths":'):
        read = orjson.loads(body)
        return openapi_shape.shape(read) or common(read, side)
    if content_type == "application/yaml":
        return common(yaml.safe_load(body), side)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"{len(body)} bytes"


def common(value: Any, side: Side, key: str = "") -> Any:
    """Return a tree in words that both servers share: versions as symbols, tokens opened."""
    if isinstance(value, dict):
        found = {name: common(one, side, name) for name, one in value.items()}
        kind = value.get("kind")
        if kind == "Table":
            _ageless(found)
        elif kind == "APIGroupList":
            found["groups"] = [one for one in found["groups"] if one["name"] == GROUP]
        elif kind == "APIGroupDiscoveryList":
            found["items"] = [one for one in found["items"] if one["metadata"].get("name") == GROUP]
        return found
    if isinstance(value, list):
        return [common(one, side) for one in value]
    if not isinstance(value, str):
        return value
    if key == "resourceVersion":
        return side.versions.symbol(value)
    if key == "continue":
        return _opened(value, side)
    if key == "message":
        return _VERSION.sub(lambda one: one[1] + side.versions.symbol(one[2]), value)
    return value


def _ageless(table: dict[str, Any]) -> None:
    """Let every age be one: the two servers looked at different moments."""
    names = [column["name"] for column in table["columnDefinitions"] or ()] or [
        one.name for one in COLUMNS
    ]
    for row in table["rows"]:
        for at, name in enumerate(names):
            cell = row["cells"][at] if at < len(row["cells"]) else None
            if name in _AGES and isinstance(cell, str) and _AGE.fullmatch(cell):
                row["cells"][at] = "an age"


def _opened(token: str, side: Side) -> Any:
    try:
        content = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        return token
    if content.get("rv", 0) > 0:
        content["rv"] = side.versions.symbol(str(content["rv"]))
    return content


def differences(kube: Any, ours: Any, path: str = "") -> Iterable[Difference]:
    """Give the places where two trees differ, the deepest that say it."""
    if isinstance(kube, dict) and isinstance(ours, dict):
        for key in sorted({*kube, *ours}):
            inner = f"{path}.{key}" if path else key
            yield from differences(kube.get(key, MISSING), ours.get(key, MISSING), inner)
    elif isinstance(kube, list) and isinstance(ours, list) and len(kube) == len(ours):
        for one, other in zip(kube, ours, strict=True):
            yield from differences(one, other, f"{path}[]")
    elif kube != ours or type(kube) is not type(ours):
        yield Difference(path=path, kube=kube, ours=ours)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
