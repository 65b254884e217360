"""`nodus get`: Attempts as a list, with what the queued ones wait for."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.attempts.columns import COLUMNS, cells
from nodus_api.attempts.projection import WAITING_MESSAGE, splice
from nodus_api.cli.archived import archived_page, slice_of
from nodus_api.cli.errors import Refused
from nodus_api.cli.meant import no_attempt, no_owner, project_must_exist
from nodus_api.cli.options import (
    database_options,
    opened,
    print_json,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.submit import owner_in
from nodus_api.cli.tabular import render_table
from nodus_api.clock import SystemClock
from nodus_api.kernel.vocabulary import OwnerKind, Phase
from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.labels import Selector, parse
from nodus_api.storage.listings import Chosen, read_documents
from nodus_api.storage.lives import find_owner

Objects = Sequence[Mapping[str, Any]]


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@project_option
@click.option("-A", "--all-projects", is_flag=True, help="Every project.")
@click.option("--owner", metavar="OWNER", help="Those of one workload: KIND/NAME, or a Job's NAME.")
@click.option(
    "--phase",
    "phases",
    type=click.Choice([phase.value for phase in Phase], case_sensitive=False),
    multiple=True,
    help="Those in this phase; may be given several times.",
)
@click.option(
    "-l",
    "--selector",
    metavar="SELECTOR",
    help="Those with these labels, as kubectl takes them: key=value, key!=value, key in (a,b), key"
    " or !key, joined by commas.",
)
@click.option(
    "--archived",
    is_flag=True,
    help="Attempts that were retired from the API, the newest end first.",
)
@click.option(
    "--since", metavar="WHEN", help="Archived since a duration (72h, P7D) or a moment (RFC 3339)."
)
@click.option(
    "--limit", type=click.IntRange(0), help="So many archived ones at most; 0 for all [500]."
)
@click.option("--continue", "token", metavar="PLACE", help="Go on where the last answer ended.")
@click.option("--wide", is_flag=True, help="All columns, as -o wide.")
@database_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    show_default=True,
    help="Form of the answer.",
)
@run_async
async def get(
    names: tuple[str, ...],
    project: str,
    all_projects: bool,
    owner: str | None,
    phases: tuple[str, ...],
    selector: str | None,
    archived: bool,
    since: str | None,
    limit: int | None,
    token: str | None,
    wide: bool,
    output: str,
    **options: Any,
) -> None:
    """Show Attempts, all of a project or those named.

    A queued Attempt's line ends with what it waits for; `nodus explain NAME` says more.

    \b
    Example:
      nodus get -n team-a
      nodus get --owner job/train --phase Queued
      nodus get -l 'nodus.dev/job in (train,fit)'
      nodus get -o json | jq '.items[].status.actual.costUSD'
      nodus get --archived --owner job/train --since 72h
    """
    part = slice_of(archived, since, limit, token, SystemClock().now())
    labelled = _selector(selector)
    wanted = None
    if owner is not None:
        project, kind, name = owner_in(owner, project)
        wanted = kind, name
        all_projects = all_projects and "/" not in owner.partition("/")[2]
    scope = None if all_projects else project
    async with opened(settings_from(options)) as database, database.snapshot() as connection:
        if scope is not None:
            await project_must_exist(connection, scope)
            await _must_be_known(connection, scope, wanted, archived=archived)
        chosen = Chosen(
            project=scope,
            names=names,
            owner=wanted,
            phases=[Phase(phase) for phase in phases],
        )

        def matches(one: Mapping[str, Any]) -> bool:
            return labelled.matches(one["metadata"].get("labels", {}))

        more = None
        if archived:
            objects, more = await archived_page(connection, chosen, part, matches)
        else:
            found = await read_documents(connection, chosen)
            read = (json.loads(splice(doc, rev)) for doc, rev in found)
            objects = [one for one in read if matches(one)]
        missing = sorted(set(names) - {str(one["metadata"]["name"]) for one in objects})
        filtered = wanted is not None or phases or selector or archived
        refusal = await _missing(connection, scope, missing, filtered=bool(filtered))
    if output == "json":
        head = {"apiVersion": "nodus.dev/v1", "kind": "AttemptList"}
        going_on = {"metadata": {"continue": more}} if more is not None else {}
        print_json({**head, **going_on, "items": objects})
    elif objects or refusal is None:
        shown = wide or output == "wide"
        text = attempts_table(objects, SystemClock().now(), with_project=all_projects, wide=shown)
        click.echo(text, nl=False)
        if more is not None:
            click.echo(f"There are more: go on with --continue {more}", err=True)
    if refusal is not None:
        raise refusal


def _selector(text: str | None) -> Selector:
    """Return the labels asked for; raises Refused for what is no selector (LW-095)."""
    try:
        return parse(text or "")
    except BadRequest as error:
        raise Refused(f"--selector: {error}: {error.fix}") from error


def attempts_table(objects: Objects, now: datetime, *, with_project: bool, wide: bool) -> str:
    """Return Attempts as a table; the last column is there if any waits for something."""
    if not objects:
        return "No Attempts.\n"
    shown = [(i, c.name) for i, c in enumerate(COLUMNS) if wide or c.priority == 0]
    headings = (["PROJECT"] if with_project else []) + [name.upper() for _, name in shown]
    waits = [_waits_for(one) for one in objects]
    if any(waits):
        headings.append("WAITS FOR")
    rows = []
    for one, wait in zip(objects, waits, strict=True):
        values = cells(dict(one), now)
        row = ["" if values[i] is None else str(values[i]) for i, _ in shown]
        rows.append([*([one["metadata"]["namespace"]] if with_project else []), *row, wait])
    return render_table(headings, [row[: len(headings)] for row in rows])


def _waits_for(one: Mapping[str, Any]) -> str:
    """Return the sentence of a queued Attempt (SC-009b), else nothing."""
    if one["status"]["phase"] != Phase.QUEUED:
        return ""
    return str(one["metadata"].get("annotations", {}).get(WAITING_MESSAGE, ""))


async def _must_be_known(
    connection: AsyncConnection,
    project: str,
    owner: tuple[OwnerKind, str] | None,
    *,
    archived: bool,
) -> None:
    """Raise Refused for an owner that is not there; an archived one's row may be gone."""
    if owner is not None and not archived and await find_owner(connection, project, *owner) is None:
        kind, name = owner
        raise await no_owner(connection, project, f"{kind.lower()}/{name}")


async def _missing(
    connection: AsyncConnection, project: str | None, missing: Sequence[str], *, filtered: bool
) -> Refused | None:
    """Return the refusal of the first name that is not there, None if all are."""
    if not missing:
        return None
    name = missing[0]
    if filtered:
        return Refused(
            f"There is no Attempt {name!r} among those asked for: leave out --owner, --phase,"
            " --selector or --archived, or choose others."
        )
    if project is None:
        return Refused(f"There is no Attempt {name!r} in any project: `nodus get -A` lists all.")
    return await no_attempt(connection, project, name)
