"""`nodus drill schedule`: how often a project's machines are lost on purpose (SC-630)."""

import re
import secrets
from decimal import Decimal
from typing import Any

import click

from nodus_api.cli.errors import Refused
from nodus_api.cli.losses import loss_of, trigger_option
from nodus_api.cli.meant import project_must_exist
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
from nodus_api.kernel.money import parse_decimal
from nodus_api.storage.drill_store import (
    DrillSchedule,
    drop_schedule,
    read_schedules,
    write_schedule,
)

_MOST_AN_HOUR = Decimal(3600)
"""One a second: turns are in whole seconds."""
_DECIMALS = 4
_SEED_BYTES = 4
_LARGEST_SEED = (1 << 31) - 1
_SEED = re.compile(r"[0-9]{1,10}", re.ASCII)


@click.group()
def schedule() -> None:
    """Drill a project's Attempts by a schedule: at random, so many an hour on average.

    At each turn the scheduler draws one of the Attempts that the trigger can be for, and drills it
    as `nodus drill` does, a preemption with a notice of 30s. A turn without such an Attempt passes.

    \b
    Example:
      nodus drill schedule set --trigger preemption --per-hour 0.5
      nodus drill schedule list
      nodus drill schedule remove
    """


@schedule.command("set")
@trigger_option
@click.option("--per-hour", required=True, help="Drills an hour on average, such as 2 or 0.25.")
@click.option(
    "--seed",
    help="What moments and Attempts are drawn by; the same seed draws the same"
    " [that of the schedule there is, else drawn].",
)
@project_option
@database_options
@output_option
@run_async
async def set_schedule(
    trigger: str, per_hour: str, seed: str | None, project: str, output: str, **options: Any
) -> None:
    """Set a project's schedule, in place of the one it has; its turns are drawn anew.

    A schedule that is so already is left as it is, its next turn with it.

    \b
    Example:
      nodus drill schedule set --trigger preemption --per-hour 0.5
      nodus drill schedule set --trigger node-loss --per-hour 2 --seed 7 -n team-a
    """
    loss, rate, given = loss_of(trigger), _rate(per_hour), _seed(seed)
    async with opened(settings_from(options)) as database, database.transaction() as connection:
        await project_must_exist(connection, project)
        written, changed = await write_schedule(
            connection,
            project=project,
            trigger=loss.value,
            per_hour=rate,
            seed=given,
            new_seed=_drawn_seed(),
        )
    if output == "json":
        print_json(_facts(written))
        return
    what = f"by {loss} {_plain(written.per_hour)} times an hour on average (seed {written.seed})"
    if changed:
        click.echo(f"Project {project} is drilled {what}.")
    else:
        click.echo(f"Project {project} is drilled {what} already: nothing changed.")


@schedule.command("list")
@click.option("-n", "--project", help="One project [all].")
@database_options
@output_option
@run_async
async def list_schedules(project: str | None, output: str, **options: Any) -> None:
    """List schedules of drills with their next turn, once the scheduler has drawn it.

    \b
    Example:
      nodus drill schedule list
      nodus drill schedule list -n team-a -o json
    """
    async with opened(settings_from(options)) as database, database.snapshot() as connection:
        if project is not None:
            await project_must_exist(connection, project)
        found = [_facts(one) for one in await read_schedules(connection, project)]
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        rows = [["" if cell is None else str(cell) for cell in one.values()] for one in found]
        headings = ["PROJECT", "TRIGGER", "PER-HOUR", "SEED", "NEXT-TIME"]
        click.echo(render_table(headings, rows, right=("PER-HOUR", "SEED")), nl=False)


@schedule.command("remove")
@project_option
@database_options
@run_async
async def remove_schedule(project: str, **options: Any) -> None:
    """Take a project's schedule away; drills that were asked for before go on.

    \b
    Example:
      nodus drill schedule remove -n team-a
    """
    async with opened(settings_from(options)) as database, database.transaction() as connection:
        await project_must_exist(connection, project)
        if not await drop_schedule(connection, project):
            raise Refused(
                f"Project {project} has no schedule of drills: `nodus drill schedule list` shows"
                " those there are."
            )
    click.echo(f"Project {project} is drilled by no schedule any more.")


def _rate(text: str) -> Decimal:
    """Return drills an hour, above 0. Raises Refused."""
    try:
        rate = parse_decimal(text)
    except ValueError as error:
        raise Refused(f"--per-hour: {error}.") from error
    if not 0 < rate <= _MOST_AN_HOUR or rate != round(rate, _DECIMALS):
        raise Refused(
            f"--per-hour: {text} is not from 0.0001 to {_MOST_AN_HOUR} with at most {_DECIMALS}"
            " decimals: such as 2 or 0.25."
        )
    return rate


def _seed(text: str | None) -> int | None:
    if text is None:
        return None
    if not _SEED.fullmatch(text) or int(text) > _LARGEST_SEED:
        raise Refused(f"--seed is {text!r}: give a whole number from 0 to {_LARGEST_SEED}.")
    return int(text)


def _drawn_seed() -> int:
    return int.from_bytes(secrets.token_bytes(_SEED_BYTES)) & _LARGEST_SEED


def _facts(one: DrillSchedule) -> dict[str, Any]:
    at = one.next_at
    return {
        "project": one.project,
        "trigger": one.trigger,
        "perHour": _plain(one.per_hour),
        "seed": one.seed,
        "nextTime": None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }


def _plain(value: Decimal) -> str:
    """Return a decimal without the zeros at its end."""
    return f"{value.normalize():f}"
