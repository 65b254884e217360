"""`nodus get` and `nodus cost`: human views of the database, read only."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.attempts.columns import COLUMNS, cells
from nodus_api.attempts.projection import splice
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.ledger import GROUPS, SEGMENTS, CostTable, read_costs
from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.tabular import render_table
from nodus_api.clock import SystemClock
from nodus_api.kernel.money import ZERO, format_hours, format_usd, hours_of
from nodus_api.storage import tables as t


@asynccontextmanager
async def _snapshot(options: dict[str, Any]) -> AsyncIterator[AsyncConnection]:
    async with opened(settings_from(options)) as database, database.snapshot() as connection:
        yield connection


def _projects_option(command: Any) -> Any:
    return click.option("-A", "--all-projects", is_flag=True, help="Every project.")(command)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@project_option
@_projects_option
@click.option("--archived", is_flag=True, help="Attempts that were retired from the API.")
@click.option("--wide", is_flag=True, help="All columns.")
@database_options
@output_option
@run_async
async def get(
    names: tuple[str, ...],
    project: str,
    all_projects: bool,
    archived: bool,
    wide: bool,
    output: str,
    **options: Any,
) -> None:
    """Show Attempts, all of a project or those named.

    \b
    Example:
      nodus get -n team-a
      nodus get -o json | jq '.items[].status.actual.costUSD'
    """
    scope = None if all_projects else project
    async with _snapshot(options) as connection:
        rows = (await connection.execute(_documents(scope, names, archived=archived))).all()
        if scope is not None:
            await _must_exist(connection, scope)
    objects = [json.loads(splice(row.doc, row.rev)) for row in rows]
    missing = sorted(set(names) - {str(one["metadata"]["name"]) for one in objects})
    if output == "json":
        print_json({"apiVersion": "nodus.dev/v1", "kind": "AttemptList", "items": objects})
    elif objects or not missing:
        _show_attempts(objects, with_project=all_projects, wide=wide)
    if missing:
        raise Refused(
            f"There is no Attempt {missing[0]!r} here: `nodus get` lists those there are."
        )


@click.command()
@click.option(
    "--by",
    type=click.Choice(GROUPS),
    default="owner",
    show_default=True,
    help="What a line stands for.",
)
@click.option("-n", "--project", help="One project [all].")
@database_options
@output_option
@run_async
async def cost(by: str, project: str | None, output: str, **options: Any) -> None:
    """Show what Attempts cost in USD, by segment, and prove that the segments add up.

    The sums of the ledger are compared with what the Attempts themselves say they cost, to the
    micro-dollar; a difference is an error.

    \b
    Example:
      nodus cost --by owner
    """
    async with _snapshot(options) as connection:
        if project is not None:
            await _must_exist(connection, project)
        costs = await read_costs(connection, by=by, project=project)
    if output == "json":
        print_json(costs_as_json(costs, by))
    else:
        show_costs(costs, by)
    check_costs(costs)


def check_costs(costs: CostTable) -> None:
    """Raise Failed if the segments do not add up to what the Attempts say."""
    if not costs.adds_up:
        raise Failed(
            f"The segments add up to {costs.total} USD, but the Attempts say"
            f" {costs.documents_total} USD: this is a fault of Nodus, please report it."
        )


def show_costs(costs: CostTable, by: str) -> None:
    """Print the cost table and what it adds up to."""
    amounts = ["ATTEMPTS", "HOURS", *(s.upper() for s in SEGMENTS), "TOTAL USD", "COVERED"]
    rows = [
        [
            line.group,
            str(line.attempts),
            _hours(line.seconds),
            *(format_usd(line.charged[segment]) for segment in SEGMENTS),
            format_usd(line.total),
            format_usd(line.covered),
        ]
        for line in costs.lines
    ]
    sums = [sum((line.charged[segment] for line in costs.lines), ZERO) for segment in SEGMENTS]
    rows.append(
        [
            "total",
            str(costs.attempts),
            _hours(sum(line.seconds for line in costs.lines)),
            *(format_usd(amount) for amount in sums),
            format_usd(costs.total),
            format_usd(sum((line.covered for line in costs.lines), ZERO)),
        ]
    )
    click.echo(render_table([by.upper(), *amounts], rows, right=amounts), nl=False)
    if costs.adds_up:
        parts = " + ".join(format_usd(amount) for amount in sums)
        click.echo(f"{parts} = {format_usd(costs.total)} USD, as the Attempts themselves say.")


def costs_as_json(costs: CostTable, by: str) -> dict[str, Any]:
    """Return the table as JSON values; money and hours are decimal strings."""
    return {
        "by": by,
        "items": [
            {
                by: line.group,
                "attempts": line.attempts,
                "hours": _hours(line.seconds),
                **{f"{s.lower()}USD": format_usd(line.charged[s]) for s in SEGMENTS},
                "totalUSD": format_usd(line.total),
                "coveredUSD": format_usd(line.covered),
            }
            for line in costs.lines
        ],
        "totalUSD": format_usd(costs.total),
        "attemptsTotalUSD": format_usd(costs.documents_total),
    }


def _documents(
    project: str | None, names: tuple[str, ...], *, archived: bool
) -> sa.Select[tuple[bytes, int]]:
    """Select documents by name; uses UNIQUE (project, name), or the archive's index."""
    table = t.attempts_archive if archived else t.attempt_objects
    query = sa.select(table.c.doc, table.c.rev).order_by(table.c.project, table.c.name)
    if project is not None:
        query = query.where(table.c.project == project)
    if names:
        query = query.where(table.c.name.in_(names))
    return query


async def _must_exist(connection: AsyncConnection, project: str) -> None:
    found = sa.select(t.projects.c.name).where(t.projects.c.name == project)
    if (await connection.scalars(found)).first() is None:
        raise Refused(
            f"There is no project {project!r}: `nodus project list` shows those there are."
        )


def _show_attempts(objects: list[dict[str, Any]], *, with_project: bool, wide: bool) -> None:
    if not objects:
        click.echo("No Attempts.")
        return
    now = SystemClock().now()
    shown = [(i, c.name) for i, c in enumerate(COLUMNS) if wide or c.priority == 0]
    headings = (["PROJECT"] if with_project else []) + [name.upper() for _, name in shown]
    rows = []
    for one in objects:
        values = cells(one, now)
        row = ["" if values[i] is None else str(values[i]) for i, _ in shown]
        rows.append([*([one["metadata"]["namespace"]] if with_project else []), *row])
    click.echo(render_table(headings, rows), nl=False)


def _hours(seconds: int) -> str:
    return format_hours(hours_of(seconds))
