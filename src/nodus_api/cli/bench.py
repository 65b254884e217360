"""`nodus bench`: measure, show, keep and compare."""

import asyncio
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nodus_api.bench import AREAS, STORAGE, NotMeasured, Report, measure
from nodus_api.bench.areas import run_soak
from nodus_api.bench.report import Row
from nodus_api.bench.soak.run import Plan
from nodus_api.cli.bench_soak import soak_text
from nodus_api.cli.errors import Failed, Refused, reported
from nodus_api.cli.interrupts import ended_like_ctrl_c
from nodus_api.cli.options import output_option
from nodus_api.cli.tabular import render_table
from nodus_api.clock import SystemClock
from nodus_api.garbage import look_seldom

Command = TypeVar("Command", bound=Callable[..., Any])
_FIGURES = ("SAMPLES", "MEDIAN", "P90", "P99", "RATIO", "LOW..HIGH", "BEFORE")


def _measuring(command: Command) -> Command:
    """Add what every measurement takes."""
    for option in reversed(
        (
            click.option(
                "--quick",
                "effort",
                flag_value="quick",
                default="quick",
                help="A few minutes [default].",
            ),
            click.option("--full", "effort", flag_value="full", help="About half an hour."),
            click.option("--only", type=click.Choice(list(AREAS)), help="One area alone."),
            click.option(
                "--json",
                "json_file",
                type=click.Path(path_type=Path, dir_okay=False),
                help="Write the figures to this file.",
            ),
            click.option(
                "--compare",
                type=click.Path(path_type=Path),
                help="Show the ratios beside those of a file that --json wrote.",
            ),
            output_option,
        )
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@_measuring
@click.pass_context
def bench(context: click.Context, /, **options: Any) -> None:
    """Measure the product on this machine, each case beside its yardstick.

    Starts a Postgres and a server of its own on loopback, and stops them. Judge by the ratios:
    seconds differ with the machine and what else runs on it.

    \b
    Example:
      nodus bench --quick --only delay
      nodus bench storage --full --json today.json
      nodus bench soak --minutes 30
    """
    if context.invoked_subcommand is None:
        _measure(tuple(AREAS), **options)


@bench.command()
@_measuring
def storage(**options: Any) -> None:
    """Measure what storage, feed and watch cache must hold: rates, delays, memory, old lists.

    With --full, 100,000 Attempts.

    \b
    Example:
      nodus bench storage --quick
      nodus bench storage --full --json today.json
      nodus bench storage --only publish
    """
    _measure(STORAGE, **options)


@bench.command()
@click.option(
    "--minutes",
    type=click.FloatRange(0.5, 10_000),
    default=30,
    show_default=True,
    help="How long; memory is judged from 11 minutes on.",
)
@click.option(
    "--rate",
    type=click.FloatRange(1, 100_000),
    default=500,
    show_default=True,
    help="Changes a second.",
)
@click.option(
    "--watchers", type=click.IntRange(1, 1000), default=200, show_default=True, help="Watchers."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to this file.",
)
@output_option
def soak(minutes: float, rate: float, watchers: int, json_file: Path | None, output: str) -> None:
    """Watch on two replicas while all is written, retired, cut off and restarted.

    Every watcher's history is compared with the log, byte for byte; the memory of both replicas
    must be flat in the last third. Exit code 1 if anything was lost, or memory grows.

    \b
    Example:
      nodus bench soak --minutes 30 --json soak.json
      nodus bench soak --minutes 2 --watchers 50 --rate 200
    """
    if json_file:
        _check_writable(json_file)
    run = run_soak(
        Plan(minutes=minutes, rate=rate, watchers=watchers),
        clock=SystemClock(),
        entropy=os.urandom,
        chance=random.SystemRandom().random,
        tell=lambda line: click.echo(line, err=True),
    )
    look_seldom()  # as the parts do that are measured
    with ended_like_ctrl_c(), reported():
        try:
            report = asyncio.run(run)
        except NotMeasured as error:
            raise Failed(str(error)) from error
    document = json.dumps(report.to_json(), indent=2)
    if json_file:
        json_file.write_text(document + "\n")
    click.echo(document if output == "json" else soak_text(report), nl=output == "json")
    if not report.held:
        raise Failed("The soak did not hold: see its breaches and memory.")


def _measure(
    areas: Sequence[str],
    *,
    effort: str,
    only: str | None,
    json_file: Path | None,
    compare: Path | None,
    output: str,
) -> None:
    earlier = _ratios(compare)  # before minutes are spent
    if json_file:
        _check_writable(json_file)
    run = measure(
        [only] if only else areas,
        full=effort == "full",
        clock=SystemClock(),
        entropy=os.urandom,
        seeded=random.Random,
    )
    with ended_like_ctrl_c(), reported():
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
        click.echo(_shown(report, earlier), nl=False)


def _ratios(file: Path | None) -> dict[tuple[str, str], float]:
    if file is None:
        return {}
    try:
        rows = json.loads(file.read_bytes())["rows"]
        return {(row["area"], row["case"]): row["ratio"] for row in rows if row["ratio"]}
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}): give a readable file.") from error
    except (ValueError, TypeError, LookupError) as error:
        raise Refused(
            f"{file} holds no figures of an earlier run: give a file that --json wrote."
        ) from error


def _check_writable(file: Path) -> None:
    try:
        file.open("a").close()
    except OSError as error:
        raise Refused(
            f"{file} cannot be written ({error.strerror}): give another file with --json."
        ) from error


def _shown(report: Report, before: dict[tuple[str, str], float]) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    compared = {row.area for row in report.rows if row.ratio is not None}
    return f"{machine}\n\n" + render_table(
        ("AREA", "CASE", *_FIGURES, "TARGET"),
        [_cells(row, before, row.ratio is None and row.area in compared) for row in report.rows],
        right=_FIGURES,
    )


def _cells(row: Row, before: dict[tuple[str, str], float], yardstick: bool) -> list[str]:
    earlier = before.get((row.area, row.case))
    figures = [f"{value:.2f} {row.unit}" for value in (row.median, row.p90, row.p99)]
    ratios = ["1" if yardstick else "", ""]
    if row.ratio is not None:
        ratios = [f"{row.ratio:.2f}", f"{row.ratio_low:.2f}..{row.ratio_high:.2f}"]
    return [
        *(row.area, row.case, str(row.samples)),
        *(*figures, *ratios, "" if earlier is None else f"{earlier:.2f}"),
        row.target or "",
    ]
