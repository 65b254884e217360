"""Joins the parts of `nodus serve`."""

import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from uuid import uuid4

from nodus_api.apiserver import ServerOptions, create_app, serve
from nodus_api.cli.compose import certificates, open_database, tell_where
from nodus_api.cli.main import product_version
from nodus_api.clock import Clock, SystemClock
from nodus_api.garbage import look_seldom, spare_what_is_there
from nodus_api.out_of_memory import ends_the_process
from nodus_api.settings import Settings
from nodus_api.storage.access_store import AccessStore
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import SchemaMismatch, StorageUnavailable
from nodus_api.storage.feed import Feed
from nodus_api.storage.feed_digest import FeedDigests
from nodus_api.storage.revision import check_schema
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.digest_check import ConsistencyCheck
from nodus_api.watchcache.heartbeat import Heartbeat
from nodus_api.watchcache.history import Window

_SCHEMA_SECONDS = 30.0


async def run_server(settings: Settings, sockets: Sequence[socket.socket]) -> None:
    """Serve the API on bound sockets until SIGTERM or SIGINT has been drained (AS-095)."""
    clock, chance = SystemClock(), random.SystemRandom().random
    async with (
        AsyncExitStack() as memory,
        open_database(settings, Role.API) as database,
        certificates(settings, settings.bind, clock) as (context, reloader),
        _schema_watched(database, clock) as schema,
    ):
        memory.enter_context(ends_the_process())
        window = Window(stubs=settings.watchcache_window, documents=settings.watchcache_documents)
        feed = Feed(database, clock=clock)
        heartbeat = Heartbeat(feed.heartbeat_age, clock, required=settings.feed_require_heartbeat)
        look_seldom()
        cache = AttemptCache(
            feed,
            clock=clock,
            chance=chance,
            window=window,
            consistent=heartbeat.check,
            settled=spare_what_is_there,
        )
        app = create_app(
            cache=cache,
            consistency=ConsistencyCheck(
                cache,
                FeedDigests(database).snapshot,
                clock=clock,
                chance=chance,
                every=settings.consistency_interval,
            ),
            heartbeat=heartbeat,
            access=AccessStore(database, clock),
            clock=clock,
            new_id=uuid4,
            chance=chance,
            version=product_version(),
            options=ServerOptions(
                public_url=settings.public_url or f"https://localhost:{settings.port}",
                cors_allowed_origins=settings.cors_allowed_origins,
                request_timeout=settings.request_timeout,
                shutdown_delay=settings.shutdown_delay,
                shutdown_watch_grace=settings.shutdown_watch_grace,
            ),
            checks={"schema": schema, "tls-cert": reloader.problem},
            live_checks={"cert-reloader": reloader.stalled},
        )
        for bound in sockets:
            tell_where("HTTPS", bound)
        await serve(app, sockets=sockets, ssl_context=context)


@asynccontextmanager
async def _schema_watched(
    database: Database, clock: Clock
) -> AsyncIterator[Callable[[], str | None]]:
    """Yield a check of readyz: None, or that the schema has moved on from this version (AS-105)."""
    found: list[str] = []

    async def look() -> None:
        while True:
            await clock.sleep(_SCHEMA_SECONDS)
            with suppress(StorageUnavailable):  # another check tells of that
                try:
                    await check_schema(database)
                    found.clear()
                except SchemaMismatch as mismatch:
                    found[:] = [str(mismatch)]

    watching = spawn("schema", look())
    try:
        yield lambda: found[0] if found else None
    finally:
        await end(watching)
