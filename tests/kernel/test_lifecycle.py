"""What the transitions up to the program's start stamp, keep and refuse: T1 to T12."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest
from tests.kernel.checks import broken_checks
from tests.kernel.lives import (
    UID,
    WORKLOAD,
    acquiring,
    after,
    at,
    drained,
    placing,
    registered,
    running,
    starting,
)

from nodus_api.kernel.attempt import Attempt, Cursor, RestorePoint
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.events import (
    AcquireFailed,
    CapacityGranted,
    CapacityLost,
    Claimed,
    CommandStarted,
    NoOffering,
    Placed,
    Registered,
    StartFault,
    StopSignalled,
    Unplaceable,
    Waits,
)
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.vocabulary import (
    Phase,
    Reason,
    Stage,
    Trigger,
    WaitingFor,
)

# -- T1 to T6: queued ----------------------------------------------------------------------


def test_queue_makes_a_pending_attempt_in_whole_seconds() -> None:  # T1, SC-005, SC-009a
    attempt = queue(
        uid=UID,
        project="default",
        name="train-0-e2-k7f3q",
        workload=WORKLOAD,
        slot="0",
        epoch=2,
        at=at(7.9),
        restore=RestorePoint(seq=4, cursor=Cursor(completed=400, total=600)),
    )

    assert (attempt.stage, attempt.queued, attempt.phase) == (Stage.PENDING, at(7), Phase.QUEUED)
    assert attempt.resumes
    assert attempt.waiting_for is WaitingFor.LOOP
    assert broken_checks(attempt) == []


def test_a_successor_of_a_lost_attempt_resumes_without_a_checkpoint() -> None:  # SC-140
    attempt = queue(
        uid=UID,
        project="default",
        name="train-0-e2-k7f3q",
        workload=WORKLOAD,
        slot="0",
        epoch=2,
        at=at(0),
        resumes=True,
        waiting_for=WaitingFor.BACKOFF,
        waiting_message="next try at 2026-03-01T10:00:20Z",
    )

    assert attempt.resumes
    assert attempt.restore is None
    assert attempt.waiting_for is WaitingFor.BACKOFF


def test_the_start_deadline_is_kept_from_the_first_claim() -> None:  # T8
    again = after(
        placing(),
        NoOffering(at=at(30), waiting_for=WaitingFor.CAPACITY, message="5 tried", until=at(60)),
        Claimed(at=at(60), start_deadline=at(9999)),
    )

    assert again.start_deadline == at(3601)


@pytest.mark.parametrize("why", [WaitingFor.FUNDS, WaitingFor.QUOTA, WaitingFor.BACKOFF])
def test_waits_for_funds_quota_and_backoff_do_not_count_to_the_start_deadline(
    why: WaitingFor,
) -> None:  # T8
    waits = advance(
        placing(), NoOffering(at=at(30), waiting_for=why, message="waits", until=at(70))
    )

    assert waits.start_deadline == at(3641)


def test_a_wait_for_funds_between_two_tries_does_not_count_either() -> None:  # T8, SC-620
    queued = advance(
        placing(), NoOffering(at=at(30), waiting_for=WaitingFor.CAPACITY, message="5 tried")
    )

    waits = advance(
        queued, Waits(at=at(40), waiting_for=WaitingFor.FUNDS, message="waits", until=at(100))
    )

    assert waits.start_deadline == at(3661)


@pytest.mark.parametrize("until", [None, at(10)])
def test_a_wait_without_an_end_or_already_over_moves_no_deadline(until: datetime | None) -> None:
    event = NoOffering(at=at(30), waiting_for=WaitingFor.QUOTA, message="waits", until=until)

    assert advance(placing(), event).start_deadline == at(3601)


def test_a_wait_before_any_claim_has_no_deadline_to_move() -> None:
    attempt = replace(placing(), start_deadline=None)
    event = NoOffering(at=at(30), waiting_for=WaitingFor.QUOTA, message="waits", until=at(60))

    assert advance(attempt, event).start_deadline is None


def test_waiting_is_said_while_queued_and_gone_once_placed() -> None:  # SC-009a, SC-009b
    waits = advance(
        placing(), NoOffering(at=at(30), waiting_for=WaitingFor.CAPACITY, message="5 tried")
    )
    placed = after(waits, Claimed(at=at(60)), Placed(at=at(60)))

    assert (waits.waiting_for, waits.waiting_message) == (WaitingFor.CAPACITY, "5 tried")
    assert (placed.waiting_for, placed.waiting_message) == (None, None)


def test_each_placement_restamps_the_acquired_time_until_the_grant() -> None:  # SC-006
    again = after(acquiring(), AcquireFailed(at=at(40), message="no capacity"), Placed(at=at(41)))

    assert again.acquired == at(41)
    assert again.queued == at(0)


def test_a_failed_acquisition_says_why_the_attempt_queues_again() -> None:  # T6, SC-009b
    queued = advance(acquiring(), AcquireFailed(at=at(40), message="no capacity"))

    assert (queued.waiting_for, queued.waiting_message) == (WaitingFor.LOOP, "no capacity")
    assert queued.phase is Phase.QUEUED


def test_a_failed_acquisition_without_a_word_still_says_something() -> None:  # SC-009b
    assert advance(acquiring(), AcquireFailed(at=at(40))).waiting_message


def test_unplaceable_ends_with_its_reason() -> None:  # T5
    ended = advance(placing(), Unplaceable(at=at(12)))

    assert (ended.stage, ended.reason, ended.finished) == (
        Stage.FAILED,
        Reason.UNPLACEABLE,
        at(12),
    )
    assert ended.interruption is None


# -- T7 to T12: starting -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "stamped"),
    [
        (at(20), at(20)),
        (at(20.9), at(20)),  # SC-005: floored
        (at(3), at(10)),  # SC-503: not before the acquisition
        (at(99), at(25)),  # SC-503: not after the answer
        (None, at(25)),  # SC-503: unknown
    ],
)
def test_billing_starts_between_acquisition_and_the_grants_answer(
    since: datetime | None, stamped: datetime
) -> None:
    granted = advance(acquiring(), CapacityGranted(at=at(25), billing_start=since))

    assert granted.billing_start == stamped


def test_registration_is_stamped_once() -> None:  # T9, SC-006
    twice = after(starting(), Registered(at=at(60), pull_seconds=30), Registered(at=at(70)))

    assert (twice.registered, twice.pull_seconds) == (at(60), 30)
    assert twice.last_heartbeat == at(70)


@pytest.mark.parametrize(("said", "shown"), [(None, None), (30, 30), (500, 50), (-3, 0)])
def test_a_pull_never_lasts_longer_than_the_boot(said: int | None, shown: int | None) -> None:
    attempt = after(starting(), Registered(at=at(60), pull_seconds=said))  # SC-007

    assert attempt.pull_seconds == shown


def test_boot_seconds_count_from_the_acquisition() -> None:  # SC-007
    attempt = running()

    assert (attempt.boot_seconds, attempt.restore_seconds) == (90, None)


def test_restore_seconds_are_the_boot_of_an_attempt_that_resumes() -> None:  # SC-007, SC-140
    attempt = advance(
        replace(registered(), resumes=True), CommandStarted(at=at(100), restore_bytes=512)
    )

    assert (attempt.boot_seconds, attempt.restore_seconds) == (90, 90)
    assert attempt.restore_bytes == 512


def test_restore_bytes_are_those_of_an_attempt_that_resumes() -> None:  # T10
    assert (
        advance(registered(), CommandStarted(at=at(100), restore_bytes=512)).restore_bytes is None
    )


def test_a_start_proves_the_registration_whose_report_was_lost() -> None:  # SC-644
    attempt = advance(starting(), CommandStarted(at=at(100)))

    assert (attempt.registered, attempt.command_started) == (at(100), at(100))


def test_a_hedged_attempt_takes_the_winners_milestones() -> None:  # SC-342
    attempt = advance(
        registered(),
        CommandStarted(at=at(150), billing_start=at(80.5), registered=at(140), pull_seconds=55),
    )

    assert (attempt.acquired, attempt.billing_start, attempt.registered) == (
        at(10),
        at(80),
        at(140),
    )
    assert (attempt.command_started, attempt.pull_seconds) == (at(150), 55)


def test_a_start_fault_of_an_attempt_that_drains_unsignalled_keeps_its_own_reason() -> None:
    # SC-013: what comes before the signal is not the drain's
    ended = advance(
        drained(starting()), StartFault(at=at(210), reason=Reason.CHECKPOINT_UNAVAILABLE)
    )

    assert (ended.stage, ended.reason) == (Stage.FAILED, Reason.CHECKPOINT_UNAVAILABLE)


def test_a_start_fault_after_the_signal_is_the_drains_outcome() -> None:  # SC-013
    signalled = advance(drained(starting()), StopSignalled(at=at(201)))
    ended = advance(signalled, StartFault(at=at(210), reason=Reason.START_FAILED))

    assert (ended.stage, ended.reason) == (Stage.STOPPED, Reason.STOPPED)


@pytest.mark.parametrize("state", [acquiring, starting])
@pytest.mark.parametrize("reason", [Reason.CUSTOMER_EXIT, Reason.NODE_LOST, Reason.STOPPED])
def test_only_a_start_fault_fails_a_start(state: Callable[[], Attempt], reason: Reason) -> None:
    with pytest.raises(IllegalTransition):
        advance(state(), StartFault(at=at(30), reason=reason))


@pytest.mark.parametrize(
    ("state", "trigger", "reason"),
    [
        (starting, Trigger.PREEMPTION_NOTICE, Reason.PREEMPTED),
        (starting, Trigger.PROVIDER_EVIDENCE, Reason.PREEMPTED),
        (starting, Trigger.PROVIDER_EVIDENCE, Reason.NODE_LOST),
        (starting, Trigger.READINESS_FAILED, Reason.READINESS_FAILED),
        (starting, Trigger.STARTUP_TIMEOUT, Reason.STARTUP_TIMEOUT),
        (starting, Trigger.DRILL, Reason.READINESS_FAILED),
        (running, Trigger.PREEMPTION_NOTICE, Reason.PREEMPTED),
        (running, Trigger.PROVIDER_EVIDENCE, Reason.PREEMPTED),
        (running, Trigger.PROVIDER_EVIDENCE, Reason.NODE_LOST),
        (running, Trigger.HEARTBEAT_LOSS, Reason.NODE_LOST),
        (running, Trigger.DRILL, Reason.NODE_LOST),
    ],
)
def test_each_trigger_loses_capacity_where_it_may_strike(
    state: Callable[[], Attempt], trigger: Trigger, reason: Reason
) -> None:  # SC-012, T12, T15
    ended = advance(state(), CapacityLost(at=at(700), trigger=trigger, reason=reason))

    assert (ended.stage, ended.reason) == (Stage.LOST, reason)
    assert ended.interruption is not None
    assert ended.interruption.trigger is trigger
    assert ended.interruption.time == ended.finished


@pytest.mark.parametrize(
    ("state", "trigger", "reason"),
    [
        (starting, Trigger.HEARTBEAT_LOSS, Reason.NODE_LOST),
        (starting, Trigger.PREEMPTION_NOTICE, Reason.NODE_LOST),
        (starting, Trigger.USER, Reason.STOPPED),
        (running, Trigger.READINESS_FAILED, Reason.READINESS_FAILED),
        (running, Trigger.STARTUP_TIMEOUT, Reason.STARTUP_TIMEOUT),
        (running, Trigger.DRILL, Reason.READINESS_FAILED),
        (running, Trigger.FUNDING, Reason.UNFUNDED),
    ],
)
def test_a_trigger_elsewhere_or_with_another_reason_is_refused(
    state: Callable[[], Attempt], trigger: Trigger, reason: Reason
) -> None:  # SC-012
    with pytest.raises(IllegalTransition):
        advance(state(), CapacityLost(at=at(700), trigger=trigger, reason=reason))
