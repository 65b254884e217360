"""`nodus cost`: what Attempts cost, by segment, that it adds up, and how well it was predicted."""

from collections.abc import Sequence
from typing import Any

import click

from nodus_api.cli import accuracy
from nodus_api.cli.accuracy_text import accuracy_as_json, accuracy_as_sheet, accuracy_text
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.ledger import GROUPS, SEGMENTS, CostLine, CostTable, read_costs
from nodus_api.cli.meant import project_must_exist
from nodus_api.cli.options import (
    database_options,
    opened,
    print_csv,
    print_json,
    run_async,
    settings_from,
    sheet_output_option,
)
from nodus_api.cli.tabular import render_table
from nodus_api.kernel.money import format_hours, format_usd, hours_of


@click.command()
@click.option(
    "--by",
    type=click.Choice(dict.fromkeys((*GROUPS, *accuracy.GROUPS))),
    help="What a line stands for [owner; with --accuracy profile].",
)
@click.option(
    "--accuracy",
    "compare",
    is_flag=True,
    help="Compare predictions with what came of them, by profile and family of classes.",
)
@click.option("-n", "--project", help="One project [all].")
@database_options
@sheet_output_option
@run_async
async def cost(
    by: str | None, compare: bool, project: str | None, output: str, **options: Any
) -> None:
    """Show what Attempts cost in USD, by segment, and prove that the segments add up.

    COVERED is what Nodus paid itself; it is in no other column. The sums of the ledger are
    compared with what the Attempts themselves say they cost, to the micro-dollar; a difference is
    an error. -o csv prints the lines for a spreadsheet, a line for each without the sum of all.

    --accuracy shows instead how good the predictions of hours, cost and interruptions have been,
    over Attempts that are over, those in the archive too.

    \b
    Example:
      nodus cost --by owner
      nodus cost --by segment -n team-a -o json
      nodus cost --by owner -o csv > costs.csv
      nodus cost --accuracy
    """
    by = by or ("profile" if compare else "owner")
    _check_groups(by, accuracy.GROUPS if compare else GROUPS, compare=compare)
    async with opened(settings_from(options)) as database, database.snapshot() as connection:
        if project is not None:
            await project_must_exist(connection, project)
        if compare:
            show_accuracy(
                await accuracy.read_accuracy(connection, by=by, project=project), by, output
            )
            return
        costs = await read_costs(connection, by=by, project=project)
    match output:
        case "json":
            print_json(costs_as_json(costs, by))
        case "csv":
            print_csv(*costs_as_sheet(costs, by))
        case _:
            show_costs(costs, by)
    check_costs(costs)


def _check_groups(by: str, groups: Sequence[str], *, compare: bool) -> None:
    if by not in groups:
        table = "--accuracy" if compare else "The table of costs"
        *others, last = groups
        raise Refused(f"{table} has no lines by {by}: give --by {', '.join(others)} or {last}.")


def show_accuracy(found: accuracy.Accuracy, by: str, output: str) -> None:
    """Print how good predictions have been."""
    match output:
        case "json":
            print_json(accuracy_as_json(found, by))
        case "csv":
            print_csv(*accuracy_as_sheet(found))
        case _:
            click.echo(accuracy_text(found), nl=False)


def check_costs(costs: CostTable) -> None:
    """Raise Failed if the segments do not add up to what the Attempts say."""
    if not costs.adds_up:
        raise Failed(
            f"The segments add up to {costs.total} USD, but the Attempts say"
            f" {costs.documents_total} USD: this is a fault of Nodus, please report it."
        )


def show_costs(costs: CostTable, by: str) -> None:
    """Print the cost table and what it adds up to."""
    click.echo(costs_text(costs, by), nl=False)


def costs_text(costs: CostTable, by: str) -> str:
    """Return the cost table, its total line, the check, and what Nodus paid."""
    amounts = ["ATTEMPTS", "HOURS", *(s.upper() for s in SEGMENTS), "TOTAL USD", "COVERED"]
    rows = [_row(line.group, line) for line in costs.lines]
    rows.append(_row("total", costs.sum))
    text = render_table([by.upper(), *amounts], rows, right=amounts)
    if covered := costs.sum.paid_by_nodus:
        parts = " + ".join(f"{name} {format_usd(usd)}" for name, usd in covered.items())
        text += f"Nodus paid {format_usd(costs.sum.covered)} USD of its own: {parts}.\n"
    if costs.adds_up:
        parts = " + ".join(format_usd(costs.sum.charged[segment]) for segment in SEGMENTS)
        total = format_usd(costs.total)
        text += f"{parts} = {total} USD, as the Attempts themselves say.\n"
    return text


def costs_as_json(costs: CostTable, by: str) -> dict[str, Any]:
    """Return the table as JSON values; money and hours are decimal strings."""
    return {
        "by": by,
        "items": [{by: line.group} | _facts(line) for line in costs.lines],
        "total": _facts(costs.sum),
        "totalUSD": format_usd(costs.total),
        "attemptsTotalUSD": format_usd(costs.documents_total),
        "addsUp": costs.adds_up,
    }


def costs_as_sheet(costs: CostTable, by: str) -> tuple[list[str], list[list[str]]]:
    """Return the headings, those of the JSON, and a row a line; hours and USD have 6 decimals.

    There is no row of totals: who sums a column gets them.
    """
    headings = [by, "attempts", "hours", *(f"{s.lower()}USD" for s in SEGMENTS)]
    headings += ["totalUSD", "coveredUSD"]
    return headings, [_row(line.group, line) for line in costs.lines]


def _row(group: str, line: CostLine) -> list[str]:
    return [
        group,
        str(line.attempts),
        _hours(line.seconds),
        *(format_usd(line.charged[segment]) for segment in SEGMENTS),
        format_usd(line.total),
        format_usd(line.covered),
    ]


def _facts(line: CostLine) -> dict[str, Any]:
    return {
        "attempts": line.attempts,
        "hours": _hours(line.seconds),
        **{f"{s.lower()}USD": format_usd(line.charged[s]) for s in SEGMENTS},
        "totalUSD": format_usd(line.total),
        "coveredUSD": format_usd(line.covered),
        "coveredByNodus": {name: format_usd(usd) for name, usd in line.paid_by_nodus.items()},
    }


def _hours(seconds: int) -> str:
    return format_hours(hours_of(seconds))
