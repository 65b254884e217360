"""What the Attempts of a gang epoch say together: SC-132 to SC-135, SC-520."""

from dataclasses import replace

import pytest
from tests.kernel.lives import (
    acquiring,
    after,
    at,
    failed,
    lost,
    member,
    registered,
    running,
    starting,
    succeeded,
)

from nodus_api.kernel.attempt import Attempt, RestorePoint
from nodus_api.kernel.billing import Release
from nodus_api.kernel.events import Exited, StopCompleted, StopRequested
from nodus_api.kernel.gang import (
    all_registered,
    first_failed,
    has_succeeded,
    late_ranks,
    release_of,
    restore_together,
    unstarted_in_a_row,
    waits_at_barrier,
)
from nodus_api.kernel.vocabulary import Reason, Stage


def released(attempt: Attempt) -> Attempt:
    return after(
        attempt,
        StopRequested(at=at(505), trigger=None, reason=Reason.RELEASED, deadline=at(535)),
        StopCompleted(at=at(510)),
    )


def test_the_barrier_opens_when_all_ranks_are_registered() -> None:  # SC-133
    ready = [member(registered(), 0), member(registered(), 1)]

    assert all_registered(ready)
    assert not all_registered([*ready, member(starting(), 2)])
    assert not all_registered([*ready, member(released(registered()), 2)])


def test_the_barrier_stays_open_when_a_quick_rank_has_ended() -> None:  # SC-133
    assert all_registered([member(registered(), 0), member(succeeded(), 1)])


def test_a_rank_waits_at_the_barrier_for_those_that_are_missing() -> None:  # SC-133
    ready, missing = member(registered(), 0), member(starting(), 1)
    stopped = after(
        ready, StopRequested(at=at(300), trigger=None, reason=Reason.RELEASED, deadline=at(330))
    )

    assert waits_at_barrier([ready, missing], ready)
    assert not waits_at_barrier([ready, missing], missing)
    assert not waits_at_barrier([ready, member(registered(), 1)], ready)
    assert not waits_at_barrier([stopped, missing], stopped)
    assert not waits_at_barrier([member(running(), 0), missing], member(running(), 0))


def test_a_gang_is_decided_for_the_rank_that_failed_first() -> None:  # SC-120
    early = member(replace(lost(), finished=at(400)), 3)
    late, same = member(failed(), 1), member(lost(), 2)

    assert first_failed([late, early, same]) == early
    assert first_failed([same, late]) == late  # of one second, the lower rank
    assert first_failed([member(running(), 0), member(released(running()), 1)]) is None


def test_a_gang_succeeds_with_all_its_ranks() -> None:  # SC-135
    assert has_succeeded([member(succeeded(), 0), member(succeeded(), 1)])


def test_a_late_rank_does_not_spoil_the_success() -> None:  # SC-135
    assert has_succeeded([member(succeeded(), 0), member(released(running()), 1)])


@pytest.mark.parametrize(
    ("rank_0", "rank_1"),
    [
        (succeeded(), running()),
        (succeeded(), failed()),
        (running(), succeeded()),
        (released(running()), succeeded()),
    ],
)
def test_a_gang_with_another_end_has_not_succeeded(rank_0: Attempt, rank_1: Attempt) -> None:
    assert not has_succeeded([member(rank_0, 0), member(rank_1, 1)])


def test_ranks_are_late_60_seconds_after_rank_0_exited() -> None:  # SC-135
    rank_0, rank_1 = member(succeeded(), 0), member(running(), 1)

    assert late_ranks([rank_0, rank_1], at(559)) == ()
    assert late_ranks([rank_1, rank_0], at(560)) == (rank_1,)


def test_no_rank_is_late_while_rank_0_runs() -> None:
    members = [member(running(), 0), member(succeeded(), 1), member(running(), 2)]

    assert late_ranks(members, at(9999)) == ()


def test_no_rank_is_late_after_rank_0_failed() -> None:  # SC-134 drains them
    assert late_ranks([member(failed(), 0), member(running(), 1)], at(9999)) == ()


def test_a_gang_in_which_no_program_started_costs_nothing() -> None:  # SC-133, scenario 29
    members = [member(released(acquiring()), 0), member(released(registered()), 1)]

    assert release_of(members) is Release.NEVER_STARTED


@pytest.mark.parametrize(
    ("cause", "release"),
    [
        (lost(), Release.CAPACITY_FAULT),
        (replace(failed(), reason=Reason.INTERNAL_ERROR), Release.CAPACITY_FAULT),
        (failed(), Release.NOT_NEEDED),
        (succeeded(), Release.NOT_NEEDED),
    ],
)
def test_the_cause_of_a_gang_restart_decides_who_pays(cause: Attempt, release: Release) -> None:
    members = [member(released(running()), 0), member(cause, 1)]  # SC-520, scenario 30

    assert release_of(members) is release


def test_unstarted_gang_epochs_are_counted_from_the_newest() -> None:  # SC-132
    never, ran = member(released(acquiring()), 0), member(lost(), 0)

    assert unstarted_in_a_row([]) == 0
    assert unstarted_in_a_row([never, ran]) == 0
    assert unstarted_in_a_row([never, ran, never, never]) == 2
    assert unstarted_in_a_row([never, never]) == 2


def test_a_single_attempt_is_its_own_rank_0() -> None:
    alone = after(running(), Exited(at=at(500), exit_code=0))

    assert alone.stage is Stage.SUCCEEDED
    assert has_succeeded([alone])
    assert late_ranks([alone], at(9999)) == ()
    assert not has_succeeded([released(running())])


def test_all_ranks_go_on_from_the_same_checkpoint_or_from_none() -> None:  # SC-141, P-24
    third, fourth = RestorePoint(seq=3), RestorePoint(seq=4)

    assert restore_together({"0": third, "1": third, "7": fourth}, ["0", "1"]) == {
        "0": third,
        "1": third,
    }
    assert restore_together({"0": third}, ["0", "1"]) == {}
    assert restore_together({"0": third, "1": fourth}, ["0", "1"]) == {}
    assert restore_together({}, ["0", "1"]) == {}
