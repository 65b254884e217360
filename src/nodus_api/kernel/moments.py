"""When an event counts as having happened: the moment that a milestone gets.

Whole seconds (SC-005), by the best evidence (SC-015, SC-503), and never before the
milestone below it: an event that would break the order is clamped to it (SC-006).
"""

from dataclasses import replace
from datetime import datetime

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.events import (
    AcquireFailed,
    CapacityGranted,
    CapacityLost,
    CheckpointCommitted,
    Claimed,
    CommandStarted,
    DeletionProven,
    Event,
    Heartbeat,
    NoOffering,
    NoticeCleared,
    Placed,
    Recovered,
    Registered,
    StartDeadlinePassed,
    StopRequested,
    StopSignalled,
    Superseded,
    Waits,
)
from nodus_api.kernel.vocabulary import Stage, Trigger

_QUEUED = (Stage.PENDING, Stage.PLACING)


def moment(attempt: Attempt, event: Event) -> datetime:
    """Return when the event took place, in whole seconds and in order (SC-005, SC-006)."""
    own = floored(_own_time(attempt, event))
    return max(own, _neighbour(attempt, event) or own)


def clamped(attempt: Attempt, event: Event) -> bool:
    """Whether the event's own time lies before its lower neighbour (SC-006).

    The loop counts these; nothing is refused for it.
    """
    neighbour = _neighbour(attempt, event)
    return neighbour is not None and floored(_own_time(attempt, event)) < neighbour


def floored(at: datetime) -> datetime:
    """Return the whole second that has begun (SC-005)."""
    return at.replace(microsecond=0)


def with_winner(attempt: Attempt, event: CommandStarted) -> Attempt:
    """Return the Attempt before its start, with the milestones of the machine that won (SC-342)."""
    acquired = attempt.acquired or attempt.queued
    billed = max(floored(event.billing_start or attempt.billing_start or acquired), acquired)
    registered = event.registered or attempt.registered
    return replace(
        attempt,
        billing_start=billed,
        registered=None if registered is None else max(floored(registered), billed),
    )


def _own_time(attempt: Attempt, event: Event) -> datetime:
    """Return when the event took place, by the best evidence (SC-015, SC-503)."""
    match event:
        case CapacityGranted(billing_start=since) if since is not None:
            return min(since, event.at)
        case CapacityLost(trigger=Trigger.HEARTBEAT_LOSS):
            return attempt.last_heartbeat or attempt.command_started or event.at
        case CapacityLost():
            return max(event.at, attempt.last_heartbeat or event.at)
        case _:
            return event.at


def _neighbour(attempt: Attempt, event: Event) -> datetime | None:
    """Return the milestone that lies below the one the event stamps; None if it stamps none."""
    match event:
        case Placed():
            return attempt.queued
        case DeletionProven():
            return attempt.finished
        case Recovered():
            return attempt.interruption.time if attempt.interruption else None
        case CheckpointCommitted():
            return attempt.command_started
        case (
            Claimed()
            | Waits()
            | NoOffering()
            | AcquireFailed()
            | StopSignalled()
            | NoticeCleared()
            | Heartbeat()
            | Superseded()
        ):
            return None
        case Registered() if attempt.registered is not None:
            return None  # the second machine of a hedge
        case StopRequested() | StartDeadlinePassed() if attempt.stage not in _QUEUED:
            return None  # it begins a drain
        case CapacityGranted() | Registered():
            return _latest(attempt)
        case CommandStarted():
            return _latest(with_winner(attempt, event))
        case _:  # an end lies after every milestone and the last checkpoint (SC-015), and after the
            # last sign of life, up to which it is billed already: a cost never falls (SC-509)
            alive = floored(attempt.last_heartbeat or attempt.queued)
            return max(_latest(attempt), attempt.last_committed or attempt.queued, alive)


def _latest(attempt: Attempt) -> datetime:
    return (
        attempt.command_started
        or attempt.registered
        or attempt.billing_start
        or attempt.acquired
        or attempt.queued
    )
