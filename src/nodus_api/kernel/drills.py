"""Drills: losses made on purpose, and which loss is put down to one (SC-012, SC-630).

A drill acts through the supplier, so the loss takes the path of a real one. What tells them
apart is the row that was written before the fault was made: while it is in force, a loss of
the Attempt is the drill's.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.deadlines import LOST_IF_VOUCHED_AFTER
from nodus_api.kernel.events import CapacityLost
from nodus_api.kernel.vocabulary import Reason, Stage, Trigger

MARGIN = timedelta(seconds=120)
"""How long after its notice a drill is void: a loss that comes later is a real one."""
LONGEST_NOTICE = timedelta(hours=1)


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
        """When what was not lost by it is not lost by it any more.

        120 s after the notice. A frozen runner is borne for 600 s while its supplier vouches
        for the machine (SC-614), so its drill lasts as much longer.
        """
        silence = LOST_IF_VOUCHED_AFTER if self.loss is Loss.HEARTBEAT else timedelta(0)
        return self.since + (self.notice or timedelta(0)) + silence + MARGIN

    def in_force(self, stage: Stage, now: datetime) -> bool:
        """Whether a loss in this stage would be the drill's."""
        return now < self.void_at and stage in _STAGES[self.loss]

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
    if drill is None or not drill.in_force(attempt.stage, now):
        return event
    at = event.at
    if event.trigger is Trigger.HEARTBEAT_LOSS:
        at = attempt.last_heartbeat or at
    return replace(event, at=at, trigger=Trigger.DRILL, reason=drill.reason)
