"""`nodus drill`: lose an Attempt's machine on purpose, and see what follows (SC-630)."""

from datetime import timedelta
from typing import Any

import click

from nodus_api.cli.asking import answered, ask_drill
from nodus_api.cli.drill_schedule import schedule
from nodus_api.cli.errors import Refused
from nodus_api.cli.losses import loss_of, trigger_option
from nodus_api.cli.options import database_options, opened, project_option, run_async, settings_from
from nodus_api.durations import format_duration, parse_duration
from nodus_api.kernel.drills import LONGEST_NOTICE, USUAL_NOTICE, Loss
from nodus_api.workloads import Outcome

_SCHEDULE = "schedule"


class _Drill(click.Command):
    """`nodus drill ATTEMPT`, or `nodus drill schedule ...`: no Attempt has that for a name."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Return the context of the command, or of its schedules."""
        if args[:1] == [_SCHEDULE]:
            return schedule.make_context(f"{info_name} {_SCHEDULE}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_Drill)
@click.argument("attempt")
@trigger_option
@click.option("--notice", help="How long before a preemption it is announced [30s].")
@click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")
@project_option
@database_options
@run_async
async def drill(
    attempt: str, trigger: str, notice: str | None, no_wait: bool, project: str, **options: Any
) -> None:
    """Lose an Attempt's machine on purpose, by a real fault; Nodus pays for what is lost.

    preemption: it is told to stop, and its machine is taken away after --notice. node-loss: its
    machine dies without a word. heartbeat: its runner falls silent, which is borne for 2 to 10
    minutes. readiness: its machine fails its checks, before the program starts. The slot is
    replaced as after a real loss, and no counter of retries or replacements moves.
    `nodus drill schedule` has a project drilled again and again, see its --help.

    \b
    Example:
      nodus drill train-0-e1-k7f3q --trigger node-loss
      nodus drill train-0-e1-k7f3q --trigger preemption --notice 2m
      nodus drill schedule set --trigger preemption --per-hour 0.5
    """
    loss = loss_of(trigger)
    told = _notice(loss, notice)
    async with opened(settings_from(options)) as database:
        key = await ask_drill(
            database, project=project, attempt=attempt, trigger=loss.value, notice=told
        )
        if no_wait:
            click.echo(f"The {loss} drill of {attempt} is queued for the scheduler.")
        else:
            click.echo(_said(attempt, loss, told, await answered(database, key, attempt)))


def _notice(loss: Loss, text: str | None) -> timedelta | None:
    """Return a preemption's notice in whole seconds; None for a loss that has none."""
    if loss is not Loss.PREEMPTION:
        if text is not None:
            raise Refused(f"A {loss} comes without a notice: leave --notice out.")
        return None
    if text is None:
        return USUAL_NOTICE
    try:
        notice = parse_duration(text)
    except ValueError as error:
        raise Refused(f"--notice: {error}.") from error
    if notice > LONGEST_NOTICE or notice % timedelta(seconds=1):
        raise Refused(f"--notice: {text} is not in whole seconds up to 1h: such as 30s or 2m.")
    return notice


def _said(attempt: str, loss: Loss, notice: timedelta | None, outcome: Outcome) -> str:
    if outcome.outcome != "Applied":
        raise Refused(f"{attempt}: {outcome.message or outcome.outcome}.")
    match loss:
        case Loss.PREEMPTION if notice:
            left = format_duration(notice)
            return f"{attempt} is told to stop, and its machine is taken away in {left}."
        case Loss.PREEMPTION:
            return f"The machine of {attempt} is taken away, without a notice."
        case Loss.NODE_LOSS:
            return f"The machine of {attempt} dies without a word; it is found lost in seconds."
        case Loss.HEARTBEAT:
            return (
                f"The runner of {attempt} falls silent; it is given up after 10 minutes of"
                " silence, or after 2 if its supplier does not say that the machine runs."
            )
        case Loss.READINESS:
            return f"The machine of {attempt} fails its checks, unless its program starts first."
