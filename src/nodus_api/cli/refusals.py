"""The two ways in which a command ends badly; a module of its own, so that it loads at once."""

import click


class Refused(click.ClickException):
    """What was asked for cannot be done as given; nothing was changed. Exit code 2."""

    exit_code = 2


class Failed(click.ClickException):
    """What was asked for was tried and did not succeed. Exit code 1."""

    exit_code = 1
