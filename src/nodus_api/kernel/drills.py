"""Drills: losses made on purpose, and which loss is put down to one (SC-012, SC-630).

A drill acts through the supplier, so the loss takes the path of a real one. What tells them
apart is the row that was written before the fault was made: while it is in force, a loss of
the Attempt is the drill's.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.events import CapacityLost
from nodus_api.kernel.vocabulary import Reason, Stage, Trigger

MARGIN = timedelta(seconds=120)
"""How long after its notice a drill is void: a loss that comes later is a real one."""
LONGEST_NOTICE = timedelta(hours=1)
USUAL_NOTICE = timedelta(seconds=30)

_DRAWS = 1 << 48
_LONGEST_WAIT = timedelta(days=366)


class Loss(StrEnum):
    """What a drill simulates; the names of the command line."""

    PREEMPTION = "preemption"
    NODE_LOSS = "node-loss"
    HEARTBEAT = "heartbeat"
    READINESS = "readiness"


_REASONS = {
    Loss.PREEMPTION: Reason.PREEMPTED,
    Loss.NODE_LOSS: Reason.NODE_LOST,
    Loss.HEARTBEAT: Reason.NODE_LOST,
    Loss.READINESS: Reason.READINESS_FAILED,
}
_STAGES = {
    Loss.PREEMPTION: (Stage.STARTING, Stage.RUNNING),
    Loss.NODE_LOSS: (Stage.STARTING, Stage.RUNNING),
    Loss.HEARTBEAT: (Stage.RUNNING,),
    Loss.READINESS: (Stage.STARTING,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A loss that was asked for at `since`. `made`: the supplier has said that it made the fault.

    `notice` is a preemption's; None for the others.
    """

    loss: Loss
    since: datetime
    notice: timedelta | None = None
    made: bool = False

    @property
    def reason(self) -> Reason:
        """The reason of the loss simulated."""
        return _REASONS[self.loss]

    @property
    def void_at(self) -> datetime:
        """When its fault must have shown: 120 s after the notice."""
        return self.since + (self.notice or timedelta(0)) + MARGIN

    def in_force(self, attempt: Attempt, now: datetime) -> bool:
        """Whether a loss of the Attempt now would be the drill's."""
        if attempt.stage not in _STAGES[self.loss]:
            return False
        return now < self.void_at or self._silences(attempt)

    def _silences(self, attempt: Attempt) -> bool:
        """Whether a runner that was frozen has said nothing since: that is borne for 600 s.

        While the supplier vouches for the machine (SC-614), and longer after a time without a
        leader.
        """
        frozen = self.loss is Loss.HEARTBEAT and self.made
        return frozen and (attempt.last_heartbeat or self.since) < self.void_at

    def to_text(self) -> str:
        """Return `LOSS/NOTICE/made` as it is stored beside `since`; the notice in seconds."""
        seconds = "" if self.notice is None else str(self.notice // timedelta(seconds=1))
        return f"{self.loss}/{seconds}/{'made' if self.made else ''}"

    @classmethod
    def of_text(cls, text: str, since: datetime) -> "Drill":
        """Return the drill that was stored; raises ValueError."""
        loss, seconds, made = text.split("/")
        notice = timedelta(seconds=int(seconds)) if seconds else None
        return cls(loss=Loss(loss), since=since, notice=notice, made=bool(made))


def stages_of(loss: Loss) -> tuple[Stage, ...]:
    """Return the stages from which an Attempt can be lost so (SC-012)."""
    return _STAGES[loss]


def refusal(attempt: Attempt, loss: Loss) -> str | None:
    """Return why an Attempt cannot be drilled so now, and what to do; None if it can (SC-012)."""
    if attempt.drain is not None:
        return "it is being stopped already: drill the Attempt that follows it"
    if attempt.stage in _STAGES[loss]:
        return None
    stages = " or ".join(_STAGES[loss])
    if not attempt.live:
        return f"it has ended ({attempt.stage}): drill an Attempt that is {stages}"
    if loss is Loss.READINESS and attempt.stage is Stage.RUNNING:
        return "it is Running, and readiness is checked before that: drill it with node-loss"
    return f"it is {attempt.stage}: a {loss} drill is for one that is {stages}, so ask again then"


def put_down(
    event: CapacityLost, attempt: Attempt, drill: Drill | None, now: datetime
) -> CapacityLost:
    """Return a loss as the drill's, with the reason of what it simulates, if one is in force.

    It keeps its time: a silence ends the Attempt at its last heartbeat (SC-015).
    """
    if drill is None or not drill.in_force(attempt, now):
        return event
    at = event.at
    if event.trigger is Trigger.HEARTBEAT_LOSS:
        at = attempt.last_heartbeat or at
    return replace(event, at=at, trigger=Trigger.DRILL, reason=drill.reason)


def next_drill(seed: int, after: datetime, per_hour: Decimal) -> datetime:
    """Return when a schedule's next drill is, in whole seconds: at random, `per_hour` on average.

    By a hash of seed and `after`, so that the same seed gives the same drills (SC-630).
    """
    share = (_draw(seed, after.isoformat()) + 1) / (_DRAWS + 1)  # above 0, at most 1
    wait = timedelta(seconds=max(1, round(-math.log(share) * 3600 / float(per_hour))))
    return after.replace(microsecond=0) + min(wait, _LONGEST_WAIT)


def drawn(seed: int, at: datetime, names: Iterable[str]) -> str | None:
    """Return which of several Attempts a schedule's drill is for; None of none.

    It hangs on seed, moment and the names alone, in whatever order they come.
    """
    return min(
        names, key=lambda name: (_draw(seed, f"{at.isoformat()}/{name}"), name), default=None
    )


def _draw(seed: int, text: str) -> int:
    return int.from_bytes(sha256(f"{seed}/{text}".encode()).digest()[:6])
