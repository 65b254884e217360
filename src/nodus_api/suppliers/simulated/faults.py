"""Which faults a fleet has: each by a probability, by a script, or both (SC-732)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from nodus_api.suppliers.simulated.chance import Chance


class FaultKind(StrEnum):
    """What goes wrong, and how often it is drawn."""

    CREATE_LOST = "create lost"
    """A create: Ambiguous, and nothing was made."""
    CREATE_UNANSWERED = "create unanswered"
    """A create: Ambiguous, and the machine was made; a look shows it after the visibility delay."""
    CREATE_SLOW = "create slow"
    """A create takes 5 to 60 s: past 30 s it is Ambiguous, and the machine is made later."""
    NOTICE_TWICE = "notice twice"
    """A look at the notices tells one of them twice."""
    NOTICE_EMPTY = "notice empty"
    """A machine, once: a reclaim is announced and does not come (scenario 23)."""
    ZOMBIE = "zombie"
    """A loss: the supplier calls the machine failed, and its runner goes on."""
    REPORT_LATE = "report late"
    """A report: its answer is lost, and a copy of it arrives up to 5 min later."""
    REPORT_REORDERED = "report reordered"
    """A heartbeat arrives after reports that were sent later."""
    CLOCK_SKEW = "clock skew"
    """A machine: the times that are told of it are up to 120 s off."""
    LIST_EMPTY = "list empty"
    """A list or an observation shows nothing (scenario 39)."""
    DELETE_IGNORED = "delete ignored"
    """A machine: the first one to five deletes do nothing (scenario 38)."""
    DELETED_BACK = "deleted back"
    """A machine: the first look after its delete calls it gone, and it is still there."""
    RATE_LIMIT = "rate limit"
    """A call: refused, and a pause of 5 to 30 s is asked for."""
    AUTH_LOST = "auth lost"
    """A create: the credentials are refused."""
    BOOT_STUCK = "boot stuck"
    """A machine runs and is billed, and its runner never speaks (scenario 11)."""
    READINESS_LIE = "readiness lie"
    """A machine runs, and its runner finds less than was promised (scenario 12)."""
    HEARTBEAT_GAP = "heartbeat gap"
    """A program's run: its runner is silent for 30 to 900 s (scenarios 24, 25)."""
    EXIT_UNREPORTED = "exit unreported"
    """A program's end: no report tells of it, the record on the machine does (SC-644)."""
    EXIT_LOST = "exit lost"
    """A program's end: neither report nor record tells of it; the machine is called failed."""
    NODE_LOST = "node lost"
    """Scripted alone: every machine that matches dies. By chance: `ClassModel.losses_per_hour`."""
    RECLAIMED = "reclaimed"
    """Scripted alone: every machine that matches is reclaimed, after its class's notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """A fault that happens to whatever matches, from `at` until `until`, since the start.

    `match` is a pattern of names as `project/owner/slot/epoch`, or of keys; NODE_LOST and
    RECLAIMED happen at `at` alone.
    """

    kind: FaultKind
    at: timedelta = timedelta(0)
    until: timedelta | None = None
    match: str = "*"

    def hits(self, kind: FaultKind, since_start: timedelta, names: tuple[str, ...]) -> bool:
        """Return whether it happens to what has these names."""
        if kind is not self.kind or since_start < self.at:
            return False
        return (self.until is None or since_start < self.until) and self.matches(names)

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return whether it is meant for what has these names."""
        return any(fnmatchcase(name, self.match) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What goes wrong on a fleet; the default is nothing."""

    rates: Mapping[FaultKind, float] = field(default_factory=dict)
    """The probability of each kind."""
    scripts: tuple[Scripted, ...] = ()

    @classmethod
    def every(cls, rate: float) -> "FaultPlan":
        """Return a plan of all kinds that chance can draw, each of this probability."""
        scripted = (FaultKind.NODE_LOST, FaultKind.RECLAIMED)
        return cls(rates={kind: rate for kind in FaultKind if kind not in scripted})

    def possible(self, kind: FaultKind) -> bool:
        """Return whether a kind can happen at all."""
        return self.rates.get(kind, 0.0) > 0 or any(one.kind is kind for one in self.scripts)

    def hits(
        self, kind: FaultKind, chance: Chance, since_start: timedelta, *, names: tuple[str, ...]
    ) -> bool:
        """Return whether a fault happens; `chance` is of the very occasion."""
        if any(one.hits(kind, since_start, names) for one in self.scripts):
            return True
        return chance.happens(kind, self.rates.get(kind, 0.0))

    def sped_up(self, factor: float) -> "FaultPlan":
        """Return the same plan with its scripts so many times as fast."""
        return replace(
            self,
            scripts=tuple(
                replace(one, at=one.at / factor, until=one.until and one.until / factor)
                for one in self.scripts
            ),
        )
