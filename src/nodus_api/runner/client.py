"""Posts one report: HTTP/1.1 over a Unix socket, or HTTPS (SC-640, SC-645)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from nodus_api.runner import unix_http

PATH = "/runner/v1/report"
_TIMEOUT_SECONDS = 10.0
_ANSWER_BYTES = 65536
_CONFLICT = 409

Post = Callable[[bytes, Mapping[str, str]], tuple[int, bytes]]
"""Sends a body with headers and returns status and content; raises OSError and ValueError."""


class ServerAway(Exception):
    """No answer that can be used came; the report may or may not have arrived."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said: the HTTP status and the JSON object."""

    status: int
    body: dict[str, Any]

    @property
    def stale(self) -> bool:
        """Whether the slot has a newer epoch: the program must not go on (SC-125)."""
        return self.status == _CONFLICT and self.body.get("reason") == "StaleEpoch"


class ReportClient:
    """One server and one token; a connection a report, so that no broken one is ever reused."""

    def __init__(self, report_to: str, *, token: str, ca: Path | None = None) -> None:
        self._post = _way(report_to, ca)
        self._token = token

    def post(self, report: dict[str, Any]) -> Answer:
        """Send a report and return the answer; raises ServerAway. At most 10 s without a byte."""
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        try:
            status, content = self._post(json.dumps(report).encode(), headers)
            return Answer(status, _object(content))
        except (OSError, ValueError, RecursionError) as error:
            raise ServerAway(f"{type(error).__name__}: {error}") from error


def _way(report_to: str, ca: Path | None) -> Post:
    scheme, _, rest = report_to.partition(":")
    if scheme == "unix":
        return lambda body, headers: unix_http.post(
            rest, PATH, body, headers, seconds=_TIMEOUT_SECONDS, most=_ANSWER_BYTES
        )
    # TLS and the HTTP client of the standard library take as long to load as all the rest
    https = import_module("nodus_api.runner.https")
    return lambda body, headers: https.post(
        report_to + PATH, body, headers, seconds=_TIMEOUT_SECONDS, most=_ANSWER_BYTES, ca=ca
    )


def _object(content: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one if there is none (an error page)."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
