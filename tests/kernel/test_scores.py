"""The five scores: the golden case to the digit, bounds and monotony."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import GOLDEN, a_class, on_demand, stats

from nodus_api.kernel.offering import Candidate, CandidateStats
from nodus_api.kernel.scores import (
    NAMES,
    WEIGHTS,
    Scores,
    Work,
    decay,
    exp_rounded,
    growth,
    millionths,
    outlook,
    rounded,
    score,
    young_interval,
)
from nodus_api.kernel.vocabulary import Market, Profile

GOLDEN_WORK = Work(
    hours=8.0,
    restartable=True,
    interval_seconds=1800.0,
    cost_seconds=30.0,
    restore_seconds=60.0,
    resumes=False,
    reference_rate=2.95,
    sizes=(
        (1.0, "accelerators"),
        (80.0, "accelerator_memory_gib"),
        (8.0, "vcpus"),
        (64.0, "memory_gib"),
    ),
)


def scores_of(work: Work, candidate: Candidate) -> Scores:
    return score(work, candidate, outlook(work, candidate))


@pytest.mark.parametrize(
    ("candidate", "published", "totals"),
    [
        (GOLDEN[0], ".7050 .4959 .4958 .9833 .9500", (658012, 623139, 623224)),
        (GOLDEN[1], ".7050 .4922 .6959 .9696 .9000", (707369, 733964, 632120)),
        (GOLDEN[2], ".5968 .5307 .4878 .9833 .9500", (655240, 616434, 637881)),
        (GOLDEN[3], ".5968 .5269 .6939 .9696 .9000", (706386, 730849, 647362)),
        (GOLDEN[4], ".5266 .4682 .6357 .9833 .8000", (651332, 672897, 589169)),
    ],
    ids=["h100", "h100-spot", "h200", "h200-spot", "gh200"],
)
def test_the_golden_case_to_the_digit(  # SC-326
    candidate: Candidate, published: str, totals: tuple[int, int, int]
) -> None:
    scores = scores_of(GOLDEN_WORK, candidate)

    wanted = dict(zip(NAMES, map(Decimal, published.split()), strict=True))
    assert scores.published() == wanted
    profiles = (Profile.BALANCED, Profile.COST, Profile.SPEED)
    assert tuple(map(scores.total, profiles)) == totals


@pytest.mark.parametrize("profile", Profile)
def test_the_weights_sum_to_one(profile: Profile) -> None:  # SC-323
    assert sum(Decimal(repr(weight)) for weight in WEIGHTS[profile]) == 1


def test_free_capacity_costs_nothing_and_scores_full() -> None:  # SC-320
    free = on_demand(a_class(rate_on_demand=Decimal(0)))

    scores = scores_of(replace(GOLDEN_WORK, reference_rate=0.0), free)

    assert scores.cost_to_complete == 1.0


def test_what_is_not_asked_for_does_not_count_for_fit() -> None:  # SC-320
    scores = scores_of(replace(GOLDEN_WORK, sizes=()), GOLDEN[0])

    assert scores.fit == 1.0


def test_unsaved_work_is_lost_whole() -> None:  # SC-320
    work = replace(GOLDEN_WORK, restartable=False)

    seen = outlook(work, GOLDEN[1])

    # (e^0.4 - 1)/0.05 = 9.836494 program hours for 8 hours of work
    assert seen.interval_hours is None
    assert round(seen.work_hours * (1 + seen.waste), 6) == 9.836494
    assert round(scores_of(work, GOLDEN[1]).recovery_value, 6) == round(8 / 9.836494, 6)


def test_resuming_adds_the_restore() -> None:  # SC-320
    fresh = outlook(GOLDEN_WORK, GOLDEN[0])
    resumed = outlook(replace(GOLDEN_WORK, resumes=True), GOLDEN[0])

    assert resumed.time_to_result == pytest.approx(fresh.time_to_result + 60 / 3600)
    assert resumed.cost_to_complete == pytest.approx(fresh.cost_to_complete + 2.95 * 60 / 3600)


@pytest.mark.parametrize(
    ("rate_of_loss", "seconds"), [(0.05, 2078), (0.3, 849), (1000.0, 60), (1e-9, 8 * 3600)]
)
def test_youngs_interval_within_a_minute_and_the_work(  # SC-144
    rate_of_loss: float, seconds: int
) -> None:
    assert round(young_interval(30.0, rate_of_loss, 8.0) * 3600) == seconds


def test_without_losses_the_interval_is_the_work() -> None:  # SC-144
    assert young_interval(30.0, 0.0, 8.0) == 8.0


def test_an_interval_that_is_not_given_follows_young() -> None:  # SC-144
    seen = outlook(replace(GOLDEN_WORK, interval_seconds=None), GOLDEN[1])

    assert seen.interval_hours == young_interval(30.0, 0.05, 8.0)


def test_growth_is_capped_and_meets_its_series() -> None:  # SC-320
    assert growth(0.0) == 1.0
    assert growth(25.0) == growth(20.0) == pytest.approx(24258259.7205)
    assert growth(0.00099999) == pytest.approx(growth(0.00100001), abs=3e-8)
    assert decay(0.0) == 1.0
    assert decay(0.00099999) == pytest.approx(decay(0.00100001), abs=3e-8)


def test_exp_keeps_twelve_digits() -> None:  # SC-324
    assert exp_rounded(1.0) == 2.71828182846
    assert exp_rounded(20.0) == 485165195.410


@pytest.mark.parametrize(
    ("value", "text"), [(0.00005, "0.0001"), (0.12345, "0.1235"), (1.0, "1.0000"), (0.0, "0.0000")]
)
def test_strings_round_half_up_from_the_shortest_text(value: float, text: str) -> None:  # SC-324
    assert str(rounded(value, 4)) == text


def test_totals_are_whole_millionths_half_up() -> None:  # SC-323
    assert [millionths(0.0000005), millionths(0.0000004), millionths(1.0)] == [1, 0, 1_000_000]


works = st.builds(
    Work,
    hours=st.floats(0, 200),
    restartable=st.booleans(),
    interval_seconds=st.sampled_from([None, 60.0, 1800.0]),
    cost_seconds=st.floats(0, 300),
    restore_seconds=st.floats(0, 900),
    resumes=st.booleans(),
    reference_rate=st.floats(0, 50),
    sizes=st.just(GOLDEN_WORK.sizes),
)


@given(work=works, known=stats, profile=st.sampled_from(Profile))
def test_scores_and_totals_lie_between_zero_and_one(  # P-19
    work: Work, known: CandidateStats, profile: Profile
) -> None:
    scores = scores_of(work, Candidate(offering=a_class(), market=Market.SPOT, stats=known))

    assert all(0 <= value <= 1 for value in scores.published().values())
    assert 0 <= scores.total(profile) <= 1_000_000


Change = Callable[[Work, Candidate, float], tuple[Work, Candidate]]


def _stat(name: str) -> Change:
    def change(work: Work, candidate: Candidate, by: float) -> tuple[Work, Candidate]:
        more: dict[str, Any] = {name: getattr(candidate.stats, name) + by}
        return work, replace(candidate, stats=replace(candidate.stats, **more))

    return change


def _offering(name: str) -> Change:
    def change(work: Work, candidate: Candidate, by: float) -> tuple[Work, Candidate]:
        more: dict[str, Any] = {name: getattr(candidate.offering, name) + Decimal(repr(by))}
        return work, replace(candidate, offering=replace(candidate.offering, **more))

    return change


def _work(name: str) -> Change:
    def change(work: Work, candidate: Candidate, by: float) -> tuple[Work, Candidate]:
        more: dict[str, Any] = {name: getattr(work, name) + by}
        return replace(work, **more), candidate

    return change


FALLS = [
    ("fit", _offering("vcpus")),
    ("fit", _offering("memory_gib")),
    ("fit", _offering("accelerator_memory_gib")),
    ("time_to_result", _stat("grant_p50")),
    ("time_to_result", _stat("boot_p50")),
    ("time_to_result", _stat("interruptions_per_hour")),
    ("cost_to_complete", _offering("rate_spot")),
    ("cost_to_complete", _stat("boot_p50")),
    ("cost_to_complete", _stat("teardown_p50")),
    ("cost_to_complete", _stat("interruptions_per_hour")),
    ("recovery_value", _stat("interruptions_per_hour")),
    ("recovery_value", _work("cost_seconds")),
    ("recovery_value", _work("restore_seconds")),
    ("health", _stat("failures")),
]
RISES = [("time_to_result", _offering("speed")), ("health", _stat("successes"))]
ROUNDING = 1e-8
"""exp keeps 12 digits, which shows below the eighth of a score (SC-324)."""


@pytest.mark.parametrize(
    ("name", "change", "sign"), [(n, c, -1) for n, c in FALLS] + [(n, c, 1) for n, c in RISES]
)
@given(work=works, known=stats, by=st.floats(0.001, 100))
def test_each_score_moves_one_way(  # P-19, SC-322
    name: str, change: Change, sign: int, work: Work, known: CandidateStats, by: float
) -> None:
    candidate = Candidate(offering=a_class(), market=Market.SPOT, stats=known)

    before = getattr(scores_of(work, candidate), name)
    after = getattr(scores_of(*change(work, candidate, by)), name)

    assert sign * (after - before) >= -ROUNDING


@pytest.mark.parametrize(
    ("name", "change", "sign"), [(n, c, -1) for n, c in FALLS] + [(n, c, 1) for n, c in RISES]
)
def test_each_score_moves_where_it_matters(  # SC-322
    name: str, change: Change, sign: int
) -> None:
    before = getattr(scores_of(GOLDEN_WORK, GOLDEN[1]), name)
    after = getattr(scores_of(*change(GOLDEN_WORK, GOLDEN[1], 1.0)), name)

    assert sign * (after - before) > 0
