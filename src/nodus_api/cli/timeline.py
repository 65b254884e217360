"""`nodus timeline`: the Attempts of one owner, drawn over time."""

import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from nodus_api.cli.meant import no_owner
from nodus_api.cli.options import (
    database_options,
    opened,
    output_option,
    print_json,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.spans import timeline_json, timeline_of
from nodus_api.cli.submit import owner_in
from nodus_api.cli.time_scale import rounded_up
from nodus_api.cli.timeline_text import Drawing, Piece, draw, text_of
from nodus_api.storage.lives import database_time, find_owner, read_lives

PIPED_WIDTH = 80

_STYLES = {
    "Queued": "dim",
    "Acquiring": "dim",
    "Boot": "yellow",
    "Restore": "magenta",
    "Running": "green",
    "Teardown": "blue",
    "Checkpoint": "bold white on green",
    "Covered": "bold cyan",
    "Live": "bold green",
}


@click.command()
@click.argument("owner")
@project_option
@database_options
@output_option
@run_async
async def timeline(owner: str, project: str, output: str, **options: Any) -> None:
    """Draw an owner's Attempts over time; OWNER is KIND/NAME, or the NAME of a Job.

    A lane is a slot, a bar an epoch. Piped, it is 80 characters wide and without colour.

    \b
    Example:
      nodus timeline job/train
    """
    project, kind, name = owner_in(owner, project)
    what = f"{kind.lower()}/{name}"
    async with (
        opened(settings_from(options)) as database,
        database.snapshot() as connection,
    ):
        found = await find_owner(connection, project, kind, name)
        if found is None:
            raise await no_owner(connection, project, what)
        lives = await read_lives(connection, found.uid)
        now = rounded_up(await database_time(connection))
    facts = timeline_of(what, project, found.state, lives, now)
    if output == "json":
        print_json(timeline_json(facts))
    elif sys.stdout.isatty():
        _coloured(draw(facts, _terminal()))
    else:
        click.echo(text_of(draw(facts, Drawing(width=PIPED_WIDTH))), nl=False)


def _terminal() -> Drawing:
    """Return how to draw here: in blocks, unless the terminal's encoding has none."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    return Drawing(width=width, blocks=unicode)


def _coloured(lines: Sequence[Sequence[Piece]]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((text, _STYLES.get(shown, "")) for text, shown in line)))
