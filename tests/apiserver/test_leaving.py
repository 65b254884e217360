"""Clients that leave while further requests of theirs wait behind a watch."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.apiserver.conftest import N, Replica
from tests.apiserver.raw import Connection, connected, request
from tests.apiserver.serving import QUICK, plain, served
from tests.watchcache.conftest import until

ATTEMPT = request("GET", f"{N}/train-0-e1")


@dataclass
class Place:
    """A server, over TLS or not, and how it is reached."""

    replica: Replica
    port: int
    context: ssl.SSLContext | None

    def watch(self) -> bytes:
        """A watch to which nothing will be sent."""
        query = f"watch=1&resourceVersion={self.replica.rev}&fieldSelector=metadata.name%3Dnone"
        return request("GET", f"{N}?{query}")


@pytest.fixture(params=["TLS", "plain"])
async def place(request: pytest.FixtureRequest, certificates: Path) -> AsyncIterator[Place]:
    if request.param == "TLS":
        async with served(certificates, QUICK) as one:
            yield Place(one.replica, one.port, one.context)
    else:
        async with plain() as (replica, port):
            yield Place(replica, port, None)


async def begun(place: Place, connection: Connection, raw: bytes, *, before: int = 0) -> None:
    """Send requests of which one is a watch, and read up to its headers."""
    connection.writer.write(raw)
    for _ in range(before):
        assert (await connection.answer()).status == 200
    assert (await connection.head()).status == 200
    await until(lambda: len(place.replica.cache.watchers) == 1)


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (0, ATTEMPT),
        (0, ATTEMPT * 20),
        (1, ATTEMPT),
        (0, request("POST", N, body=b"x" * 60_000)),
        (2, request("POST", N, body=b"x" * 60_000)),
    ],
    ids=["one behind", "many behind", "between", "with a body", "last with a body"],
)
async def test_a_client_that_leaves_frees_its_watch(
    place: Place, before: int, behind: bytes
) -> None:  # LW-148
    async with connected(place.port, place.context) as connection:
        await begun(place, connection, ATTEMPT * before + place.watch() + behind, before=before)

    await until(lambda: len(place.replica.cache.watchers) == 0)


async def test_what_waits_behind_a_watch_is_answered_after_it(place: Place) -> None:
    watch = place.watch().replace(b"watch=1", b"watch=1&timeoutSeconds=1")
    async with connected(place.port, place.context) as connection:
        await begun(place, connection, watch + ATTEMPT)
        connection.writer.write(ATTEMPT * 2)

        assert await connection.chunk() == b""
        found = [(await connection.answer()).json()["metadata"]["name"] for _ in range(3)]

    assert found == ["train-0-e1"] * 3


async def test_what_waits_behind_a_watch_has_a_limit(place: Place) -> None:  # AS-089, AS-091
    async with connected(place.port, place.context) as connection:
        await begun(place, connection, place.watch())

        with pytest.raises(ConnectionError):
            await _write_on(connection)

    await until(lambda: len(place.replica.cache.watchers) == 0)


async def _write_on(connection: Connection) -> None:
    async with asyncio.timeout(30):
        while True:
            connection.writer.write(ATTEMPT * 100)
            await connection.writer.drain()
