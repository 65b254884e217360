"""Limits, deadlines and the drain (AS-084 to AS-095)."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import N, Replica, fill, replica_of, running
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions
from nodus_api.tasks import spawn


def body(got: Any) -> Any:
    return orjson.loads(got.body)


async def test_too_many_watches_of_one_user() -> None:  # AS-087, LW C-91
    replica = replica_of(options=ServerOptions(max_watches_per_user=1))
    async with running(replica), replica.admin.open("GET", f"{N}?watch=1"):
        await until(lambda: replica.app.in_flight.watches == 1)
        refused = await replica.admin.get(f"{N}?watch=1")
        async with replica.alice.open("GET", f"{N}?watch=1") as other:
            assert other.response.status == 200

    assert (refused.status, body(refused)["reason"]) == (429, "TooManyRequests")
    assert refused.headers["retry-after"] == "5"
    assert body(refused)["details"]["retryAfterSeconds"] == 5


async def test_too_many_watches_in_all() -> None:  # AS-087
    replica = replica_of(options=ServerOptions(max_watches=1))
    async with running(replica), replica.admin.open("GET", f"{N}?watch=1"):
        await until(lambda: replica.app.in_flight.watches == 1)
        assert (await replica.alice.get(f"{N}?watch=1")).status == 429


@pytest.mark.parametrize(
    "options", [ServerOptions(max_requests_in_flight=1), ServerOptions(max_lists_per_user=1)]
)
async def test_too_many_requests(options: ServerOptions) -> None:  # AS-084, AS-085
    replica = replica_of(options=options)
    async with running(replica):
        waiting = spawn("list", replica.admin.get(f"{N}?resourceVersion={replica.rev + 9}"))
        await until(lambda: replica.app.in_flight.requests == 1)
        refused = await replica.admin.get(N)
        probe = await replica.admin.get("/apis/nodus.dev/v1")
        health = await replica.stranger.get("/livez")
        await replica.advance(4)
        await waiting

    assert refused.status == 429
    assert body(refused)["message"] == "Too many requests, please try again later."
    assert refused.headers["retry-after"] == "1"
    assert (probe.status, health.status) == (200, 200)
    assert (replica.app.in_flight.requests, replica.app.in_flight.health) == (0, 0)


async def test_a_body_is_bounded_before_anything_else(replica: Replica) -> None:  # AS-091
    got = await replica.admin.request("POST", N, headers={"content-length": "70000"})

    assert (got.status, body(got)["reason"]) == (413, "RequestEntityTooLarge")
    assert body(got)["message"] == "Request entity too large: limit is 65536"
    assert got.headers["connection"] == "close"


async def test_a_review_that_grows_while_it_comes(replica: Replica) -> None:  # AS-091
    got = await replica.admin.request(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=b" " * 70_000
    )

    assert got.status == 413


async def test_a_client_that_leaves_within_its_body_is_no_fault_of_ours(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:  # AS-094
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    sent = await replica.admin.abandon("POST", path, **{"content-type": "application/json"})

    assert sent[0]["status"] == 400
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []
    assert (replica.admin.aborts, replica.app.in_flight.requests) == (0, 0)


async def test_a_url_is_bounded(replica: Replica) -> None:  # AS-089
    got = await replica.admin.get(f"{N}?x={'y' * 33_000}")

    assert (got.status, body(got)["reason"]) == (414, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    "query",
    [
        "&".join(f"a{n}=1" for n in range(101)),
        f"x={'y' * 17_000}",
        f"labelSelector={'y' * 9_000}",
    ],
)
async def test_a_query_is_bounded(replica: Replica, query: str) -> None:  # AS-089
    assert (await replica.admin.get(f"{N}?{query}")).status == 400


async def test_a_request_has_a_deadline(replica: Replica) -> None:  # AS-092, LW-020
    got = await replica.admin.get(f"{N}?resourceVersion={replica.rev + 9}&timeout=20ms")

    assert (got.status, body(got)["reason"]) == (504, "Timeout")
    assert body(got)["message"] == ("Timeout: request did not complete within the allotted timeout")
    assert "more time with timeout=60s" in body(got)["fix"]


@pytest.mark.parametrize("asked", ["timeout=1ms", "timeout=x"])
async def test_a_watch_has_no_deadline(asked: str) -> None:  # LW-020
    replica = replica_of(options=ServerOptions(request_timeout=timedelta(seconds=0.001)))
    fill(replica)
    async with running(replica):
        query = f"watch=1&resourceVersion={replica.rev}&{asked}"
        async with replica.admin.open("GET", f"{N}?{query}") as stream:
            assert stream.response.status == 200
            await asyncio.sleep(0.01)
            rev = replica.change("example", "train-0-e1", "Failed")
            event = await stream.event()

    assert event["object"]["metadata"]["resourceVersion"] == str(rev)


@pytest.mark.parametrize("asked", ["", "&timeout=1h"])
async def test_no_more_time_is_promised_than_there_is(asked: str) -> None:  # LW-020, LW-202
    replica = replica_of(options=ServerOptions(request_timeout=timedelta(seconds=0.02)))
    async with running(replica):
        got = await replica.admin.get(f"{N}?resourceVersion={replica.rev + 9}{asked}")

    assert (got.status, body(got)["reason"]) == (504, "Timeout")
    assert body(got)["fix"] == "Ask for less with limit or a selector."


@pytest.mark.parametrize("text", ["0", "0s", "32s", "1h", "1m30s", "1500ms", "-5s"])
async def test_a_timeout_is_a_go_duration(replica: Replica, text: str) -> None:  # LW-020
    assert (await replica.admin.get(f"{N}?timeout={text}")).status == 200


@pytest.mark.parametrize("text", ["5", "PT5S", "x", "5 s", "9" * 30 + "h", "1.2.3s"])
async def test_anything_else_is_none(replica: Replica, text: str) -> None:  # LW-020
    assert (await replica.admin.get(f"{N}?timeout={text.replace(' ', '%20')}")).status == 400


@pytest.mark.parametrize("hot_path", [True, False])
async def test_a_fault_of_ours_is_told_without_its_cause(
    hot_path: bool, caplog: pytest.LogCaptureFixture
) -> None:  # AS-094, LW-197, LW-202: the log has the cause under the requestId
    replica = replica_of(hot_path=hot_path)
    async with running(replica):
        replica.cache._pins = None  # type: ignore[assignment]
        fill(replica)
        got = await replica.admin.get(f"{N}?limit=1")

    assert replica.admin.aborts == 0  # the answer is whole: its connection is not cut off
    found = body(got)
    assert (got.status, found["reason"]) == (500, "InternalError")
    assert found["message"] == f"Internal error occurred: {got.headers['audit-id']}"
    assert found["details"] == {"causes": [{"message": got.headers["audit-id"]}]}
    assert "retry-after" not in got.headers
    assert b"NoneType" not in got.body
    [line] = [one for one in caplog.records if one.message == "a request failed"]
    assert vars(line)["request_id"] == found["requestId"] == got.headers["audit-id"]
    assert "NoneType" in str(line.exc_info)


# -- the drain -------------------------------------------------------------------------------------


async def test_the_drain_step_by_step() -> None:  # AS-095, LW-147
    replica = replica_of(
        options=ServerOptions(
            shutdown_delay=timedelta(seconds=15), shutdown_watch_grace=timedelta(seconds=1)
        )
    )
    fill(replica)
    async with running(replica):
        query = f"watch=1&resourceVersion={replica.rev}&allowWatchBookmarks=1"
        async with replica.admin.open("GET", f"{N}?{query}") as stream:
            await until(lambda: len(replica.app.watches) == 1)
            moved = replica.change("other", "scan-0-e1", "Failed")
            await replica.caught_up()
            draining = spawn("drain", replica.app.drain())
            await asyncio.sleep(0)
            await replica.advance(1)
            during = await replica.admin.get(N)
            ready = await replica.stranger.get("/readyz")
            live = await replica.stranger.get("/livez")
            assert stream.idle()
            await replica.advance(14.25)
            bookmark = await stream.event()
            assert await stream.line() is None
            await draining
            refused = await replica.admin.get(N)
            no_watch = await replica.admin.get(f"{N}?watch=1")
            still = await replica.admin.get("/metrics")
            health = [(await replica.stranger.get(path)).status for path in ("/livez", "/readyz")]

    assert (during.status, during.headers["connection"]) == (200, "close")
    assert ready.status == 500
    assert b"[-]shutdown failed: reason withheld\n" in ready.body
    assert live.status == 200
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(moved)
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert refused.headers["connection"] == no_watch.headers["connection"] == "close"
    assert body(refused)["message"] == ("The apiserver is shutting down, please try again later.")
    assert (still.status, health) == (200, [200, 500])


async def test_a_watch_that_begins_while_others_are_ended_ends_too() -> None:  # AS-095, LW-147
    """Its start waits for a version; the server that stops would wait for it for a minute."""
    replica = replica_of(
        options=ServerOptions(shutdown_delay=timedelta(0), shutdown_watch_grace=timedelta(0))
    )
    fill(replica)
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    target = f"{N}?watch=1&resourceVersion={replica.rev + 1}&{query}"
    async with running(replica), replica.admin.open("GET", target) as stream:
        draining = spawn("drain", replica.app.drain())
        await replica.advance(0.25)
        await draining
        assert (len(replica.app.watches), replica.app.in_flight.watches) == (0, 1)
        replica.change("example", "train-0-e1", "Failed")
        ending = spawn("end", stream.line())
        await replica.advance(2)
        assert await ending is None


async def test_the_ends_of_many_watches_are_spread() -> None:  # AS-095
    replica = replica_of(
        options=ServerOptions(
            shutdown_delay=timedelta(0),
            shutdown_watch_grace=timedelta(seconds=10),
            max_watches_per_user=1000,
        )
    )
    counts = []
    async with running(replica), AsyncExitStack() as held:
        streams = [
            await held.enter_async_context(replica.admin.open("GET", f"{N}?watch=1"))
            for _ in range(60)
        ]
        await until(lambda: len(replica.app.watches) == 60)
        await replica.advance(2)
        draining = spawn("drain", replica.app.drain())
        for _ in range(8):
            await replica.advance(0.05)
            await asyncio.sleep(0.01)
            counts.append(len(replica.app.watches))
        await draining
        for stream in streams:
            assert await stream.line() is None

    steps = [before - after for before, after in itertools.pairwise([60, *counts])]
    assert max(steps[2:]) == 10  # at least 200 a second: ten every 50 ms
    assert counts[-1] == 0


async def test_a_watch_is_not_ended_within_its_first_second() -> None:  # LW-145
    replica = replica_of(
        options=ServerOptions(shutdown_delay=timedelta(0), shutdown_watch_grace=timedelta(0))
    )
    target = f"{N}?watch=1&resourceVersion=1"
    async with running(replica), replica.admin.open("GET", target) as stream:
        await until(lambda: len(replica.app.watches) == 1)
        draining = spawn("drain", replica.app.drain())
        await replica.advance(0.25)
        await draining
        await until(lambda: len(replica.app.watches) == 0)
        ending = spawn("end", stream.line())
        await replica.advance(0.5)
        assert not ending.done()
        await replica.advance(0.5)
        assert await ending is None
