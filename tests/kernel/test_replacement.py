"""What becomes of a slot: SC-101, SC-120 to SC-122, SC-132, SC-140, SC-141."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.lives import at, failed, lost, member, pending, running, stopped, succeeded

from nodus_api.kernel.attempt import Attempt, Cursor, Interruption, RestorePoint
from nodus_api.kernel.replacement import (
    Counter,
    Replacement,
    Resumption,
    SlotCounters,
    backoff,
    decide,
    decide_unstarted_gang,
    jittered,
    needs_on_demand,
    resumption,
    workload_end,
)
from nodus_api.kernel.spec import (
    CheckpointPolicy,
    InterruptiblePolicy,
    RestartAction,
    RestartPolicy,
    RestartRule,
    WorkloadSpec,
)
from nodus_api.kernel.vocabulary import (
    OwnerKind,
    Reason,
    SlotState,
    Stage,
    Trigger,
    WorkloadState,
    stage_of,
)

SECOND = timedelta(seconds=1)
NEW = SlotCounters()
NOW = at(505)


def a_spec(kind: OwnerKind = OwnerKind.JOB, **restart: Any) -> WorkloadSpec:
    return WorkloadSpec(kind=kind, restart=RestartPolicy(**restart))


def ended_by(reason: Reason, *, exit_code: int | None = None, epoch: int = 1) -> Attempt:
    return replace(
        running(),
        epoch=epoch,
        stage=stage_of(reason),
        reason=reason,
        finished=at(500),
        exit_code=exit_code,
    )


def decided(
    attempt: Attempt,
    spec: WorkloadSpec | None = None,
    *,
    counters: SlotCounters = NEW,
    workload: WorkloadState = WorkloadState.ACTIVE,
    **more: Any,
) -> Replacement:
    return decide(
        attempt, spec=spec or a_spec(), workload=workload, counters=counters, now=NOW, **more
    )


def delay(decision: Replacement) -> timedelta:
    assert decision.not_before is not None
    return decision.not_before - NOW


def roughly(wait: timedelta, seconds: int) -> bool:
    return 0.8 * seconds * SECOND <= wait <= 1.2 * seconds * SECOND


# -- a limit of money that was reached during the drain --------------------------------------


@pytest.mark.parametrize(
    ("attempt", "reason", "slot", "ends"),
    [
        (lost(), Reason.MAX_COST_REACHED, SlotState.FAILED, WorkloadState.FAILED),
        (lost(), Reason.UNFUNDED, SlotState.UNFUNDED, None),
        (
            ended_by(Reason.RELEASED),
            Reason.MAX_COST_REACHED,
            SlotState.FAILED,
            WorkloadState.FAILED,
        ),
        (succeeded(), Reason.MAX_COST_REACHED, SlotState.SUCCEEDED, None),
    ],
)
def test_money_that_ended_during_a_drain_forbids_the_replacement(
    attempt: Attempt, reason: Reason, slot: SlotState, ends: WorkloadState | None
) -> None:  # SC-013
    decision = decided(attempt, replace(a_spec(), auto_resume=True), barred=reason)

    outcome = reason if ends else None
    assert decision == Replacement(slot=slot, counters=NEW, workload=ends, outcome=outcome)


# -- rule 1 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempt", "workload", "slot"),
    [
        (succeeded(), WorkloadState.STOPPED, SlotState.SUCCEEDED),
        (lost(), WorkloadState.SUSPENDED, SlotState.SUSPENDED),
        (lost(), WorkloadState.STOPPED, SlotState.STOPPED),
        (stopped(), WorkloadState.DELETED, SlotState.STOPPED),
        (failed(), WorkloadState.FAILED, SlotState.FAILED),
        (ended_by(Reason.RELEASED), WorkloadState.SUCCEEDED, SlotState.STOPPED),
    ],
)
def test_a_workload_that_is_decided_replaces_nothing(
    attempt: Attempt, workload: WorkloadState, slot: SlotState
) -> None:
    decision = decided(attempt, workload=workload)

    assert decision == Replacement(slot=slot, counters=NEW)
    assert not decision.replaces


# -- SC-101: after exit 0 ------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(OwnerKind))
def test_only_workers_start_again_after_a_clean_exit(kind: OwnerKind) -> None:
    decision = decided(
        succeeded(), a_spec(kind), counters=SlotCounters(backoff_k=3, retries_used=1)
    )

    worker = kind in (OwnerKind.FUNCTION, OwnerKind.AGENT)
    assert decision.slot is (SlotState.OPEN if worker else SlotState.SUCCEEDED)
    assert decision.counters == SlotCounters(retries_used=1)


# -- rule 2 --------------------------------------------------------------------------------


def test_a_budget_that_cannot_pay_a_start_ends_the_workload() -> None:
    decision = decided(lost(), budget_left=Decimal("0.09"), minimum_start_usd=Decimal("0.10"))

    assert decision == Replacement(
        slot=SlotState.FAILED,
        counters=NEW,
        workload=WorkloadState.FAILED,
        outcome=Reason.MAX_COST_REACHED,
    )


@pytest.mark.parametrize(
    "attempt",
    [succeeded(), failed(), lost(), ended_by(Reason.SUSPENDED)],  # a worker starts again
)
def test_a_budget_that_cannot_pay_a_start_ends_workers_after_any_end(attempt: Attempt) -> None:
    decision = decided(
        attempt,
        a_spec(OwnerKind.FUNCTION),
        budget_left=Decimal("0.09"),
        minimum_start_usd=Decimal("0.10"),
    )

    assert decision == decided(ended_by(Reason.MAX_COST_REACHED), a_spec(OwnerKind.FUNCTION))


def test_a_release_asks_for_no_budget() -> None:  # scale-down: others of the workload go on
    decision = decided(
        ended_by(Reason.RELEASED),
        a_spec(OwnerKind.FUNCTION),
        budget_left=Decimal(0),
        minimum_start_usd=Decimal("0.10"),
    )

    assert (decision.slot, decision.workload) == (SlotState.OPEN, None)


@pytest.mark.parametrize("left", [None, Decimal("0.10")])
def test_a_budget_that_can_pay_a_start_replaces(left: Decimal | None) -> None:
    assert decided(lost(), budget_left=left, minimum_start_usd=Decimal("0.10")).replaces


@pytest.mark.parametrize(
    ("reason", "auto_resume", "slot", "workload"),
    [
        (Reason.UNFUNDED, True, SlotState.UNFUNDED, None),
        (Reason.UNFUNDED, False, SlotState.FAILED, WorkloadState.FAILED),
        (Reason.MAX_COST_REACHED, True, SlotState.FAILED, WorkloadState.FAILED),
    ],
)
def test_money_that_ran_out(
    reason: Reason, auto_resume: bool, slot: SlotState, workload: WorkloadState | None
) -> None:
    decision = decided(ended_by(reason), replace(a_spec(), auto_resume=auto_resume))

    assert (decision.slot, decision.workload) == (slot, workload)
    assert decision.outcome is (None if workload is None else reason)


# -- stops of an active workload -----------------------------------------------------------


def test_a_workload_resumed_during_the_drain_goes_on() -> None:  # SC-806
    assert decided(ended_by(Reason.SUSPENDED)).slot is SlotState.OPEN


def test_a_stop_is_the_slots_end() -> None:
    assert decided(stopped()).slot is SlotState.STOPPED


@pytest.mark.parametrize(
    ("kind", "slot", "workload"),
    [
        (OwnerKind.JOB, SlotState.OPEN, None),  # SC-802: parallelism may rise again
        (OwnerKind.FUNCTION, SlotState.OPEN, None),
        (OwnerKind.AGENT, SlotState.OPEN, None),
        (OwnerKind.SANDBOX, SlotState.STOPPED, None),
        (OwnerKind.WORKSPACE, SlotState.SUSPENDED, WorkloadState.SUSPENDED),
        (OwnerKind.BUILD, SlotState.STOPPED, None),
    ],
)
def test_a_release_leaves_the_slot_to_who_may_want_it_again(
    kind: OwnerKind, slot: SlotState, workload: WorkloadState | None
) -> None:
    decision = decided(ended_by(Reason.RELEASED), a_spec(kind))

    assert (decision.slot, decision.workload) == (slot, workload)
    assert (decision.counters, decision.counted) == (NEW, None)  # SC-120: counted nowhere


# -- rule 3: lost capacity -----------------------------------------------------------------


@pytest.mark.parametrize("kind", list(OwnerKind))
@pytest.mark.parametrize(
    "reason",
    [Reason.PREEMPTED, Reason.NODE_LOST, Reason.READINESS_FAILED, Reason.STARTUP_TIMEOUT],
)
def test_lost_capacity_is_replaced_and_counts_to_the_replacements(
    kind: OwnerKind, reason: Reason
) -> None:
    decision = decided(ended_by(reason), a_spec(kind, max_retries=0))

    assert decision.replaces
    assert decision.counted is Counter.REPLACEMENTS
    assert (decision.counters.replacements, decision.counters.retries_used) == (1, 0)


def test_replacements_end_at_their_limit() -> None:
    spec = a_spec(max_replacements=2)

    assert decided(lost(), spec, counters=SlotCounters(replacements=1)).replaces
    spent = decided(lost(), spec, counters=SlotCounters(replacements=2))
    assert (spent.slot, spent.workload, spent.outcome) == (
        SlotState.FAILED,
        WorkloadState.FAILED,
        Reason.PREEMPTED,
    )


def test_a_drill_is_counted_nowhere_and_not_delayed() -> None:  # SC-012, SC-630
    drilled = replace(
        lost(),
        interruption=Interruption(time=at(500), trigger=Trigger.DRILL, lost_seconds=400),
    )
    counters = SlotCounters(replacements=50, backoff_k=4, nodus_failures=2, lost_in_a_row=4)

    decision = decided(drilled, counters=counters, previous_loss=at(499))

    assert decision == Replacement(slot=SlotState.OPEN, counters=counters, not_before=NOW)


# -- rule 4: Nodus's fault -----------------------------------------------------------------


@pytest.mark.parametrize("reason", [Reason.INTERNAL_ERROR, Reason.CHECKPOINT_UNAVAILABLE])
def test_nodus_faults_are_replaced_three_times_in_a_row(reason: Reason) -> None:
    counters = NEW
    for failures in (1, 2, 3):
        decision = decided(ended_by(reason), counters=counters)
        counters = decision.counters
        assert decision.replaces
        assert decision.counted is Counter.NODUS_FAILURES
        assert counters.nodus_failures == failures

    last = decided(ended_by(reason), counters=counters)
    assert (last.slot, last.workload, last.outcome) == (
        SlotState.FAILED,
        WorkloadState.FAILED,
        Reason.INTERNAL_ERROR,
    )


def test_another_end_breaks_the_row_of_nodus_faults() -> None:
    decision = decided(lost(), counters=SlotCounters(nodus_failures=3))

    assert decision.counters.nodus_failures == 0


@pytest.mark.parametrize("kind", list(OwnerKind))
def test_nodus_faults_end_a_workload_of_any_kind(kind: OwnerKind) -> None:
    decision = decided(
        ended_by(Reason.INTERNAL_ERROR), a_spec(kind), counters=SlotCounters(nodus_failures=3)
    )

    assert (decision.workload, decision.outcome) == (WorkloadState.FAILED, Reason.INTERNAL_ERROR)


# -- rule 5: the customer's fault ----------------------------------------------------------


def test_a_crash_is_not_retried_unless_asked_for() -> None:  # maxRetries 0
    decision = decided(failed())

    assert (decision.slot, decision.workload, decision.outcome) == (
        SlotState.FAILED,
        WorkloadState.FAILED,
        Reason.CUSTOMER_EXIT,
    )


def test_a_crash_is_retried_up_to_max_retries_with_growing_delay() -> None:  # scenario 18
    spec = a_spec(max_retries=2)
    first = decided(ended_by(Reason.CUSTOMER_EXIT, exit_code=1), spec)
    second = decided(
        ended_by(Reason.CUSTOMER_EXIT, exit_code=1, epoch=2), spec, counters=first.counters
    )
    third = decided(
        ended_by(Reason.CUSTOMER_EXIT, exit_code=1, epoch=3), spec, counters=second.counters
    )

    assert (first.counted, second.counted) == (Counter.RETRIES, Counter.RETRIES)
    assert roughly(delay(first), 10)
    assert roughly(delay(second), 20)
    assert second.counters.retries_used == 2
    assert (third.replaces, third.workload) == (False, WorkloadState.FAILED)


RULES = (
    RestartRule(action=RestartAction.FAIL_JOB, exit_codes=(42,)),
    RestartRule(action=RestartAction.IGNORE, exit_codes=(42, 75)),
    RestartRule(action=RestartAction.FAIL_SLOT, reasons=(Reason.OUT_OF_MEMORY,)),
    RestartRule(action=RestartAction.RETRY, exit_codes=(9,)),
)


@pytest.mark.parametrize(
    ("reason", "exit_code", "slot", "workload", "counted"),
    [
        (Reason.CUSTOMER_EXIT, 42, SlotState.FAILED, WorkloadState.FAILED, None),  # scenario 19
        (Reason.CUSTOMER_EXIT, 75, SlotState.OPEN, None, None),
        (Reason.OUT_OF_MEMORY, 137, SlotState.FAILED, None, None),
        (Reason.CUSTOMER_EXIT, 9, SlotState.OPEN, None, Counter.RETRIES),
        (Reason.CUSTOMER_EXIT, 1, SlotState.OPEN, None, Counter.RETRIES),
    ],
)
def test_the_first_rule_that_matches_decides(
    reason: Reason,
    exit_code: int,
    slot: SlotState,
    workload: WorkloadState | None,
    counted: Counter | None,
) -> None:
    decision = decided(ended_by(reason, exit_code=exit_code), a_spec(max_retries=6, rules=RULES))

    assert (decision.slot, decision.workload, decision.counted) == (slot, workload, counted)


def test_a_retry_rule_retries_no_more_than_max_retries() -> None:
    decision = decided(
        ended_by(Reason.CUSTOMER_EXIT, exit_code=9),
        a_spec(max_retries=1, rules=RULES),
        counters=SlotCounters(retries_used=1),
    )

    assert decision.workload is WorkloadState.FAILED


@pytest.mark.parametrize(
    ("kind", "slot", "workload"),
    [
        (OwnerKind.SANDBOX, SlotState.FAILED, WorkloadState.FAILED),
        (OwnerKind.BUILD, SlotState.FAILED, WorkloadState.FAILED),
        (OwnerKind.IMPORT, SlotState.FAILED, WorkloadState.FAILED),
        (OwnerKind.WORKSPACE, SlotState.SUSPENDED, WorkloadState.SUSPENDED),
        (OwnerKind.FUNCTION, SlotState.OPEN, None),
        (OwnerKind.AGENT, SlotState.OPEN, None),
    ],
)
def test_each_kind_has_its_way_after_a_crash(
    kind: OwnerKind, slot: SlotState, workload: WorkloadState | None
) -> None:  # SC-101
    decision = decided(failed(), a_spec(kind, max_retries=3))  # which is a Job's alone

    assert (decision.slot, decision.workload) == (slot, workload)
    assert decision.counters.retries_used == 0
    assert decision.replaces == (decision.not_before is not None)


# -- rule 6 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [Reason.NO_CAPACITY, Reason.UNPLACEABLE, Reason.DEADLINE_EXCEEDED, Reason.RESTORE_FAILED],
)
def test_some_ends_are_never_replaced_by_themselves(reason: Reason) -> None:
    rules = (RestartRule(action=RestartAction.IGNORE, reasons=(reason,)),)

    decision = decided(ended_by(reason), a_spec(max_retries=6, rules=rules))

    assert (decision.slot, decision.workload, decision.outcome) == (
        SlotState.FAILED,
        WorkloadState.FAILED,
        reason,
    )


def test_a_worker_that_finds_no_capacity_fails_alone() -> None:
    decision = decided(ended_by(Reason.NO_CAPACITY), a_spec(OwnerKind.AGENT))

    assert (decision.slot, decision.workload) == (SlotState.FAILED, None)


# -- SC-121: delays ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "seconds"), [(0, 10), (1, 20), (2, 40), (5, 320), (6, 600), (7, 600), (10**6, 600)]
)
def test_the_backoff_doubles_up_to_ten_minutes(k: int, seconds: int) -> None:
    assert backoff(k) == seconds * SECOND


@pytest.mark.parametrize("previous", [None, at(-100)])
def test_the_first_loss_in_ten_minutes_waits_for_nothing(previous: datetime | None) -> None:
    decision = decided(lost(), previous_loss=previous)

    assert delay(decision) == timedelta(0)
    assert decision.counters.backoff_k == 1


def test_a_wait_is_jittered_by_the_epoch_that_waits() -> None:
    crashed = ended_by(Reason.CUSTOMER_EXIT, exit_code=1, epoch=3)

    decision = decided(crashed, a_spec(max_retries=9))

    assert delay(decision) == jittered(10 * SECOND, crashed, epoch=4)


def test_another_loss_within_ten_minutes_waits() -> None:
    decision = decided(lost(), previous_loss=at(-99), counters=SlotCounters(backoff_k=1))

    assert roughly(delay(decision), 20)
    assert decision.counters.backoff_k == 2


def test_a_new_checkpoint_resets_the_backoff() -> None:
    saved = replace(ended_by(Reason.CUSTOMER_EXIT, exit_code=1), last_committed=at(400))

    decision = decided(saved, a_spec(max_retries=9), counters=SlotCounters(backoff_k=5))

    assert roughly(delay(decision), 10)
    assert decision.counters.backoff_k == 1


@given(epoch=st.integers(1, 10**6), slot=st.integers(0, 10**9 - 1))
def test_jitter_is_within_a_fifth_and_the_same_again(epoch: int, slot: int) -> None:
    attempt = replace(pending(), slot=str(slot))
    wait = jittered(100 * SECOND, attempt, epoch=epoch)

    assert 80 * SECOND <= wait <= 120 * SECOND
    assert jittered(100 * SECOND, attempt, epoch=epoch) == wait


def test_jitter_spreads_slots() -> None:
    waits = {jittered(100 * SECOND, replace(pending(), slot=str(i)), epoch=2) for i in range(100)}

    assert len(waits) > 50


# -- SC-122: the progress guard ------------------------------------------------------------


def test_five_early_losses_in_a_row_call_for_on_demand() -> None:
    counters = NEW
    for expected in (1, 2, 3, 4, 5):
        assert not needs_on_demand(counters, InterruptiblePolicy.ALLOW)
        counters = decided(lost(), counters=counters, checkpoint_interval=201 * SECOND).counters
        assert counters.lost_in_a_row == expected

    assert needs_on_demand(counters, InterruptiblePolicy.ALLOW)
    assert not needs_on_demand(counters, InterruptiblePolicy.REQUIRE)


@pytest.mark.parametrize(
    ("attempt", "interval"),
    [
        (lost(), 200),  # ran two intervals
        (replace(lost(), last_committed=at(300)), 9999),  # left a checkpoint
    ],
)
def test_a_loss_after_progress_breaks_the_row(attempt: Attempt, interval: int) -> None:
    decision = decided(
        attempt,
        counters=SlotCounters(lost_in_a_row=4),
        checkpoint_interval=interval * SECOND,
    )

    assert decision.counters.lost_in_a_row == 0


def test_a_loss_before_the_start_made_no_progress() -> None:
    never = replace(lost(), command_started=None)

    assert decided(never).counters.lost_in_a_row == 1


def test_a_crash_breaks_the_row_of_losses() -> None:
    decision = decided(failed(), a_spec(max_retries=1), counters=SlotCounters(lost_in_a_row=4))

    assert decision.counters.lost_in_a_row == 0


# -- SC-132: gangs that never start --------------------------------------------------------


def unstarted(epoch: int) -> Attempt:
    return member(replace(ended_by(Reason.RELEASED, epoch=epoch), command_started=None), 0)


@pytest.mark.parametrize(("times", "seconds"), [(1, 10), (2, 20), (9, 600)])
def test_an_unstarted_gang_waits_longer_each_time(times: int, seconds: int) -> None:
    epochs = [unstarted(epoch) for epoch in range(1, times + 1)]

    decision = decide_unstarted_gang(epochs, workload=WorkloadState.ACTIVE, counters=NEW, now=NOW)

    assert decision.replaces
    assert decision.counters == NEW
    assert roughly(delay(decision), seconds)


def test_the_tenth_unstarted_gang_in_a_row_is_the_last() -> None:
    epochs = [unstarted(epoch) for epoch in range(1, 11)]

    decision = decide_unstarted_gang(epochs, workload=WorkloadState.ACTIVE, counters=NEW, now=NOW)

    assert (decision.slot, decision.workload, decision.outcome) == (
        SlotState.FAILED,
        WorkloadState.FAILED,
        Reason.NO_CAPACITY,
    )


def test_an_unstarted_gang_of_a_stopped_workload_stays_stopped() -> None:
    decision = decide_unstarted_gang(
        [unstarted(1)], workload=WorkloadState.STOPPED, counters=NEW, now=NOW
    )

    assert decision == Replacement(slot=SlotState.STOPPED, counters=NEW)


# -- SC-140, SC-141: what a successor resumes ----------------------------------------------

POINT = RestorePoint(seq=4, cursor=Cursor(completed=400, total=600))
RESTARTABLE = WorkloadSpec(
    kind=OwnerKind.JOB, checkpoint=CheckpointPolicy(restartable=True, interval_seconds=60)
)


@pytest.mark.parametrize(
    ("predecessor", "latest", "resumes"),
    [
        (None, None, Resumption()),
        (failed, None, Resumption()),
        (lost, None, Resumption(resumes=True)),
        (lost, POINT, Resumption(resumes=True, restore=POINT)),
        (failed, POINT, Resumption(resumes=True, restore=POINT)),
        (stopped, POINT, Resumption(resumes=True, restore=POINT)),
    ],
)
def test_a_successor_resumes_from_a_checkpoint_or_after_a_loss(
    predecessor: Callable[[], Attempt] | None, latest: RestorePoint | None, resumes: Resumption
) -> None:
    before = predecessor() if predecessor else None

    assert resumption(before, latest, spec=RESTARTABLE) == resumes


@pytest.mark.parametrize("spec", [a_spec(), replace(RESTARTABLE, kind=OwnerKind.SANDBOX)])
def test_a_cursor_is_handed_on_for_restartable_jobs_alone(spec: WorkloadSpec) -> None:
    assert resumption(lost(), POINT, spec=spec) == Resumption(
        resumes=True, restore=RestorePoint(seq=4)
    )


# -- the workload's end --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "end"),
    [
        ((), None),
        ((SlotState.SUCCEEDED, SlotState.OPEN), None),
        ((SlotState.FAILED, SlotState.SUSPENDED), None),
        ((SlotState.SUCCEEDED, SlotState.UNFUNDED), None),
        ((SlotState.SUCCEEDED, SlotState.SUCCEEDED), WorkloadState.SUCCEEDED),
        ((SlotState.SUCCEEDED, SlotState.FAILED), WorkloadState.FAILED),
        ((SlotState.STOPPED, SlotState.FAILED), WorkloadState.FAILED),
        ((SlotState.SUCCEEDED, SlotState.STOPPED), WorkloadState.STOPPED),
    ],
)
def test_a_workload_ends_with_its_last_slot(
    slots: tuple[SlotState, ...], end: WorkloadState | None
) -> None:
    assert workload_end(a_spec(), slots) is end


def test_workers_never_end_by_themselves() -> None:  # SC-807
    assert workload_end(a_spec(OwnerKind.AGENT), (SlotState.SUCCEEDED,)) is None


@given(
    reason=st.sampled_from(Reason),
    kind=st.sampled_from(OwnerKind),
    workload=st.sampled_from(WorkloadState),
    counters=st.builds(
        SlotCounters,
        retries_used=st.integers(0, 3),
        replacements=st.integers(0, 51),
        backoff_k=st.integers(0, 9),
        nodus_failures=st.integers(0, 3),
        lost_in_a_row=st.integers(0, 6),
    ),
    max_retries=st.integers(0, 3),
)
def test_every_decision_is_whole(
    reason: Reason,
    kind: OwnerKind,
    workload: WorkloadState,
    counters: SlotCounters,
    max_retries: int,
) -> None:
    decision = decided(
        ended_by(reason),
        a_spec(kind, max_retries=max_retries),
        counters=counters,
        workload=workload,
    )

    raised = [c for c in Counter if getattr(decision.counters, c) > getattr(counters, c)]
    assert raised == ([] if decision.counted is None else [decision.counted])
    assert (decision.workload is None) == (decision.outcome is None)
    if decision.replaces:
        assert workload is WorkloadState.ACTIVE
        assert decision.workload is None
    if stage_of(reason) in (Stage.LOST, Stage.FAILED):
        assert decision.replaces == (decision.not_before is not None)
