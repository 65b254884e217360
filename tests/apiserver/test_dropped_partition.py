"""A partition of the log goes under a list in pages and a watch that comes back (F22)."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest
from tests.apiserver.fronting import in_front_of
from tests.asgi_client import AsgiClient
from tests.storage.conftest import fresh_database
from tests.storage.log_at import begin_epoch
from tests.watchcache.conftest import running, until
from tests.watchcache.published import Publisher

from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.migrate import upgrade
from nodus_api.storage.upkeep import WIDTH, UpkeepStore
from nodus_api.watchcache import AttemptCache, Window

LIST = "/apis/nodus.dev/v1/namespaces/default/attempts"
CLOCK = SystemClock()
NO_WINDOW = Window(stubs=timedelta(0), documents=timedelta(0))


@pytest.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    """A migrated database whose partitions may go."""
    async with fresh_database(database_url, "nodus_dropping") as fresh:
        await upgrade(fresh)
        yield fresh


async def asked(client: AsgiClient, query: str) -> tuple[int, Any]:
    got = await client.get(f"{LIST}?{query}")
    return got.status, orjson.loads(got.body)


def names(body: Any) -> list[str]:
    return [one["metadata"]["name"] for one in body["items"]]


async def drop_below_the_head(database: Database) -> int:
    """Promise nothing below the head's partition, and drop the others; return the edge."""
    store, reign = UpkeepStore(database), await LeaderStore(database).take_over("test")
    tables = await store.look()
    edge = tables.head // WIDTH * WIDTH
    await store.advance(reign.token, edge)
    for partition in (await store.look()).below(edge):
        await store.drop(reign.token, partition)
    return edge


async def test_a_page_and_a_watch_lose_their_partition(url: str) -> None:  # F22, LW-114
    owner = await asyncpg.connect(url)
    writer = Database(
        url, role=Role.SCHEDULER, pinned_now=lambda: CLOCK.now().replace(microsecond=0)
    )
    api = Database(url, role=Role.API)
    publisher = Publisher(writer)
    await publisher.begin()
    cache = AttemptCache(Feed(api, clock=CLOCK), clock=CLOCK, chance=lambda: 0.5, window=NO_WINDOW)
    async with running(cache), in_front_of(cache) as client:
        began = await publisher.add("n1", "n2", "n3", "n4")
        _, first = await asked(client, "limit=2")
        token = first["metadata"]["continue"]
        await begin_epoch(owner, room=2)
        for number in (1, 2, 3, 4):
            head = await publisher.change(number, f"n{number}", "Running")
        await until(lambda: cache.position == head, 30)

        cache._pins.clear()  # as time does, or other lists
        status, second = await asked(client, f"limit=2&continue={token}")
        assert (status, names(second)) == (200, ["n3", "n4"])  # by the log, as it was
        assert second["items"][0]["status"]["phase"] == "Queued"

        cache._pins.clear()
        edge = await drop_below_the_head(writer)
        status, gone = await asked(client, f"limit=2&continue={token}")
        assert (status, gone["reason"]) == (410, "Expired")
        fresh = gone["metadata"]["continue"]
        status, rest = await asked(client, f"limit=2&continue={fresh}")
        assert (status, names(rest)) == (200, ["n3", "n4"])  # of now, inconsistently
        assert rest["items"][0]["status"]["phase"] == "Running"

        async with client.open("GET", f"{LIST}?watch=1&resourceVersion={began}") as stream:
            event = await stream.event()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        # the state before the first change that is left is the oldest that can be told
        for rev, answer in ((edge, 200), (edge - 1, 200), (edge - 2, 410)):
            exact = f"resourceVersion={rev}&resourceVersionMatch=Exact"
            assert (await asked(client, exact))[0] == answer
    await owner.close()
    await writer.close()
    await api.close()
