"""`nodus migrate` and `nodus doctor`: the database's schema, and whether all is well."""

import getpass
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from nodus_api.cli.api_client import ApiClient, ApiUnreachable
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.options import (
    database_options,
    find_database,
    output_option,
    password_warning,
    print_json,
    run_async,
    settings_from,
)
from nodus_api.cli.tabular import render_table
from nodus_api.settings import Settings, mask_url, masked
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageError
from nodus_api.storage.migrate import downgrade, new_epoch, print_roles, upgrade
from nodus_api.storage.revision import HEAD, check_schema


@click.command()
@click.option("--new-epoch", "epoch", is_flag=True, help="Start a new epoch of revisions.")
@click.option("--down-to", metavar="REVISION", help="Take the schema back, for an older version.")
@click.option("--print-roles", "roles", is_flag=True, help="Print the SQL that makes the roles.")
@database_options
@run_async
async def migrate(epoch: bool, down_to: str | None, roles: bool, **options: Any) -> None:
    """Bring the database's schema up to date; a second run changes nothing.

    --new-epoch is for a database that was restored from a copy while the first one lives: watchers
    list again instead of mixing two histories. --down-to takes later revisions back: run it with
    the version that made them, before an older one starts. --print-roles is for an administrator
    whose Nodus login may not make roles.

    \b
    Example:
      nodus migrate --database-url postgresql://nodus@db/nodus
    """
    given = [("--new-epoch", epoch), ("--down-to", down_to), ("--print-roles", roles)]
    if len(named := [name for name, value in given if value]) > 1:
        raise Refused(f"{' and '.join(named)} do not go together: give one.")
    settings = settings_from(options)
    url = find_database(settings)
    if roles:
        parts = urlsplit(url)
        login = unquote(parts.username or getpass.getuser())
        click.echo(print_roles(login, unquote(parts.path.lstrip("/")) or login), nl=False)
        return
    if epoch:
        click.echo(f"A new epoch starts at revision {await new_epoch(url)}.")
        return
    if down_to is not None:
        await downgrade(url, down_to)
        click.echo(f"The schema is at revision {down_to}.")
        return
    await upgrade(url)
    click.echo(f"The schema is at revision {HEAD}.")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of the doctor: `said` is a sentence, with what to do if it is not well."""

    check: str
    well: bool
    said: str


@click.command()
@click.option("--print-config", is_flag=True, help="Print every setting, secrets masked.")
@database_options
@output_option
@run_async
async def doctor(print_config: bool, output: str, **options: Any) -> None:
    """Check the data directory, the database and the server, a sentence each.

    Exit code 0 if all is well, else 1.

    \b
    Example:
      nodus doctor
      nodus doctor --print-config
    """
    settings = settings_from(options)
    if print_config:
        _show_config(masked(settings), output)
        return
    findings = [
        await _examine("data directory", lambda: _data_directory(settings)),
        await _examine("database", lambda: _database(settings)),
        await _examine("server", lambda: _server(settings)),
    ]
    if warning := password_warning(settings):
        findings.append(Finding("password", False, warning))
    if output == "json":
        print_json([{"check": f.check, "well": f.well, "said": f.said} for f in findings])
    else:
        for finding in findings:
            mark = (
                click.style("ok  ", fg="green") if finding.well else click.style("bad ", fg="red")
            )
            click.echo(f"{mark} {finding.check}: {finding.said}")
    bad = [finding.check for finding in findings if not finding.well]
    if bad:
        raise Failed(f"Not well: {', '.join(bad)}; do what is said there and run this again.")


async def _examine(check: str, look: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(check, True, await look())
    except (click.ClickException, ApiUnreachable, StorageError, OSError) as error:
        said = error.message if isinstance(error, click.ClickException) else str(error)
        return Finding(check, False, said)


async def _data_directory(settings: Settings) -> str:
    root = settings.data_dir
    if not root.exists():
        return f"{root} does not exist yet; `nodus up` makes it."
    if not os.access(root, os.W_OK | os.X_OK):
        raise Refused(f"{root} cannot be written by this user: give another with --data-dir.")
    return f"{root} can be written."


async def _database(settings: Settings) -> str:
    url = find_database(settings)
    database = Database(url, role=Role.SCHEDULER, pool_size=1)
    try:
        async with database.dedicated() as raw:
            version = raw.get_server_version()
        await check_schema(database)
    finally:
        await database.close()
    return f"PostgreSQL {version.major}.{version.micro} at {mask_url(url)}, schema {HEAD}."


async def _server(settings: Settings) -> str:
    kubeconfig = settings.data_dir / "kubeconfig"
    if not kubeconfig.exists():
        return "no `nodus up` ran on this data directory yet, so no server is looked for."
    client = ApiClient.from_kubeconfig(kubeconfig)
    try:
        status, body = await client.get("/readyz")
    except ApiUnreachable as error:
        said = str(error).removesuffix(".")
        if isinstance(error.__cause__, ssl.SSLError):
            raise Refused(f"{said}: {kubeconfig} is not for the server that runs there.") from error
        raise Refused(f"{said}: start `nodus up --data-dir {settings.data_dir}`.") from error
    if status != 200:
        raise Failed(f"{client.server} is not ready: {body.decode(errors='replace').strip()}")
    return f"{client.server} is ready."


def _show_config(shown: dict[str, str], output: str) -> None:
    if output == "json":
        print_json(shown)
        return
    rows = [[name, f"NODUS_{name.upper()}", value] for name, value in shown.items()]
    click.echo(render_table(["SETTING", "VARIABLE", "VALUE"], rows), nl=False)
