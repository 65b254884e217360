"""A server that has loaded nothing yet says so, and what to do (AS-096, LW-154, LW-196, LW-199)."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import A, N, fill, replica_of, running
from tests.asgi_client import Response
from tests.watchcache.conftest import until

from nodus_api.tasks import end, spawn

ATTEMPTS = (
    *(N, A, f"{N}/train-0-e1", f"{N}?resourceVersion=0", f"{N}?limit=5"),
    *(f"{N}?watch=1", f"{N}?watch=1&resourceVersion=5"),
)
ALL = (*ATTEMPTS, "/api/v1/namespaces", "/api/v1/namespaces?watch=1", "/metrics")
WARMING = (429, "TooManyRequests", "storage is (re)initializing")
AGAIN = "Repeat the request in 1 s; if it goes on, see /readyz?verbose."


def refusal(got: Response) -> tuple[int, str, str]:
    status: Any = orjson.loads(got.body)
    assert got.headers["retry-after"] == "1"
    assert status["details"]["retryAfterSeconds"] == 1
    assert status["code"] == got.status
    return got.status, status["reason"], status["message"]


@asynccontextmanager
async def runs(task: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """One of the server's tasks, without the others."""
    running_task = spawn("part", task())
    try:
        yield
    finally:
        await end(running_task)


@pytest.mark.parametrize("target", ALL)
async def test_before_anything_is_read_it_asks_to_come_back(target: str) -> None:
    """LW-154: a client that is told 429 watches on from where it stood; at 503 it lists anew."""
    replica = replica_of()  # its tasks have not begun

    assert refusal(await replica.admin.get(target)) == WARMING


@pytest.mark.parametrize("target", ATTEMPTS)
async def test_before_the_attempts_are_loaded_it_asks_to_come_back(target: str) -> None:
    replica = replica_of()
    async with runs(replica.app.access.run):
        await until(lambda: replica.app.access.view is not None)

        assert refusal(await replica.admin.get(target)) == WARMING
        assert (await replica.admin.get("/api/v1/namespaces")).status == 200


@pytest.mark.parametrize("target", ALL)
async def test_when_the_database_is_away_it_says_that(target: str) -> None:  # AS-046
    replica = replica_of()
    replica.tables.away = True
    async with runs(replica.app.access.run):
        await until(lambda: replica.app.access.refused)
        got = await replica.admin.get(target)

    said = "credentials cannot be checked: the database cannot be reached"
    assert refusal(got) == (503, "ServiceUnavailable", said)
    assert got.json()["fix"] == AGAIN


@pytest.mark.parametrize("target", ATTEMPTS)
async def test_before_the_first_load_there_is_no_cache_to_ask(target: str) -> None:  # LW-199
    """Nobody is sent to resourceVersion=0, which would be refused as well."""
    replica = replica_of()
    replica.log.away = True
    async with running(replica):
        await until(lambda: replica.cache.health.refused)
        got = await replica.admin.get(target)

    said = "the database cannot be reached"
    assert refusal(got) == (503, "ServiceUnavailable", said)
    assert got.json()["fix"] == AGAIN


async def test_what_the_cache_could_answer_is_named_only_where_it_could() -> None:  # LW-122, LW-202
    replica = replica_of()
    fill(replica)
    async with running(replica):
        await replica.admin.get(N)
        replica.log.away = True
        listed = await replica.admin.get(N)
        await until(lambda: replica.cache.health.refused)
        watched = [
            await replica.admin.get(f"{N}?watch=1{rest}") for rest in ("", "&resourceVersion=0")
        ]
        cached = await replica.admin.get(f"{N}?resourceVersion=0")

    assert "resourceVersion=0" in listed.json()["fix"]
    assert cached.status == 200
    for got in watched:
        assert refusal(got) == (503, "ServiceUnavailable", "the database cannot be reached")
        assert got.json()["fix"] == AGAIN


def test_no_route_makes_fastapi_load_pydantic_s_version_1() -> None:
    """It would for the first parameter that a route declares: a tenth of the server's start."""
    code = (
        "import sys\n"
        "from tests.apiserver.conftest import replica_of\n"
        "replica_of()\n"
        "print([one for one in sys.modules if one.startswith('pydantic.v1')])"
    )
    shown = subprocess.run(  # noqa: S603 -- ours
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(one for one in sys.path if one)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout.strip() == "[]"
