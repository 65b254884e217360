"""`nodus project quota`: how many accelerators a project may have at once (SC-310, row 16)."""

import re
from typing import Any

import click

from nodus_api.cli.errors import Refused
from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    run_async,
    settings_from,
)
from nodus_api.cli.tabular import render_table
from nodus_api.storage.allowance_store import AllowanceStore, Quota

_ACCELERATOR = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,7}", re.ASCII)
_ANY = "none"


@click.command("quota")
@click.argument("name")
@click.argument("quotas", metavar="[ACCELERATOR=COUNT]...", nargs=-1)
@database_options
@output_option
@run_async
async def project_quota(name: str, quotas: tuple[str, ...], output: str, **options: Any) -> None:
    """Set how many accelerators a project may have at once, or show that.

    COUNT is none for any number. `cpu` counts machines without accelerators. What is over the
    quota stays queued and says so; what runs already goes on.

    \b
    Example:
      nodus project quota team-a h100=8 cpu=20
      nodus project quota team-a h100=none
      nodus project quota team-a -o json
    """
    wanted = [_parsed(one) for one in quotas]
    async with opened(settings_from(options)) as database:
        store = AllowanceStore(database)
        known = await store.project_exists(name)
        for accelerator, most in wanted if known else ():
            known &= await store.set_quota(name, accelerator, most)
        if not known:
            raise Refused(
                f"There is no project {name!r}: make it with `nodus project create {name}`."
            )
        found = (await store.read()).quotas.get(name, ())
    shown = [_shown(one) for one in found]
    if output == "json":
        print_json(shown)
    elif shown:
        headings = ["ACCELERATOR", "QUOTA", "USED", "LEFT"]
        rows = [[str(value) for value in one.values()] for one in shown]
        click.echo(render_table(headings, rows, right=headings[1:]), nl=False)
    else:
        click.echo("None: the project may take any number.")


def _parsed(text: str) -> tuple[str, int | None]:
    accelerator, equals, count = text.partition("=")
    if not equals or not _ACCELERATOR.fullmatch(accelerator):
        raise Refused(f"{text!r} is no quota: write ACCELERATOR=COUNT, such as h100=8.")
    if count == _ANY:
        return accelerator, None
    if not _COUNT.fullmatch(count):
        raise Refused(f"{text!r}: the count is a whole number from 0 to 9999999, or {_ANY}.")
    return accelerator, int(count)


def _shown(quota: Quota) -> dict[str, str | int]:
    return {
        "accelerator": quota.accelerator,
        "quota": quota.most,
        "used": quota.used,
        "left": max(0, quota.left),
    }
