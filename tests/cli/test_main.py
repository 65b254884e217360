"""The group of commands, and what every command promises."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from nodus_api.cli.main import COMMANDS, main


def commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", one) for sub, one in command.commands.items()]
    return found


def test_the_summary_is_the_command_s_own() -> None:
    context = click.Context(main)
    for name, entry in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.help is not None
        first = command.help.strip().split("\n\n")[0].replace("\n", " ")
        assert first == entry.summary, name


def test_every_command_has_help_with_an_example() -> None:
    for name, _ in commands():
        result = CliRunner().invoke(main, [*name.split(), "--help"])

        assert result.exit_code == 0, name
        assert "Example:\n" in result.output, name
        assert "    nodus " in result.output, name


def test_help_loads_no_part() -> None:
    code = (
        "import sys; from nodus_api.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print([m for m in ('sqlalchemy', 'fastapi', 'pydantic', 'rich') if m in sys.modules])"
    )
    shown = subprocess.run(  # noqa: S603 -- ours
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert shown.stdout.rstrip().endswith("[]")


# What each took of the processor's time before anything was done, every time a part or a command
# started: the terminal's colours, the schema's migrations, and what only other parts use.
UNUSED = {
    "get": ("structlog", "alembic", "fastapi", "uvicorn", "kubernetes"),
    "cost": ("structlog", "alembic", "fastapi", "uvicorn", "kubernetes"),
    "serve": ("structlog", "rich", "alembic", "kubernetes"),
    "schedule": ("structlog", "rich", "alembic", "fastapi", "kubernetes"),
}


@pytest.mark.parametrize("command", UNUSED)
def test_a_command_loads_only_what_it_uses(command: str) -> None:
    code = (
        "import sys; from nodus_api.cli.main import main\n"
        f"main([{command!r}, '--help'], standalone_mode=False)\n"
        f"print([m for m in {UNUSED[command]} if m in sys.modules])"
    )
    shown = subprocess.run(  # noqa: S603 -- ours
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert shown.stdout.rstrip().endswith("[]")


def test_an_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(main, ["fly"])

    assert result.exit_code == 2
    assert "No such command 'fly'" in result.stderr
