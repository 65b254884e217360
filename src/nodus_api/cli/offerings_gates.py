"""`nodus offerings disable|enable|restrict`: what an operator closes, and to whom (SC-310)."""

from typing import Any

import click

from nodus_api.cli.errors import Refused
from nodus_api.cli.options import database_options, opened, run_async, settings_from
from nodus_api.storage.allowance_store import AllowanceStore


@click.command("disable")
@click.argument("offering", metavar="CLASS")
@database_options
@run_async
async def disable(offering: str, **options: Any) -> None:
    """Drain a class: nothing new is placed on it, what runs goes on.

    \b
    Example:
      nodus offerings disable h100-sxm-80g-x1-us
    """
    await _enable(offering, enabled=False, **options)
    click.echo(f"{offering} is disabled: nothing new is placed on it.")


@click.command("enable")
@click.argument("offering", metavar="CLASS")
@database_options
@run_async
async def enable(offering: str, **options: Any) -> None:
    """Open a drained class again.

    \b
    Example:
      nodus offerings enable h100-sxm-80g-x1-us
    """
    await _enable(offering, enabled=True, **options)
    click.echo(f"{offering} is enabled.")


@click.command("restrict")
@click.argument("offering", metavar="CLASS")
@click.option("--to", "projects", multiple=True, help="Project that may use it; may be repeated.")
@click.option("--to-all", is_flag=True, help="Open it to all projects again.")
@database_options
@run_async
async def restrict(offering: str, projects: tuple[str, ...], to_all: bool, **options: Any) -> None:
    """Open a class to some projects alone; to the others it is NotEntitled.

    \b
    Example:
      nodus offerings restrict h100-sxm-80g-x8-us --to team-a --to team-b
      nodus offerings restrict h100-sxm-80g-x8-us --to-all
    """
    if to_all == bool(projects):
        raise Refused("Name the projects with --to, or give --to-all.")
    async with opened(settings_from(options)) as database:
        missing = await AllowanceStore(database).restrict(offering, projects)
    if missing == offering:
        raise _no_class(offering)
    if missing is not None:
        raise Refused(
            f"There is no project {missing!r}: make it with `nodus project create {missing}`."
        )
    whom = "all projects" if to_all else ", ".join(sorted(set(projects)))
    click.echo(f"{offering} is open to {whom}.")


async def _enable(offering: str, *, enabled: bool, **options: Any) -> None:
    async with opened(settings_from(options)) as database:
        if not await AllowanceStore(database).enable(offering, enabled=enabled):
            raise _no_class(offering)


def _no_class(offering: str) -> Refused:
    return Refused(f"There is no class {offering!r}: `nodus offerings list` shows them.")
