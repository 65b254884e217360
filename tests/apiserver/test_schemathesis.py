"""What the OpenAPI document says is what comes back: schemathesis asks, by the document alone.

Over HTTP, of a server on a real Postgres with Attempts as the scheduler writes them. Watches are
left out: their answer is a stream of events and no document. Derandomised, so a run is repeatable.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.clients.writing import Lives
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions, create_app
from nodus_api.apiserver.serving import DrainingServer
from nodus_api.attempts.openapi import openapi_v3
from nodus_api.clock import SystemClock
from nodus_api.storage.access_store import AccessAdmin, AccessStore
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.tasks import spawn
from nodus_api.tokens import make_token
from nodus_api.watchcache import AttemptCache

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: see the dev extra"
)

pytestmark = pytest.mark.slow  # some hundred requests, each checked against the schema
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    "response_schema_conformance",
)
DOCUMENT: dict[str, Any] = orjson.loads(openapi_v3().body)
OPERATIONS = [
    (path, method)
    for path, item in DOCUMENT["paths"].items()
    for method in item
    if method in ("get", "put", "post", "delete", "patch")
]
EXAMPLES = 25
TOKEN = make_token(b"schema..", b"s" * 32)
CLOCK = SystemClock()


@dataclass
class Place:
    """A server, and what is there."""

    url: str
    names: list[str]


@pytest.fixture
async def place(clean_database: str) -> AsyncIterator[Place]:
    writing, reading = (Database(clean_database, role=role) for role in (Role.SCHEDULER, Role.API))
    await AccessAdmin(writing).create_token(
        TOKEN.id, TOKEN.secret_sha256, "test", groups=("nodus:admins",)
    )
    lives = Lives(database=writing, clock=CLOCK, chance=random.Random(7))  # noqa: S311
    await lives.begin()
    for _ in range(60):
        await lives.step()
    app = create_app(
        cache=AttemptCache(Feed(reading, clock=CLOCK), clock=CLOCK, chance=lambda: 0.5),
        access=AccessStore(reading, CLOCK),
        clock=CLOCK,
        new_id=uuid4,
        chance=lambda: 0.5,
        version="0.1.0",
        options=ServerOptions(),
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = DrainingServer(app, None)
    serving = spawn("server", server.serve(sockets=[listening]))
    await until(lambda: server.started and app.access.view is not None, 30)
    names = [view.attempt.name for view in lives.views.values()]
    yield Place(f"http://127.0.0.1:{listening.getsockname()[1]}", names)
    server.should_exit = True
    await serving
    await writing.close()
    await reading.close()


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda one: one.replace("/", "."))
async def test_every_answer_is_what_the_document_says(
    place: Place, path: str, method: str
) -> None:  # LW-230, LW-234, LW-239
    schemathesis.checks.load_all_checks()
    checks = [schemathesis.checks.CHECKS.get_one(name) for name in CHECKS]
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method]
    cases = st.one_of(
        *(operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode)
    )
    seen: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, there=st.booleans(), name=st.sampled_from(place.names))
    def ask(case: Any, there: bool, name: str) -> None:
        if there:  # what is drawn by the document alone is nowhere
            found = {"project": "default", "name": name}
            case.path_parameters = {
                key: found.get(key, value) for key, value in (case.path_parameters or {}).items()
            }
        for key in ("watch", "resourceVersion"):  # a stream, and three seconds of waiting
            (case.query or {}).pop(key, None)
        headers = {"Authorization": f"Bearer {TOKEN.text}"}
        got = case.call(base_url=place.url, headers=headers, timeout=30)
        case.validate_response(got, checks=checks)
        seen.add(got.status_code)

    await asyncio.to_thread(ask)

    assert seen & ({405} if method == "patch" else {200})
