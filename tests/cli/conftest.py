"""Commands run in this process, and `nodus up` run for real."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.live import Up

from nodus_api.cli.main import main
from nodus_api.settings import Settings, variables

Nodus = Callable[..., Result]


@pytest.fixture
def nodus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodus]:
    """Run a command in this process: `nodus("get", "-o", "json")`."""
    for name in [*variables(Settings.model_fields), "NODUS_CONFIG_FILE"]:
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)

    def invoke(*arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(
            main, [str(one) for one in arguments], input=stdin, catch_exceptions=False
        )

    yield invoke
    # what a command configured writes to a stream that is gone now
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture(scope="session")
def up(open_folder: Path) -> Iterator[Up]:
    """One `nodus up` for all tests that only read it, or work in a project of their own."""
    with Up(open_folder / "up") as running:
        yield running
