"""The headers of every answer, and those that no answer has."""

import gzip
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
from tests.apiserver.conftest import A, N, Replica, fill, replica_of, running

from nodus_api.apiserver import ServerOptions
from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.request import Request, joined, read_request_info

EVERYWHERE = {
    "cache-control": "no-cache, private",
    "vary": "Accept, Accept-Encoding",
    "x-content-type-options": "nosniff",
}


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", N, 200),
        ("GET", f"{N}/train-0-e1", 200),
        ("HEAD", N, 200),
        ("GET", f"{N}/nope", 404),
        ("GET", "/nope", 404),
        ("POST", N, 405),
        ("GET", f"{N}?limit=x", 400),
        ("GET", f"{N}?resourceVersionMatch=Exact", 422),
        ("GET", "/api/v1/namespaces", 200),
        ("GET", "/metrics", 200),
        ("GET", "/readyz", 200),
        ("GET", "/apis/nodus.dev/v1", 200),
    ],
)
async def test_every_answer_has_them(
    replica: Replica, method: str, target: str, status: int
) -> None:  # LW-059
    got = await replica.admin.request(method, target, headers={"origin": "https://elsewhere.test"})

    assert got.status == status
    assert got.headers.items() >= EVERYWHERE.items()
    assert got.header_names.count("audit-id") == 1
    assert not [name for name in got.header_names if name.startswith("x-kubernetes-pf")]  # LW-060
    assert "warning" not in got.headers  # LW-061: there is nothing to warn of
    # LW-063: no origin is configured
    assert not [name for name in got.header_names if name.startswith("access-control-")]


@pytest.mark.parametrize("who", ["stranger", "alice"])
async def test_refusals_are_not_kept(replica: Replica, who: str) -> None:  # AS-058
    got = await getattr(replica, who).get(A)

    assert got.status == {"stranger": 401, "alice": 403}[who]
    assert got.headers.items() >= EVERYWHERE.items()


async def test_a_watch_is_never_packed(replica: Replica) -> None:  # LW-058, LW-151
    async with replica.admin.open(
        "GET", f"{N}?watch=1", headers={"accept-encoding": "gzip"}
    ) as stream:
        headers = stream.response.headers
        assert (await stream.event())["type"] == "ADDED"

    assert "content-encoding" not in headers
    assert headers["x-accel-buffering"] == "no"
    assert headers["content-type"] == "application/json"
    assert headers.items() >= EVERYWHERE.items()


@pytest.mark.parametrize(
    ("accepted", "packs"),
    [
        (b"gzip", True),
        (b"deflate, GZIP", True),
        (b"gzip;q=1.0", True),
        (b"gzip; q=0.001", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000", False),
        (b"x-gzip", False),
        (b"*", False),
        (b"identity", False),
    ],
)
@pytest.mark.parametrize("size", [131_072, 131_073])
async def test_what_is_packed_and_for_whom(accepted: bytes, packs: bool, size: int) -> None:
    """LW-057: above 128 KiB, at level 1, for whoever names gzip; caches are told."""
    request = Request(
        scope={"method": "GET"},
        info=read_request_info("GET", b"/openapi/v2", {}),
        query={},
        audit_id="",
        request_id="",
        received=0.0,
        headers={b"accept-encoding": accepted},
    )
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("an answer reads nothing")

    await BodyAnswer.of(b"x" * size, headers={"Vary": "Accept"}).send(request, receive, send)

    headers, body = dict(sent[0]["headers"]), b"".join(part["body"] for part in sent[1:])
    packs = packs and size > 131_072
    assert headers.get(b"content-encoding") == (b"gzip" if packs else None)
    assert headers[b"vary"] == (b"Accept, Accept-Encoding" if packs else b"Accept")
    assert (gzip.decompress(body) if packs else body) == b"x" * size
    assert not packs or body[8] == 4  # the fastest way (RFC 1952)


async def test_a_preflight_is_a_write_like_others(replica: Replica) -> None:  # LW-008, LW-063
    got = await replica.stranger.request("OPTIONS", N, headers={"origin": "https://else.test"})
    known = await replica.admin.request("OPTIONS", N)

    assert (got.status, known.status) == (401, 405)


# -- pages of another origin ----------------------------------------------------------------------

PAGE = "https://dashboard.test"
EXPOSED = "Audit-Id, ETag, Retry-After, Warning"


def origin_of(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


@pytest.fixture
async def shared() -> AsyncIterator[Replica]:
    made = replica_of(options=ServerOptions(cors_allowed_origins=(PAGE,)))
    fill(made)
    async with running(made):
        yield made


@pytest.mark.parametrize("target", [N, f"{N}/nope", f"{A}?watch=1", "/apis", "/livez"])
async def test_a_page_of_a_configured_origin_may_read(shared: Replica, target: str) -> None:
    """LW-063: what browsers would hide otherwise is named, on errors and streams too."""
    async with shared.admin.open("GET", target, headers={"origin": PAGE}) as stream:
        headers = stream.response.headers

    assert origin_of(headers) == {
        "access-control-allow-origin": PAGE,
        "access-control-expose-headers": EXPOSED,
    }
    assert headers["vary"].endswith(", Origin")


async def test_a_page_of_another_origin_may_not(shared: Replica) -> None:  # LW-063
    for origin in ("https://dashboard.test.evil", "http://dashboard.test", "null", ""):
        got = await shared.admin.get(N, origin=origin)
        asked = await shared.stranger.request(
            "OPTIONS", N, headers={"origin": origin, "access-control-request-method": "GET"}
        )

        assert (got.status, origin_of(got.headers)) == (200, {})
        assert got.headers["vary"].endswith(", Origin")  # so that no cache mixes them up
        assert (asked.status, origin_of(asked.headers)) == (401, {})


async def test_a_browser_asks_before_it_reads(shared: Replica) -> None:  # LW-008, LW-063
    headers = {"origin": PAGE, "access-control-request-method": "GET"}
    got = await shared.stranger.request("OPTIONS", N, headers=headers)

    assert (got.status, got.body) == (204, b"")
    assert "content-length" not in got.headers
    assert origin_of(got.headers) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "GET, HEAD",
        "access-control-allow-headers": "Authorization, Accept, If-None-Match, Audit-ID",
        "access-control-max-age": "600",
        "access-control-expose-headers": EXPOSED,
    }


async def test_a_browser_is_told_that_nothing_is_written(shared: Replica) -> None:  # LW-063
    headers = {"origin": PAGE, "access-control-request-method": "DELETE"}
    got = await shared.admin.request("OPTIONS", N, headers=headers)
    refused = await shared.stranger.get(N, origin=PAGE)

    assert got.status == 405
    assert "access-control-allow-methods" not in got.headers
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, PAGE)


async def test_every_origin_never_with_credentials() -> None:  # LW-063
    made = replica_of(options=ServerOptions(cors_allowed_origins=("*",)))
    async with running(made):
        got = await made.admin.get("/apis", origin=PAGE)

    assert got.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in got.headers
    assert "Origin" not in got.headers["vary"]


class Whole(bytes):
    """A value that is not to be put behind what was joined before."""

    def __radd__(self, before: bytes) -> bytes:
        raise AssertionError(f"{len(before)} bytes are copied once more")


def test_headers_of_one_name_are_joined_in_one_go() -> None:  # AS-089
    """One by one, 256 KiB of them took half a second, before anybody was asked for a credential."""
    sent = [(b"a", Whole(b"1")), (b"b", Whole(b"")), (b"a", Whole(b"2")), (b"a", Whole(b"3"))]

    assert joined(sent) == {b"a": b"1,2,3", b"b": b""}
