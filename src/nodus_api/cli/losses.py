"""What a drill loses a machine by, as it is given on the command line (SC-630)."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nodus_api.cli.errors import Refused
from nodus_api.kernel.drills import Loss

Command = TypeVar("Command", bound=Callable[..., Any])


def trigger_option(command: Command) -> Command:
    """Add --trigger, to be read by `loss_of`."""
    return click.option(
        "--trigger",
        required=True,
        metavar="|".join(Loss),
        help="What the machine is lost by.",
    )(command)


def loss_of(trigger: str) -> Loss:
    """Return the loss of that name. Raises Refused with those there are."""
    try:
        return Loss(trigger)
    except ValueError:
        raise Refused(
            f"{trigger!r} is no trigger of a drill: give --trigger as one of {', '.join(Loss)}."
        ) from None
