"""A runner's life: registered, granted, started, ended; orders and signals on the way (SC-640)."""

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodus_api.runner import program
from nodus_api.runner.channel import Channel, Cursor, Line
from nodus_api.runner.checkpoints import CHECKPOINT, Checkpoints, Copied, Copier
from nodus_api.runner.checks import checks
from nodus_api.runner.client import Answer
from nodus_api.runner.events import Answered, Ended, Event, Signalled, Silent
from nodus_api.runner.failures import plainly
from nodus_api.runner.files import CHANNEL, DELETING, ORDER, RESTORE, WORK, read_json
from nodus_api.runner.final import INTERNAL_ERROR, START_FAILED, Ending, write_ending
from nodus_api.runner.intent import Restore, RunnerIntent, program_environment
from nodus_api.runner.outbox import HEARTBEAT, Outbox, Report
from nodus_api.runner.restoring import Fetched, NotFetched, fetch
from nodus_api.runner.times import elapsed
from nodus_api.runner.trees import BadTree

logger = logging.getLogger(__name__)

CAN_START = "canStart"
CHECKPOINT_NOW = "checkpointNow"
_RETRY_MS = 200
_LAST_WORDS_SECONDS = 2.0
_POLL_SECONDS = 0.05
_FOREVER = float("inf")

PROGRESS = "NODUS_PROGRESS"
RESTORE_DIR = "NODUS_RESTORE_DIR"


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
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        envelope = {
            "attempt": intent.attempt,
            "epoch": intent.epoch,
            "machine": intent.machine,
            "fence": intent.fence,
        }
        self._outbox = Outbox(post, envelope=envelope, answered=self._on_answer)
        store = Path(intent.checkpoints) / str(intent.epoch) if intent.checkpoints else None
        copies = Path(intent.copies) if intent.copies and store else None
        self._copier = Copier(copies, open_to_new=self._server_near)
        self._channel = Channel(
            directory / CHANNEL,
            home=directory / WORK / (intent.working_directory or ""),
            heard=self._heard,
            ended=lambda: self._events.put(Silent()),
        )
        self._checkpoints = Checkpoints(store, self._channel)
        self._cursor: Cursor | None = None
        self._active_at: float | None = None
        self._asked_for_checkpoint = False
        self._restored: Fetched | None = None
        self._program: program.Program | None = None
        self._ending: Ending | None = None
        self._ended = False
        self._unfit = False
        self._stopped_at: float | None = None
        self._kill_at = _FOREVER
        self._ask_at = _FOREVER
        self._beat_at = _FOREVER
        self._propose_at = _FOREVER
        self._end_at = _FOREVER
        self._linger = intent.linger
        self._leave_at = _FOREVER

    def signalled(self, number: int) -> None:
        """Take note of a signal to the runner; safe in a signal handler."""
        self._events.put(Signalled(number))

    def run(self) -> None:
        """Live until the end is reported, or cannot be."""
        self._outbox.start()
        self._register()
        self._beat_at = elapsed() + self._intent.heartbeat
        if self._intent.restore is None:
            self._ask()
        else:
            self._fetch(self._intent.restore)
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
        due = min(self._ask_at, self._beat_at, self._kill_at, self._propose_at, self._end_at)
        return max(0.0, due - elapsed())

    def _on_time(self) -> None:
        now = elapsed()
        if self._ended:
            return
        if now >= self._ask_at:
            self._ask()
        if now >= self._beat_at:
            self._beat()
        if now >= self._propose_at:
            self._propose_at = _FOREVER
            self._send(self._checkpoints.repeated())
        if now >= self._kill_at and self._program is not None:
            self._kill_at = _FOREVER
            self._program.signal(signal.SIGKILL)
        if now >= self._end_at:
            self._end_with_the_rest()

    def _on_event(self, event: Event) -> None:
        match event:
            case Answered(report=report, answer=answer):
                self._on_reply(report, answer)
            case Ended(at=at):
                self._finish(at)
            case Signalled(number=signal.SIGUSR1):
                with suppress(OSError):  # the server has the order too: the beat asks it
                    self._obey(read_json(self._directory / ORDER) or {})
                self._look_again()
                self._beat()
            case Signalled():
                self._terminate()
            case Line(at=at, cursor=cursor):
                self._active_at, self._cursor = at, cursor or self._cursor
            case Copied():
                self._checkpoints.add(event)
                self._send(self._checkpoints.next())
            case Silent():
                self._last_words()
            case Fetched() | NotFetched():
                self._on_fetched(event)

    def _on_answer(self, report: Report, answer: Answer) -> None:
        self._events.put(Answered(report, answer))

    def _on_reply(self, report: Report, answer: Answer) -> None:
        if answer.stale:
            logger.warning("the slot has a newer epoch; the program is killed")
            self._linger = 0.0
            self._die()
            return
        given = answer.body.get("orders")
        orders = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        for order in orders:
            self._obey(order)
        if all(order.get("kind") != CHECKPOINT_NOW for order in orders):
            self._asked_for_checkpoint = False
        retry_at = elapsed() + _number(answer.body.get("retryMs"), _RETRY_MS) / 1000
        if report.kind == CAN_START and not self._ended and self._program is None:
            if self._unfit:
                pass  # it waits for the order to go
            elif answer.body.get("granted") is True:
                self._checkpoints.begin(int(_number(answer.body.get("lastSeq"), 0)))
                self._start()
            else:
                self._ask_at = retry_at
        if report.kind == CHECKPOINT and not self._ended:
            self._on_verdict(report, answer, retry_at)

    def _on_verdict(self, report: Report, answer: Answer, retry_at: float) -> None:
        """Ask again for an answer that has not come, else go on to the next checkpoint."""
        if not self._checkpoints.answered(report, answer):
            self._propose_at = retry_at
            return
        self._send(self._checkpoints.next())
        if self._end_at < _FOREVER and self._checkpoints.settled:
            self._end_with_the_rest()

    def _obey(self, order: dict[str, Any]) -> None:
        match order.get("kind"):
            case "stop":
                grace = _number(order.get("graceMs"), self._intent.stop_grace * 1000) / 1000
                self._stop(grace)
            case "die":
                self._linger = min(self._linger, _LAST_WORDS_SECONDS)
                self._die()
            case "checkpointNow" if self._program is not None and not self._asked_for_checkpoint:
                self._asked_for_checkpoint = True
                self._channel.ask()
            case _:
                pass

    def _stop(self, grace: float, *, forward: bool = True) -> None:
        """Stop with a grace; a repeat can only bring the kill forward."""
        now = elapsed()
        if self._ended or self._ending is not None:
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
        if self._program is not None and self._ending is None:
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
        environment[PROGRESS] = str(self._channel.progress)
        if self._restored is not None:
            environment[RESTORE_DIR] = str(self._directory / RESTORE)
        try:
            self._channel.open()
        except OSError as error:
            logger.exception("the program's channel could not be made")
            self._end(Ending(ended_at=elapsed(), error=INTERNAL_ERROR, message=plainly(error)))
            return
        try:
            started = program.start(self._intent, self._directory, environment)
        except program.StartFailed as error:
            logger.warning("the program could not be started", extra={"cause": f": {error}"})
            self._end(Ending(ended_at=elapsed(), error=START_FAILED, message=str(error)))
            return
        limit = started.memory_limit
        logger.info("the program started", extra={"cause": f"; its memory limit: {limit}"})
        self._program = started
        started.notify(lambda at: self._events.put(Ended(at)))
        read = self._restored.bytes if self._restored else None
        fields = {"restoreBytes": read}
        self._outbox.put(Report(kind="started", at=started.started_at, fields=fields))

    def _finish(self, at: float) -> None:
        """Note how the program ended; it is told once its last checkpoints are."""
        if self._program is None or self._ending is not None:
            return
        exit_code, killed_by, oom = self._program.finish()
        if self._stopped_at is not None:  # after the grace the end counts, not the last copy
            self._end_at = max(self._kill_at, elapsed() + _LAST_WORDS_SECONDS)
        self._kill_at = _FOREVER
        self._ending = Ending(
            ended_at=at,
            exit_code=exit_code,
            signal=killed_by,
            oom=oom,
            started_at=self._program.started_at,
            stopped_at=self._stopped_at,
            restored_bytes=self._restored.bytes if self._restored else None,
            message=self._program.message,
        )
        self._channel.close()

    def _last_words(self) -> None:
        """Let what the program saved last be committed before its end is told, if that is quick.

        An end that is seen first, by the network or in `exit.json`, closes the Attempt to them.
        """
        if self._ended:
            return
        if self._checkpoints.settled or self._linger == 0.0:
            self._end_with_the_rest()
        else:
            self._end_at = elapsed() + _LAST_WORDS_SECONDS

    def _end_with_the_rest(self) -> None:
        self._end_at = _FOREVER
        if self._ending is None or self._ended:
            return
        for report in self._checkpoints.rest():
            self._outbox.put(report)
        self._end(self._ending)

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

    def _register(self) -> None:
        seen = checks(self._intent, self._directory)
        self._unfit = "failed" in seen
        if self._unfit:
            logger.error("the machine is not as promised", extra={"cause": f": {seen['failed']}"})
        self._report("registered", checks=seen, pullMs=0)

    def _look_again(self) -> None:
        """Check the machine once more: until its program has started it can be found unfit."""
        waits = self._program is None and not self._ended and not self._unfit
        if waits and "failed" in checks(self._intent, self._directory):
            self._register()

    def _ask(self) -> None:
        self._ask_at = _FOREVER
        if not self._unfit:
            self._report(CAN_START)

    def _beat(self) -> None:
        self._beat_at = elapsed() + self._intent.heartbeat
        if not self._ended:
            known, used = self._cursor, self._active_at
            self._outbox.put(
                Report(
                    kind=HEARTBEAT,
                    at=elapsed(),
                    fields={} if known is None else {"cursor": known.to_json()},
                    moments={} if used is None else {"activeAgeMs": used},
                )
            )

    def _fetch(self, restore: Restore) -> None:
        """Fetch the checkpoint on a thread of its own, while heartbeats and orders go on."""
        store = Path(self._intent.checkpoints) if self._intent.checkpoints else None

        def work() -> None:
            self._events.put(fetch(restore, self._directory / RESTORE, store=store))

        threading.Thread(target=work, name="restore", daemon=True).start()

    def _on_fetched(self, outcome: Fetched | NotFetched) -> None:
        if self._ended:
            return
        match outcome:
            case Fetched():
                self._restored = outcome
                self._ask()
            case NotFetched(error=error, message=message):
                logger.error("the checkpoint cannot be restored", extra={"cause": f": {message}"})
                self._end(Ending(ended_at=elapsed(), error=error, message=message))

    def _heard(self, line: Line) -> None:
        """Take a line of the program, on the channel's thread: copies may take their time."""
        self._events.put(line)
        if line.directory is None:
            return
        try:
            self._events.put(self._copier.copy(line))
        except BadTree as error:
            self._channel.refused(str(error), line.id)
        except OSError as error:
            self._channel.refused(f"it could not be copied: {plainly(error)}", line.id)

    def _server_near(self) -> bool:
        return elapsed() - self._outbox.answered_at < self._intent.partition_limit

    def _send(self, report: Report | None) -> None:
        if report is not None:
            self._outbox.put(report)

    def _report(self, kind: str, **fields: Any) -> None:
        self._outbox.put(Report(kind=kind, at=elapsed(), fields=fields))


def _number(value: object, default: float) -> float:
    """Return a number from the wire, or the default if it is none or negative."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _FOREVER:
        return float(value)
    return default
