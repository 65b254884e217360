"""The two ways in which a command ends badly; a module of its own, so that it loads at once."""

import click


class _Sentence(click.ClickException):
    """Said on one line: what was given may hold anything, a terminal's commands too."""

    def format_message(self) -> str:
        """Return the message, with what cannot be printed shown as in Python."""
        shown = (one if one.isprintable() else ascii(one)[1:-1] for one in self.message)
        return "".join(shown)


class Refused(_Sentence):
    """What was asked for cannot be done as given; nothing was changed. Exit code 2."""

    exit_code = 2


class Failed(_Sentence):
    """What was asked for was tried and did not succeed. Exit code 1."""

    exit_code = 1
