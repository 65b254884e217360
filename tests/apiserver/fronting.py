"""The whole server in front of a cache that a test follows a real log with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.apiserver.access_tables import AccessTables
from tests.apiserver.conftest import ADMIN, Ids
from tests.asgi_client import AsgiClient
from tests.watchcache.conftest import until

from nodus_api.apiserver import create_app
from nodus_api.clock import SystemClock
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache


@asynccontextmanager
async def in_front_of(cache: AttemptCache) -> AsyncIterator[AsgiClient]:
    """Give an administrator's client."""
    tables = AccessTables()
    tables.token(ADMIN, "admin", ("nodus:admins",))
    app = create_app(
        cache=cache,
        access=tables,
        clock=SystemClock(),
        new_id=Ids(),
        chance=lambda: 0.5,
        version="0.1.0",
    )
    refreshing = spawn("access", app.access.run())
    try:
        await until(lambda: app.access.view is not None, 30)
        yield AsgiClient(app, token=ADMIN.text)
    finally:
        await end(refreshing)
