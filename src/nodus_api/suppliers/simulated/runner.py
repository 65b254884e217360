"""One machine's runner and its program: what they do, and what they report (SC-640 to SC-644).

It speaks as `nodus-runner` does: one report in flight, in order of n, repeated until it is
answered; a start that is not granted is asked for again; a stale epoch ends the program.
"""

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from nodus_api.suppliers.simulated.programs import ProgramModel
from nodus_api.suppliers.simulated.reports import Answer, Letter
from nodus_api.suppliers.simulated.surroundings import Surroundings
from nodus_api.suppliers.simulated.timetable import Timers
from nodus_api.suppliers.supplier import ExitRecord, MachineIntent, Order

STEPS = 1000
"""Units of a program's work, of which its cursor tells how many are done."""
_RETRY = timedelta(seconds=1)
_PATIENCE = timedelta(seconds=10)
"""How long an answer is waited for before a report is repeated."""
_KILLED = 9
_SIGNALLED = 128
_GIB = 1 << 30
_SHORTEST = timedelta(seconds=1)


class Phase(Enum):
    """How far a runner is."""

    BOOTING = auto()
    REGISTERING = auto()
    ASKING = auto()
    RUNNING = auto()
    ENDED = auto()
    """The program is over, or will never start; what is left to say is said."""
    DEAD = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a program truly ended; `error` is set, without a code, if it never started."""

    at: datetime
    code: int | None
    signal: int | None = None
    oom: bool = False
    started: datetime | None = None
    stopped: datetime | None = None
    restored: int | None = None
    error: str | None = None
    message: str = ""

    def record(self, skew: timedelta) -> ExitRecord:
        """Return it as the runner leaves it on the machine, by a clock that is `skew` off."""
        return ExitRecord(
            at=self.at + skew,
            exit_code=self.code,
            signal=self.signal,
            oom=self.oom,
            started_age=_age(self.at, self.started),
            stop_age=_age(self.at, self.stopped),
            restored_bytes=self.restored,
            message=self.message,
            error=self.error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a runner's steps take, as drawn for this run."""

    pull: timedelta
    restore: timedelta
    heartbeat: timedelta
    save_every: timedelta | None
    saving: timedelta
    """How long the program stands still at each checkpoint."""


class Runner:
    """The runner of one intent on one machine, and the program under it."""

    def __init__(
        self,
        intent: MachineIntent,
        program: ProgramModel,
        pace: Pace,
        *,
        surroundings: Surroundings,
        timers: Timers,
    ) -> None:
        self.intent = intent
        self.phase = Phase.BOOTING
        self.exit: Exit | None = None
        self.begun: datetime | None = None
        self.stop_at: datetime | None = None
        self.refused: list[Answer] = []
        """Reports that the desk would not read; an honest runner has none."""
        self._program = program
        self._pace = pace
        self._around = surroundings
        self._timers = timers
        self._n = 0
        self._seq = 0
        self._queue: deque[Letter] = deque()
        self._flight: Letter | None = None

    # -- what happens to it -------------------------------------------------------------------

    def boot(self, at: datetime) -> None:
        """Say the first word."""
        self.phase = Phase.REGISTERING
        checks = {"failed": ["accelerators"]} if self._around.unfit() else {}
        self._say("registered", at, at, checks=checks, pullMs=self._pace.pull / _SHORTEST * 1000)

    def obey(self, order: Order, at: datetime) -> None:
        """Take an order (SC-641)."""
        match order.kind:
            case "stop":
                self._stop(order.grace, at)
            case "die":
                self.kill(at)
            case "checkpointNow" if self._saves:
                self._save(at)

    def kill(self, at: datetime) -> None:
        """End runner and program at once, with no last word."""
        self._timers.stop_all()
        self._queue.clear()
        self._flight = None
        if self.phase is Phase.RUNNING:
            self._note_end(Exit(at=at, code=_SIGNALLED + _KILLED, signal=_KILLED), at)
        self.phase = Phase.DEAD

    @property
    def works(self) -> bool:
        """Whether the program runs."""
        return self.phase is Phase.RUNNING

    @property
    def cursor(self) -> tuple[int, int] | None:
        """The work that was done before this run, and the whole; None if it began anew."""
        point = self.intent.incarnation.restore
        if point is None or point.completed is None or not point.total:
            return None
        return point.completed, point.total

    # -- what it hears ------------------------------------------------------------------------

    def hear(self, letter: Letter, answer: Answer, at: datetime) -> None:
        """Take the answer to a report; one that is no longer waited for says nothing."""
        if self.phase is Phase.DEAD or letter is not self._flight:
            return
        self._timers.stop("repeat")
        if answer.outdated:
            self.kill(at)
            return
        if answer.status >= 500 or answer.status == 429:
            self._timers.set("repeat", at + _RETRY, self._repeat)
            return
        self._flight = None
        if answer.taken:
            self._answered(letter, answer.body, at)
            for order in answer.body.get("orders", ()):
                self.obey(_order(order), at)
        elif letter.kind == "checkpoint" and answer.last_seq is not None:
            self._seq = answer.last_seq
        else:
            self.refused.append(answer)
        self._send(at)

    def _answered(self, letter: Letter, body: Mapping[str, Any], at: datetime) -> None:
        match letter.kind:
            case "registered" if self.phase is Phase.REGISTERING:
                self.phase = Phase.ASKING
                self._timers.set("ask", at + self._pace.restore, self._ask)
            case "canStart" if self.phase is Phase.ASKING and body.get("granted"):
                self._seq = int(body.get("lastSeq", 0))
                self._start(at)
            case "canStart" if self.phase is Phase.ASKING:
                self._timers.set("ask", at + _retry(body), self._ask)
            case "checkpoint" if "committed" in body:
                self._seq = max(self._seq, int(body["committed"]))
            case "checkpoint" if self.works and letter.body["seq"] > self._seq:
                # it is kept and waits for the loop, or for the ranks: asked for again, as it was
                self._queue.appendleft(letter)
                self._flight = self._queue.popleft()
                self._timers.set("repeat", at + _retry(body), self._repeat)
            case _:
                pass

    def gave_up(self, letter: Letter, at: datetime) -> None:
        """Wait for no answer to a heartbeat that is lost on its way."""
        if letter is self._flight:
            self._flight = None
            self._send(at)

    def expect(self, at: datetime) -> None:
        """Repeat the report in flight, unless it is answered in time."""
        self._timers.set("repeat", at + _PATIENCE, self._repeat)

    # -- the program --------------------------------------------------------------------------

    def _ask(self, at: datetime) -> None:
        point = self.intent.incarnation.restore
        if point is not None and not self._around.keeps(point.uri):
            self._fail("CheckpointUnavailable", "the checkpoint is not there", at)
        else:
            self._say("canStart", at, at)

    def _start(self, at: datetime) -> None:
        if self._program.error is not None:
            self._fail(self._program.error, self._program.message, at)
            return
        self.phase, self.begun = Phase.RUNNING, at
        self._around.started(self, at)
        restored = {"restoreBytes": self.bytes} if self.intent.incarnation.restore else {}
        self._say("started", at, at, **restored)
        self._timers.set("beat", at + self._pace.heartbeat, self._beat)
        if self._saves:
            self._timers.set("save", at + self._every, self._save_on_time)
        left = self._left()
        if left is not None:
            self._timers.set("end", at + left * self._program.ends_at, self._end)

    def _end(self, at: datetime) -> None:
        program = self._program
        self._over(Exit(at=at, code=program.exit_code, signal=program.signal, oom=program.oom), at)

    def _fail(self, error: str, message: str, at: datetime) -> None:
        self._over(Exit(at=at, code=None, error=error, message=message), at)

    def _stop(self, grace: timedelta | None, at: datetime) -> None:
        """Pass a stop signal on, and kill what is still there after the grace (SC-641)."""
        if self.stop_at is not None or self.phase in (Phase.ENDED, Phase.DEAD):
            return
        self.stop_at = at
        if not self.works:
            self._over(Exit(at=at, code=None), at)
            return
        longest = self.intent.program.stop_grace if grace is None else grace
        takes = self._program.stopping
        if self._program.on_stop is None or takes > longest:
            self._timers.set("stop", at + longest, self._killed_after_grace)
            return
        if self._saves:
            self._save(at)
        self._timers.set("stop", at + takes, self._stopped)

    def _stopped(self, at: datetime) -> None:
        self._over(Exit(at=at, code=self._program.on_stop), at)

    def _killed_after_grace(self, at: datetime) -> None:
        self._over(Exit(at=at, code=_SIGNALLED + _KILLED, signal=_KILLED), at)

    def _over(self, exit_: Exit, at: datetime) -> None:
        """Note how it ended, and say so unless the fleet lets the word be lost."""
        for name in ("end", "stop", "save", "beat", "ask"):
            self._timers.stop(name)
        self._note_end(exit_, at)
        ended = self.exit
        assert ended is not None  # noqa: S101 - noted just now
        body: dict[str, Any] = {"oom": ended.oom, "message": ended.message}
        body |= {"exitCode": ended.code, "signal": ended.signal, "error": ended.error}
        body |= {"startAgeMs": ended.started, "stopAgeMs": ended.stopped}
        body["restoreBytes"] = ended.restored
        said = {name: value for name, value in body.items() if value is not None}
        self._queue = deque(one for one in self._queue if one.kind == "started")
        if self._flight is not None and self._flight.kind == "checkpoint":
            self._flight = None  # it is kept, and applied before what follows; or came to nothing
            self._timers.stop("repeat")
        self._say("exited", at, at, **said)

    def _note_end(self, exit_: Exit, at: datetime) -> None:
        restored = self.bytes if self.begun and self.intent.incarnation.restore else None
        self.exit = Exit(
            at=exit_.at,
            code=exit_.code,
            signal=exit_.signal,
            oom=exit_.oom,
            started=self.begun,
            stopped=self.stop_at,
            restored=restored,
            error=exit_.error,
            message=exit_.message,
        )
        self.phase = Phase.ENDED
        self._around.ended(self, at)

    # -- work and what is saved of it ---------------------------------------------------------

    @property
    def bytes(self) -> int:
        """The size of this slot's checkpoints, 1 to 16 GiB."""
        own = self.intent.incarnation
        return (1 + hashlib.sha256(f"{own.workload}/{own.slot}".encode()).digest()[0] % 16) * _GIB

    @property
    def _saves(self) -> bool:
        return self._pace.save_every is not None and self.works

    @property
    def _every(self) -> timedelta:
        return max(self._pace.save_every or _SHORTEST, _SHORTEST)

    def _left(self) -> timedelta | None:
        """Return how long the rest of the work takes, the stops for checkpoints included."""
        length = self._program.length
        if length is None:
            return None
        done = self.cursor
        if done is not None:
            length *= 1 - done[0] / done[1]
        if self._saves:
            length *= 1 + self._pace.saving / self._every
        return length

    def _done(self, at: datetime) -> dict[str, int] | None:
        """Return the cursor at a moment; None for a program that never ends."""
        left = self._left()
        if left is None or self.begun is None:
            return None
        before = self.cursor
        share = before[0] / before[1] if before else 0.0
        run = min(1.0, (at - self.begun) / left) if left else 1.0
        return {"completed": int(STEPS * (share + (1 - share) * run)), "total": STEPS}

    def _save_on_time(self, at: datetime) -> None:
        self._save(at)
        self._timers.set("save", at + self._every, self._save_on_time)

    def _save(self, at: datetime) -> None:
        """Write a checkpoint and propose it, unless one waits already (SC-142)."""
        waiting = (*self._queue, *((self._flight,) if self._flight else ()))
        if any(one.kind == "checkpoint" for one in waiting):
            return
        own, seq = self.intent.incarnation, self._seq + 1
        uri = f"simulated:///{own.workload}/{own.slot}/{self.intent.epoch}/{seq}"
        self._around.saved(self, uri)
        cursor = self._done(at)
        self._say(
            "checkpoint",
            at,
            at,
            seq=seq,
            bytes=self.bytes,
            uri=uri,
            sha256=hashlib.sha256(uri.encode()).hexdigest(),
            **({"cursor": cursor} if cursor else {}),
        )

    # -- what it says -------------------------------------------------------------------------

    def _beat(self, at: datetime) -> None:
        self._timers.set("beat", at + self._pace.heartbeat, self._beat)
        if self._flight is None and not self._around.silent(at):
            cursor = self._done(at)
            works = {"cursor": cursor, "activeAgeMs": 0} if cursor else {}
            self._say("heartbeat", at, at, **works)

    def _say(self, kind: str, event: datetime, at: datetime, **body: Any) -> None:
        self._n += 1
        self._queue.append(Letter(self, self._n, kind, event, body))
        self._send(at)

    def _send(self, at: datetime) -> None:
        if self._flight is None and self._queue and self.phase is not Phase.DEAD:
            self._flight = self._queue.popleft()
            self._around.post(self._flight, at)

    def _repeat(self, at: datetime) -> None:
        if self._flight is not None:
            self._around.post(self._flight, at)


def _order(given: Mapping[str, Any]) -> Order:
    grace = given.get("graceMs")
    return Order(
        kind=str(given.get("kind")),
        grace=None if grace is None else timedelta(milliseconds=float(grace)),
    )


def _retry(body: Mapping[str, Any]) -> timedelta:
    return timedelta(milliseconds=float(body.get("retryMs", 200)))


def _age(now: datetime, at: datetime | None) -> float | None:
    return None if at is None else (now - at).total_seconds()
