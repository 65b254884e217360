"""Two `nodus serve` on one Postgres: one server, whichever of them a client comes to."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.clients.site import Site, running
from tests.history.checking import WIRE
from tests.history.recording import ALL, ONE, Recorder
from tests.history.together import together

pytestmark = pytest.mark.slow  # a Postgres and two servers of its own

RUNNING = "fieldSelector=status.phase%3DRunning"
QUEUED = "fieldSelector=status.phase%3DQueued"


@pytest.fixture(scope="module")
async def replicas(open_folder: Path) -> AsyncIterator[tuple[Site, Site]]:
    folder = open_folder / "replicas"
    folder.mkdir(mode=0o711)
    async with running(folder, []) as one, one.beside("two") as two:
        yield one, two


async def commits(site: Site, count: int) -> None:
    for _ in range(count):
        await site.lives.step()


class Client:
    """One client that goes to another replica with each request, and knows what it has seen."""

    def __init__(self, recorders: list[Recorder], chance: random.Random) -> None:
        self._recorders = recorders
        self._chance = chance
        self.seen = 0

    async def ask(self, target: str, on: int) -> tuple[int, Any]:
        status, told = await asyncio.to_thread(self._recorders[on].ask, target)
        assert status in (200, 404), told
        if status == 200:
            self.seen = max(self.seen, int(told["metadata"]["resourceVersion"]))
        return status, told

    async def turn(self) -> None:
        """List, then get, name what was seen, and page, each on one replica or the other."""
        _, whole = await self.ask(ALL, self._chance.randrange(2))
        names = [one["metadata"] for one in whole["items"]]
        one = self._chance.choice(names)
        path = f"/apis/nodus.dev/v1/namespaces/{one['namespace']}/attempts/{one['name']}"
        await self.ask(path, self._chance.randrange(2))
        for query in (
            f"resourceVersion={self.seen}&resourceVersionMatch=NotOlderThan",
            f"resourceVersion={self.seen}&resourceVersionMatch=Exact&{QUEUED}",
            f"{RUNNING}",
        ):
            await self.ask(f"{ALL}?{query}", self._chance.randrange(2))
        on = self._chance.randrange(2)
        _, page = await self.ask(f"{ONE}?limit=20", on)
        while token := page["metadata"].get("continue"):
            on = 1 - on
            _, page = await self.ask(f"{ONE}?limit=20&continue={quote(token)}", on)


async def test_two_processes_are_one_server(
    replicas: tuple[Site, Site],
) -> None:  # H-01 to H-22, storage.md 11.4
    """Any mix of requests over both, one of them killed and started again in the middle.

    Then every revision of the window, on the one that followed and on the one that was restarted.
    """
    one, two = replicas
    chance = random.Random(11)  # noqa: S311
    with together((one, two), checkers=WIRE) as recorders:
        client = Client(recorders, chance)
        for _ in range(3):
            await commits(one, 4)
            await client.turn()
        start = client.seen
        recorders[1].killed()
        await two.kill()
        await commits(one, 6)
        await two.start()
        for _ in range(2):
            await commits(one, 3)
            await client.turn()
        _, told = await client.ask(ALL, 0)
        head = client.seen
        assert head > start
        for rev in range(start, head):
            target = f"{ALL}?resourceVersion={rev}&resourceVersionMatch=Exact"
            (first, body), (again, other) = [
                await asyncio.to_thread(recorder.ask, target) for recorder in recorders
            ]
            assert (first, again) == (200, 200)
            assert body == other
        last = max(int(item["metadata"]["resourceVersion"]) for item in told["items"])
        for rev in range(start, last, 3):
            for recorder in recorders:
                await asyncio.to_thread(recorder.catch_up, f"{ALL}?watch=1", rev, last)
