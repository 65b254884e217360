"""Log lines for people at a terminal, in colour; the only module that knows structlog."""

from collections.abc import Callable
from typing import Any

from structlog.dev import ConsoleRenderer


def renderer() -> Callable[[dict[str, Any]], str]:
    """Return what makes a line of a log record's keys."""
    console = ConsoleRenderer(event_key="message", timestamp_key="time")
    return lambda said: str(console(None, "", said))
