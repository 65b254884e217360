"""`nodus project fund`: what an organization paid in, what is held and what was charged."""

from collections.abc import Sequence
from decimal import Decimal
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
from nodus_api.kernel.money import format_usd, parse_usd
from nodus_api.storage.fund_store import FundStore, KeptHold, Statement

_MOST_USD = Decimal(10) ** 9
"""Of one deposit: the schema holds a thousand of these."""


@click.command("fund")
@click.argument("name")
@click.argument("usd", required=False)
@click.option("--all", "released_too", is_flag=True, help="Holds that were released, too.")
@database_options
@output_option
@run_async
async def fund_project(
    name: str, usd: str | None, released_too: bool, output: str, **options: Any
) -> None:
    """Add USD to the funds that a project's organization pays from, or show them.

    The first deposit turns the control of funds on: from then on a start waits until it is paid
    for, and what cannot be paid is stopped. Until then nothing is limited. Money is free
    (balance), held for an Attempt that is not over, or charged (captured).

    \b
    Example:
      nodus project fund team-a 250.00
      nodus project fund team-a
      nodus project fund team-a -o json | jq .balanceUSD
    """
    amount = None if usd is None else _amount(usd)
    async with opened(settings_from(options)) as database:
        store = FundStore(database)
        if amount is not None and await store.deposit(name, amount) is None:
            raise _no_project(name)
        statement = await store.statement(name)
    if statement is None:
        raise _no_project(name)
    holds = [one for one in statement.holds if released_too or one.hold.released is None]
    if output == "json":
        print_json(_as_json(statement, holds))
    else:
        click.echo(_as_text(statement, holds), nl=False)


def _amount(text: str) -> Decimal:
    try:
        amount = parse_usd(text)
    except ValueError as error:
        raise Refused(f"USD: {error}.") from error
    if not 0 < amount <= _MOST_USD:
        raise Refused(f"USD must be above 0 and at most {_MOST_USD:,}, not {text}.")
    return amount


def _no_project(name: str) -> Refused:
    return Refused(f"There is no project {name!r}: make it with `nodus project create {name}`.")


def _as_json(statement: Statement, holds: Sequence[KeptHold]) -> dict[str, Any]:
    account = statement.account
    return {
        "organization": account.organization,
        "controlled": account.controlled,
        "balanceUSD": None if account.balance is None else format_usd(account.balance),
        "heldUSD": format_usd(account.held),
        "capturedUSD": format_usd(account.captured),
        "archivedUSD": format_usd(statement.archived),
        "entries": [
            {
                "time": _moment(one.at),
                "kind": one.kind,
                "amountUSD": format_usd(one.amount),
                "project": one.project,
            }
            for one in statement.entries
        ],
        "holds": [
            {
                "project": one.project,
                "attempt": one.attempt,
                "amountUSD": format_usd(one.hold.amount),
                "heldUSD": format_usd(one.hold.held),
                "capturedUSD": format_usd(one.hold.captured),
                "released": None if one.hold.released is None else _moment(one.hold.released),
            }
            for one in holds
        ],
    }


def _as_text(statement: Statement, holds: Sequence[KeptHold]) -> str:
    account = statement.account
    free = "not controlled" if account.balance is None else f"{format_usd(account.balance)} USD"
    lines = [
        f"Organization {account.organization}",
        f"  balance   {free}",
        f"  held      {format_usd(account.held)} USD",
        f"  captured  {format_usd(account.captured)} USD",
    ]
    text = "".join(f"{line}\n" for line in lines)
    if statement.entries:
        entries = [
            [_moment(one.at), one.kind, format_usd(one.amount), one.project or ""]
            for one in statement.entries
        ]
        text += "\n" + render_table(["TIME", "ENTRY", "USD", "PROJECT"], entries, right=["USD"])
    if holds:
        headings = ["PROJECT", "ATTEMPT", "HELD", "CAPTURED", "RELEASED"]
        rows = [
            [
                one.project,
                one.attempt,
                format_usd(one.hold.held),
                format_usd(one.hold.captured),
                "" if one.hold.released is None else _moment(one.hold.released),
            ]
            for one in holds
        ]
        text += "\n" + render_table(headings, rows, right=["HELD", "CAPTURED"])
    return text


def _moment(at: Any) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
