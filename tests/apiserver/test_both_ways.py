"""The hot path and the FastAPI routes of the same paths give the same bytes."""

from collections.abc import AsyncIterator

import orjson
import pytest
from fastapi.routing import APIRoute
from tests.apiserver.conftest import A, N, Replica, T, fill, replica_of, running
from tests.asgi_client import Response

from nodus_api.apiserver.routes.attempts import attempt_routes
from nodus_api.attempts.openapi import openapi_v3

PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
TARGETS = [
    ("GET", N, {}),
    ("GET", A, {}),
    ("HEAD", N, {}),
    ("GET", f"/{N}/", {}),
    ("GET", N, {"user_agent": "curl/8"}),
    ("GET", N, {"accept": T}),
    ("GET", f"{A}?includeObject=Object", {"accept": T}),
    ("GET", N, {"accept": PARTIAL.format("List")}),
    ("GET", N, {"accept": "text/html"}),
    ("GET", f"{N}?limit=5", {}),
    ("GET", f"{N}?limit=x", {}),
    ("GET", f"{N}?resourceVersionMatch=Exact", {}),
    ("GET", f"{N}?labelSelector=nodus.dev/job%3Dfit&fieldSelector=spec.slot%3D0", {}),
    ("GET", f"{N}/train-0-e1", {}),
    ("GET", f"{N}/train-0-e1", {"accept": T}),
    ("GET", f"{N}/train-0-e1", {"accept": PARTIAL.format("")}),
    ("GET", f"{N}/nope", {}),
    ("POST", N, {}),
]


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Replica, Replica]]:
    ours, theirs = replica_of(), replica_of(hot_path=False)
    fill(ours)
    fill(theirs)
    async with running(ours), running(theirs):
        yield ours, theirs


def comparable(got: Response) -> tuple[int, dict[str, str], bytes]:
    return got.status, got.headers, got.body


@pytest.mark.parametrize(("method", "target", "headers"), TARGETS)
async def test_both_ways_give_the_same_bytes(
    pair: tuple[Replica, Replica], method: str, target: str, headers: dict[str, str]
) -> None:
    answers = [
        await one.admin.request(method, target, headers=headers | {"audit-id": "same"})
        for one in pair
    ]

    assert comparable(answers[0]) == comparable(answers[1])


@pytest.mark.parametrize("query", ["watch=1&allowWatchBookmarks=1", "watch=1&resourceVersion=3"])
@pytest.mark.parametrize("headers", [{}, {"accept": T}])
async def test_both_ways_watch_alike(
    pair: tuple[Replica, Replica], query: str, headers: dict[str, str]
) -> None:
    lines = []
    for one in pair:
        async with one.admin.open("GET", f"{N}?{query}", headers=headers) as stream:
            some = [await stream.line() for _ in range(9)]
            one.change("example", "train-0-e1", "Failed")
            while b"MODIFIED" not in (line := await stream.line() or b"MODIFIED"):
                some.append(line)
            lines.append([*some, line])

    assert lines[0] == lines[1]


def test_the_routes_are_those_of_the_document() -> None:  # architecture.md, Layout
    documented = {
        path.replace("{namespace}", "{project}")
        for path in orjson.loads(openapi_v3().body)["paths"]
    }
    routed = {
        route.path
        for route in attempt_routes(None).routes  # type: ignore[arg-type]
        if isinstance(route, APIRoute) and "/watch/" not in route.path
    }

    assert routed == documented
