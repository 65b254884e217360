"""`nodus bench`: measure, show, keep and compare."""

import asyncio
import json
import os
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nodus_api.bench import AREAS, NotMeasured, Report, measure
from nodus_api.cli.errors import Failed, reported
from nodus_api.clock import SystemClock


@click.command()
@click.option("--quick", "effort", flag_value="quick", default="quick", help="About a minute.")
@click.option("--full", "effort", flag_value="full", help="About fifteen minutes.")
@click.option("--only", type=click.Choice(list(AREAS)), help="One area alone.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the figures to this file.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Show the ratios beside those of a file that --json wrote.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def bench(
    effort: str, only: str | None, json_file: Path | None, compare: Path | None, output: str
) -> None:
    """Measure the product on this machine, each case beside its yardstick.

    Starts a Postgres and a server of its own on loopback, and stops them. Judge by the ratios:
    seconds differ with the machine and what else runs on it.

    \b
    Example:
      nodus bench --quick --only delay
      nodus bench --full --json today.json --compare yesterday.json
    """
    areas = [only] if only else list(AREAS)
    run = measure(areas, full=effort == "full", clock=SystemClock(), entropy=os.urandom)
    with reported():
        try:
            report = asyncio.run(run)
        except NotMeasured as error:
            raise Failed(str(error)) from error
    document = json.dumps(report.to_json(), indent=2)
    if json_file:
        json_file.write_text(document + "\n")
    if output == "json":
        click.echo(document)
    else:
        Console().print(_table(report, _ratios(compare)))


def _ratios(file: Path | None) -> dict[tuple[str, str], float]:
    if file is None:
        return {}
    rows = json.loads(file.read_text())["rows"]
    return {(row["area"], row["case"]): row["ratio"] for row in rows if row["ratio"] is not None}


def _table(report: Report, before: dict[tuple[str, str], float]) -> Table:
    machine = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    table = Table(title=f"nodus bench ({machine})", title_justify="left")
    for name in ("Area", "Case"):
        table.add_column(name)
    for name in ("Samples", "Median", "p90", "p99", "Unit", "Ratio", "Low..high", "Before"):
        table.add_column(name, justify="right")
    for row in report.rows:
        compared = row.ratio is not None
        earlier = before.get((row.area, row.case))
        table.add_row(
            row.area,
            row.case,
            str(row.samples),
            *(f"{value:.2f}" for value in (row.median, row.p90, row.p99)),
            row.unit,
            f"{row.ratio:.2f}" if compared else "1",
            f"{row.ratio_low:.2f}..{row.ratio_high:.2f}" if compared else "",
            f"{earlier:.2f}" if earlier is not None else "",
        )
    return table
