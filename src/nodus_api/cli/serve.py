"""`nodus serve`: one replica of the HTTPS API, reads only."""

from pathlib import Path
from typing import Any

import click

from nodus_api.cli import listening
from nodus_api.cli.compose_server import run_server
from nodus_api.cli.options import database_options, run_async, settings_from
from nodus_api.cli.parts import server_options


@click.command()
@click.option("--bind", "--bind-address", "bind", help="Address to listen on [127.0.0.1].")
@click.option(
    "--port",
    "--secure-port",
    "port",
    type=click.IntRange(0, 65535),
    help="HTTPS port, 0 takes a free one [8443].",
)
@server_options
@click.option(
    "--tls-cert-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Certificate chain, PEM; without it one is made in --cert-dir.",
)
@click.option(
    "--tls-private-key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its private key, PEM.",
)
@click.option(
    "--cert-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where made certificates lie [D/certs].",
)
@click.option(
    "--shutdown-delay-duration",
    "shutdown_delay",
    help="How long new requests are served after SIGTERM [15s].",
)
@click.option(
    "--shutdown-watch-termination-grace-period",
    "shutdown_watch_grace",
    help="Over how long watches are ended at the stop [10s].",
)
@click.option("--listen-fd", type=click.IntRange(3), hidden=True)
@database_options
@run_async
async def serve(listen_fd: int | None, tls_san: tuple[str, ...], **options: Any) -> None:
    """Serve Attempts over HTTPS until SIGTERM; any number of replicas may run.

    Every option has an environment variable NODUS_<NAME>; `nodus doctor --print-config` shows them.

    \b
    Example:
      nodus serve --database-url-file /etc/nodus/url --bind 0.0.0.0 --tls-san nodus.example
    """
    settings = settings_from({**options, "tls_san": tls_san or None})
    bound = (
        listening.bind(settings.bind, settings.port)
        if listen_fd is None
        else listening.adopt(listen_fd)
    )
    with bound:
        await run_server(settings, [bound])
