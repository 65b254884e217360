"""`nodus delete`, `suspend`, `resume` and `scale`: what a workload is told after its submit."""

from datetime import timedelta
from typing import Any

import click
import sqlalchemy as sa

from nodus_api.cli.asking import answered, ask
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.options import database_options, opened, project_option, run_async, settings_from
from nodus_api.cli.submit import owner_in
from nodus_api.clock import SystemClock
from nodus_api.durations import parse_duration
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.workloads import Outcome, Verb
from nodus_api.workloads.types import MOST_COMPLETIONS

_LOOK_SECONDS = 0.25

_APPLIED = {
    Verb.DELETE: "{what} is deleted: its programs stop, and its Attempts leave the API once their"
    " machines are proven gone.",
    Verb.SUSPEND: "{what} is suspended: its programs stop, `nodus resume` goes on from their last"
    " checkpoints.",
    Verb.RESUME: "{what} is resumed.",
    Verb.SCALE: "{what} is scaled to {count}.",
}
_UNCHANGED = {
    Verb.SUSPEND: "{what} was suspended already: nothing changed.",
    Verb.RESUME: "{what} is not suspended: nothing changed.",
    Verb.SCALE: "{what} was scaled to {count} already: nothing changed.",
}


def _no_wait_option(command: Any) -> Any:
    return click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")(
        command
    )


@click.command()
@click.argument("owner")
@click.option("--wait", is_flag=True, help="Wait until the API shows none of its Attempts.")
@click.option(
    "--timeout",
    "longest",
    default="10m",
    show_default=True,
    help="How long --wait waits, for example 90s.",
)
@_no_wait_option
@project_option
@database_options
@run_async
async def delete(
    owner: str, wait: bool, longest: str, no_wait: bool, project: str, **options: Any
) -> None:
    """Stop a workload and take it out of the API; OWNER is KIND/NAME, or the NAME of a Job.

    Its programs get SIGTERM and their grace. Each Attempt leaves the API once its machine is proven
    gone, and stays in the archive: `nodus get --archived`. Its stored checkpoints are removed. The
    name is free at once.

    \b
    Example:
      nodus delete job/train --wait
    """
    if wait and no_wait:
        raise Refused("--wait and --no-wait do not go together: give one.")
    patience = _duration(longest)
    project, kind, name = owner_in(owner, project)
    what = f"{kind.lower()}/{name}"
    async with opened(settings_from(options)) as database:
        uid = await _uid(database, project, kind, name)
        key = await ask(database, Verb.DELETE, project=project, kind=kind, name=name)
        if no_wait:
            click.echo(f"The delete of {what} is queued for the scheduler.")
            return
        click.echo(_said(Verb.DELETE, what, await answered(database, key, what)))
        if wait:
            await _until_gone(database, uid, what, patience)
            click.echo(f"{what} is gone: `nodus get --archived` shows what it was.")


@click.command()
@click.argument("owner")
@_no_wait_option
@project_option
@database_options
@run_async
async def suspend(owner: str, no_wait: bool, project: str, **options: Any) -> None:
    """Stop a workload for a while; OWNER is KIND/NAME, or the NAME of a Job.

    Its programs get SIGTERM and their grace, and may still save a checkpoint; nothing runs and
    nothing is charged until `nodus resume`.

    \b
    Example:
      nodus suspend job/train
    """
    await _tell(Verb.SUSPEND, owner, project, options, no_wait=no_wait)


@click.command()
@click.argument("owner")
@_no_wait_option
@project_option
@database_options
@run_async
async def resume(owner: str, no_wait: bool, project: str, **options: Any) -> None:
    """Let a suspended workload go on; OWNER is KIND/NAME, or the NAME of a Job.

    Each slot that is not done gets its next Attempt, which goes on from the last checkpoint.

    \b
    Example:
      nodus resume job/train
    """
    await _tell(Verb.RESUME, owner, project, options, no_wait=no_wait)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("owner")
@click.argument("count", metavar="N")
@_no_wait_option
@project_option
@database_options
@run_async
async def scale(owner: str, count: str, no_wait: bool, project: str, **options: Any) -> None:
    """Say how many Attempts may live at once; OWNER is KIND/NAME, or the NAME of a Job.

    N is a Job's parallelism, or the workers of a Function or an Agent. With fewer, the highest
    slots are released; with more, the lowest that are open start.

    \b
    Example:
      nodus scale job/train 4
    """
    number = _count(count)
    await _tell(Verb.SCALE, owner, project, options, no_wait=no_wait, count=number)


async def _tell(
    verb: Verb,
    owner: str,
    project: str,
    options: dict[str, Any],
    *,
    no_wait: bool,
    count: int | None = None,
) -> None:
    project, kind, name = owner_in(owner, project)
    what = f"{kind.lower()}/{name}"
    body = {} if count is None else {"count": count}
    async with opened(settings_from(options)) as database:
        key = await ask(database, verb, project=project, kind=kind, name=name, body=body)
        if no_wait:
            click.echo(f"The {verb} of {what} is queued for the scheduler.")
        else:
            click.echo(_said(verb, what, await answered(database, key, what), count))


def _said(verb: Verb, what: str, outcome: Outcome, count: int | None = None) -> str:
    """Return what to tell of an answer. Raises Refused when the scheduler did not do it."""
    sentences = {"Applied": _APPLIED, "Unchanged": _UNCHANGED}.get(outcome.outcome, {})
    if verb not in sentences:
        raise Refused(f"{what}: {outcome.message or outcome.outcome}.")
    return sentences[verb].format(what=what, count=count)


async def _uid(database: Database, project: str, kind: OwnerKind, name: str) -> Any:
    """Return the uid of the workload that has the name now; None if there is none."""
    query = sa.select(t.workloads.c.uid).where(
        t.workloads.c.project == project,
        t.workloads.c.kind == kind.value,
        t.workloads.c.name == name,
        t.workloads.c.state != "Deleted",
    )
    async with database.single_reads() as connection:
        return (await connection.execute(query)).scalar()


async def _until_gone(database: Database, uid: Any, what: str, longest: timedelta) -> None:
    """Wait until no Attempt of the workload is left. Raises Failed when that takes too long."""
    clock = SystemClock()
    deadline = clock.monotonic() + longest.total_seconds()
    query = sa.select(sa.func.count()).where(t.attempts.c.workload == uid)
    while True:
        async with database.single_reads() as connection:
            left = (await connection.execute(query)).scalar_one()
        if not left:
            return
        if clock.monotonic() >= deadline:
            raise Failed(
                f"{left} Attempts of {what} are still shown after {longest.total_seconds():g} s:"
                " they leave once their machines are proven gone; see that a scheduler runs."
            )
        await clock.sleep(_LOOK_SECONDS)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Refused(f"--timeout: {error}.") from error


def _count(text: str) -> int:
    """Return how many, as a number that a workload may have."""
    if not text.isascii() or not text.isdecimal() or int(text) > MOST_COMPLETIONS:
        raise Refused(f"N is {text!r}: give a whole number from 0 to {MOST_COMPLETIONS}.")
    return int(text)
