"""Reports that wait for the server: numbered, one in flight, kept while it is away.

Rules: SC-641, SC-643.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodus_api.runner.client import Answer, ServerAway
from nodus_api.runner.times import age_ms, elapsed

logger = logging.getLogger(__name__)

HEARTBEAT = "heartbeat"
_REFUSED = frozenset({400, 409, 413, 422})
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class Report:
    """One thing to say; `at` and `moments` are of `times.elapsed` and are sent as ages."""

    kind: str
    at: float
    fields: Mapping[str, Any] = field(default_factory=dict)
    moments: Mapping[str, float] = field(default_factory=dict)
    n: int | None = None

    def body(self, envelope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the report as sent now; a repeat has the same n and greater ages."""
        ages = {name: age_ms(moment) for name, moment in self.moments.items()}
        return {
            **envelope,
            "n": self.n,
            "kind": self.kind,
            "ageMs": age_ms(self.at),
            **self.fields,
            **ages,
        }


class Outbox:
    """A queue and the one thread that empties it.

    n is given at the first sending, so that the order of n is the order of sending. A newer
    heartbeat replaces one that waits; everything else is kept until the server answers. So the
    queue is bounded by what happens once in a life, the one open checkpoint, and one heartbeat.
    """

    def __init__(
        self,
        post: Callable[[dict[str, Any]], Answer],
        *,
        envelope: Mapping[str, Any],
        answered: Callable[[Report, Answer], None],
    ) -> None:
        self._post = post
        self._envelope = envelope
        self._answered = answered
        self._reports: list[Report] = []
        self._in_flight: Report | None = None
        self._last_n = 0
        self.answered_at = elapsed()
        """When the server answered last, a moment of `times.elapsed`."""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send_all, name="outbox", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def put(self, report: Report) -> None:
        """Queue a report; never waits for the server."""
        with self._changed:
            if report.kind == HEARTBEAT:
                self._reports = [
                    old for old in self._reports if old.kind != HEARTBEAT or old is self._in_flight
                ]
            self._reports.append(report)
            self._changed.notify()

    @property
    def empty(self) -> bool:
        """Whether every report was answered."""
        with self._changed:
            return not self._reports

    def _send_all(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while True:
            report = self._next()
            answer = self._send(report)
            if answer is not None and self._settled(answer):
                if wait > _FIRST_WAIT_SECONDS:
                    logger.info("the report server is back")
                wait = _FIRST_WAIT_SECONDS
                self.answered_at = elapsed()
                self._done(report, drop=True)
                self._answered(report, answer)
                continue
            if wait == _FIRST_WAIT_SECONDS:
                logger.warning("the report server is away; reports wait")
            self._done(report, drop=False)
            threading.Event().wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    def _next(self) -> Report:
        with self._changed:
            while not self._reports:
                self._changed.wait()
            report = self._in_flight = self._reports[0]
            if report.n is None:
                self._last_n += 1
                report.n = self._last_n
            return report

    def _send(self, report: Report) -> Answer | None:
        try:
            return self._post(report.body(self._envelope))
        except ServerAway as error:
            logger.debug("a report was not answered", extra={"cause": f": {error}"})
            return None

    def _settled(self, answer: Answer) -> bool:
        """Whether the report need not be sent again."""
        return answer.status // 100 == 2 or answer.status in _REFUSED

    def _done(self, report: Report, *, drop: bool) -> None:
        with self._changed:
            self._in_flight = None
            beats = sum(1 for one in self._reports if one.kind == HEARTBEAT)
            if drop or (report.kind == HEARTBEAT and beats > 1):
                self._reports.remove(report)
