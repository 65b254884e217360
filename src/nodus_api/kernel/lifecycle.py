"""How an Attempt moves: every transition of SC-004, in one match.

`queue` makes one (T1), `advance` moves it (T2 to T19). Both are pure. What moment a
milestone gets is `moments.py`.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from nodus_api.kernel.attempt import Attempt, Drain, Gang, Interruption, RestorePoint
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.events import (
    AcquireFailed,
    CapacityGranted,
    CapacityLost,
    CheckpointCommitted,
    Claimed,
    CommandStarted,
    DeletionProven,
    Event,
    Exited,
    Heartbeat,
    NoOffering,
    NoticeCleared,
    Placed,
    Recovered,
    Registered,
    RunFault,
    StartDeadlinePassed,
    StartFault,
    StopCompleted,
    StopRequested,
    StopSignalled,
    Superseded,
    Unplaceable,
    Waits,
)
from nodus_api.kernel.moments import floored, moment, with_winner
from nodus_api.kernel.vocabulary import Reason, Stage, Trigger, WaitingFor, stage_of

_LOST = frozenset({r for r in Reason if stage_of(r) is Stage.LOST})
_START_FAULTS = frozenset(
    {
        Reason.IMAGE_PULL_FAILED,
        Reason.START_FAILED,
        Reason.RESTORE_FAILED,
        Reason.CHECKPOINT_UNAVAILABLE,
        Reason.INTERNAL_ERROR,
    }
)
_RUN_FAULTS = frozenset({Reason.DEADLINE_EXCEEDED, Reason.INTERNAL_ERROR})
# What each trigger leads to (SC-012), by the stage in which it may strike.
_LOSSES: dict[Stage, dict[Trigger, frozenset[Reason]]] = {
    Stage.STARTING: {
        Trigger.PREEMPTION_NOTICE: frozenset({Reason.PREEMPTED}),
        Trigger.PROVIDER_EVIDENCE: frozenset({Reason.PREEMPTED, Reason.NODE_LOST}),
        Trigger.READINESS_FAILED: frozenset({Reason.READINESS_FAILED}),
        Trigger.STARTUP_TIMEOUT: frozenset({Reason.STARTUP_TIMEOUT}),
        Trigger.DRILL: _LOST,
    },
    Stage.RUNNING: {
        Trigger.PREEMPTION_NOTICE: frozenset({Reason.PREEMPTED}),
        Trigger.PROVIDER_EVIDENCE: frozenset({Reason.PREEMPTED, Reason.NODE_LOST}),
        Trigger.HEARTBEAT_LOSS: frozenset({Reason.NODE_LOST}),
        Trigger.DRILL: frozenset({Reason.PREEMPTED, Reason.NODE_LOST}),
    },
}
_STOPS: dict[Trigger | None, frozenset[Reason]] = {
    Trigger.USER: frozenset({Reason.STOPPED, Reason.SUSPENDED, Reason.RELEASED}),
    Trigger.FUNDING: frozenset({Reason.UNFUNDED, Reason.MAX_COST_REACHED, Reason.RELEASED}),
}
_ONLY_RELEASED = frozenset({Reason.RELEASED})  # with its gang peer's trigger, or none (SC-003)
_NOTICES = frozenset({Trigger.PREEMPTION_NOTICE, Trigger.DRILL})
_UNCOUNTED = frozenset({WaitingFor.FUNDS, WaitingFor.BACKOFF, WaitingFor.QUOTA})  # T8
_IN_TURN = "waiting for the scheduler's next pass"


def queue(
    *,
    uid: UUID,
    project: str,
    name: str,
    workload: UUID,
    slot: str,
    epoch: int,
    at: datetime,
    gang: Gang | None = None,
    resumes: bool = False,
    restore: RestorePoint | None = None,
    waiting_for: WaitingFor = WaitingFor.LOOP,
    waiting_message: str = _IN_TURN,
) -> Attempt:
    """Return the Attempt of T1: Pending, at `epoch` of its slot, queued at `at`.

    `resumes` and `restore` come from `replacement.resumption` (SC-140, SC-141).
    """
    return Attempt(
        uid=uid,
        project=project,
        name=name,
        workload=workload,
        slot=slot,
        epoch=epoch,
        queued=floored(at),
        gang=gang,
        resumes=resumes or restore is not None,
        restore=restore,
        waiting_for=waiting_for,
        waiting_message=waiting_message,
    )


def advance(attempt: Attempt, event: Event) -> Attempt:
    """Return the Attempt after `event`, or raise `IllegalTransition` (SC-004).

    While an Attempt drains, the first cause decides: what ends it after the stop
    signal gives the drain's outcome (SC-013).
    """
    drain = attempt.drain
    match attempt.stage, event:
        case Stage.PENDING, Claimed(start_deadline=deadline):  # T2
            return replace(
                _waiting(attempt, WaitingFor.LOOP, _IN_TURN),
                stage=Stage.PLACING,
                start_deadline=attempt.start_deadline or deadline,
            )
        case ((Stage.PENDING | Stage.PLACING), Waits()):
            return _waits(attempt, event)
        case Stage.PLACING, Placed():  # T3
            return replace(
                attempt,
                stage=Stage.ACQUIRING,
                waiting_for=None,
                waiting_message=None,
                acquired=moment(attempt, event),
            )
        case Stage.PLACING, NoOffering():  # T4
            return replace(_waits(attempt, event), stage=Stage.PENDING)
        case Stage.PLACING, Unplaceable():  # T5
            return _end(attempt, event, Reason.UNPLACEABLE)
        case Stage.ACQUIRING, AcquireFailed(message=message) if drain is None:  # T6
            return replace(
                _waiting(attempt, WaitingFor.LOOP, message or _IN_TURN), stage=Stage.PLACING
            )
        case Stage.ACQUIRING, CapacityGranted():  # T7
            return replace(attempt, stage=Stage.STARTING, billing_start=moment(attempt, event))
        case ((Stage.PENDING | Stage.PLACING), StartDeadlinePassed()):  # T8
            return _end(attempt, event, Reason.NO_CAPACITY)
        case Stage.ACQUIRING, StartDeadlinePassed():  # T8, SC-006a
            return replace(attempt, drain=drain or Drain(trigger=None, reason=Reason.NO_CAPACITY))
        case Stage.STARTING, Registered():  # T9
            return _register(attempt, event)
        case Stage.STARTING, CommandStarted():  # T10
            return _start(attempt, event)
        case Stage.ACQUIRING, StartFault(reason=reason) if reason in _START_FAULTS:  # T11
            return _drained(attempt, event) if drain else _end(attempt, event, reason)
        case Stage.STARTING, StartFault(reason=reason) if reason in _START_FAULTS:  # T11
            signalled = drain is not None and drain.signalled is not None
            return _drained(attempt, event) if signalled else _end(attempt, event, reason)
        case ((Stage.STARTING | Stage.RUNNING), CapacityLost()) if _can_be_lost(attempt, event):
            if drain is not None:  # T12, T15: the first cause keeps reason and bill
                return _drained(attempt, event)
            return _end(attempt, event, event.reason, event.trigger)
        case Stage.RUNNING, Exited():  # T13, T14
            exited = _exited(attempt, event.exit_code, event.signal)
            if event.stopped and drain is not None:  # T15, T17
                return _drained(exited, event)
            if event.stopped:  # T15: whoever has the machine stopped it, not we
                return _end(exited, event, Reason.NODE_LOST, Trigger.PROVIDER_EVIDENCE)
            if exited.exit_code == 0:
                return _end(exited, event, None)
            return _end(exited, event, Reason.OUT_OF_MEMORY if event.oom else Reason.CUSTOMER_EXIT)
        case Stage.RUNNING, RunFault() if drain is None and event.reason in _RUN_FAULTS:  # T14
            exited = _exited(attempt, event.exit_code, event.signal)
            return _end(exited, event, event.reason)
        case ((Stage.PENDING | Stage.PLACING), StopRequested()) if _can_stop(attempt, event):  # T16
            return _end(attempt, event, event.reason, event.trigger)
        case (
            (Stage.ACQUIRING | Stage.STARTING | Stage.RUNNING),
            StopRequested(),
        ) if _can_stop(attempt, event):
            return replace(attempt, drain=_drain(drain, event))
        case (
            (Stage.ACQUIRING | Stage.STARTING | Stage.RUNNING),
            StopSignalled(at=at),
        ) if drain is not None:
            return replace(attempt, drain=replace(drain, signalled=drain.signalled or at))
        case ((Stage.STARTING | Stage.RUNNING), NoticeCleared()) if (
            drain is not None and drain.undelivered_notice
        ):
            return replace(attempt, drain=None)
        case ((Stage.ACQUIRING | Stage.STARTING), StopCompleted()) if drain is not None:  # T17
            return _drained(attempt, event)
        case Stage.RUNNING, StopCompleted(exit_code=code, signal=signal) if (
            drain is not None
        ):  # T17
            return _drained(_exited(attempt, code, signal), event)
        case ((Stage.STARTING | Stage.RUNNING), Heartbeat()):
            return _alive(attempt, event.at)
        case Stage.RUNNING, CheckpointCommitted():
            committed = max(moment(attempt, event), attempt.last_committed or attempt.queued)
            return replace(_alive(attempt, event.at), last_committed=committed)
        case stage, DeletionProven() if stage.terminal and attempt.deletion_proven is None:  # T18
            return replace(attempt, deletion_proven=moment(attempt, event))
        case stage, Superseded(epoch=epoch) if (
            stage.terminal and attempt.superseded_by is None and epoch == attempt.epoch + 1
        ):  # T19
            return replace(attempt, superseded_by=epoch)
        case _, Recovered() if (
            attempt.interruption is not None and attempt.interruption.recovery_seconds is None
        ):
            lasted = moment(attempt, event) - attempt.interruption.time
            recovered = replace(
                attempt.interruption, recovery_seconds=lasted // timedelta(seconds=1)
            )
            return replace(attempt, interruption=recovered)
        case _:
            raise IllegalTransition(attempt.stage, event)


def _waiting(attempt: Attempt, why: WaitingFor, message: str) -> Attempt:
    return replace(attempt, waiting_for=why, waiting_message=message)


def _waits(attempt: Attempt, event: Waits | NoOffering) -> Attempt:
    """Say what is waited for; the start deadline moves by a wait that does not count (T8)."""
    deadline = attempt.start_deadline
    if deadline is not None and event.until is not None and event.waiting_for in _UNCOUNTED:
        deadline += max(event.until - event.at, timedelta(0))
    return replace(_waiting(attempt, event.waiting_for, event.message), start_deadline=deadline)


def _register(attempt: Attempt, event: Registered) -> Attempt:
    """Stamp T9 once; the second machine of a hedge registers without a trace (SC-006)."""
    if attempt.registered is not None:
        return _alive(attempt, event.at)
    since = moment(attempt, event)
    pull = _capped_pull(event.pull_seconds, attempt.acquired, since)
    return replace(_alive(attempt, event.at), registered=since, pull_seconds=pull)


def _start(attempt: Attempt, event: CommandStarted) -> Attempt:
    """Stamp T10, with the winner's milestones if the Attempt was hedged (SC-342).

    A start proves the registration whose report was lost (SC-644).
    """
    won = with_winner(attempt, event)
    since = moment(won, event)
    pull = won.pull_seconds if event.pull_seconds is None else event.pull_seconds
    return replace(
        _alive(won, event.at),
        stage=Stage.RUNNING,
        registered=won.registered or since,
        command_started=since,
        pull_seconds=_capped_pull(pull, won.acquired, since),
        restore_bytes=event.restore_bytes if won.resumes else None,
    )


def _capped_pull(seconds: int | None, acquired: datetime | None, until: datetime) -> int | None:
    """Return the pull's seconds, at most those since acquisition (SC-007)."""
    if seconds is None or acquired is None:
        return seconds
    return max(0, min(seconds, (until - acquired) // timedelta(seconds=1)))


def _alive(attempt: Attempt, at: datetime) -> Attempt:
    """Every report of the runner is a sign of life; an old one takes nothing back."""
    return replace(attempt, last_heartbeat=max(at, attempt.last_heartbeat or at))


def _can_be_lost(attempt: Attempt, event: CapacityLost) -> bool:
    return event.reason in _LOSSES[attempt.stage].get(event.trigger, frozenset())


def _can_stop(attempt: Attempt, event: StopRequested) -> bool:
    """Whether the cause may stop this stage: notices come to machines alone (SC-012)."""
    if event.reason in _STOPS.get(event.trigger, _ONLY_RELEASED):
        return True
    if event.trigger not in _NOTICES or attempt.stage not in _LOSSES:
        return False
    return event.reason in _LOSSES[attempt.stage][event.trigger]


def _drain(drain: Drain | None, event: StopRequested) -> Drain:
    """Return the drain after another cause: the first keeps reason and bill (SC-013).

    A limit of money then only forbids the replacement; a user's stop is the workload's state.
    """
    if drain is None:
        return Drain(trigger=event.trigger, reason=event.reason, deadline=event.deadline)
    if event.trigger is Trigger.FUNDING and drain.trigger is not Trigger.FUNDING:
        return replace(drain, barred=drain.barred or event.reason)
    if event.trigger not in _NOTICES or event.deadline is None:
        return drain
    return replace(drain, deadline=min(event.deadline, drain.deadline or event.deadline))


def _exited(attempt: Attempt, exit_code: int | None, signal: int | None) -> Attempt:
    """Return the Attempt with its program's exit; a signal n gives code 128 + n (SC-009)."""
    code = exit_code if signal is None else 128 + signal
    return replace(attempt, exit_code=code, signal=signal)


def _drained(attempt: Attempt, event: Event) -> Attempt:
    assert attempt.drain is not None  # noqa: S101 - every caller has looked
    return _end(attempt, event, attempt.drain.reason, attempt.drain.trigger)


def _end(
    attempt: Attempt, event: Event, reason: Reason | None, trigger: Trigger | None = None
) -> Attempt:
    """Return the Attempt ended by `reason`; None is success (SC-003, SC-015, SC-016)."""
    ended = replace(
        attempt,
        stage=Stage.SUCCEEDED if reason is None else stage_of(reason),
        reason=reason,
        waiting_for=None,
        waiting_message=None,
        finished=moment(attempt, event),
        drain=None,
    )
    if trigger is None or ended.finished is None:
        return ended
    return replace(
        ended,
        interruption=Interruption(
            time=ended.finished, trigger=trigger, lost_seconds=ended.lost_seconds
        ),
    )
