"""JSON log lines: standard logging, rendered by structlog as one object a line.

Code calls `logging.getLogger(__name__)` with a constant sentence and `extra=`;
the keys of `extra` become keys of the object. On a terminal a console renderer
is used. This is the only module that knows structlog.
"""

import logging
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import structlog

Format = Literal["auto", "json", "console"]
_DROPPED = ("color_message", "_record", "_from_structlog")
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
    with structlog.contextvars.bound_contextvars(**values):
        yield


def mask_secrets(text: str) -> str:
    """Return `text` with the passwords of URLs and the secrets of tokens masked."""
    return _SECRETS.sub(lambda found: f"{found['url'] or found['token']}***", text)


def _tells_of_the_schema(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(("Context impl", "Will assume"))


class _Formatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


def _formatter(*, console: bool) -> logging.Formatter:
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.ExtraAdder(),
        _standard_keys,
    ]
    if console:
        last: list[structlog.types.Processor] = [
            _drop,
            structlog.dev.ConsoleRenderer(event_key="message", timestamp_key="time"),
        ]
    else:
        last = [
            structlog.processors.format_exc_info,  # without locals: they hold secrets
            _drop,
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ]
    return _Formatter(foreign_pre_chain=shared, processors=last)


def _standard_keys(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    record: logging.LogRecord = event["_record"]
    head = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": event.pop("event", ""),
    }
    return {**head, **{key: value for key, value in event.items() if key not in head}}


def _drop(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in _DROPPED:
        event.pop(key, None)
    return event
