"""What is overdue, to the second: SC-006a, SC-013, SC-613, SC-614."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.kernel.lives import (
    acquiring,
    after,
    at,
    drained,
    pending,
    placing,
    running,
    starting,
    succeeded,
)

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.deadlines import (
    Limits,
    Overdue,
    Silence,
    drain_deadline,
    drain_end,
    overdue,
    running_until,
    silence,
    stage_limit,
    starting_limit,
    take_over_shift,
)
from nodus_api.kernel.events import (
    CapacityGranted,
    Heartbeat,
    StopRequested,
    StopSignalled,
)
from nodus_api.kernel.vocabulary import Reason, Trigger, WaitingFor

SECOND = timedelta(seconds=1)
LIMITS = Limits()


def what(
    attempt: Attempt, now: float, *, limits: Limits = LIMITS, pulling: bool = False
) -> Overdue | None:
    limit_at = stage_limit(attempt, limits)
    return overdue(attempt, at(now), limit_at=limit_at, limits=limits, pulling=pulling)


@pytest.mark.parametrize(
    ("p95", "limit"), [(0, 600), (200, 600), (300, 900), (1200, 3600), (5000, 3600)]
)
def test_the_starting_limit_follows_the_classs_boot(p95: int, limit: int) -> None:  # SC-613
    assert starting_limit(p95 * SECOND) == limit * SECOND


@pytest.mark.parametrize(
    ("state", "limit_at"),
    [
        (pending, None),
        (placing, None),
        (acquiring, at(310)),
        (starting, at(620)),
        (running, None),
        (succeeded, None),
    ],
)
def test_each_stages_own_limit(state: Callable[[], Attempt], limit_at: datetime | None) -> None:
    assert stage_limit(state(), LIMITS) == limit_at  # SC-613


def test_the_longest_duration_counts_from_the_programs_start() -> None:  # T14
    limits = Limits(max_duration=3600 * SECOND)

    assert stage_limit(running(), limits) == at(3700)
    assert what(running(), 3699, limits=limits) is None
    assert what(running(), 3700, limits=limits) is Overdue.DURATION


def test_a_session_that_nobody_uses_is_idle() -> None:  # SC-010, SC-807
    limits = Limits(idle=600 * SECOND)

    assert stage_limit(running(), limits) == at(700)
    assert what(running(), 699, limits=limits) is None
    assert what(running(), 700, limits=limits) is Overdue.IDLE


@pytest.mark.parametrize(
    ("longest", "active", "until"),
    [(None, 300, 900), (None, 0, 700), (1200, 300, 900), (700, 300, 800), (600, 0, 700)],
)
def test_a_session_ends_by_the_first_of_its_limits(
    longest: int | None, active: int, until: int
) -> None:  # SC-807: a word before the start is none
    most = None if longest is None else longest * SECOND
    limits = Limits(idle=600 * SECOND, max_duration=most)

    assert running_until(at(100), limits, active=at(active)) == at(until)


@pytest.mark.parametrize(("now", "which"), [(899, Overdue.IDLE), (900, Overdue.DURATION)])
def test_the_longest_duration_is_told_apart_from_idleness(now: int, which: Overdue) -> None:
    limits = Limits(idle=600 * SECOND, max_duration=800 * SECOND)

    assert overdue(running(), at(now), limit_at=at(700), limits=limits) is which


@pytest.mark.parametrize("state", [placing, acquiring])
def test_the_start_deadline_passes(state: Callable[[], Attempt]) -> None:  # T8, scenario 3
    assert what(state(), 3601) is Overdue.START_DEADLINE


def test_there_is_no_start_deadline_before_the_first_claim_nor_after_the_grant() -> None:
    assert what(pending(), 10**6) is None
    assert what(starting(), 3601) is Overdue.STARTUP


def test_an_acquisition_takes_300_seconds_at_most() -> None:  # SC-613
    assert what(acquiring(), 309) is None
    assert what(acquiring(), 310) is Overdue.ACQUIRE


def test_a_stuck_boot_is_a_startup_timeout() -> None:  # SC-613, scenario 11
    assert what(starting(), 619) is None
    assert what(starting(), 620) is Overdue.STARTUP


def test_a_pull_that_makes_progress_extends_the_start_to_its_cap() -> None:  # SC-613
    assert what(starting(), 3619, pulling=True) is None
    assert what(starting(), 3620, pulling=True) is Overdue.IMAGE_PULL


def test_a_take_over_moves_the_cap_with_the_limit() -> None:  # SC-614
    moved = at(620) + 100 * SECOND

    assert overdue(starting(), at(700), limit_at=moved, limits=LIMITS) is None
    assert (
        overdue(starting(), at(3720), limit_at=moved, limits=LIMITS, pulling=True)
        is Overdue.IMAGE_PULL
    )


def test_a_boot_pulls_no_image_unless_said() -> None:
    assert overdue(starting(), at(620), limit_at=at(620), limits=LIMITS) is Overdue.STARTUP


def test_a_limit_above_the_cap_is_not_cut_by_a_pull() -> None:
    limits = Limits(starting=4000 * SECOND)

    assert what(starting(), 4020, limits=limits, pulling=True) is Overdue.IMAGE_PULL
    assert what(starting(), 4019, limits=limits, pulling=True) is None


def test_a_queued_attempt_has_no_limit_of_its_own() -> None:
    assert overdue(placing(), at(999), limit_at=at(500), limits=LIMITS) is None


def test_money_is_waited_for_until_the_waits_own_end() -> None:  # SC-620
    waits = replace(pending(), waiting_for=WaitingFor.FUNDS)
    assert overdue(waits, at(499), limit_at=at(500), limits=LIMITS) is None
    assert overdue(waits, at(500), limit_at=at(500), limits=LIMITS) is Overdue.FUNDING


# -- SC-013: drains ------------------------------------------------------------------------


def test_a_drain_is_over_20_seconds_after_its_deadline() -> None:
    assert what(drained(running()), 249) is None
    assert what(drained(running()), 250) is Overdue.DRAIN


def test_only_the_drain_of_a_draining_attempt_can_be_overdue() -> None:
    limits = Limits(max_duration=10 * SECOND)

    assert what(drained(running()), 240, limits=limits) is None


def test_an_undelivered_notice_is_cleared_60_seconds_after_its_deadline() -> None:  # scenario 23
    noticed = drained(running(), trigger=Trigger.PREEMPTION_NOTICE)

    assert what(noticed, 289) is None
    assert what(noticed, 290) is Overdue.NOTICE


def test_a_rank_released_after_a_noticed_peer_is_no_notice() -> None:  # SC-013, SC-134
    released = after(
        running(),
        StopRequested(
            at=at(200),
            trigger=Trigger.PREEMPTION_NOTICE,
            reason=Reason.RELEASED,
            deadline=at(230),
        ),
    )

    assert what(released, 249) is None
    assert what(released, 250) is Overdue.DRAIN


def test_a_delivered_notice_ends_like_any_drain() -> None:
    noticed = after(
        drained(running(), trigger=Trigger.PREEMPTION_NOTICE), StopSignalled(at=at(201))
    )

    assert what(noticed, 250) is Overdue.DRAIN


def test_a_drain_from_acquiring_waits_for_grant_or_proof() -> None:  # SC-006a
    draining = drained(acquiring())
    granted = after(draining, CapacityGranted(at=at(240)))

    assert what(draining, 99999) is None
    assert what(granted, 250) is Overdue.DRAIN


def test_a_drain_without_a_deadline_is_never_overdue() -> None:
    draining = after(running(), StopRequested(at=at(200), trigger=None, reason=Reason.RELEASED))

    assert what(draining, 99999) is None


@pytest.mark.parametrize(
    ("last_beat", "now", "end"),
    [(150, 260, 230), (150, 220, 220), (240, 260, 240), (None, 260, 230)],
)
def test_a_drain_without_an_exit_ends_by_beat_or_deadline(
    last_beat: int | None, now: int, end: int
) -> None:  # SC-013: max(last heartbeat, min(now, deadline))
    draining = replace(
        drained(running()), last_heartbeat=None if last_beat is None else at(last_beat)
    )

    assert drain_end(draining, at(now)) == at(end)


def test_a_drain_without_a_deadline_ends_now() -> None:
    assert drain_end(running(), at(260)) == at(260)


@pytest.mark.parametrize(("notice", "end"), [(None, 230), (215, 215), (320, 230), (190, 200)])
def test_the_grace_is_capped_by_the_notice(notice: int | None, end: int) -> None:  # SC-013
    deadline = None if notice is None else at(notice)

    assert drain_deadline(at(200), 30 * SECOND, deadline) == at(end)


# -- SC-614: heartbeats --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quiet", "vouched", "means"),
    [
        (60, False, Silence.NONE),
        (61, False, Silence.SUSPECT),
        (90, False, Silence.SUSPECT),  # scenario 25
        (120, False, Silence.SUSPECT),
        (121, False, Silence.LOST),
        (121, True, Silence.SUSPECT),
        (600, True, Silence.SUSPECT),
        (601, True, Silence.LOST),  # scenario 24
    ],
)
def test_what_silence_means(quiet: int, vouched: bool, means: Silence) -> None:
    attempt = after(running(), Heartbeat(at=at(200)))

    assert silence(attempt, at(200 + quiet), vouched=vouched) is means


def test_silence_counts_from_a_take_over() -> None:
    attempt = after(running(), Heartbeat(at=at(200)))

    assert silence(attempt, at(1000), vouched=False, since=at(950)) is Silence.NONE
    assert silence(attempt, at(1000), vouched=False, since=at(150)) is Silence.LOST
    assert silence(attempt, at(210), vouched=False, since=at(50)) is Silence.NONE


def test_silence_without_any_beat_counts_from_the_start() -> None:
    mute = replace(running(), last_heartbeat=None)

    assert silence(mute, at(221), vouched=False) is Silence.LOST
    assert silence(mute, at(160), vouched=False) is Silence.NONE


@pytest.mark.parametrize("state", [starting, succeeded])
def test_only_a_running_program_can_fall_silent(state: Callable[[], Attempt]) -> None:  # SC-012
    assert silence(state(), at(99999), vouched=False) is Silence.NONE


@pytest.mark.parametrize(("gap", "shift"), [(0, 0), (30, 0), (31, 91), (600, 660)])
def test_a_take_over_after_a_gap_moves_open_limits(gap: int, shift: int) -> None:  # SC-614
    assert take_over_shift(at(0), at(gap)) == shift * SECOND
