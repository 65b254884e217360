"""What the conformance cases of list-watch.md say with curl: requests, and streams line by line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import orjson
from tests.apiserver.conftest import N
from tests.apiserver.serving import Served
from tests.asgi_client import PATIENCE

CURL = "curl/8.5.0"


class Lines:
    """A response that goes on."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def line(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return await anext(self._lines)

    async def event(self) -> Any:
        """Return the next event; a compact line, whatever program asks (LW-127)."""
        line = await self.line()
        found = orjson.loads(line)
        assert line.encode() == orjson.dumps(found)
        return found

    async def events(self, count: int) -> list[Any]:
        return [await self.event() for _ in range(count)]

    async def rest(self) -> list[str]:
        """Return all up to the clean end; a body that is cut off raises (LW-144)."""
        async with asyncio.timeout(PATIENCE):
            return [line async for line in self._lines]


class Wire:
    """Asks one server."""

    def __init__(self, one: Served) -> None:
        self.one = one

    async def ask(
        self,
        target: str = N,
        query: dict[str, str] | None = None,
        *,
        method: str = "GET",
        agent: str = CURL,
        content: bytes | None = None,
        **headers: str,
    ) -> httpx.Response:
        sent = httpx.Headers({"User-Agent": agent, "Accept": "*/*"})
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        return await self.one.http.request(
            method,
            url(target, query),
            headers=sent,
            content=content,
        )

    async def refusal(
        self, target: str = N, query: dict[str, str] | None = None, **headers: Any
    ) -> tuple[int, str, str]:
        """Return what a request is refused with, having checked that it is a whole Status."""
        return refusal_of(await self.ask(target, query, **headers))

    @asynccontextmanager
    async def watch(
        self, query: dict[str, str] | None = None, *, target: str = N, **headers: str
    ) -> AsyncIterator[Lines]:
        address = url(target, {"watch": "1"} | (query or {}))
        sent = httpx.Headers({"User-Agent": CURL, "Accept": "*/*"})
        sent.update(headers)
        async with self.one.http.stream("GET", address, headers=sent, timeout=PATIENCE) as got:
            assert got.status_code == 200
            yield Lines(got)


def url(target: str, query: dict[str, str] | None) -> str:
    return f"{target}?{urlencode(query)}" if query else target


def refusal_of(got: httpx.Response) -> tuple[int, str, str]:
    """Return code, reason and message of a Status that has all its parts (LW-180, LW-202)."""
    status = got.json()
    assert (status["kind"], status["status"]) == ("Status", "Failure")
    assert status["code"] == got.status_code
    assert got.headers["content-type"] == "application/json"
    assert status["docs"].endswith(f"/docs/errors/{status['reason']}")
    assert status["fix"]
    assert status["requestId"] == got.headers["audit-id"]
    return got.status_code, status["reason"], status["message"]


def names(got: httpx.Response) -> list[str]:
    return [item["metadata"]["name"] for item in got.json()["items"]]


def meta(got: httpx.Response) -> Any:
    return got.json()["metadata"]


def short(event: Any) -> tuple[str, str, int]:
    metadata = event["object"]["metadata"]
    return event["type"], metadata.get("name", ""), int(metadata["resourceVersion"])
