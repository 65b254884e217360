"""`nodus up`: everything on one machine, supervised.

The order is a contract (architecture.md, command line): lock, orphans, sockets, database,
schema and first start, scheduler, server.
"""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import click

from nodus_api.cli import bootstrap, listening, processes
from nodus_api.cli.api_client import ApiClient, ApiUnreachable
from nodus_api.cli.data_directory import DataDirectory, open_data_directory, take_lock
from nodus_api.cli.errors import reported
from nodus_api.cli.options import database_options, settings_from
from nodus_api.cli.parts import as_environment, scheduler_options, server_options
from nodus_api.cli.supervisor import Child, PostgresPart, Supervisor
from nodus_api.clock import SystemClock
from nodus_api.settings import Settings, database_url
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.migrate import upgrade

_HEALTH_OFFSET = 3  # 8443 for the API, 8446 for the scheduler's health (SC-645)


@click.command()
@click.option("--bind", help="Address to listen on [env NODUS_BIND; 127.0.0.1].")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="HTTPS port, 0 takes a free one [env NODUS_PORT; 8443].",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Port of the scheduler's health and metrics [env NODUS_HEALTH_PORT; --port plus 3].",
)
@server_options
@scheduler_options
@database_options
def up(health_port: int | None, tls_san: tuple[str, ...], **options: Any) -> None:
    """Run database, scheduler and HTTPS server on this machine until Ctrl-C.

    Writes kubeconfig, ca.crt and token (the admin's) into the data directory. Programs that run
    when it stops go on running; the next `nodus up` takes them over.

    \b
    Example:
      nodus up --data-dir /var/lib/nodus
      kubectl --kubeconfig /var/lib/nodus/kubeconfig get attempts --watch
    """
    settings = settings_from({**options, "tls_san": tls_san or None})
    with reported():
        directory = open_data_directory(settings.data_dir)
        with take_lock(directory):
            directory.run.mkdir(mode=0o700, exist_ok=True)
            processes.end_orphans(directory.run, SystemClock(), keep=(PostgresPart.name,))
            with _bound(settings, health_port) as sockets:
                _supervise(settings, directory, sockets)
    with suppress(OSError):  # the terminal may be gone
        click.echo(
            "Nodus is stopped; programs that still run go on, and the next `nodus up` takes them"
            " over."
        )


@dataclass(frozen=True, slots=True)
class Sockets:
    """What `nodus up` listens on for its children."""

    api: socket.socket
    health: socket.socket


@contextmanager
def _bound(settings: Settings, health_port: int | None) -> Iterator[Sockets]:
    with listening.bind(settings.bind, settings.port) as api:
        if health_port is None:
            given = "health_port" in settings.model_fields_set
            beside = listening.port_of(api) + _HEALTH_OFFSET if settings.port else 0
            health_port = settings.health_port if given else beside
        with listening.bind(settings.health_bind, health_port, flag="--health-port") as health:
            yield Sockets(api, health)


def _supervise(settings: Settings, directory: DataDirectory, sockets: Sockets) -> None:
    clock = SystemClock()
    local = _address(settings.bind, listening.port_of(sockets.api))
    server = settings.public_url or local
    given = database_url(settings)
    with Supervisor(directory.run, clock) as supervisor:
        try:
            if given is None:
                postgres = EmbeddedPostgres(directory.root)
                postgres.ensure()
                supervisor.start(PostgresPart(postgres))
                url = postgres.url
            else:
                url = given
            asyncio.run(_prepare(settings, directory, url, server))
            environment = _environment(settings, directory, server)
            for child in _children(sockets, environment):
                if not supervisor.stopping:
                    supervisor.start(child)
            client = replace(ApiClient.from_kubeconfig(directory.kubeconfig), server=local)
            supervisor.run(
                lambda: asyncio.run(_are_ready(client, sockets.health)),
                lambda: _announce(directory, server),
            )
        finally:
            directory.database_url.unlink(missing_ok=True)


async def _prepare(settings: Settings, directory: DataDirectory, url: str, server: str) -> None:
    await upgrade(url)
    bootstrap.make_certificates(
        directory, bind=settings.bind, extra=settings.tls_san, clock=SystemClock()
    )
    await bootstrap.ensure_admin(directory, url)
    bootstrap.write_kubeconfig(directory, server)
    directory.write_private(directory.database_url, url + "\n")


def _environment(settings: Settings, directory: DataDirectory, server: str) -> dict[str, str]:
    return {
        **as_environment(settings),
        "NODUS_DATA_DIR": str(directory.root),
        # by file, since an environment can be read in /proc
        "NODUS_DATABASE_URL": "",
        "NODUS_DATABASE_URL_FILE": str(directory.database_url),
        "NODUS_PUBLIC_URL": server,
        "NODUS_CERT_DIR": str(directory.certs),
        "NODUS_TLS_CERT_FILE": "",
        "NODUS_TLS_PRIVATE_KEY_FILE": "",
        "NODUS_SHUTDOWN_DELAY": "0s",
        "NODUS_SHUTDOWN_WATCH_GRACE": "1s",
    }


def _children(sockets: Sockets, environment: dict[str, str]) -> list[Child]:
    api, health = sockets.api.fileno(), sockets.health.fileno()
    nodus = [sys.executable, "-m", "nodus_api.cli.main"]
    return [
        Child(
            name="schedule",
            command=[*nodus, "schedule", "--socket-only", "--health-fd", str(health)],
            descriptors=[health],
            environment=environment,
        ),
        Child(
            name="serve",
            command=[*nodus, "serve", "--listen-fd", str(api)],
            descriptors=[api],
            environment=environment,
        ),
    ]


async def _are_ready(client: ApiClient, health: socket.socket) -> bool:
    """Say whether server and scheduler are ready: the server alone would place nothing."""
    return await _server_is_ready(client) and await _scheduler_is_ready(health)


async def _scheduler_is_ready(health: socket.socket) -> bool:
    address, port = health.getsockname()[:2]
    try:
        async with asyncio.timeout(0.5):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


async def _server_is_ready(client: ApiClient) -> bool:
    try:
        async with asyncio.timeout(0.5):
            status, _ = await client.get("/readyz")
    except (ApiUnreachable, TimeoutError):
        return False
    return status == 200


def _announce(directory: DataDirectory, server: str) -> None:
    click.echo(f"Nodus is ready at {server} (data in {directory.root}; Ctrl-C stops it).")
    click.echo(
        f'  curl --cacert {directory.ca} -H "Authorization: Bearer $(cat {directory.token})"'
        f" {server}/apis/nodus.dev/v1/namespaces/default/attempts"
    )
    click.echo(f"  kubectl --kubeconfig {directory.kubeconfig} get attempts --watch")


def _address(bind: str, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(bind)  # noqa: S104 -- compared, not bound
    if host is None:
        host = f"[{bind}]" if ":" in bind else bind
    return f"https://{host}:{port}"
