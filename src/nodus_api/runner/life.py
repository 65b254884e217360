"""A runner's life: registered, granted, started, ended; orders and signals on the way (SC-640)."""

import logging
import os
import queue
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodus_api.runner import program
from nodus_api.runner.client import Answer
from nodus_api.runner.files import DELETING, ORDER, read_json
from nodus_api.runner.final import START_FAILED, Ending, write_ending
from nodus_api.runner.intent import RunnerIntent, program_environment
from nodus_api.runner.outbox import HEARTBEAT, Outbox, Report
from nodus_api.runner.times import elapsed

logger = logging.getLogger(__name__)

CAN_START = "canStart"
_RETRY_MS = 200
_LAST_WORDS_SECONDS = 2.0
_POLL_SECONDS = 0.05
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class _Answered:
    report: Report
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Ended:
    at: float


@dataclass(frozen=True, slots=True)
class _Signalled:
    number: int


class Life:
    """One program's life, decided by one thread; the others only put events into its queue.

    Never ends the program because the server is silent (SC-643).
    """

    def __init__(
        self, directory: Path, intent: RunnerIntent, post: Callable[[dict[str, Any]], Answer]
    ) -> None:
        self._directory = directory
        self._intent = intent
        # SimpleQueue, because a signal handler may put while this thread gets.
        self._events: queue.SimpleQueue[_Answered | _Ended | _Signalled] = queue.SimpleQueue()
        envelope = {
            "attempt": intent.attempt,
            "epoch": intent.epoch,
            "machine": intent.machine,
            "fence": intent.fence,
        }
        self._outbox = Outbox(post, envelope=envelope, answered=self._on_answer)
        self._program: program.Program | None = None
        self._ended = False
        self._stopped_at: float | None = None
        self._kill_at = _FOREVER
        self._ask_at = _FOREVER
        self._beat_at = _FOREVER
        self._linger = intent.linger
        self._leave_at = _FOREVER

    def signalled(self, number: int) -> None:
        """Take note of a signal to the runner; safe in a signal handler."""
        self._events.put(_Signalled(number))

    def run(self) -> None:
        """Live until the end is reported, or cannot be."""
        self._outbox.start()
        self._report("registered", checks=_checks(), pullMs=0)
        self._beat_at = elapsed() + self._intent.heartbeat
        self._ask()
        while not self._over():
            try:
                event = self._events.get(timeout=self._wait())
            except queue.Empty:
                self._on_time()
                continue
            self._on_event(event)
            self._on_time()

    def _over(self) -> bool:
        return self._ended and (self._outbox.empty or elapsed() >= self._leave_at)

    def _wait(self) -> float:
        if self._ended:
            return _POLL_SECONDS
        due = min(self._ask_at, self._beat_at, self._kill_at)
        return max(0.0, due - elapsed())

    def _on_time(self) -> None:
        now = elapsed()
        if self._ended:
            return
        if now >= self._ask_at:
            self._ask()
        if now >= self._beat_at:
            self._beat()
        if now >= self._kill_at and self._program is not None:
            self._kill_at = _FOREVER
            self._program.signal(signal.SIGKILL)

    def _on_event(self, event: _Answered | _Ended | _Signalled) -> None:
        match event:
            case _Answered(report=report, answer=answer):
                self._on_reply(report, answer)
            case _Ended(at=at):
                self._finish(at)
            case _Signalled(number=signal.SIGUSR1):
                with suppress(OSError):  # the server has the order too: the beat asks it
                    self._obey(read_json(self._directory / ORDER) or {})
                self._beat()
            case _Signalled():
                self._terminate()

    def _on_answer(self, report: Report, answer: Answer) -> None:
        self._events.put(_Answered(report, answer))

    def _on_reply(self, report: Report, answer: Answer) -> None:
        if answer.stale:
            logger.warning("the slot has a newer epoch; the program is killed")
            self._linger = 0.0
            self._die()
            return
        orders = answer.body.get("orders")
        for order in orders if isinstance(orders, list) else []:
            if isinstance(order, dict):
                self._obey(order)
        if report.kind == CAN_START and not self._ended and self._program is None:
            if answer.body.get("granted") is True:
                self._start()
            else:
                retry = _number(answer.body.get("retryMs"), _RETRY_MS) / 1000
                self._ask_at = elapsed() + retry

    def _obey(self, order: dict[str, Any]) -> None:
        match order.get("kind"):
            case "stop":
                grace = _number(order.get("graceMs"), self._intent.stop_grace * 1000) / 1000
                self._stop(grace)
            case "die":
                self._linger = min(self._linger, _LAST_WORDS_SECONDS)
                self._die()
            case _:
                pass  # none, or checkpointNow to a runner that has no checkpoints

    def _stop(self, grace: float, *, forward: bool = True) -> None:
        """Stop with a grace; a repeat can only bring the kill forward."""
        now = elapsed()
        if self._ended:
            return
        if self._program is None:
            self._end(Ending(ended_at=now, stopped_at=now))
            return
        if self._stopped_at is None:
            if not self._program.signal(signal.SIGTERM if forward else 0):
                return  # it ended first: that end is its own
            self._stopped_at = now
            self._kill_at = now + grace
        self._kill_at = min(self._kill_at, now + grace)

    def _die(self) -> None:
        self._stop(0.0, forward=False)
        if self._program is not None and not self._ended:
            self._program.signal(signal.SIGKILL)

    def _terminate(self) -> None:
        """SIGTERM to the runner itself: stop, and do not wait for a server that is away.

        While the supplier deletes the machine it signals every process group itself, and a second
        SIGTERM would tell many programs to give up their orderly end.
        """
        deleting = (self._directory / DELETING).exists()
        self._linger = min(self._linger, 0.0 if deleting else _LAST_WORDS_SECONDS)
        self._leave_at = min(self._leave_at, elapsed() + self._linger)
        self._stop(self._intent.stop_grace, forward=not deleting)

    def _start(self) -> None:
        self._ask_at = _FOREVER
        environment = program_environment(self._intent, os.environ)
        try:
            started = program.start(self._intent, self._directory, environment)
        except program.StartFailed as error:
            logger.warning("the program could not be started", extra={"cause": f": {error}"})
            self._end(Ending(ended_at=elapsed(), error=START_FAILED, message=str(error)))
            return
        self._program = started
        started.notify(lambda at: self._events.put(_Ended(at)))
        self._outbox.put(
            Report(kind="started", at=started.started_at, fields={"restoreBytes": None})
        )

    def _finish(self, at: float) -> None:
        if self._program is None or self._ended:
            return
        exit_code, killed_by, oom = self._program.finish()
        self._end(
            Ending(
                ended_at=at,
                exit_code=exit_code,
                signal=killed_by,
                oom=oom,
                started_at=self._program.started_at,
                stopped_at=self._stopped_at,
            )
        )

    def _end(self, ending: Ending) -> None:
        self._ended = True
        try:
            write_ending(self._directory, self._intent, ending)
        except OSError:
            logger.exception("exit.json could not be written; the end is told to the server only")
        self._outbox.put(
            Report(
                kind="exited",
                at=ending.ended_at,
                fields=ending.fields(),
                moments=ending.moments(),
            )
        )
        self._leave_at = elapsed() + self._linger

    def _ask(self) -> None:
        self._ask_at = _FOREVER
        self._report(CAN_START)

    def _beat(self) -> None:
        self._beat_at = elapsed() + self._intent.heartbeat
        if not self._ended:
            self._report(HEARTBEAT)

    def _report(self, kind: str, **fields: Any) -> None:
        self._outbox.put(Report(kind=kind, at=elapsed(), fields=fields))


def _checks() -> dict[str, Any]:
    """Return what the runner saw of its machine."""
    return {"cpus": len(os.sched_getaffinity(0))}


def _number(value: object, default: float) -> float:
    """Return a number from the wire, or the default if it is none or negative."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _FOREVER:
        return float(value)
    return default
