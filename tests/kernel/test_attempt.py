"""What the record derives from its own values: SC-002, SC-007, SC-016, SC-523."""

from dataclasses import FrozenInstanceError, replace
from decimal import Decimal

import pytest
from tests.kernel.lives import UID, at, lost, pending, registered, running, succeeded

from nodus_api.kernel.attempt import Attempt, AttemptView, Choice, CostSegment, Owner, Prediction
from nodus_api.kernel.vocabulary import Market, OwnerKind, Phase, Segment


def test_an_attempt_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        pending().epoch = 2  # type: ignore[misc]  # the refusal is what is tested


@pytest.mark.parametrize(
    ("attempt", "phase", "live"),
    [
        (pending(), Phase.QUEUED, True),
        (registered(), Phase.PROVISIONING, True),
        (running(), Phase.RUNNING, True),
        (succeeded(), Phase.SUCCEEDED, False),
        (lost(), Phase.FAILED, False),
    ],
)
def test_phase_and_life_follow_the_stage(attempt: Attempt, phase: Phase, live: bool) -> None:
    assert (attempt.phase, attempt.live) == (phase, live)


def test_an_attempt_that_never_started_shows_no_boot() -> None:  # SC-007
    assert registered().boot_seconds is None
    assert replace(registered(), resumes=True).restore_seconds is None


def test_nothing_is_lost_while_the_program_runs() -> None:  # SC-016
    assert running().lost_seconds == 0


def test_lost_seconds_count_from_the_later_of_start_and_checkpoint() -> None:  # SC-016
    assert replace(lost(), last_committed=at(480)).lost_seconds == 20
    assert replace(lost(), last_committed=None).lost_seconds == 400


@pytest.mark.parametrize(
    ("market", "interruptible"), [(Market.SPOT, True), (Market.ON_DEMAND, False)]
)
def test_spot_capacity_is_interruptible(market: Market, interruptible: bool) -> None:
    choice = Choice(
        offering="h100-sxm-80g-x1-eu",
        region_class="eu",
        market=market,
        rate_usd_per_hour=Decimal("1.25"),
        scores={},
        fallbacks=(),
        predicted=Prediction(
            hours=Decimal(8), cost_usd=Decimal(10), interruption_rate=Decimal("0.05")
        ),
    )

    assert choice.interruptible is interruptible


def test_a_ledger_rows_length_is_in_whole_seconds() -> None:
    row = CostSegment(
        machine=1,
        seq=0,
        segment=Segment.BOOT,
        start=at(0),
        end=at(95),
        covered=False,
        rate_usd_per_hour=Decimal("2.95"),
        usd=Decimal("0.077847"),
    )

    assert row.seconds == 95


def test_a_view_begins_with_nothing_but_attempt_and_owner() -> None:
    owner = Owner(kind=OwnerKind.JOB, name="train", uid=UID)
    view = AttemptView(attempt=pending(), owner=owner)

    assert (view.placement, view.segments, view.checkpoints, view.successor) == (
        None,
        (),
        None,
        None,
    )
