"""Facts that move an Attempt, each with its moment (SC-004).

`at` is the event's own time, already clamped by the caller to at most what the
database clock shows (SC-615); `advance` floors it to whole seconds (SC-005) and
clamps it to its lower neighbour (SC-006).
"""

from dataclasses import dataclass
from datetime import datetime

from nodus_api.kernel.vocabulary import Reason, Trigger, WaitingFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one Attempt."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(Event):
    """T2: the loop takes the Attempt up; `start_deadline` is kept from the first claim."""

    start_deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(Event):
    """A Queued Attempt waits, and says for what (SC-009a, SC-009b); no change of stage.

    A wait for Funds, Quota or Backoff until `until` moves the start deadline (T8).
    """

    waiting_for: WaitingFor
    message: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Event):
    """T3: a placement was chosen and its machine intended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOffering(Event):
    """T4: nothing feasible now; the next try is at `until`, as in `Waits`."""

    waiting_for: WaitingFor
    message: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaceable(Event):
    """T5: nothing feasible ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireFailed(Event):
    """T6: no machine was granted; its absence is proven or its deletion queued."""

    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityGranted(Event):
    """T7: the supplier runs the machine, billing since `billing_start` (SC-503).

    None when the supplier does not say: then since `at`, the grant's answer.
    """

    billing_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDeadlinePassed(Event):
    """T8: limits.startDeadlineSeconds is over.

    From Acquiring it begins a drain (SC-006a), which StopCompleted ends: at once if
    create was never called, else when the machine is granted or proven absent.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(Event):
    """T9: the machine registered and passed readiness."""

    pull_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStarted(Event):
    """T10: the program started; `restore_bytes` is what was read if it resumes.

    For a hedged Attempt the other three are the winner's (SC-342); else None.
    """

    restore_bytes: int | None = None
    billing_start: datetime | None = None
    registered: datetime | None = None
    pull_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFault(Event):
    """T11: the start failed by the customer's or Nodus's fault."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLost(Event):
    """T12, T15: capacity was lost; `at` is the loss itself (SC-015)."""

    trigger: Trigger
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Event):
    """The program ended. `stopped`: it had been signalled by then (SC-013, SC-641).

    T13, T14; while draining and stopped, the drain's outcome (T15 or T17); stopped by no
    order of ours, the loss of its machine (T15), whatever the program made of the signal. A
    death by `signal` (1 to 64) has the exit code 128 + signal, whatever is given (SC-009).
    """

    exit_code: int
    signal: int | None = None
    oom: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFault(Event):
    """T14: DeadlineExceeded or InternalError ends a program that is not draining."""

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(Event):
    """A stop is ordered: T16 when queued, else a drain begins (SC-013).

    A notice is a stop too: trigger PreemptionNotice, reason Preempted. `trigger` is
    None for a release that no interruption caused. While draining already, the
    first cause keeps reason and bill; a notice can only bring the deadline nearer.
    """

    trigger: Trigger | None
    reason: Reason
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSignalled(Event):
    """The stop order reached the runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCleared(Event):
    """A notice came to nothing: its stop order never arrived, the machine is ours (SC-013)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCompleted(Event):
    """T17 (T12 or T15 for a notice, T8 for a deadline): the drain is over.

    The program ended or never started, or the drain's time is up; then `at` is
    `deadlines.drain_end`.
    """

    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Event):
    """The runner gave a sign of life; no change of stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted(Event):
    """A checkpoint of this Attempt was committed; no change of stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionProven(Event):
    """T18: every machine of the Attempt is proven gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded(Event):
    """T19: the successor's row exists."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Event):
    """A later epoch's program started at `at`; completes recoverySeconds (SC-016)."""
