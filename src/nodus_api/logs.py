"""JSON log lines: standard logging, rendered as one object a line.

Code calls `logging.getLogger(__name__)` with a constant sentence and `extra=`;
the keys of `extra` become keys of the object. On a terminal a console renderer
is used, that of `console_logs`; it loads there alone, since it brings half of rich along.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Literal, TextIO

Format = Literal["auto", "json", "console"]
_NO_EXTRA = frozenset(
    {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "color_message"}
)
"""What a record has of its own, and what uvicorn adds for a terminal."""
_fields: ContextVar[dict[str, object] | None] = ContextVar("fields", default=None)
_SECRETS = re.compile(
    r"(?P<url>[a-z][a-z0-9+]*://[^/\s:@\"]*:)[^@\s\"]+(?=@)"
    r"|(?P<token>nodus_[a-z2-7]{12}_)[A-Za-z0-9_-]{43,}",
    re.IGNORECASE,
)


def configure(
    *, level: str = "info", style: Format = "auto", stream: TextIO | None = None
) -> logging.Handler:
    """Send every logger's records to `stream` (standard error) and return the handler.

    Calling it again replaces what an earlier call installed.
    """
    out = stream if stream is not None else sys.stderr
    console = style == "console" or (style == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(console=console))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one.formatter, _Formatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # what these two say at info is about themselves, and a process may run three of uvicorn's
    logging.getLogger("uvicorn.error").setLevel("DEBUG" if level == "debug" else "WARNING")
    logging.getLogger("alembic.runtime.migration").addFilter(_tells_of_the_schema)
    logging.captureWarnings(capture=True)
    return handler


@contextmanager
def fields(**values: object) -> Iterator[None]:
    """Add these fields to every record of this task while the block runs."""
    before = _fields.set({**(_fields.get() or {}), **values})
    try:
        yield
    finally:
        _fields.reset(before)


def mask_secrets(text: str) -> str:
    """Return `text` with the passwords of URLs and the secrets of tokens masked."""
    return _SECRETS.sub(lambda found: f"{found['url'] or found['token']}***", text)


def _tells_of_the_schema(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(("Context impl", "Will assume"))


class _Formatter(logging.Formatter):
    def __init__(self, render: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(self._render(_object(record)))


def _formatter(*, console: bool) -> logging.Formatter:
    if console:
        return _Formatter(import_module("nodus_api.console_logs").renderer())
    return _Formatter(_json)


def _object(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record's keys in their order; what is given cannot replace the first four."""
    head = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    given = {key: value for key, value in record.__dict__.items() if key not in _NO_EXTRA}
    failure = {"exc_info": record.exc_info} if record.exc_info else {}
    stack = {"stack_info": record.stack_info} if record.stack_info else {}
    return {**head, **(_fields.get() or {}), **given, **failure, **stack, **head}


def _json(said: dict[str, Any]) -> str:
    failure = said.pop("exc_info", None)
    if failure is not None:  # without locals: they hold secrets
        said["exception"] = logging.Formatter().formatException(failure)
    return json.dumps(said, default=str, ensure_ascii=False)
