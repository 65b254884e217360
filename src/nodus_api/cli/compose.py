"""Joins the parts of a process: which database, which clock, which chance, which supplier.

No decision is taken here; a value that a part needs is made here and handed in.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

from nodus_api.apiserver import ServerOptions, create_app, serve
from nodus_api.cli.bootstrap import certificate_names
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.cli.main import product_version
from nodus_api.cli.options import find_database
from nodus_api.clock import Clock, SystemClock
from nodus_api.scheduler import Retention, Scheduler
from nodus_api.scheduler.health import HealthServer
from nodus_api.scheduler.listening import unix_socket
from nodus_api.scheduler.reports import ReportServer
from nodus_api.settings import Settings
from nodus_api.storage.access_store import AccessStore
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import SchemaMismatch, StorageUnavailable
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.migrate import check_schema
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.local import LocalSupplier
from nodus_api.suppliers.supplier import Supplier
from nodus_api.tasks import end, spawn
from nodus_api.tls import (
    CertificateFiles,
    CertificateReloader,
    ensure_certificates,
    server_context,
)
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.history import Window

_SCHEMA_SECONDS = 30.0
_log = logging.getLogger(__name__)


async def run_server(settings: Settings, sockets: Sequence[socket.socket]) -> None:
    """Serve the API on bound sockets until SIGTERM or SIGINT has been drained (AS-095)."""
    clock, chance = SystemClock(), random.SystemRandom().random
    async with (
        _database(settings, Role.API) as database,
        _certificates(settings, settings.bind, clock) as (context, reloader),
        _schema_watched(database, clock) as schema,
    ):
        window = Window(stubs=settings.watchcache_window, documents=settings.watchcache_documents)
        app = create_app(
            cache=AttemptCache(
                Feed(database, clock=clock), clock=clock, chance=chance, window=window
            ),
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
            _tell("HTTPS", bound)
        await serve(app, sockets=sockets, ssl_context=context)


async def run_scheduler(
    settings: Settings, *, health: socket.socket, reports: socket.socket | None
) -> None:
    """Run the loop, its report listeners and its health listener until SIGTERM or SIGINT.

    Runners report to the Unix socket in D/run, and over HTTPS to `reports` if it is given.
    """
    clock = SystemClock()
    directory = DataDirectory(settings.data_dir)
    async with _database(settings, Role.SCHEDULER) as database:
        directory.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        installation = await Feed(database, clock=clock).installation()
        scheduler = Scheduler(
            database,
            _supplier(settings, directory, installation, clock),
            clock,
            holder=f"{socket.gethostname()}/{os.getpid()}",
            retention=Retention(
                finished=settings.retain_finished,
                count=settings.retain_finished_count,
                archive=settings.archive_retention,
            ),
        )
        answers = ReportServer(
            ReportStore(database),
            wake=scheduler.wake,
            metrics=scheduler.metrics,
            new_id=uuid4,
        )
        watcher = HealthServer(LeaderStore(database), scheduler.metrics)
        local = unix_socket(directory.runner_socket)
        _tell("health", health)
        if reports is not None:
            _tell("runner reports", reports)
        async with _stopped_by_signals() as stop:
            parts = {
                "scheduler": scheduler.run(stop),
                "health": watcher.serve([health], stop),
                "reports": answers.serve([local], stop),
            }
            if reports is None:
                await _together(stop, parts)
                return
            async with _certificates(settings, settings.runner_bind, clock) as (context, _):
                parts["reports over HTTPS"] = answers.serve([reports], stop, ssl_context=context)
                await _together(stop, parts)


def _tell(what: str, bound: socket.socket) -> None:
    """Log where a part listens; with port 0 nothing else says it."""
    address, port = bound.getsockname()[:2]
    _log.info("listening", extra={"for": what, "address": address, "port": port})


def _supplier(
    settings: Settings, directory: DataDirectory, installation: UUID, clock: Clock
) -> Supplier:
    match settings.supplier:
        case "local":
            return LocalSupplier(
                directory.machines,
                installation=installation,
                runner_socket=directory.runner_socket,
                slots=settings.local_slots,
                rate=settings.local_rate,
                clock=clock,
            )


@asynccontextmanager
async def _database(settings: Settings, role: Role) -> AsyncIterator[Database]:
    """Yield the part's database, its schema checked (AS-096); refuses an old or missing one."""
    database = Database(find_database(settings), role=role, pool_size=settings.database_pool_size)
    try:
        await check_schema(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def _certificates(
    settings: Settings, bind: str, clock: Clock
) -> AsyncIterator[tuple[ssl.SSLContext, CertificateReloader]]:
    """Yield the TLS context and what keeps it up to date while it is used (AS-078, AS-080)."""
    given = settings.tls_cert_file, settings.tls_private_key_file
    cert_dir = settings.cert_dir or DataDirectory(settings.data_dir).certs
    names = certificate_names(bind, settings.tls_san)

    async def renew() -> None:
        ensure_certificates(cert_dir, names=names, clock=clock)

    if given[0] is not None and given[1] is not None:
        files = CertificateFiles(certificate=given[0], key=given[1])
    else:
        files = ensure_certificates(cert_dir, names=names, clock=clock)
    context = server_context(files, minimum=settings.tls_min_version)
    reloader = CertificateReloader(files, context, clock)
    watching = spawn("certificates", reloader.run(None if files.ca is None else renew))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.check)
    try:
        yield context, reloader
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        await end(watching)


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


@asynccontextmanager
async def _stopped_by_signals() -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _together(stop: asyncio.Event, parts: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run until `stop`, or until one part ends; then all end. Raises what a part raised."""
    tasks = [spawn(name, part) for name, part in parts.items()]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ends:
        if isinstance(error, BaseException):
            raise error
