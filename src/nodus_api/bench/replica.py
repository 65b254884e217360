"""A replica in a process of its own that measures itself: memory, load, old lists, pages.

A program: `python -m nodus_api.bench.replica` reads a `Questions` as JSON from standard input and
writes the samples by case, as JSON, to standard output. Its requests are made in process, from the
application's scope to the last byte of the answer, so that neither socket nor TLS is counted.
"""

import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import uvloop

from nodus_api.apiserver import create_app
from nodus_api.apiserver.app import ApiServer
from nodus_api.bench.at_scale import PAGE, Questions
from nodus_api.clock import SystemClock
from nodus_api.garbage import look_seldom, spare_what_is_there
from nodus_api.storage.access_store import AccessStore
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import Mode, ReadAt
from nodus_api.watchcache.history import Window

_PATH = "/apis/nodus.dev/v1/attempts"
_EMPTY = Window(stubs=timedelta(0), documents=timedelta(0))
_CLOCK = SystemClock()


Samples = dict[str, list[float]]


async def answer(asked: Questions) -> Samples:
    """Load twice, with an empty history and with the window's, and measure each."""
    look_seldom()
    database = Database(asked.url, role=Role.API)
    found: Samples = {}
    try:
        feed = Feed(database, clock=_CLOCK)
        async with _loaded(feed, _EMPTY) as (cache, seconds):
            found["load"] = [seconds]
            found["rss"] = [_rss_mb()]
            for case, project in (("all", None), ("project", asked.project)):
                found[f"log {case}"] = await _lists(cache, project, asked.in_log, asked.rounds)
            found |= await _pages(cache, database, asked)
        async with _loaded(feed, Window()) as (cache, _):
            for case, project in (("all", None), ("project", asked.project)):
                found[f"window {case}"] = await _lists(
                    cache, project, asked.in_window, asked.rounds
                )
    finally:
        await database.close()
    return found


@asynccontextmanager
async def _loaded(feed: Feed, window: Window) -> AsyncIterator[tuple[AttemptCache, float]]:
    chance = random.SystemRandom().random
    cache = AttemptCache(
        feed, clock=_CLOCK, chance=chance, window=window, settled=spare_what_is_there
    )
    began = _CLOCK.monotonic()
    running = spawn("cache", cache.run())
    try:
        while not cache.ready:
            await _CLOCK.sleep(0.005)
        yield cache, _CLOCK.monotonic() - began
    finally:
        await end(running)


async def _lists(cache: AttemptCache, project: str | None, rev: int, rounds: int) -> list[float]:
    """Return the milliseconds of the first page at old revisions, the last first.

    No pin of an earlier round can answer one: a pin is of its revision or a later one.
    """
    taken = []
    for turn in range(rounds):
        began = _CLOCK.monotonic()
        await cache.list(project, ReadAt(Mode.EXACT, rev + rounds - turn), limit=PAGE)
        taken.append((_CLOCK.monotonic() - began) * 1000)
    return taken


async def _pages(cache: AttemptCache, database: Database, asked: Questions) -> Samples:
    """Return the milliseconds of CPU of a page by HTTP, and of joining its documents alone."""
    requests = itertools.count(1)
    app = create_app(
        cache=cache,
        access=AccessStore(database, _CLOCK),
        clock=_CLOCK,
        new_id=lambda: UUID(int=next(requests)),
        chance=random.SystemRandom().random,
        version="bench",
    )
    page = await cache.list(None, ReadAt(Mode.CACHED))
    bodies = [entry.body or b"" for entry in page.entries[:PAGE]]
    found: Samples = {"page": [], "join": []}
    refreshing = spawn("access", app.access.run())
    try:
        while app.access.view is None:
            await _CLOCK.sleep(0.005)
        for _ in range(asked.pages):
            used = time.process_time()
            await _page(app, asked.token, cache.position)
            found["page"].append((time.process_time() - used) * 1000)
            used = time.process_time()
            b",".join(bodies)
            found["join"].append((time.process_time() - used) * 1000)
    finally:
        await end(refreshing)
    return found


async def _page(app: ApiServer, token: str, rev: int) -> None:
    """Ask for a page of 500 not older than `rev`, so that no question to Postgres is in it."""
    query = f"limit={PAGE}&resourceVersion={rev}&resourceVersionMatch=NotOlderThan"
    sent = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"a page was answered with {message['status']}")
        nonlocal sent
        sent += len(message.get("body", b""))

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": _PATH,
        "raw_path": _PATH.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "https",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8443),
        "state": {},
    }
    await app(scope, receive, send)
    if not sent:
        raise RuntimeError("a page came without a body")


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    questions = Questions(**json.load(sys.stdin))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(answer(questions)), sys.stdout)
