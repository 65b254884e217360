"""How simulated runners reach the scheduler: the reports and the desk that answers them (SC-640).

The desk is the product's own report server; it cannot tell these runners from real ones.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from nodus_api.suppliers.simulated.runner import Runner

PATH = "/runner/v1/report"
_MS = timedelta(milliseconds=1)

Application = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]
"""An ASGI application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the desk said to one report."""

    status: int
    body: Mapping[str, Any]

    @property
    def taken(self) -> bool:
        """Whether the report was taken."""
        return self.status == 200

    @property
    def outdated(self) -> bool:
        """Whether the sender's epoch is over, or its token is nobody's (SC-643)."""
        return self.status == 401 or self.body.get("reason") == "StaleEpoch"

    @property
    def last_seq(self) -> int | None:
        """Where the slot stands, of a checkpoint that was refused (SC-142)."""
        for cause in self.body.get("details", {}).get("causes", ()):
            if cause.get("field") == "lastSeq":
                return int(cause["message"])
        return None


class Desk(Protocol):
    """Where runners report."""

    async def report(self, token: str, body: bytes) -> Answer:
        """Take one report and answer it; an answer of 500 and above: it may not be kept."""
        ...


@dataclass(frozen=True, slots=True)
class ASGIDesk:
    """The report server in this process, spoken to as a socket would."""

    application: Application

    async def report(self, token: str, body: bytes) -> Answer:
        """Post a report; what the server raises is raised."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "headers": [(b"authorization", f"Bearer {token}".encode("latin-1"))],
        }
        said: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            said.append(message)

        await self.application(scope, receive, send)
        content = b"".join(one.get("body", b"") for one in said)
        return Answer(status=int(said[0]["status"]), body=json.loads(content))


@dataclass(slots=True, eq=False)
class Letter:
    """One report as it leaves; `event` is when what it tells of was."""

    sender: "Runner"
    n: int
    kind: str
    event: datetime
    body: Mapping[str, Any] = field(default_factory=dict)

    def content(self, now: datetime) -> bytes:
        """Return the report's bytes as of `now`: it tells ages, not times (SC-615)."""
        intent = self.sender.intent
        ages = {name: max(0.0, (now - at) / _MS) for name, at in self._moments()}
        plain = {name: value for name, value in self.body.items() if name not in ages}
        envelope = {
            "attempt": str(intent.attempt_uid),
            "epoch": intent.epoch,
            "n": self.n,
            "kind": self.kind,
            "ageMs": max(0.0, (now - self.event) / _MS),
        }
        return json.dumps(envelope | plain | ages).encode()

    def _moments(self) -> list[tuple[str, datetime]]:
        return [(name, at) for name, at in self.body.items() if isinstance(at, datetime)]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A letter that is to be delivered; of a stray copy nobody hears the answer."""

    letter: Letter
    heard: bool = True
