"""Posts one report: HTTP/1.1 over a Unix socket, or HTTPS (SC-640, SC-645)."""

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATH = "/runner/v1/report"
_TIMEOUT_SECONDS = 10.0
_ANSWER_BYTES = 65536


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
        return self.status == http.client.CONFLICT and self.body.get("reason") == "StaleEpoch"


class ReportClient:
    """One server and one token; a connection a report, so that no broken one is ever reused."""

    def __init__(self, report_to: str, *, token: str, ca: Path | None = None) -> None:
        self._report_to = report_to
        self._token = token
        self._ca = ca

    def post(self, report: dict[str, Any]) -> Answer:
        """Send a report and return the answer; raises ServerAway. At most 10 s without a byte."""
        connection = self._connection()
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        try:
            connection.request("POST", PATH, json.dumps(report).encode(), headers)
            response = connection.getresponse()
            return Answer(response.status, _object(response.read(_ANSWER_BYTES)))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise ServerAway(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        scheme, _, rest = self._report_to.partition(":")
        if scheme == "unix":
            return _UnixConnection(rest)
        address = urlsplit(self._report_to)
        context = ssl.create_default_context(cafile=self._ca)
        return http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=_TIMEOUT_SECONDS, context=context
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("runner", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def _object(content: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one if there is none (an error page)."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
