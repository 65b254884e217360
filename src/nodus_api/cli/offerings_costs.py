"""`nodus offerings costs`: what machines cost Nodus beside what was charged for them (SC-504)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import click

from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    run_async,
    settings_from,
)
from nodus_api.cli.tabular import render_table
from nodus_api.kernel.money import ZERO, format_hours, format_usd, hours_of
from nodus_api.kernel.supplier_cost import supplier_cost
from nodus_api.storage.lives import database_time
from nodus_api.storage.supplier_ledger import MachineCosts, read_supplier_costs

_NUMBERS = ["MACHINES", "HOURS", "COST", "CHARGED", "COVERED", "MARGIN"]


@dataclass(slots=True, kw_only=True)
class _Line:
    machines: int = 0
    seconds: int = 0
    cost: Decimal = ZERO
    charged: Decimal = ZERO
    covered: Decimal = ZERO


@click.command("costs")
@click.option(
    "--by",
    type=click.Choice(["class", "supplier"]),
    default="class",
    show_default=True,
    help="What a line stands for.",
)
@database_options
@output_option
@run_async
async def offerings_costs(by: str, output: str, **options: Any) -> None:
    """Compare what suppliers bill with what customers are charged, in USD.

    For operators: no client of the API sees it. Of every machine that is there or whose Attempts
    are not archived yet, those too that served nobody. COVERED is what customers were not charged
    of a machine's time; MARGIN is CHARGED less COST, and below 0 a loss.

    \b
    Example:
      nodus offerings costs
      nodus offerings costs --by supplier -o json
    """
    async with opened(settings_from(options)) as database, database.snapshot() as connection:
        now = await database_time(connection)
        lines = _summed(await read_supplier_costs(connection), by, now)
    if output == "json":
        print_json({"by": by, "items": [{by: name} | _facts(one) for name, one in lines.items()]})
        return
    if not lines:
        click.echo("No machine has cost anything yet.")
        return
    rows = [[name, *(str(value) for value in _facts(one).values())] for name, one in lines.items()]
    click.echo(render_table([by.upper(), *_NUMBERS], rows, right=_NUMBERS), nl=False)


def _summed(machines: Iterable[MachineCosts], by: str, now: datetime) -> dict[str, _Line]:
    lines: dict[str, _Line] = {}
    for one in machines:
        line = lines.setdefault(one.offering if by == "class" else one.supplier, _Line())
        cost = supplier_cost(one.periods, now, increment=one.increment, minimum=one.minimum)
        line.machines += 1
        line.seconds += cost.seconds
        line.cost += cost.usd
        line.charged += one.charged
        line.covered += one.covered
    return dict(sorted(lines.items()))


def _facts(line: _Line) -> dict[str, str | int]:
    margin = line.charged - line.cost
    return {
        "machines": line.machines,
        "hours": format_hours(hours_of(line.seconds)),
        "costUSD": format_usd(line.cost),
        "chargedUSD": format_usd(line.charged),
        "coveredUSD": format_usd(line.covered),
        "marginUSD": f"{'-' if margin < 0 else ''}{format_usd(abs(margin))}",
    }
