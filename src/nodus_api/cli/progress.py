"""Live progress of Attempts: a table that is redrawn on a terminal, plain lines elsewhere."""

import sys
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

_STYLES = {"Succeeded": "green", "Failed": "red", "Cancelled": "yellow", "Running": "cyan"}


class Progress(Protocol):
    """Where changes are shown."""

    def __enter__(self) -> "Progress":
        """Begin to show."""
        ...

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        ...

    def show(self, changed: dict[str, Any]) -> None:
        """Show an Attempt that changed."""
        ...


def choose_progress() -> Progress:
    """Return the progress that suits standard output."""
    return LiveTable() if sys.stdout.isatty() else PlainLines()


class PlainLines:
    """One line for each change, fit for a log."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __enter__(self) -> "PlainLines":
        """Begin to show."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: every line stands already."""

    def show(self, changed: dict[str, Any]) -> None:
        """Print a line, unless it would repeat the Attempt's last one."""
        name = changed["metadata"]["name"]
        line = f"{name}  {summary(changed)}"
        if self._last.get(name) != line:
            self._last[name] = line
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


class LiveTable:
    """All Attempts in one table, redrawn in place."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str], dict[str, Any]] = {}
        self._live = Live(console=Console(), refresh_per_second=8, transient=False)

    def __enter__(self) -> "LiveTable":
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Draw for the last time."""
        self._live.stop()

    def show(self, changed: dict[str, Any]) -> None:
        """Redraw the table."""
        metadata = changed["metadata"]
        self._attempts[metadata["namespace"], metadata["name"]] = changed
        table = Table(box=None, pad_edge=False)
        for heading in ("ATTEMPT", "PHASE", "STAGE", "RESULT", "COST USD"):
            table.add_column(heading)
        for _, one in sorted(self._attempts.items()):
            phase = str(one["status"]["phase"])
            table.add_row(
                one["metadata"]["name"],
                Text(phase, style=_STYLES.get(phase, "default")),
                _stage(one),
                _result(one),
                _cost(one),
            )
        self._live.update(table)


def summary(one: dict[str, Any]) -> str:
    """Return an Attempt's state in a few words."""
    stage, phase, result = _stage(one), str(one["status"]["phase"]), _result(one)
    words = [phase if stage in (phase, "") else f"{phase}/{stage}"]
    if result:
        words.append(result)
    if "deletionProvenTime" in one["status"].get("timings", {}):
        words.append(f"machine gone, {_cost(one)} USD")
    return "  ".join(words)


def _stage(one: dict[str, Any]) -> str:
    return str(one["status"].get("progress", {}).get("stage", ""))


def _result(one: dict[str, Any]) -> str:
    status = one["status"]
    words = [str(status["reason"])] if "reason" in status else []
    if "exitCode" in status:
        words.append(f"exit {status['exitCode']}")
    if "signal" in status:
        words.append(f"signal {status['signal']}")
    if "supersededBy" in status:
        words.append(f"then {status['supersededBy']}")
    return ", ".join(words)


def _cost(one: dict[str, Any]) -> str:
    return str(one["status"].get("actual", {}).get("costUSD", ""))
