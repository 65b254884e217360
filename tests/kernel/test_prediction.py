"""What a placement expects of an Attempt."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import GOLDEN, a_class, stats
from tests.kernel.test_scores import GOLDEN_WORK, works

from nodus_api.kernel.attempt import Prediction
from nodus_api.kernel.offering import Candidate, CandidateStats
from nodus_api.kernel.prediction import dearer_than, interruption_rate, predict
from nodus_api.kernel.scores import SECONDS, Work, outlook
from nodus_api.kernel.vocabulary import Market


def prediction_of(work: Work, candidate: Candidate) -> Prediction:
    return predict(work, candidate, outlook(work, candidate))


def test_the_golden_prediction_to_the_digit() -> None:  # SC-326, SC-350
    assert prediction_of(GOLDEN_WORK, GOLDEN[1]) == Prediction(
        hours=Decimal("6.717400"),
        cost_usd=Decimal("8.396750"),
        interruption_rate=Decimal("0.050000"),
    )


def test_work_that_saves_nothing_is_predicted_without_saving_time() -> None:  # SC-350
    work = replace(GOLDEN_WORK, restartable=False)

    hours = prediction_of(work, GOLDEN[1]).hours

    # (1 - e^-0.4)/0.05 = 6.593599, boot 95 s and teardown 30 s
    assert hours == Decimal("6.628321")


def test_resuming_adds_the_restore_time() -> None:  # SC-350
    fresh = prediction_of(GOLDEN_WORK, GOLDEN[1]).hours
    resumed = prediction_of(replace(GOLDEN_WORK, resumes=True), GOLDEN[1]).hours

    assert abs(resumed - fresh - Decimal(60) / 3600) <= Decimal("0.000001")


@given(work=works, known=stats)
def test_never_longer_than_an_uninterrupted_run(work: Work, known: CandidateStats) -> None:  # P-29
    candidate = Candidate(offering=a_class(), market=Market.SPOT, stats=known)
    seen = outlook(work, candidate)
    calm = replace(candidate, stats=replace(known, interruptions_per_hour=0.0))
    saving = 0.0
    if seen.interval_hours is not None:
        saving = work.cost_seconds / SECONDS / seen.interval_hours
    whole = (
        seen.boot_hours + seen.restore_hours + seen.work_hours * (1 + saving) + seen.teardown_hours
    )

    assert prediction_of(work, candidate).hours <= Decimal(repr(whole)) + Decimal("0.000001")
    if work.interval_seconds is not None:
        assert prediction_of(work, calm).hours == pytest.approx(
            Decimal(repr(whole)), abs=Decimal("0.000001")
        )


@given(work=works, known=stats)
def test_the_cost_is_the_hours_at_the_rate(work: Work, known: CandidateStats) -> None:  # SC-350
    candidate = Candidate(offering=a_class(), market=Market.SPOT, stats=known)

    expected = prediction_of(work, candidate)

    assert abs(expected.cost_usd - expected.hours * candidate.rate) <= Decimal("0.0000005")


@given(
    work=works,
    known=stats,
    machines=st.sampled_from([1, 8]),
    off=st.sampled_from([-2, -1, 0, 1, 2, 10**6, -(10**6)]),
    rate=st.decimals("0.01", 400, places=6),
)
def test_a_limit_is_held_against_the_predicted_micro_dollars(  # SC-310 row 14
    work: Work, known: CandidateStats, machines: int, off: int, rate: Decimal
) -> None:
    offering = a_class(rate_on_demand=rate)
    candidate = Candidate(offering=offering, market=Market.ON_DEMAND, stats=known)
    cost = prediction_of(work, candidate).cost_usd * machines
    limit = cost + off * Decimal("0.000001")

    assert dearer_than(limit, work, machines)(candidate) is (cost > limit)


@pytest.mark.parametrize(
    ("market", "interruptions", "hours", "rate"),
    [
        (Market.SPOT, 0.0, 0.0, 0.05),
        (Market.ON_DEMAND, 0.0, 0.0, 0.001),
        (Market.SPOT, 3.0, 60.0, 0.05),
        (Market.SPOT, 9.0, 20.0, 0.25),
    ],
)
def test_the_interruption_rate_is_drawn_to_its_prior(  # SC-352
    market: Market, interruptions: float, hours: float, rate: float
) -> None:
    found = interruption_rate(market, interruptions=interruptions, exposure_hours=hours)

    assert found == pytest.approx(rate)
