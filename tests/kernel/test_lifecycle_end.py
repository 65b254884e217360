"""What ends an Attempt, and what may still change after: T8, T13 to T19, clamping."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest
from tests.kernel.lives import (
    acquiring,
    after,
    at,
    drained,
    lost,
    pending,
    placing,
    registered,
    running,
    starting,
    stopped,
    succeeded,
)

from nodus_api.kernel.attempt import Attempt, Drain, Interruption
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.events import (
    CapacityGranted,
    CapacityLost,
    CheckpointCommitted,
    Claimed,
    CommandStarted,
    DeletionProven,
    Event,
    Exited,
    Heartbeat,
    NoticeCleared,
    Placed,
    Recovered,
    Registered,
    RunFault,
    StartDeadlinePassed,
    StopCompleted,
    StopRequested,
    StopSignalled,
    Superseded,
    Waits,
)
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.moments import clamped
from nodus_api.kernel.vocabulary import (
    Phase,
    Reason,
    Stage,
    Trigger,
    WaitingFor,
)

# -- T13 to T15: the program's end ---------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "stage", "reason", "code", "signal"),
    [
        (Exited(at=at(500), exit_code=0), Stage.SUCCEEDED, None, 0, None),
        (Exited(at=at(500), exit_code=3), Stage.FAILED, Reason.CUSTOMER_EXIT, 3, None),
        (Exited(at=at(500), exit_code=137), Stage.FAILED, Reason.CUSTOMER_EXIT, 137, None),
        (Exited(at=at(500), exit_code=-11, signal=11), Stage.FAILED, Reason.CUSTOMER_EXIT, 139, 11),
        (
            Exited(at=at(500), exit_code=137, signal=9, oom=True),
            Stage.FAILED,
            Reason.OUT_OF_MEMORY,
            137,
            9,
        ),
    ],
)
def test_an_exit_tells_code_and_signal(
    event: Exited, stage: Stage, reason: Reason | None, code: int, signal: int | None
) -> None:  # SC-009, scenarios 15 to 17
    ended = advance(running(), event)

    assert (ended.stage, ended.reason) == (stage, reason)
    assert (ended.exit_code, ended.signal) == (code, signal)
    assert ended.interruption is None


def test_an_exit_before_the_signal_wins_over_a_notice() -> None:  # SC-013, scenario 22
    noticed = drained(running(), trigger=Trigger.PREEMPTION_NOTICE)

    ended = advance(noticed, Exited(at=at(210), exit_code=0))

    assert (ended.stage, ended.reason, ended.interruption) == (Stage.SUCCEEDED, None, None)
    assert ended.drain is None


def test_no_end_lies_before_the_last_sign_of_life() -> None:  # SC-509, SC-015, P-13
    """It is billed up to there: a heartbeat told late, or a clock set back, takes nothing away."""
    heard = advance(running(), Heartbeat(at=at(200.7)))

    ended = advance(heard, Exited(at=at(150), exit_code=0))

    assert ended.finished == at(200)


@pytest.mark.parametrize("exit_code", [0, 1, 143])
def test_any_exit_after_the_signal_is_the_drains(exit_code: int) -> None:  # SC-013, scenario 20
    noticed = after(
        drained(running(), trigger=Trigger.PREEMPTION_NOTICE),
        StopSignalled(at=at(201)),
        CheckpointCommitted(at=at(220)),
    )

    ended = advance(noticed, Exited(at=at(225), exit_code=exit_code, stopped=True))

    assert (ended.stage, ended.reason) == (Stage.LOST, Reason.PREEMPTED)
    assert ended.exit_code == exit_code
    assert ended.interruption == Interruption(
        time=at(225), trigger=Trigger.PREEMPTION_NOTICE, lost_seconds=5
    )


@pytest.mark.parametrize(("exit_code", "signal"), [(0, None), (1, None), (143, 15)])
def test_an_exit_after_a_signal_that_nobody_ordered_is_the_machines_loss(
    exit_code: int, signal: int | None
) -> None:  # T13 to T15: a stopped program neither succeeded nor failed by itself
    saved = advance(running(), CheckpointCommitted(at=at(220)))

    ended = advance(saved, Exited(at=at(225), exit_code=exit_code, signal=signal, stopped=True))

    assert (ended.stage, ended.reason) == (Stage.LOST, Reason.NODE_LOST)
    assert (ended.exit_code, ended.signal) == (exit_code, signal)
    assert ended.interruption == Interruption(
        time=at(225), trigger=Trigger.PROVIDER_EVIDENCE, lost_seconds=5
    )


@pytest.mark.parametrize("deadline", [at(215), at(235)])
def test_the_first_cause_keeps_reason_and_bill(deadline: datetime) -> None:  # SC-013
    noticed = drained(running(), trigger=Trigger.PREEMPTION_NOTICE)

    stopped_too = advance(
        noticed,
        StopRequested(at=at(205), trigger=Trigger.USER, reason=Reason.STOPPED, deadline=deadline),
    )

    assert stopped_too == noticed


@pytest.mark.parametrize(
    ("first", "barred"),
    [
        (Drain(trigger=Trigger.PREEMPTION_NOTICE, reason=Reason.PREEMPTED), True),
        (Drain(trigger=None, reason=Reason.RELEASED), True),
        (Drain(trigger=Trigger.FUNDING, reason=Reason.MAX_COST_REACHED), False),
    ],
)
def test_a_limit_reached_while_another_cause_drains_bars_what_follows(
    first: Drain, barred: bool
) -> None:  # SC-013: reason and deadline stay
    draining = replace(running(), drain=replace(first, deadline=at(230)))
    limit = StopRequested(
        at=at(205), trigger=Trigger.FUNDING, reason=Reason.MAX_COST_REACHED, deadline=at(206)
    )

    reached = advance(advance(draining, limit), replace(limit, reason=Reason.UNFUNDED))

    wanted = Reason.MAX_COST_REACHED if barred else None
    assert reached.drain == replace(first, deadline=at(230), barred=wanted)


@pytest.mark.parametrize(("notice", "deadline"), [(at(215), at(215)), (at(320), at(230))])
def test_a_notice_can_only_bring_a_drains_deadline_nearer(
    notice: datetime, deadline: datetime
) -> None:  # SC-013: the grace is capped by the notice
    attempt = advance(
        drained(running()),
        StopRequested(
            at=at(205), trigger=Trigger.PREEMPTION_NOTICE, reason=Reason.PREEMPTED, deadline=notice
        ),
    )

    assert attempt.drain == Drain(trigger=Trigger.USER, reason=Reason.STOPPED, deadline=deadline)


def test_a_drain_without_a_deadline_takes_the_notices() -> None:
    draining = advance(running(), StopRequested(at=at(200), trigger=None, reason=Reason.RELEASED))
    noticed = advance(
        draining,
        StopRequested(at=at(205), trigger=Trigger.DRILL, reason=Reason.PREEMPTED, deadline=at(300)),
    )

    assert noticed.drain == Drain(trigger=None, reason=Reason.RELEASED, deadline=at(300))


def test_a_notice_without_a_deadline_changes_no_drain() -> None:
    draining = drained(running())

    assert (
        advance(
            draining,
            StopRequested(at=at(205), trigger=Trigger.PREEMPTION_NOTICE, reason=Reason.PREEMPTED),
        )
        == draining
    )


def test_capacity_lost_while_draining_is_the_drains_outcome() -> None:  # SC-013
    ended = advance(
        drained(running()),
        CapacityLost(at=at(220), trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.NODE_LOST),
    )

    assert (ended.stage, ended.reason) == (Stage.STOPPED, Reason.STOPPED)
    assert ended.interruption is not None
    assert ended.interruption.trigger is Trigger.USER


def test_the_stop_signal_is_stamped_once() -> None:
    twice = after(drained(running()), StopSignalled(at=at(201)), StopSignalled(at=at(209)))

    assert twice.drain is not None
    assert twice.drain.signalled == at(201)


def test_an_undelivered_notice_is_cleared() -> None:  # SC-013, scenario 23
    cleared = advance(
        drained(running(), trigger=Trigger.PREEMPTION_NOTICE), NoticeCleared(at=at(300))
    )

    assert cleared == running()


@pytest.mark.parametrize(
    "attempt",
    [
        drained(running()),
        after(drained(running(), trigger=Trigger.PREEMPTION_NOTICE), StopSignalled(at=at(201))),
        after(
            running(),  # a rank whose peer was noticed: SC-134
            StopRequested(
                at=at(200),
                trigger=Trigger.PREEMPTION_NOTICE,
                reason=Reason.RELEASED,
                deadline=at(230),
            ),
        ),
    ],
)
def test_only_an_undelivered_notice_can_be_cleared(attempt: Attempt) -> None:
    with pytest.raises(IllegalTransition):
        advance(attempt, NoticeCleared(at=at(300)))


@pytest.mark.parametrize("reason", [Reason.CUSTOMER_EXIT, Reason.NO_CAPACITY, Reason.STOPPED])
def test_only_a_run_fault_fails_a_running_program(reason: Reason) -> None:  # T14
    with pytest.raises(IllegalTransition):
        advance(running(), RunFault(at=at(300), reason=reason))


def test_a_run_fault_may_carry_the_exit_it_caused() -> None:  # T14
    ended = advance(
        running(), RunFault(at=at(300), reason=Reason.DEADLINE_EXCEEDED, exit_code=1, signal=9)
    )

    assert (ended.reason, ended.exit_code, ended.signal) == (Reason.DEADLINE_EXCEEDED, 137, 9)


def test_a_heartbeat_loss_ends_at_the_last_heartbeat() -> None:  # SC-015, example 13
    silent = after(running(), Heartbeat(at=at(400.7)), Heartbeat(at=at(390)))

    ended = advance(
        silent, CapacityLost(at=at(1000), trigger=Trigger.HEARTBEAT_LOSS, reason=Reason.NODE_LOST)
    )

    assert silent.last_heartbeat == at(400.7)
    assert ended.finished == at(400)


def test_a_heartbeat_loss_without_any_heartbeat_ends_at_the_start() -> None:
    mute = replace(running(), last_heartbeat=None)

    ended = advance(
        mute, CapacityLost(at=at(1000), trigger=Trigger.HEARTBEAT_LOSS, reason=Reason.NODE_LOST)
    )

    assert ended.finished == at(100)


def test_evidence_older_than_the_last_heartbeat_is_clamped_to_it() -> None:  # SC-015
    ended = after(
        running(),
        Heartbeat(at=at(400)),
        CapacityLost(at=at(350), trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.PREEMPTED),
    )

    assert ended.finished == at(400)


def test_an_end_never_lies_before_the_last_checkpoint() -> None:  # SC-015
    ended = after(
        running(),
        CheckpointCommitted(at=at(300)),
        CheckpointCommitted(at=at(280)),
        Exited(at=at(250), exit_code=1),
    )

    assert (ended.last_committed, ended.finished) == (at(300), at(300))


def test_a_checkpoint_lies_after_the_start() -> None:  # SC-016
    assert advance(running(), CheckpointCommitted(at=at(50))).last_committed == at(100)


def test_lost_seconds_count_from_the_last_checkpoint() -> None:  # SC-016, scenario 21
    ended = after(
        running(),
        CheckpointCommitted(at=at(440.9)),
        CapacityLost(at=at(500), trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.PREEMPTED),
    )

    assert ended.interruption is not None
    assert ended.interruption.lost_seconds == 60


def test_lost_seconds_without_a_checkpoint_count_from_the_start() -> None:  # SC-016
    assert lost().lost_seconds == 400


def test_nothing_is_lost_by_an_attempt_that_never_started() -> None:  # SC-016
    ended = advance(
        registered(),
        CapacityLost(at=at(99), trigger=Trigger.READINESS_FAILED, reason=Reason.READINESS_FAILED),
    )

    assert ended.interruption == Interruption(
        time=at(99), trigger=Trigger.READINESS_FAILED, lost_seconds=0
    )
    assert (ended.boot_seconds, ended.restore_seconds) == (None, None)


# -- T8, T16, T17: stops -------------------------------------------------------------------


def test_a_queued_attempt_stops_at_once() -> None:  # T16, scenario 31
    ended = stopped()

    assert (ended.stage, ended.reason, ended.phase) == (
        Stage.STOPPED,
        Reason.STOPPED,
        Phase.CANCELLED,
    )
    assert ended.interruption == Interruption(time=at(5), trigger=Trigger.USER, lost_seconds=0)


def test_a_release_without_a_cause_has_no_interruption() -> None:  # SC-003
    ended = advance(pending(), StopRequested(at=at(5), trigger=None, reason=Reason.RELEASED))

    assert (ended.reason, ended.interruption) == (Reason.RELEASED, None)


@pytest.mark.parametrize("state", [pending, acquiring, starting, running])
@pytest.mark.parametrize("trigger", list(Trigger))
def test_a_release_may_copy_its_peers_trigger(
    state: Callable[[], Attempt], trigger: Trigger
) -> None:  # SC-003, SC-134
    attempt = advance(state(), StopRequested(at=at(300), trigger=trigger, reason=Reason.RELEASED))
    ended = attempt if not attempt.live else advance(attempt, StopCompleted(at=at(310)))

    assert (ended.stage, ended.reason) == (Stage.STOPPED, Reason.RELEASED)
    assert ended.interruption is not None
    assert ended.interruption.trigger is trigger


@pytest.mark.parametrize(
    ("trigger", "reason"),
    [
        (Trigger.USER, Reason.UNFUNDED),
        (Trigger.FUNDING, Reason.STOPPED),
        (None, Reason.STOPPED),
        (Trigger.HEARTBEAT_LOSS, Reason.NODE_LOST),
        (Trigger.PREEMPTION_NOTICE, Reason.NODE_LOST),
        (Trigger.USER, Reason.CUSTOMER_EXIT),
    ],
)
def test_a_stop_whose_cause_and_reason_differ_is_refused(
    trigger: Trigger | None, reason: Reason
) -> None:  # SC-012
    with pytest.raises(IllegalTransition):
        advance(running(), StopRequested(at=at(300), trigger=trigger, reason=reason))


@pytest.mark.parametrize("state", [pending, placing, acquiring])
def test_a_notice_comes_to_a_machine_alone(state: Callable[[], Attempt]) -> None:  # SC-012
    notice = StopRequested(
        at=at(300), trigger=Trigger.PREEMPTION_NOTICE, reason=Reason.PREEMPTED, deadline=at(330)
    )

    with pytest.raises(IllegalTransition):
        advance(state(), notice)


def test_a_stop_while_acquiring_ends_with_the_grant() -> None:  # SC-006a, scenario 32
    ended = after(drained(acquiring()), CapacityGranted(at=at(220)), StopCompleted(at=at(220)))

    assert (ended.stage, ended.reason) == (Stage.STOPPED, Reason.STOPPED)
    assert (ended.billing_start, ended.finished) == (at(220), at(220))


def test_a_start_deadline_while_acquiring_ends_with_the_proof() -> None:  # SC-006a, T8
    draining = advance(acquiring(), StartDeadlinePassed(at=at(3601)))
    absent = advance(draining, StopCompleted(at=at(3640)))
    granted = after(draining, CapacityGranted(at=at(3640)), StopCompleted(at=at(3640)))

    assert draining.drain == Drain(trigger=None, reason=Reason.NO_CAPACITY)
    for ended in (absent, granted):
        assert (ended.stage, ended.reason) == (Stage.FAILED, Reason.NO_CAPACITY)
        assert (ended.interruption, ended.finished) == (None, at(3640))
    assert absent.billing_start is None


def test_a_start_deadline_takes_no_earlier_stop_over() -> None:  # SC-013
    stopping = drained(acquiring())

    assert advance(stopping, StartDeadlinePassed(at=at(3601))) == stopping


def test_an_exit_known_at_the_drains_end_is_kept_if_the_program_ran() -> None:  # T17
    event = StopCompleted(at=at(240), exit_code=143, signal=15)

    ran = advance(drained(running()), event)
    never = advance(drained(starting()), event)

    assert (ran.exit_code, ran.signal) == (143, 15)
    assert (never.exit_code, never.signal) == (None, None)


# -- T18, T19, recovery --------------------------------------------------------------------


def test_deletion_is_proven_once_and_not_before_the_end() -> None:  # T18, example 9
    proven = advance(succeeded(), DeletionProven(at=at(495)))

    assert (proven.deletion_proven, proven.teardown_seconds) == (at(500), 0)
    with pytest.raises(IllegalTransition):
        advance(proven, DeletionProven(at=at(520)))


def test_only_the_next_epoch_supersedes_and_once() -> None:  # T19, P-04
    superseded = advance(lost(), Superseded(at=at(501), epoch=2))

    assert superseded.superseded_by == 2
    for attempt, epoch in ((lost(), 3), (superseded, 2)):
        with pytest.raises(IllegalTransition):
            advance(attempt, Superseded(at=at(502), epoch=epoch))


def test_recovery_lasts_from_the_interruption_to_the_next_start() -> None:  # SC-016, P-22
    recovered = advance(lost(), Recovered(at=at(920.4)))

    assert recovered.interruption is not None
    assert recovered.interruption.recovery_seconds == 420
    with pytest.raises(IllegalTransition):
        advance(recovered, Recovered(at=at(930)))


# -- SC-006: clamping ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "event", "field", "stamped"),
    [
        (placing, Placed(at=at(-5)), "acquired", at(0)),
        (acquiring, CapacityGranted(at=at(4)), "billing_start", at(10)),
        (starting, Registered(at=at(4)), "registered", at(20)),
        (registered, CommandStarted(at=at(4)), "command_started", at(60)),
        (running, Exited(at=at(4), exit_code=0), "finished", at(100)),
        (succeeded, DeletionProven(at=at(4)), "deletion_proven", at(500)),
        (running, CheckpointCommitted(at=at(4)), "last_committed", at(100)),
        (
            placing,
            StopRequested(at=at(-1), trigger=None, reason=Reason.RELEASED),
            "finished",
            at(0),
        ),
    ],
)
def test_an_event_out_of_order_is_clamped_and_said_to_be(
    state: Callable[[], Attempt], event: Event, field: str, stamped: datetime
) -> None:
    attempt = state()

    assert getattr(advance(attempt, event), field) == stamped
    assert clamped(attempt, event)
    assert not clamped(attempt, replace(event, at=at(5000)))


def test_a_recovery_out_of_order_is_clamped() -> None:
    recovered = advance(lost(), Recovered(at=at(4)))

    assert clamped(lost(), Recovered(at=at(4)))
    assert recovered.interruption is not None
    assert recovered.interruption.recovery_seconds == 0


@pytest.mark.parametrize(
    ("attempt", "event"),
    [
        (pending(), Claimed(at=at(-5))),
        (pending(), Waits(at=at(-5), waiting_for=WaitingFor.GANG, message="gang of 4")),
        (running(), Heartbeat(at=at(-5))),
        (running(), StopRequested(at=at(-5), trigger=Trigger.USER, reason=Reason.STOPPED)),
        (acquiring(), StartDeadlinePassed(at=at(-5))),
        (registered(), Registered(at=at(-5))),
        (drained(running()), StopSignalled(at=at(-5))),
        (lost(), Superseded(at=at(-5), epoch=2)),
        (succeeded(), Recovered(at=at(-5))),
    ],
)
def test_an_event_that_stamps_no_milestone_is_never_clamped(attempt: Attempt, event: Event) -> None:
    assert not clamped(attempt, event)


def test_a_hedge_start_is_in_order_with_the_winners_milestones_alone() -> None:  # SC-342
    event = CommandStarted(at=at(50), billing_start=at(30), registered=at(45))

    assert advance(registered(), event).command_started == at(50)
    assert not clamped(registered(), event)  # the first machine registered at 60


def test_a_winners_registration_lies_after_its_own_billing() -> None:  # SC-006, SC-342
    event = CommandStarted(at=at(50), billing_start=at(30), registered=at(20))

    assert advance(registered(), event).registered == at(30)


def test_a_hedge_start_before_its_own_registration_is_clamped_to_it() -> None:
    event = CommandStarted(at=at(100), billing_start=at(5), registered=at(120))
    attempt = advance(registered(), event)

    assert clamped(registered(), event)
    assert (attempt.billing_start, attempt.registered, attempt.command_started) == (
        at(10),
        at(120),
        at(120),
    )


def test_teardown_is_open_until_the_deletion_is_proven() -> None:  # SC-007
    proven = advance(succeeded(), DeletionProven(at=at(530)))

    assert succeeded().teardown_seconds is None
    assert proven.teardown_seconds == 30
