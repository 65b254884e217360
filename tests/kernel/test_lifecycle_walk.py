"""Any sequence of events leaves an Attempt that the schema takes."""

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.checks import MILESTONES, broken_checks, changed_milestones
from tests.kernel.lives import (
    acquiring,
    at,
    pending,
    placing,
    registered,
    running,
    starting,
)

from nodus_api.kernel.attempt import Attempt
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
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import (
    Reason,
    Trigger,
    WaitingFor,
    phase_of,
)

seconds = st.floats(min_value=-100, max_value=5000, allow_nan=False).map(lambda s: round(s, 3))
moments = seconds.map(at)
messages = st.just("5 classes tried")
walk_events = st.one_of(
    st.builds(Claimed, at=moments, start_deadline=st.none() | moments),
    st.builds(Waits, at=moments, waiting_for=st.sampled_from(WaitingFor), message=messages),
    st.builds(Placed, at=moments),
    st.builds(Placed, at=moments),
    st.builds(
        NoOffering,
        at=moments,
        waiting_for=st.sampled_from(WaitingFor),
        message=messages,
        until=st.none() | moments,
    ),
    st.builds(Unplaceable, at=moments),
    st.builds(AcquireFailed, at=moments),
    st.builds(CapacityGranted, at=moments, billing_start=st.none() | moments),
    st.builds(CapacityGranted, at=moments, billing_start=st.none() | moments),
    st.builds(StartDeadlinePassed, at=moments),
    st.builds(Registered, at=moments, pull_seconds=st.none() | st.integers(0, 9999)),
    st.builds(
        CommandStarted,
        at=moments,
        restore_bytes=st.none() | st.integers(0, 2**60),
        billing_start=st.none() | moments,
        registered=st.none() | moments,
    ),
    st.builds(StartFault, at=moments, reason=st.sampled_from(Reason)),
    st.builds(
        CapacityLost, at=moments, trigger=st.sampled_from(Trigger), reason=st.sampled_from(Reason)
    ),
    st.builds(
        Exited,
        at=moments,
        exit_code=st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        oom=st.booleans(),
        stopped=st.booleans(),
    ),
    st.builds(RunFault, at=moments, reason=st.sampled_from(Reason)),
    st.builds(
        StopRequested,
        at=moments,
        trigger=st.none() | st.sampled_from(Trigger),
        reason=st.sampled_from(Reason),
        deadline=st.none() | moments,
    ),
    st.builds(StopSignalled, at=moments),
    st.builds(NoticeCleared, at=moments),
    st.builds(StopCompleted, at=moments, exit_code=st.none() | st.integers(0, 255)),
    st.builds(Heartbeat, at=moments),
    st.builds(CheckpointCommitted, at=moments),
    st.builds(DeletionProven, at=moments),
    st.builds(Superseded, at=moments, epoch=st.integers(1, 3)),
    st.builds(Recovered, at=moments),
)
starts = st.sampled_from([pending, placing, acquiring, starting, registered, running]).map(
    lambda state: state()
)


@given(attempt=starts, resumes=st.booleans(), walk=st.lists(walk_events, max_size=40))
def test_every_reachable_attempt_is_one_the_schema_takes(
    attempt: Attempt, resumes: bool, walk: list[Event]
) -> None:  # P-01, P-02, P-03, P-22 and the CHECKs of the table attempts
    attempt = replace(attempt, resumes=resumes)
    for event in walk:
        before = attempt
        try:
            attempt = advance(attempt, event)
        except IllegalTransition:
            continue
        assert broken_checks(attempt) == []
        assert changed_milestones(before, attempt, event) == []
        assert attempt.phase is phase_of(attempt.stage)
        if before.stage.terminal:  # P-01
            assert attempt.stage is before.stage
            assert attempt.reason is before.reason
        if attempt.interruption is not None:
            ran = attempt.finished - (attempt.command_started or attempt.finished)  # type: ignore[operator]  # an interrupted Attempt has finished
            assert 0 <= attempt.interruption.lost_seconds <= ran.total_seconds()  # P-22
            assert attempt.interruption.time == attempt.finished  # SC-015
            assert (attempt.interruption.recovery_seconds or 0) >= 0


def test_the_record_has_no_milestone_that_the_checks_forget() -> None:
    times = {f.name for f in fields(Attempt) if "datetime" in str(f.type)}

    kept_elsewhere = {"start_deadline", "last_heartbeat", "last_committed"}
    assert times == set(MILESTONES) | kept_elsewhere
