"""Starts the parts of `nodus up`, starts a dead one again, and stops them all.

Synchronous on purpose (Decision 2 of the package): it waits for signals, which also tell of
children that ended, and looks after the database, which is no child, five times a second.
"""

import logging
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from nodus_api.cli import processes
from nodus_api.cli.errors import Refused
from nodus_api.clock import Clock
from nodus_api.storage.errors import StorageError

RESTART_SECONDS = 0.3
STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.2
_BAD_INPUT = 2
_log = logging.getLogger(__name__)


class Part(Protocol):
    """Something that runs: the database or a child process."""

    @property
    def name(self) -> str:
        """Return what it is called in logs and in D/run."""
        ...

    def start(self) -> int:
        """Start it, or adopt the one that runs, and return its pid."""
        ...

    def ended(self) -> int | None:
        """Return None while it runs, then its exit code (negative: a signal)."""
        ...

    def ask_to_stop(self) -> None:
        """Begin to stop it, without waiting."""
        ...

    def stop(self, seconds: float) -> None:
        """Wait for the end that was asked for, by force after so many seconds."""
        ...


class Database(Protocol):
    """What the supervisor asks of an embedded Postgres; `EmbeddedPostgres` satisfies it."""

    def start(self) -> int:
        """Start or adopt the server and return its pid."""
        ...

    def alive(self) -> bool:
        """Return whether it runs."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...


class PostgresPart:
    """The embedded Postgres, which is no child of ours."""

    name = "postgres"

    def __init__(self, server: Database) -> None:
        self._server = server

    def start(self) -> int:
        """Start or adopt the server."""
        return self._server.start()

    def ended(self) -> int | None:
        """Return None while it runs, else 0: how it ended is not known."""
        return None if self._server.alive() else 0

    def ask_to_stop(self) -> None:
        """Do nothing: it stops last, when nobody needs it any more."""

    def stop(self, seconds: float) -> None:  # noqa: ARG002 -- pg_ctl has its own limit
        """Stop the server."""
        self._server.stop()


@dataclass(slots=True, kw_only=True)
class Child:
    """A command in a process and a session of its own.

    Ctrl-C at the terminal reaches the supervisor alone, which then stops the children in order.
    """

    name: str
    command: Sequence[str]
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start the process; its output is ours."""
        self._process = subprocess.Popen(  # noqa: S603 -- our own command, arguments as a list
            list(self.command),
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(self.descriptors),
            env={**os.environ, **self.environment},
            start_new_session=True,
        )
        return self._process.pid

    def ended(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return None if self._process is None else self._process.poll()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float) -> None:
        """Wait for its end, and kill it after so many seconds.

        It is not asked a second time, since a second SIGTERM would cut its drain short (AS-095).
        """
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            _log.warning("A part did not stop in time and is killed", extra={"part": self.name})
            self._process.kill()
            self._process.wait()


class Supervisor:
    """Keeps parts running until a signal comes, and stops them all at the end of its block."""

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._parts: list[Part] = []
        self._due: dict[str, float] = {}
        self._signals, self._wake = socket.socketpair()
        self._stopping = False
        self._settled = False

    def __enter__(self) -> "Supervisor":
        """Take SIGTERM, SIGINT, SIGHUP (the terminal is gone) and SIGCHLD."""
        self._signals.setblocking(False)
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, self._stop_on_signal)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every part, the last first."""
        try:
            self._stop_all()
        finally:
            signal.set_wakeup_fd(-1)
            self._signals.close()
            self._wake.close()

    @property
    def stopping(self) -> bool:
        """Return whether a signal asked for the end."""
        return self._stopping

    def start(self, part: Part) -> None:
        """Start a part and keep it running from now on."""
        self._parts.append(part)
        self._begin(part)

    def run(self, ready: Callable[[], bool], announce: Callable[[], None]) -> None:
        """Supervise until a signal comes; call `announce` once, when `ready` says so.

        Raises Refused when a part says that its input is bad (exit code 2) before all was ready.
        """
        while not self._stopping:
            self._look()
            if not self._settled and ready():
                self._settled = True
                announce()
            self._wait(self._pause())

    def _look(self) -> None:
        for part in self._parts:
            code = part.ended()
            now = self._clock.monotonic()
            if part.name in self._due:
                if now >= self._due[part.name]:
                    del self._due[part.name]
                    self._begin(part)
            elif code is not None:
                processes.forget(self._run_dir, part.name)
                if code == _BAD_INPUT and not self._settled:
                    raise Refused(f"`nodus {part.name}` refused to start: see its message above.")
                _log.warning(
                    "A part ended and is started again",
                    extra={"part": part.name, "exit_code": code},
                )
                self._due[part.name] = now + RESTART_SECONDS

    def _begin(self, part: Part) -> None:
        try:
            pid = part.start()
        except StorageError as error:
            if not self._settled:
                raise
            _log.error("A part does not start", extra={"part": part.name, "problem": str(error)})
            self._due[part.name] = self._clock.monotonic() + RESTART_SECONDS
            return
        processes.record(self._run_dir, part.name, pid)
        _log.info("A part was started", extra={"part": part.name, "pid": pid})

    def _pause(self) -> float:
        due = [at - self._clock.monotonic() for at in self._due.values()]
        return max(0.0, min([_LOOK_SECONDS if self._settled else 0.05, *due]))

    def _wait(self, seconds: float) -> None:
        readable, _, _ = select.select([self._signals], [], [], seconds)
        if readable:
            self._signals.recv(4096)

    def _stop_on_signal(self, number: int, _frame: FrameType | None) -> None:
        _log.info("Stopping", extra={"signal": signal.Signals(number).name})
        self._stopping = True

    def _stop_all(self) -> None:
        for part in reversed(self._parts):
            part.ask_to_stop()
        deadline = self._clock.monotonic() + STOP_SECONDS
        for part in reversed(self._parts):
            try:
                part.stop(max(0.1, deadline - self._clock.monotonic()))
            except StorageError as error:
                _log.error("A part does not stop", extra={"part": part.name, "problem": str(error)})
            processes.forget(self._run_dir, part.name)
            _log.info("A part was stopped", extra={"part": part.name, "exit_code": part.ended()})
