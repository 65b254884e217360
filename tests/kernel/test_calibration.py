"""The factor on W that earlier runs of a name have earned, and W where nothing is estimated."""

import json
from dataclasses import replace
from decimal import Decimal
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import GOLDEN, NOW, golden_request, golden_snapshot

from nodus_api.kernel.calibration import (
    LEAST,
    MOST,
    Calibration,
    factors,
    program_hours,
    usual_hours,
)
from nodus_api.kernel.offering import CatalogSnapshot, Family
from nodus_api.kernel.placement import PlacementRequest, place
from nodus_api.kernel.spec import CheckpointPolicy, WorkloadSpec
from nodus_api.kernel.vocabulary import Market, OwnerKind, Profile


def test_each_run_moves_the_factor_by_a_fifth() -> None:  # SC-352
    first = Calibration().after_estimated(1.5, 1.0)
    second = first.after_estimated(1.5, 1.0)

    assert first.ratio == pytest.approx(1.1)
    assert second.ratio == pytest.approx(1.1 + 0.2 * 0.4)


@pytest.mark.parametrize(("actual", "bound"), [(1000.0, 2.0), (0.0, 0.5)])
def test_the_factor_stays_between_a_half_and_two(actual: float, bound: float) -> None:  # SC-352
    known = Calibration()
    for _ in range(20):
        known = known.after_estimated(actual, 1.0)

    assert known.ratio == bound


@given(
    runs=st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e3)), max_size=30),
    true=st.floats(0.5, 2),
)
def test_it_comes_to_what_is_true(runs: list[tuple[float, float]], true: float) -> None:  # SC-352
    known = Calibration()
    for actual, predicted in runs:
        known = known.after_estimated(actual, predicted)
        assert known.ratio is None or LEAST <= known.ratio <= MOST
    for _ in range(60):
        known = known.after_estimated(3.0 * true, 3.0)

    assert known.ratio == pytest.approx(true, abs=1e-4)


def test_without_work_there_is_nothing_to_compare() -> None:  # a cursor at its end
    assert Calibration().after_estimated(1.0, 0.0) == Calibration()


@given(hours=st.lists(st.floats(0, 500), min_size=1, max_size=40))
def test_the_usual_time_is_the_median_of_the_last_fifteen(hours: list[float]) -> None:  # SC-301
    known = Calibration()
    for one in hours:
        known = known.after_whole(one)

    assert usual_hours([known, Calibration()]) == median(hours[-15:])
    assert usual_hours([]) == 1.0


def test_older_runs_than_fifteen_do_not_count() -> None:  # SC-301
    known = Calibration()
    for hours in range(40):
        known = known.after_whole(float(hours))

    assert known.hours == tuple(map(float, range(25, 40)))
    assert usual_hours([known]) == 32.0


def test_factors_are_those_of_the_count_asked_for() -> None:  # SC-352
    known: dict[Family, Calibration] = {
        ("h100", 1): Calibration(ratio=1.5),
        ("h100", 8): Calibration(ratio=0.7),
        ("a100", 1): Calibration(hours=(3.0,)),
    }
    asked = {"resources": {"accelerators": ["h100", "a100"], "count": 1}}
    silent = WorkloadSpec.from_json(OwnerKind.JOB, asked)
    spec = WorkloadSpec.from_json(OwnerKind.JOB, asked | {"estimate": {"hours": 2}})

    assert factors(known, spec) == {"h100": 1.5}
    assert factors(known, silent) == {}


def test_program_time_counts_the_saving() -> None:  # SC-350
    request = replace(golden_request(), work_hours=9.0)
    hours = program_hours(request, speed=0.9, interruptions_per_hour=0.05)
    unsaved = replace(request, checkpoint=CheckpointPolicy(restartable=False))
    young = replace(request, checkpoint=CheckpointPolicy(restartable=True))

    assert hours == pytest.approx(10.0 * (1 + 30 / 1800))
    assert program_hours(unsaved, speed=0.9, interruptions_per_hour=0.05) == pytest.approx(10.0)
    assert program_hours(young, speed=0.9, interruptions_per_hour=0.05) == pytest.approx(
        10.0 * (1 + 30 / 2078.46), abs=1e-4
    )


@pytest.mark.parametrize("profile", Profile)
def test_a_factor_multiplies_the_work_where_it_was_learnt(profile: Profile) -> None:  # SC-352
    plain = golden_request(profile)
    slower = replace(plain, calibrations={"h100": 2.0})
    alone = CatalogSnapshot.of(GOLDEN[:2])

    before = {one.candidate.key: one for one in place(plain, golden_snapshot(), NOW).top}
    after = {one.candidate.key: one for one in place(slower, golden_snapshot(), NOW).top}

    h200 = ("h200-sxm-141g-x1-eu", Market.SPOT)
    h100 = ("h100-sxm-80g-x1-eu", Market.SPOT)
    assert after[h200].scores == before[h200].scores  # SC-321: anchors are without it
    assert after[h100].outlook.work_hours == 2 * before[h100].outlook.work_hours
    assert after[h100].total < before[h100].total
    twice = replace(plain, work_hours=16.0)
    predictions = [place(one, alone, NOW).placement.choice for one in (slower, twice)]
    assert predictions[0] is not None
    assert predictions[1] is not None
    assert predictions[0].predicted == predictions[1].predicted


def test_a_budget_is_held_against_the_calibrated_cost() -> None:  # SC-310 row 14, SC-352
    request = replace(golden_request(), remaining_cost_usd=Decimal(10))
    slower = replace(request, calibrations={"h100": 2.0})
    alone = CatalogSnapshot.of(GOLDEN[1:2])

    assert place(request, alone, NOW).chosen is not None
    assert place(slower, alone, NOW).counters == {"CostAboveLimit": 1}


def test_a_kept_request_keeps_its_factors() -> None:  # SC-325
    request = replace(golden_request(), calibrations={"h100": 1.25, None: 0.5})

    assert PlacementRequest.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert "calibrations" not in golden_request().to_json()
