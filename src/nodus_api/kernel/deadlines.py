"""What is overdue at a moment (SC-006a, SC-013, SC-613, SC-614).

Pure over an Attempt and the limits in force. The loop keeps the end of a stage's
limit in a row (`limit_at`), so that a take-over can move it; `stage_limit` says
what it is when the stage begins.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.vocabulary import Stage, WaitingFor

ACQUIRE_LIMIT = timedelta(seconds=300)
STARTING_LIMIT = timedelta(seconds=600)
STARTING_CAP = timedelta(seconds=3600)
RELEASE_ALERT = timedelta(seconds=900)

SUSPECT_AFTER = timedelta(seconds=60)
LOST_AFTER = timedelta(seconds=120)
LOST_IF_VOUCHED_AFTER = timedelta(seconds=600)
TAKE_OVER_GAP = timedelta(seconds=30)
TAKE_OVER_MARGIN = timedelta(seconds=60)

DRAIN_OVERTIME = timedelta(seconds=20)
NOTICE_OVERTIME = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one Attempt; the defaults are SC-613's."""

    acquire: timedelta = ACQUIRE_LIMIT
    starting: timedelta = STARTING_LIMIT
    starting_cap: timedelta = STARTING_CAP
    max_duration: timedelta | None = None
    idle: timedelta | None = None
    """How long a session goes on that nobody uses (SC-807)."""


class Overdue(StrEnum):
    """What has run out of time, and so what the loop does about it."""

    START_DEADLINE = "StartDeadline"
    """T8: StartDeadlinePassed."""
    FUNDING = "Funding"
    """T16: StopRequested by Funding, Unfunded (SC-620)."""
    ACQUIRE = "Acquire"
    """Find the machine once more, then give it up: T6 once its absence is proven."""
    STARTUP = "Startup"
    """T12: CapacityLost by StartupTimeout."""
    IMAGE_PULL = "ImagePull"
    """T11: StartFault with ImagePullFailed."""
    DURATION = "Duration"
    """T14: RunFault with DeadlineExceeded."""
    IDLE = "Idle"
    """T17: StopRequested by nobody, Released (SC-010, SC-807)."""
    DRAIN = "Drain"
    """StopCompleted at `drain_end`."""
    NOTICE = "Notice"
    """NoticeCleared, if the machine is still ours."""


class Silence(StrEnum):
    """What a machine's silence means (SC-614)."""

    NONE = "None"
    SUSPECT = "Suspect"
    """Ask the supplier."""
    LOST = "Lost"
    """T15: CapacityLost by HeartbeatLoss, and delete the machine."""


def starting_limit(p95_boot: timedelta) -> timedelta:
    """Return how long Starting may last in a class: max(600 s, 3·p95), at most 3,600 s (SC-613)."""
    return min(max(STARTING_LIMIT, 3 * p95_boot), STARTING_CAP)


def stage_limit(attempt: Attempt, limits: Limits) -> datetime | None:
    """Return when the current stage's own limit ends; None if it has none.

    Acquiring counts from the placement, Starting from the grant, Running from the
    program's start, which is the first use of a session.
    """
    match attempt.stage:
        case Stage.ACQUIRING if attempt.acquired is not None:
            return attempt.acquired + limits.acquire
        case Stage.STARTING if attempt.billing_start is not None:
            return attempt.billing_start + limits.starting
        case Stage.RUNNING if attempt.command_started is not None:
            return running_until(attempt.command_started, limits)
        case _:
            return None


def running_until(
    started: datetime, limits: Limits, *, active: datetime | None = None
) -> datetime | None:
    """Return when a program that started then, and was last used at `active`, must end.

    None if nothing limits it; without `active` its start is all the use that is known.
    """
    used = max(started, active or started)
    ends = [
        since + length
        for since, length in ((started, limits.max_duration), (used, limits.idle))
        if length is not None
    ]
    return min(ends, default=None)


def overdue(
    attempt: Attempt,
    now: datetime,
    *,
    limit_at: datetime | None,
    limits: Limits,
    pulling: bool = False,
) -> Overdue | None:
    """Return what of an Attempt has run out of time; None if nothing has.

    `limit_at` is `stage_limit`, as a take-over may have moved it. `pulling` says that an
    image pull still makes progress, which extends Starting to its cap (SC-613). While an
    Attempt drains, only the drain can be overdue.
    """
    if attempt.drain is not None:
        return _drain_overdue(attempt, now)
    if _start_overdue(attempt, now):
        return Overdue.START_DEADLINE
    if limit_at is None or now < limit_at:
        return None
    match attempt.stage:
        case Stage.PENDING if attempt.waiting_for is WaitingFor.FUNDS:
            return Overdue.FUNDING
        case Stage.ACQUIRING:
            return Overdue.ACQUIRE
        case Stage.STARTING:
            return _starting_overdue(now, limit_at, limits, pulling)
        case Stage.RUNNING:
            return _running_overdue(attempt, now, limits)
        case _:
            return None


def drain_end(attempt: Attempt, now: datetime) -> datetime:
    """Return the finish of a drain that saw no exit (SC-013).

    It is max(last heartbeat, min(now, drain deadline)).
    """
    deadline = attempt.drain.deadline if attempt.drain else None
    end = now if deadline is None else min(now, deadline)
    return max(end, attempt.last_heartbeat or end)


def drain_deadline(now: datetime, grace: timedelta, notice: datetime | None = None) -> datetime:
    """Return when a stop ordered now is over: after the grace, capped by a notice (SC-013)."""
    end = now + grace
    return end if notice is None else min(end, max(now, notice))


def silence(
    attempt: Attempt, now: datetime, *, vouched: bool, since: datetime | None = None
) -> Silence:
    """Return what the silence of a Running Attempt's machine means (SC-614).

    `vouched`: the supplier says that the machine runs. `since` is a take-over after a
    gap, from which silence counts; the last heartbeat itself, where the bill ends,
    never moves.
    """
    if attempt.stage is not Stage.RUNNING:
        return Silence.NONE
    heard = attempt.last_heartbeat or attempt.command_started or attempt.queued
    quiet = now - max(heard, since or heard)
    if quiet > (LOST_IF_VOUCHED_AFTER if vouched else LOST_AFTER):
        return Silence.LOST
    return Silence.SUSPECT if quiet > SUSPECT_AFTER else Silence.NONE


def take_over_shift(leader_seen: datetime, now: datetime) -> timedelta:
    """Return by how much a take-over moves open limits and drain deadlines (SC-614).

    D + 60 s for a gap D of more than 30 s without a leader, else nothing.
    """
    gap = now - leader_seen
    return gap + TAKE_OVER_MARGIN if gap > TAKE_OVER_GAP else timedelta(0)


def _start_overdue(attempt: Attempt, now: datetime) -> bool:
    queued = attempt.stage in (Stage.PENDING, Stage.PLACING, Stage.ACQUIRING)
    return queued and attempt.start_deadline is not None and now >= attempt.start_deadline


def _starting_overdue(
    now: datetime, limit_at: datetime, limits: Limits, pulling: bool
) -> Overdue | None:
    if not pulling:
        return Overdue.STARTUP
    cap_at = limit_at + limits.starting_cap - limits.starting
    return Overdue.IMAGE_PULL if now >= cap_at else None


def _running_overdue(attempt: Attempt, now: datetime, limits: Limits) -> Overdue:
    """Tell the two limits of a program apart, of which one has passed."""
    since, longest = attempt.command_started, limits.max_duration
    within = longest is None or since is None or now < since + longest
    return Overdue.IDLE if limits.idle is not None and within else Overdue.DURATION


def _drain_overdue(attempt: Attempt, now: datetime) -> Overdue | None:
    """Return whether a drain's time is up; from Acquiring it waits for proof (SC-006a)."""
    drain = attempt.drain
    if drain is None or drain.deadline is None or attempt.stage is Stage.ACQUIRING:
        return None
    if drain.undelivered_notice:
        return Overdue.NOTICE if now >= drain.deadline + NOTICE_OVERTIME else None
    return Overdue.DRAIN if now >= drain.deadline + DRAIN_OVERTIME else None
