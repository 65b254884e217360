"""`nodus schedule`: the loop that places and drives Attempts; one leads, others stand by."""

from contextlib import ExitStack
from typing import Any

import click

from nodus_api.cli import listening
from nodus_api.cli.compose_scheduler import run_scheduler
from nodus_api.cli.options import database_options, run_async, settings_from
from nodus_api.cli.parts import scheduler_options


@click.command()
@scheduler_options
@click.option("--runner-bind", help="Address for runner reports [127.0.0.1].")
@click.option("--runner-port", type=click.IntRange(0, 65535), help="Port of runner reports [8445].")
@click.option(
    "--health-port", type=click.IntRange(0, 65535), help="Port of health and metrics [8446]."
)
@click.option("--health-fd", type=click.IntRange(3), hidden=True)
@click.option("--socket-only", is_flag=True, hidden=True)
@database_options
@run_async
async def schedule(health_fd: int | None, socket_only: bool, **options: Any) -> None:
    """Place and drive Attempts until SIGTERM; programs on this host go on without it.

    Runners report over HTTPS to --runner-port and, on this host, to a Unix socket in the data
    directory. Health and metrics are on --health-port, without secrets. Finished Attempts move into
    the archive by --retain-finished and --retain-finished-count, and out of it by
    --archive-retention.

    \b
    Example:
      nodus schedule --database-url-file /etc/nodus/url
    """
    settings = settings_from(options)
    with ExitStack() as stack:
        health = stack.enter_context(
            listening.bind(settings.health_bind, settings.health_port, flag="--health-port")
            if health_fd is None
            else listening.adopt(health_fd)
        )
        reports = None
        if not socket_only:
            reports = stack.enter_context(
                listening.bind(settings.runner_bind, settings.runner_port, flag="--runner-port")
            )
        await run_scheduler(settings, health=health, reports=reports)
