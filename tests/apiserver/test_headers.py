"""The headers of every answer, and those that no answer has."""

import pytest
from tests.apiserver.conftest import A, N, Replica

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


async def test_a_preflight_is_a_write_like_others(replica: Replica) -> None:  # LW-008, LW-063
    got = await replica.stranger.request("OPTIONS", N, headers={"origin": "https://else.test"})
    known = await replica.admin.request("OPTIONS", N)

    assert (got.status, known.status) == (401, 405)
