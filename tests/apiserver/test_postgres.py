"""One replica on a real Postgres: published Attempts, stored tokens, members that change."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
import pytest
from tests.apiserver.conftest import Ids
from tests.asgi_client import AsgiClient
from tests.watchcache.conftest import until
from tests.watchcache.published import Publisher

from nodus_api.apiserver import AccessSource, ApiServer, ServerOptions, create_app
from nodus_api.clock import ManualClock
from nodus_api.storage.access_store import AccessAdmin, AccessStore
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import Feed
from nodus_api.tokens import make_token
from nodus_api.watchcache import AttemptCache

TOKEN = make_token(b"erika...", b"e" * 32)
LIST = "/apis/nodus.dev/v1/namespaces/default/attempts"


@dataclass
class Real:
    app: ApiServer
    admin: AccessAdmin
    publisher: Publisher
    erika: AsgiClient

    async def seen(self) -> None:
        """Wait until the replica has every change of access."""
        rev = await self.app.access.head()
        await until(lambda: self.app.access.view is not None and self.app.access.view.rev >= rev)


@pytest.fixture
async def real(
    scheduler_database: Database, api_database: Database, clock: ManualClock
) -> AsyncIterator[Real]:
    admin, publisher = AccessAdmin(scheduler_database), Publisher(scheduler_database)
    await publisher.begin()
    await admin.create_token(TOKEN.id, TOKEN.secret_sha256, "erika")
    access: AccessSource = AccessStore(api_database, clock)
    cache = AttemptCache(Feed(api_database, clock=clock), clock=clock, chance=lambda: 0.5)
    app = create_app(
        cache=cache,
        access=access,
        clock=clock,
        new_id=Ids(),
        chance=lambda: 0.5,
        version="0.1.0",
        options=ServerOptions(),
    )
    app.background.start()
    await until(lambda: cache.ready and app.access.view is not None)
    yield Real(app, admin, publisher, AsgiClient(app, token=TOKEN.text))
    await app.background.stop()


async def test_a_member_lists_and_watches(real: Real) -> None:
    refused = await real.erika.get(LIST)
    await real.admin.add_member("default", "user", "erika", "viewer")
    await real.seen()
    head = await real.publisher.add("n1")
    listed = orjson.loads((await real.erika.get(LIST)).body)
    async with real.erika.open("GET", f"{LIST}?watch=1&resourceVersion={head}") as stream:
        changed = await real.publisher.change(1, "n1", "Running")
        event = await stream.event()
        await real.admin.remove_member("default", "user", "erika")
        assert await stream.line() is None  # AS-054

    assert refused.status == 403
    assert [i["metadata"]["name"] for i in listed["items"]] == ["n1"]
    assert listed["metadata"]["resourceVersion"] == str(head)
    assert event["object"]["metadata"]["resourceVersion"] == str(changed)


async def test_projects_come_and_go_as_namespaces(real: Real) -> None:  # LW-016
    async with real.erika.open("GET", "/api/v1/namespaces?watch=1") as stream:
        await real.admin.create_project("new")
        await real.admin.add_member("new", "user", "erika", "admin")
        event = await stream.event()
    listed = orjson.loads((await real.erika.get("/api/v1/namespaces")).body)

    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "new")
    assert [i["metadata"]["name"] for i in listed["items"]] == ["new"]


async def test_a_revoked_token_is_refused(real: Real) -> None:  # AS-067
    before = await real.erika.get("/apis")
    await real.admin.revoke_token(TOKEN.id)
    await real.seen()

    assert (before.status, (await real.erika.get("/apis")).status) == (200, 401)
