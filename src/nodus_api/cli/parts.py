"""What server and scheduler take wherever they run: alone, or as parts of `nodus up`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nodus_api.settings import CONFIG_FILE, PREFIX, Settings, masked

Command = TypeVar("Command", bound=Callable[..., Any])

_SERVER = (
    click.option("--public-url", help="How clients reach this server, for links in answers."),
    click.option("--tls-san", multiple=True, help="Further name of a made certificate."),
    click.option("--tls-min-version", type=click.Choice(["1.2", "1.3"]), help="Oldest TLS [1.2]."),
    click.option("--request-timeout", help="Deadline of everything but watches [60s]."),
    click.option(
        "--feed-require-heartbeat/--no-feed-require-heartbeat",
        default=None,
        help="Refuse consistent reads while no scheduler leads in this database [no].",
    ),
)
_SCHEDULER = (
    click.option(
        "--supplier",
        type=click.Choice(["local", "simulated"]),
        help="Where machines come from [local].",
    ),
    click.option(
        "--speed",
        "simulated_speed",
        type=click.FloatRange(1, 1000),
        help="How many times as fast simulated machines and programs are [1].",
    ),
    click.option(
        "--local-slots",
        type=click.IntRange(1, 4096),
        help="Machines at once on this host [its CPUs, at least 4].",
    ),
    click.option("--local-rate", help="Price of a machine on this host, USD per hour [0.06]."),
    click.option("--retain-finished", help="How long finished Attempts stay in the API [24h]."),
    click.option(
        "--retain-finished-count",
        type=click.IntRange(0),
        help="How many finished Attempts a project keeps in the API [2000].",
    ),
    click.option("--archive-retention", help="How long the archive keeps them [90 days]."),
    click.option(
        "--feed-retention", help="How long a change stays in the log, for lists of before [1h]."
    ),
    click.option("--health-bind", help="Address of health and metrics [127.0.0.1]."),
)
_GIVEN_BY_UP = ("database_url", "database_url_file")


def server_options(command: Command) -> Command:
    """Add what the server takes wherever it runs."""
    return _with(_SERVER, command)


def scheduler_options(command: Command) -> Command:
    """Add what the scheduler takes wherever it runs."""
    return _with(_SCHEDULER, command)


def as_environment(settings: Settings) -> dict[str, str]:
    """Return the environment under which a part has these settings, whatever a file says.

    Without the database's address, which may hold a password and goes by a file (AS-117).
    """
    texts = {name: text for name, text in masked(settings).items() if name not in _GIVEN_BY_UP}
    return {CONFIG_FILE: "", **{PREFIX + name.upper(): text for name, text in texts.items()}}


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
