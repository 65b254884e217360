"""The API on a real TLS socket over the test's database, and the world behind it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from tests.apiserver.conftest import Ids
from tests.conftest import START
from tests.goldens_live.live_world import LiveWorld, StandingClock, a_live_world
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions, create_app
from nodus_api.apiserver.serving import DrainingServer
from nodus_api.clock import SystemClock
from nodus_api.storage.access_store import AccessAdmin, AccessStore
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import Feed
from nodus_api.tasks import spawn
from nodus_api.tls import client_context, ensure_certificates, server_context
from nodus_api.tokens import make_token
from nodus_api.watchcache import AttemptCache

TOKEN = make_token(b"golda...", b"g" * 32)
QUICK = ServerOptions(
    public_url="https://nodus.test",
    shutdown_delay=timedelta(0),
    shutdown_watch_grace=timedelta(0),
)


@pytest.fixture
def clock() -> StandingClock:
    """A clock that stands late in a second: what happened a moment before falls into the same."""
    return StandingClock(START + timedelta(milliseconds=900))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder, names=["localhost", "127.0.0.1"], clock=SystemClock())
    return folder


@pytest.fixture
def cache(api_database: Database) -> AttemptCache:
    """What the API serves from."""
    system = SystemClock()
    return AttemptCache(Feed(api_database, clock=system), clock=system, chance=lambda: 0.5)


@pytest.fixture
async def http(
    scheduler_database: Database, api_database: Database, cache: AttemptCache, certificates: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API, as a member of the project `default`."""
    admin, system = AccessAdmin(scheduler_database), SystemClock()
    await admin.create_token(TOKEN.id, TOKEN.secret_sha256, "golda")
    await admin.add_member("default", "user", "golda", "viewer")
    app = create_app(
        cache=cache,
        access=AccessStore(api_database, system),
        clock=system,
        new_id=Ids(),
        chance=lambda: 0.5,
        version="0.1.0",
        options=QUICK,
    )
    files = ensure_certificates(certificates, names=["localhost", "127.0.0.1"], clock=system)
    assert files.ca is not None
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    started = asyncio.Event()
    server = DrainingServer(app, server_context(files), started.set)
    serving = spawn("server", server.serve(sockets=[listening]))
    async with asyncio.timeout(30):
        await started.wait()
    await until(lambda: cache.ready and app.access.view is not None)
    client = httpx.AsyncClient(
        base_url=f"https://localhost:{listening.getsockname()[1]}",
        verify=client_context(files.ca),
        headers={"Authorization": f"Bearer {TOKEN.text}"},
        timeout=30,
    )
    try:
        yield client
    finally:
        await client.aclose()
        server.begin_drain()
        async with asyncio.timeout(30):
            await serving


@pytest.fixture
async def live(
    request: pytest.FixtureRequest,
    scheduler_database: Database,
    clock: StandingClock,
    http: httpx.AsyncClient,
    cache: AttemptCache,
) -> AsyncIterator[LiveWorld]:
    """The world; an indirect parameter changes how its host is made."""
    how = getattr(request, "param", {})
    async with a_live_world(scheduler_database, clock, http, cache, **how) as made:
        yield made
