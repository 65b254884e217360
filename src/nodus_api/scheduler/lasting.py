"""How long a program that runs may go on: its own limit, and a session that nobody uses (SC-807).

A session (Sandbox or Workspace) with `idleTimeoutSeconds` is used when its program starts, says
something on `NODUS_PROGRESS`, or has a snapshot taken. Its `limit_at` follows the last use, so that
a take-over moves it like any other limit; nothing of it costs a revision.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from nodus_api.kernel.deadlines import Limits, running_until
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.storage.records import AttemptRecord, Workload

_IDLE = "idleTimeoutSeconds"


def limits_of(workload: Workload) -> Limits:
    """Return the limits that a workload's own spec sets."""
    spec = WorkloadSpec.from_json(workload.kind, workload.spec)
    return Limits(
        max_duration=_length(spec.limits.max_duration_seconds),
        idle=_length(spec.idle_timeout_seconds),
    )


def program_began(record: AttemptRecord) -> AttemptRecord:
    """Give a program that has just started its limit (T10)."""
    started, limit = record.attempt.command_started, None
    if started is not None:
        limit = running_until(started, limits_of(record.workload))
    return replace(record, work=replace(record.work, limit_at=limit))


def session_used(record: AttemptRecord, at: datetime) -> AttemptRecord:
    """Let a session go on that was used at `at`; of what has no idle time, nothing changes.

    A use that is told late never takes time away.
    """
    started = record.attempt.command_started
    if started is None or not record.attempt.live or _IDLE not in record.workload.spec:
        return record
    until = running_until(started, limits_of(record.workload), active=at)
    known = record.work.limit_at
    if until is None or (known is not None and until <= known):
        return record
    return replace(record, work=replace(record.work, limit_at=until))


def _length(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
