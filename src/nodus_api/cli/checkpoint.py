"""`nodus checkpoint`: a program's own word to its runner, and the wait for the commit (SC-642)."""

import asyncio
import json
import os
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from nodus_api.cli.refusals import Failed, Refused
from nodus_api.clock import Clock, SystemClock
from nodus_api.durations import parse_duration
from nodus_api.runner.channel import ANSWERS, LINE_BYTES
from nodus_api.runner.files import read_json

_LOOK_SECONDS = 0.02


@click.command()
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The directory to save; it must not change until the command ends.",
)
@click.option("--completed", type=click.IntRange(min=0), help="How much of the work is done.")
@click.option("--total", type=click.IntRange(min=0), help="How much work there is.")
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    help="How long to wait for the commit, for example 90s.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def checkpoint(
    directory: Path, completed: int | None, total: int | None, timeout: str, output: str
) -> None:
    """Save a directory as a checkpoint of the program that runs this command.

    Ends with 0 once the checkpoint is committed: from then on a replacement goes on from it. Ends
    with 1 if it was refused, or if nothing is known of it after the timeout; the program can go on.

    \b
    Example:
      nodus checkpoint --dir state --completed 120 --total 1000
    """
    progress, wait = _progress(), _duration(timeout)
    line: dict[str, Any] = {"checkpoint": {"dir": str(directory.absolute())}}
    if (completed is None) != (total is None):
        raise Refused("--completed and --total belong together: give both or neither.")
    if completed is not None and total is not None:
        if completed > total:
            raise Refused(f"--completed {completed} is more than --total {total}.")
        line |= {"completed": completed, "total": total}
    asked = uuid.uuid4().hex
    _say(progress, line | {"id": asked})
    path = progress.with_name(ANSWERS) / asked
    answer = asyncio.run(_answer(path, wait, SystemClock()))
    path.unlink(missing_ok=True)
    if not answer["committed"]:
        raise Failed(f"The checkpoint was not committed: {answer['message']}.")
    click.echo(json.dumps(answer) if output == "json" else f"committed {answer['seq']}")


def _progress() -> Path:
    given = os.environ.get("NODUS_PROGRESS")
    if not given:
        raise Refused(
            "NODUS_PROGRESS is not set: run this command in a program that Nodus started."
        )
    return Path(given)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Refused(f"--timeout: {error}") from error


def _say(progress: Path, line: dict[str, Any]) -> None:
    """Write the line whole, or nothing of it."""
    content = json.dumps(line).encode() + b"\n"
    if len(content) > LINE_BYTES:
        raise Refused("The path of the directory is too long.")
    try:
        # Not blocking: without a runner at the other end, opening would wait for ever.
        descriptor = os.open(progress, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.set_blocking(descriptor, True)
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Failed(f"The runner cannot be reached: {error}.") from error


async def _answer(path: Path, wait: timedelta, clock: Clock) -> dict[str, Any]:
    deadline = clock.monotonic() + wait.total_seconds()
    while clock.monotonic() < deadline:
        answer = read_json(path)
        if answer is not None:
            return answer
        await clock.sleep(_LOOK_SECONDS)
    raise Failed(
        f"No commit is known after {wait.total_seconds():g} s; it may still come, as the file "
        "committed beside NODUS_PROGRESS will show."
    )
