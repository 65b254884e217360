"""`nodus simulate`: fill a database with Attempts that live whole lives."""

import asyncio
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nodus_api import logs
from nodus_api.bench.simulation.filling import Filling, begins_at
from nodus_api.bench.simulation.leading import AnotherLeads, lead
from nodus_api.bench.simulation.publisher import Done, Plan, Publisher, SeedUsed
from nodus_api.bench.simulation.week import ATTEMPTS as STUDIED
from nodus_api.cli.errors import Refused
from nodus_api.cli.interrupts import ended_like_ctrl_c
from nodus_api.cli.options import (
    database_options,
    find_database,
    opened,
    output_option,
    print_json,
    run_async,
    settings_from,
)
from nodus_api.cli.study import show_study
from nodus_api.cli.tabular import render_table
from nodus_api.clock import Clock, ManualClock, SystemClock
from nodus_api.settings import Settings
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import Reign

Work = Callable[[Reign], Awaitable[None]]


@click.command()
@click.option(
    "--attempts",
    type=click.IntRange(1, 10_000_000),
    help="So many Attempts [with --study 5000]; replacements of lost ones come on top.",
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
@click.option(
    "--direct", is_flag=True, help="Write the lives without scheduler and fleet: faster, for load."
)
@click.option("--take-lead", is_flag=True, help="Let a scheduler that leads stand by meanwhile.")
@click.option(
    "--study",
    "as_study",
    is_flag=True,
    help="Compare profiles and baselines over a simulated week, on a Postgres of its own.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --study: draw cost against time into this file, as SVG.",
)
@database_options
@output_option
@run_async
async def simulate(
    attempts: int | None,
    projects: int,
    rate: float | None,
    speed: float | None,
    seed: int,
    live: int | None,
    keep_finished: int | None,
    direct: bool,
    take_lead: bool,
    as_study: bool,
    plot: Path | None,
    output: str,
    **options: Any,
) -> None:
    """Fill a database with Attempts that live whole lives.

    The real scheduler places and drives them on a simulated fleet, in simulated time that ends by
    now: machines boot, are lost and reclaimed, and nothing runs. It leads in the place of another
    scheduler while it works. Ctrl-C begins nothing new and ends what lives; a second one leaves it
    as it is.

    \b
    Example:
      nodus simulate --attempts 10000 --projects 20 --take-lead
      nodus simulate --attempts 100000 --rate 500 --database-url postgresql://nodus@db/nodus
      nodus simulate --study --plot study.svg
    """
    if as_study:
        _refuse_with_study()
        logs.configure(level="error", style=settings_from(options).log_format)
        count = STUDIED if attempts is None else attempts
        with ended_like_ctrl_c():  # its Postgres is stopped in any case
            await show_study(attempts=count, seed=seed, file=plot, output=output)
        return
    if attempts is None or plot is not None:
        raise Refused("Give --attempts, or --study with or without --plot.")
    plan = Plan(
        attempts=attempts,
        projects=projects,
        rate=rate,
        speed=speed,
        seed=seed,
        live=live,
        keep_finished=keep_finished,
    )
    settings = settings_from(options)
    if settings.log_level in ("info", "warning"):  # the bar and the summary say it
        logs.configure(level="error", style=settings.log_format)
    clock = SystemClock()
    began = clock.monotonic()
    async with opened(settings, pool_size=3) as database:
        with _shown(plan, output) as progress:
            begun = _directly if direct else _by_the_scheduler
            async with begun(settings, database, plan, clock, progress.show) as (work, work_on):
                with _told_to_end(work):
                    await _led(settings, database, work_on, clock, seed, take_lead)
        head = await Feed(database, clock=clock).head()
    _tell(work.done, plan, clock.monotonic() - began, head, output)


def _refuse_with_study() -> None:
    """Refuse what a study does not heed."""
    context = click.get_current_context()
    for name in ("projects", "rate", "speed", "live", "keep_finished", "direct", "take_lead"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise Refused(f"--study takes no {option}: only --attempts, --seed, --plot and -o.")


@asynccontextmanager
async def _directly(
    settings: Settings,  # noqa: ARG001 - as the other way's
    database: Database,
    plan: Plan,
    clock: Clock,
    show: Callable[[Done], None],
) -> AsyncIterator[tuple[Publisher, Work]]:
    """Yield what writes lives straight into the rows."""
    publisher = Publisher(
        database=database,
        plan=plan,
        clock=clock,
        chance=random.Random(plan.seed).random,  # noqa: S311 - lives, not secrets
        start=clock.now().replace(microsecond=0) - _past(plan),
        tell=show,
    )
    yield publisher, publisher.publish


@asynccontextmanager
async def _by_the_scheduler(
    settings: Settings,
    database: Database,  # noqa: ARG001 - leads, by real time; this works by virtual time
    plan: Plan,
    clock: Clock,
    show: Callable[[Done], None],
) -> AsyncIterator[tuple[Filling, Work]]:
    """Yield what submits to the real scheduler on a simulated fleet."""
    virtual = ManualClock(begins_at(plan, clock.now()))
    pinned = Database(
        find_database(settings), role=Role.SCHEDULER, plan_once=True, pinned_now=virtual.now
    )
    try:
        filling = Filling(database=pinned, plan=plan, clock=clock, virtual=virtual, tell=show)
        yield filling, filling.fill
    finally:
        await pinned.close()


async def _led(
    settings: Settings,
    database: Database,
    work: Work,
    clock: Clock,
    seed: int,
    take_lead: bool,
) -> None:
    """Work as the leader; refuse where that cannot be."""
    try:
        await lead(
            database,
            work,
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
def _told_to_end(work: Publisher | Filling) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end what lives, and the second end all."""
    loop, told = asyncio.get_running_loop(), list[int]()

    def end() -> None:
        if told:
            raise KeyboardInterrupt
        told.append(1)
        click.echo("Ending what lives; once more leaves it as it is.", err=True)
        work.end_soon()

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
