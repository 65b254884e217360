"""The CHECKs of the table `attempts`, as a predicate over the kernel's record."""

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.events import (
    CommandStarted,
    Event,
)
from nodus_api.kernel.vocabulary import (
    Stage,
    stage_of,
)

MILESTONES = (
    "queued",
    "acquired",
    "billing_start",
    "registered",
    "command_started",
    "finished",
    "deletion_proven",
)


def changed_milestones(before: Attempt, moved: Attempt, event: Event) -> list[str]:
    """Return the milestones that a step changed though it may not (P-03)."""
    free: set[str] = set()
    if before.billing_start is None:
        free = {"acquired"}
    if isinstance(event, CommandStarted):
        free = {"billing_start", "registered"}
    return [
        name
        for name in MILESTONES
        if name not in free
        and getattr(before, name) is not None
        and getattr(before, name) != getattr(moved, name)
    ]


def broken_checks(a: Attempt) -> list[str]:
    """Return the CHECKs of the table `attempts` that a row of this Attempt would break."""
    times = [getattr(a, name) for name in MILESTONES]
    known = [time for time in times if time is not None]
    ended = a.stage in (Stage.SUCCEEDED, Stage.FAILED, Stage.LOST, Stage.STOPPED)
    queued_stages = (Stage.PENDING, Stage.PLACING)
    has_reason = a.stage in (Stage.FAILED, Stage.LOST, Stage.STOPPED)
    cursor = a.restore.cursor if a.restore else None
    checks = {
        "attempts_superseded_by_next_epoch": a.superseded_by in (None, a.epoch + 1),
        "attempts_restore_bytes_not_negative": (a.restore_bytes or 0) >= 0,
        "attempts_exit_code_range": a.exit_code is None or 0 <= a.exit_code <= 255,
        "attempts_signal_range": a.signal is None or 1 <= a.signal <= 64,
        "attempts_pull_seconds_not_negative": (a.pull_seconds or 0) >= 0,
        "attempts_gang_rank_below_size": a.gang is None or 0 <= a.gang.rank < a.gang.size,
        "attempts_cursor_completed_within_total": (
            cursor is None or 0 <= cursor.completed <= cursor.total
        ),
        "attempts_restore_only_if_resumes": a.restore is None or a.resumes,
        "attempts_ended": ended == (a.finished is not None),
        "attempts_reason": (
            (a.reason is not None and stage_of(a.reason) is a.stage)
            if has_reason
            else a.reason is None
        ),
        "attempts_exit": (
            (a.exit_code is None or (a.finished is not None and a.command_started is not None))
            and (a.stage is not Stage.SUCCEEDED or a.exit_code == 0)
            and (a.signal is None or a.exit_code == 128 + a.signal)
        ),
        "attempts_milestones": (
            (
                a.stage not in (Stage.ACQUIRING, Stage.STARTING, Stage.RUNNING, Stage.SUCCEEDED)
                or a.acquired is not None
            )
            and (
                a.stage not in (Stage.STARTING, Stage.RUNNING, Stage.SUCCEEDED)
                or a.billing_start is not None
            )
            and (a.stage not in (Stage.RUNNING, Stage.SUCCEEDED) or a.command_started is not None)
            and (a.stage is Stage.RUNNING or ended or a.command_started is None)
            and (a.stage not in (*queued_stages, Stage.ACQUIRING) or a.billing_start is None)
            and (a.command_started is None or a.registered is not None)
            and (a.deletion_proven is None or a.finished is not None)
        ),
        "attempts_waiting": (
            (a.waiting_for is None or a.stage in queued_stages)
            and (a.waiting_message is None or a.waiting_for is not None)
        ),
        "attempts_order": known == sorted(known),
        "attempts_seconds": all(time.microsecond == 0 for time in known),
        "SC-003: an interruption ends an Attempt": a.interruption is None or ended,
        "SC-007: pull within boot": (
            a.pull_seconds is None or a.boot_seconds is None or a.pull_seconds <= a.boot_seconds
        ),
        "SC-009a: a queued Attempt says why": (
            a.stage not in queued_stages or a.waiting_for is not None
        ),
        "no drain outlives the Attempt": a.drain is None or not ended,
    }
    return [name for name, holds in checks.items() if not holds]
