"""`nodus simulate`: fill a database with Attempts that live whole lives."""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nodus_api import logs
from nodus_api.bench.simulation.leading import AnotherLeads, lead
from nodus_api.bench.simulation.publisher import Done, Plan, Publisher, SeedUsed
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
from nodus_api.clock import SystemClock
from nodus_api.storage.feed import Feed


@click.command()
@click.option(
    "--attempts",
    type=click.IntRange(1, 10_000_000),
    required=True,
    help="So many Attempts; replacements of lost ones come on top.",
)
@click.option(
    "--projects",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Projects simulated-1, simulated-2 ... that they are spread over.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Changes a second [as fast as it goes].",
)
@click.option(
    "--speed",
    type=click.FloatRange(1),
    help="Simulated seconds a second [as fast as it goes].",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 999_999),
    default=1,
    show_default=True,
    help="Chance: one seed makes the same lives, once a database.",
)
@click.option(
    "--live",
    type=click.IntRange(1, 1_000_000),
    help="About so many live at once [a quarter of all, 100 to 25000].",
)
@click.option(
    "--keep-finished",
    type=click.IntRange(0),
    help="Retire what is finished beyond so many a project [all stay].",
)
@click.option("--take-lead", is_flag=True, help="Let a scheduler that leads stand by meanwhile.")
@database_options
@output_option
@run_async
async def simulate(
    attempts: int,
    projects: int,
    rate: float | None,
    speed: float | None,
    seed: int,
    live: int | None,
    keep_finished: int | None,
    take_lead: bool,
    output: str,
    **options: Any,
) -> None:
    """Fill a database with Attempts that live whole lives.

    They are queued, placed, started, billed, ended and proven gone as a scheduler writes it, at
    simulated times that end now; nothing runs. It leads in the scheduler's place while it works.
    Ctrl-C begins nothing new and ends what lives; a second one leaves it as it is.

    \b
    Example:
      nodus simulate --attempts 10000 --projects 20 --take-lead
      nodus simulate --attempts 100000 --rate 500 --database-url postgresql://nodus@db/nodus
    """
    plan = Plan(
        attempts=attempts,
        projects=projects,
        rate=rate,
        speed=speed,
        seed=seed,
        live=live,
        keep_finished=keep_finished,
    )
    clock = SystemClock()
    settings = settings_from(options)
    if settings.log_level == "info":  # the bar and the summary say it
        logs.configure(level="warning", style=settings.log_format)
    began = clock.monotonic()
    async with opened(settings, pool_size=3) as database:
        with _shown(plan, output) as progress:
            publisher = Publisher(
                database=database,
                plan=plan,
                clock=clock,
                chance=random.Random(seed).random,  # noqa: S311 - lives, not secrets
                start=clock.now().replace(microsecond=0) - _past(plan),
                tell=progress.show,
            )
            with _told_to_end(publisher):
                try:
                    await lead(
                        database,
                        publisher.publish,
                        clock=clock,
                        holder=f"nodus simulate on {socket.gethostname()}/{os.getpid()}",
                        take_over=take_lead,
                        retention=settings.feed_retention,
                    )
                except AnotherLeads as error:
                    raise Refused(
                        f"A scheduler leads this database ({error.holder}) and would fight what is"
                        " simulated: stop it, or give --take-lead to let it stand by meanwhile."
                    ) from error
                except SeedUsed as error:
                    raise Refused(
                        f"Seed {seed} has filled this database already: give another --seed."
                    ) from error
        head = await Feed(database, clock=clock).head()
    _tell(publisher.done, plan, clock.monotonic() - began, head, output)


def _past(plan: Plan) -> timedelta:
    """Return how long before now the first Attempt is queued, so that the last one ends now."""
    return plan.span if plan.speed is None else plan.span - plan.span / plan.speed


def _tell(done: Done, plan: Plan, seconds: float, head: int, output: str) -> None:
    figures = {
        "attempts": done.attempts,
        "changes": done.changes,
        "commits": done.commits,
        "repeatedCommits": done.failures,
        "seconds": round(seconds, 3),
        "changesPerSecond": round(done.changes / seconds, 1),
        "projects": plan.projects,
        "seed": plan.seed,
        "resourceVersion": str(head),
    }
    if output == "json":
        print_json(figures)
        return
    headings = ("ATTEMPTS", "CHANGES", "SECONDS", "CHANGES/S", "RESOURCEVERSION")
    cells = (
        str(done.attempts),
        str(done.changes),
        f"{seconds:.1f}",
        f"{figures['changesPerSecond']}",
        str(head),
    )
    click.echo(render_table(headings, [cells], right=headings), nl=False)


@contextmanager
def _told_to_end(publisher: Publisher) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end what lives, and the second end all."""
    loop, told = asyncio.get_running_loop(), list[int]()

    def end() -> None:
        if told:
            raise KeyboardInterrupt
        told.append(1)
        click.echo("Ending what lives; once more leaves it as it is.", err=True)
        publisher.end_soon()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _Bar:
    """A bar on a terminal, on standard error; elsewhere nothing."""

    def __init__(self, plan: Plan, shown: bool) -> None:
        self._bar = Progress(
            TextColumn("ended"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[changes]} changes"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._bar.add_task("ended", total=plan.attempts, changes=0)

    def show(self, done: Done) -> None:
        self._bar.update(self._task, completed=done.ended, changes=done.changes)

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def _shown(plan: Plan, output: str) -> Iterator[_Bar]:
    bar = _Bar(plan, output != "json" and Console(stderr=True).is_terminal)
    bar.start()
    try:
        yield bar
    finally:
        bar.stop()
