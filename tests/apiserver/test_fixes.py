"""What a refusal tells to do next, for each way to go wrong (LW-202)."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import ALICE, START, A, N, Replica, replica_of, running
from tests.apiserver.test_access import changed
from tests.asgi_client import AsgiClient

from nodus_api.apiserver import ServerOptions
from nodus_api.tokens import make_token


async def fix_of(client: AsgiClient, target: str, status: int) -> str:
    got = await client.get(target)
    found: Any = orjson.loads(got.body)
    assert (got.status, found["code"]) == (status, status)
    return str(found["fix"])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/nope", "`kubectl api-resources`"),
        ("/docs/errors/Nope", "GET /docs/errors."),
        ("/readyz/nope", "checks of /readyz: ping, event-loop, "),
        ("/livez/nope", "checks of /livez: ping, event-loop, feed-worker, "),
    ],
)
async def test_a_path_that_is_not_there(
    replica: Replica, target: str, words: str
) -> None:  # LW-012, LW-202
    assert words in await fix_of(replica.admin, target, 404)


async def test_the_checks_are_those_of_the_path(replica: Replica) -> None:  # AS-104
    ready = await fix_of(replica.admin, "/readyz/nope", 404)
    live = await fix_of(replica.admin, "/livez/nope", 404)

    assert "shutdown" in ready
    assert "shutdown" not in live


async def test_a_token_that_is_not_accepted(replica: Replica) -> None:  # AS-055, LW-202
    """Which of wrong, expired and revoked it is stays untold; that one was sent is known."""
    expired = make_token(b"short...", b"s" * 32)
    replica.tables.token(expired, "bob", (), START - timedelta(minutes=1))
    replica.tables.revoke(ALICE.id)
    await changed(replica)
    fixes = {
        await fix_of(AsgiClient(replica.app, token=text), N, 401)
        for text in ("wrong", expired.text, ALICE.text)
    }

    [fix] = fixes
    assert "not, or no longer, valid" in fix
    assert "`nodus token create --user NAME`" in fix
    without = await fix_of(replica.stranger, N, 401)
    assert "Send the header `Authorization: Bearer TOKEN`" in without
    assert "valid" not in without


@pytest.mark.parametrize(
    ("query", "fix"),
    [
        (
            "watch=1&sendInitialEvents=true",
            "Add resourceVersionMatch=NotOlderThan, or leave out sendInitialEvents.",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            "Add sendInitialEvents=true, or leave out resourceVersionMatch.",
        ),
        (
            "resourceVersionMatch=Exact",
            "Add resourceVersion, such as metadata.resourceVersion of an earlier list, or leave "
            "out resourceVersionMatch.",
        ),
        (
            "watch=1&resourceVersionMatch=Exact",
            "Change or leave out the query parameter resourceVersionMatch.",
        ),
        (
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
            "Change or leave out the query parameter resourceVersionMatch.",
        ),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            "Add resourceVersion, such as metadata.resourceVersion of an earlier list, or leave "
            "out resourceVersionMatch. Change or leave out the query parameter sendInitialEvents.",
        ),
    ],
)
async def test_what_is_missing_is_to_be_added(
    replica: Replica, query: str, fix: str
) -> None:  # LW-084, LW-089, LW-090, LW-202
    assert await fix_of(replica.admin, f"{A}?{query}", 422) == fix


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
async def test_docs_is_the_index(replica: Replica, path: str) -> None:  # LW-202, AS-010: no 3xx
    got = await replica.stranger.get(path)
    index = await replica.stranger.get("/docs/errors")

    assert (got.status, got.body) == (200, index.body)
    assert got.headers["content-type"] == index.headers["content-type"]


@pytest.mark.parametrize("code", ["Backoff", "(Backoff)", "%28Backoff%29", "(Capacity)"])
async def test_what_the_column_reason_shows_has_its_page(
    replica: Replica, code: str
) -> None:  # SC-009a, SC-011
    got = await replica.stranger.get(f"/docs/errors/{code}")

    assert got.status == 200
    assert b"queued" in got.body


@pytest.mark.parametrize("code", ["Unauthorized", "Forbidden"])
@pytest.mark.parametrize("standalone", [True, False])
async def test_a_page_about_rights_speaks_of_who_checks_them(
    code: str, standalone: bool
) -> None:  # LW-202, AS-072
    replica = replica_of(options=ServerOptions(standalone=standalone))
    async with running(replica):
        text = (await replica.stranger.get(f"/docs/errors/{code}")).body.decode()

    assert ("nodus token create" in text) == standalone
    assert ("cluster" in text) != standalone
    assert ("ClusterRole" in text) == (code == "Forbidden" and not standalone)


async def test_a_refusal_speaks_of_tokens(replica: Replica) -> None:  # LW-202, AS-072
    fix = await fix_of(replica.alice, "/metrics", 403)
    assert "nodus:admins" in fix
    assert "ClusterRole" not in fix
