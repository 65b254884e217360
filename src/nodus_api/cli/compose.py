"""What server and scheduler share when their parts are joined: database, certificates, log.

No decision is taken here, nor in `compose_server` and `compose_scheduler`, which are two so that
neither loads the other's parts: a value that a part needs is made there and handed in.
"""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nodus_api.cli.bootstrap import certificate_names
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.cli.options import find_database
from nodus_api.clock import Clock
from nodus_api.settings import Settings
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.revision import check_schema
from nodus_api.tasks import end, spawn
from nodus_api.tls import (
    CertificateFiles,
    CertificateReloader,
    ensure_certificates,
    server_context,
)

_log = logging.getLogger(__name__)


def tell_where(what: str, bound: socket.socket) -> None:
    """Log where a part listens; with port 0 nothing else says it."""
    address, port = bound.getsockname()[:2]
    _log.info("listening", extra={"for": what, "address": address, "port": port})


@asynccontextmanager
async def open_database(
    settings: Settings, role: Role, *, plan_once: bool = False
) -> AsyncIterator[Database]:
    """Yield the part's database, its schema checked (AS-096); refuses an old or missing one."""
    database = Database(
        find_database(settings),
        role=role,
        pool_size=settings.database_pool_size,
        plan_once=plan_once,
    )
    try:
        await check_schema(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def certificates(
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
