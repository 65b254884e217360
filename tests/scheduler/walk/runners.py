"""What runs on the machines: runners that say what real ones would, one word at a time."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from tests.scheduler.walk.supplier import Made

from nodus_api.scheduler.intents import token_hash
from nodus_api.storage.checkpoint_store import Verdict
from nodus_api.storage.engine import Database
from nodus_api.storage.report_store import GivenReport, ReportStore, Standing


class Phase(Enum):
    """How far a runner is."""

    NEW = auto()
    REGISTERED = auto()
    GRANTED = auto()
    """The program runs; nobody was told yet."""
    RUNNING = auto()
    ENDED = auto()
    """The program has ended, or cannot start; nobody was told yet."""
    TOLD = auto()
    DEAD = auto()


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a program truly ended."""

    at: datetime
    code: int | None
    signal: int | None = None
    oom: bool = False
    stopped_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A report as it left, and when what it tells of was."""

    n: int
    kind: str
    event: datetime
    body: dict[str, Any]


@dataclass
class Runner:
    """One machine's runner and its program."""

    made: Made
    phase: Phase = Phase.NEW
    n: int = 0
    last_seq: int = 0
    commits: int = 0
    started: datetime | None = None
    stop_at: datetime | None = None
    exit: Exit | None = None
    registered: bool = False
    """Whether a report of its registration was ever taken."""
    proposed: Sent | None = None
    """The checkpoint that waits, for a rank's peers say: it is proposed again and again."""
    unanswered: Sent | None = None
    """The report in flight: it is said again before any other."""
    kept: list[Sent] = field(default_factory=list)
    """Reports that were taken: a repeat of them changes nothing."""

    @property
    def works(self) -> bool:
        """Whether the program runs."""
        return self.phase in (Phase.GRANTED, Phase.RUNNING)

    @property
    def speaks(self) -> bool:
        return not self.made.frozen and self.phase not in (Phase.TOLD, Phase.DEAD)

    def begin(self, now: datetime) -> None:
        self.phase, self.started = Phase.GRANTED, now

    def end(self, exit_: Exit) -> None:
        self.phase, self.exit, self.proposed = Phase.ENDED, exit_, None

    def kill(self, now: datetime) -> None:
        """End everything here at once, as with its machine."""
        if self.works:
            self.exit = Exit(at=now, code=137, signal=9)
        self.phase, self.proposed = Phase.DEAD, None

    def obey(self, now: datetime) -> None:
        """Take an order to stop: the program is told, or is not begun."""
        if self.stop_at is None and self.speaks and self.phase is not Phase.ENDED:
            self.stop_at = now
            if not self.works:
                self.end(Exit(at=now, code=None, stopped_at=now))

    def word(self, now: datetime) -> Sent:
        """Return what the runner has to say next."""
        if self.unanswered is not None:
            return self.unanswered
        if self.made.unfit and self.phase in (Phase.NEW, Phase.REGISTERED):
            return self.says("registered", now, checks={"failed": ["unfit"]})
        match self.phase:
            case Phase.NEW:
                return self.says("registered", now, checks={}, pullMs=1500)
            case Phase.REGISTERED:
                return self.says("canStart", now)
            case Phase.GRANTED:
                return self.says("started", self.started or now)
            case Phase.ENDED:
                return self.says_exit(now)
            case Phase.RUNNING if self.proposed is not None:
                return self.says("checkpoint", self.proposed.event, **self.proposed.body)
            case _:
                return self.says("heartbeat", now)

    def says(self, kind: str, event: datetime, **body: Any) -> Sent:
        self.n += 1
        return Sent(n=self.n, kind=kind, event=event, body=body)

    def says_exit(self, now: datetime) -> Sent:
        assert self.exit is not None
        body: dict[str, Any] = {
            "exitCode": self.exit.code, "signal": self.exit.signal, "oom": self.exit.oom,
        }  # fmt: skip
        if self.exit.error is not None:
            body["error"] = self.exit.error
        if self.started is not None:
            body["startAgeMs"] = _ms(now - self.started)
        if self.exit.stopped_at is not None:
            body["stopAgeMs"] = _ms(now - self.exit.stopped_at)
        return self.says("exited", self.exit.at, **body)

    def checkpoint(self, now: datetime, seq: int) -> Sent:
        text = f"{self.made.intent.attempt_uid.hex}{seq:032x}"
        done = {"completed": min(self.commits, 9), "total": 10}
        where = {"bytes": 10, "uri": f"file:/{seq}", "sha256": text, "cursor": done}
        return self.says("checkpoint", now, seq=seq, **where)

    def hear(self, sent: Sent, standing: Standing | None, now: datetime) -> None:
        """Do what the answer to a report says."""
        self.unanswered = None
        orders = {order["kind"] for order in standing.orders} if standing else set()
        if standing is None or not standing.current or "die" in orders:
            self.kill(now)
            return
        if standing.verdict is not Verdict.REFUSED:
            self.kept.append(sent)
        if "stop" in orders:
            self.obey(now)
        match sent.kind:
            case "registered" if self.phase is Phase.NEW:
                self.phase = Phase.REGISTERED
            case "canStart" if self.phase is Phase.REGISTERED:
                self.last_seq = standing.last_seq
                if standing.won:
                    self.begin(now)
            case "started" if self.phase is Phase.GRANTED:
                self.phase = Phase.RUNNING
            case "exited":
                self.phase = Phase.TOLD
            case "checkpoint":
                self._saved(sent, standing)
            case _:
                pass

    def _saved(self, sent: Sent, standing: Standing) -> None:
        self.proposed = None
        if standing.verdict is Verdict.COMMITTED:
            self.last_seq = max(self.last_seq, sent.body["seq"])
            self.commits += 1
        elif standing.verdict is Verdict.REFUSED:
            self.last_seq = standing.last_seq
        elif self.works:
            self.proposed = sent  # its answer comes later: it is asked for again


async def deliver(
    database: Database, runner: Runner, sent: Sent, now: datetime, *, age: timedelta | None = None
) -> Standing | None:
    """Bring a report to the desk; the runner hears nothing of the answer here."""
    intent = runner.made.intent
    report = GivenReport(
        attempt=intent.attempt_uid,
        epoch=intent.epoch,
        n=sent.n,
        kind=sent.kind,
        age=now - sent.event if age is None else age,
        body=sent.body,
    )
    standing = await ReportStore(database).accept(token_hash(intent.token), report)
    if sent.kind == "registered" and standing is not None and standing.current:
        runner.registered = True
    return standing


def _ms(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)
