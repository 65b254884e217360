"""Commands run in this process, and `nodus up` run for real."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.live import Up, invoke
from tests.shared import Shared

from nodus_api.settings import Settings, variables

Nodus = Callable[..., Result]


@pytest.fixture
def nodus(monkeypatch: pytest.MonkeyPatch) -> Nodus:
    """Run a command in this process: `nodus("get", "-o", "json")`."""
    for name in [*variables(Settings.model_fields), "NODUS_CONFIG_FILE"]:
        monkeypatch.delenv(name, raising=False)
    return invoke


@contextmanager
def _running(folder: Path) -> Iterator[Up]:
    with Up(folder / "up") as running, running.recorded():
        yield running


_SHARED = Shared(_running)


@pytest.fixture
def up(open_folder: Path) -> Up:
    """One `nodus up` for all tests that only read it, or work in a project of their own."""
    return _SHARED.get(open_folder)
