"""What outcomes teach: counts that fade, waits drawn towards their priors (SC-205)."""

import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import NOW

from nodus_api.kernel.experience import EDGES, Experience, Outcome, statistics, together
from nodus_api.kernel.offering import CandidateStats
from nodus_api.kernel.vocabulary import Market

HOUR = timedelta(hours=1)
NOTHING = Experience(at=NOW)


def after(*outcomes: Outcome, at: datetime = NOW) -> Experience:
    known = Experience(at=at)
    for outcome in outcomes:
        known = known.after(outcome, at)
    return known


@pytest.mark.parametrize(("market", "rate"), [(Market.SPOT, 0.05), (Market.ON_DEMAND, 0.001)])
def test_without_history_all_are_priors(market: Market, rate: float) -> None:  # SC-352, SC-320
    known = statistics(NOTHING, market)

    assert known == CandidateStats(interruptions_per_hour=rate)


def test_health_fades_in_six_hours_towards_nine_of_ten() -> None:  # SC-361
    bad = after(*[Outcome(failures=1)] * 8)

    health = [statistics(bad.faded(NOW + n * HOUR), Market.SPOT).health for n in (0, 6, 12, 2400)]

    assert health == [9 / 18, 9 / 14, 9 / 12, 0.9]


def test_interruptions_and_exposure_fade_in_seven_days() -> None:  # SC-352
    seen = after(Outcome(interruptions=1, exposure_hours=20.0))

    rates = [
        statistics(seen.faded(NOW + n * 24 * HOUR), Market.SPOT).interruptions_per_hour
        for n in (0, 7)
    ]

    assert rates == [2.0 / 40.0, 1.5 / 30.0]


def test_time_without_a_loss_lowers_the_rate() -> None:  # SC-352
    calm = after(Outcome(exposure_hours=180.0))

    assert statistics(calm, Market.SPOT).interruptions_per_hour == 1.0 / 200.0


def test_a_loss_leaves_health_as_it_is() -> None:  # SC-361
    lost = after(Outcome(interruptions=9, exposure_hours=1.0))

    assert statistics(lost, Market.SPOT).health == 0.9


def test_waits_move_from_the_prior_to_what_was_seen() -> None:  # SC-205
    some = after(*[Outcome(boot_seconds=200.0)] * 2)
    many = after(*[Outcome(boot_seconds=200.0)] * 400)

    prior, few, lots = (statistics(one, Market.SPOT) for one in (NOTHING, some, many))

    assert prior.boot_p50 == 60.0 < few.boot_p50 < 180 < lots.boot_p50 < 240
    assert 180 < lots.boot_p95 <= 240
    assert (few.grant_p50, few.teardown_p95) == (prior.grant_p50, prior.teardown_p95)


def test_a_quantile_is_interpolated_within_its_bucket() -> None:  # SC-205
    """Four of the prior (2 to 60 s, 1.8 to 180 s, 0.2 to 240 s) and 96 in (300, 420]."""
    known = statistics(after(*[Outcome(boot_seconds=400.0)] * 96), Market.SPOT)

    assert known.boot_p50 == pytest.approx(300 + 120 * (50 - 4) / 96)
    assert known.boot_p95 == pytest.approx(300 + 120 * (95 - 4) / 96)


def test_waits_beyond_the_last_edge_count_as_it() -> None:  # SC-205
    known = statistics(after(*[Outcome(grant_seconds=1e6)] * 400), Market.SPOT)

    assert known.grant_p50 == known.grant_p95 == EDGES[-1]


outcomes = st.builds(
    Outcome,
    grant_seconds=st.one_of(st.none(), st.floats(0, 5000)),
    boot_seconds=st.one_of(st.none(), st.floats(0, 5000)),
    teardown_seconds=st.one_of(st.none(), st.floats(0, 5000)),
    successes=st.integers(0, 1),
    failures=st.integers(0, 1),
    interruptions=st.integers(0, 1),
    exposure_hours=st.floats(0, 100),
)
histories = st.lists(st.tuples(outcomes, st.integers(0, 100)), max_size=8).map(
    lambda several: _history(several)
)


def _history(several: list[tuple[Outcome, int]]) -> Experience:
    known, at = NOTHING, NOW
    for outcome, hours in several:
        at += hours * HOUR
        known = known.after(outcome, at)
    return known


@given(known=histories)
def test_it_is_kept_as_it_is(known: Experience) -> None:  # SC-205
    assert Experience.from_json(json.loads(json.dumps(known.to_json()))) == known


@given(known=histories, first=st.integers(0, 300), then=st.integers(0, 300))
def test_to_fade_twice_is_to_fade_once(known: Experience, first: int, then: int) -> None:
    end = known.at + (first + then) * HOUR

    twice, once = known.faded(known.at + first * HOUR).faded(end), known.faded(end)

    assert twice.successes == pytest.approx(once.successes, abs=1e-5)
    assert twice.exposure_hours == pytest.approx(once.exposure_hours, abs=1e-5)
    assert once.faded(known.at) == once  # nothing grows younger


@given(several=st.lists(histories, max_size=4))
def test_offers_of_a_class_add_up_in_any_order(several: list[Experience]) -> None:
    now = max((one.at for one in several), default=NOW)
    turned = several[::-1]

    one, other = together(several, now), together(turned, now)

    assert one.exposure_hours == pytest.approx(other.exposure_hours)
    assert one.grant == pytest.approx(other.grant)
    assert one.successes == pytest.approx(sum(each.faded(now).successes for each in several))


@given(known=histories, market=st.sampled_from(Market))
def test_statistics_stay_within_sense(known: Experience, market: Market) -> None:  # P-19
    stats = statistics(known, market)

    for median, tail in (
        (stats.grant_p50, stats.grant_p95),
        (stats.boot_p50, stats.boot_p95),
        (stats.teardown_p50, stats.teardown_p95),
    ):
        assert 0.0 < median <= tail <= EDGES[-1]
    assert 0.0 < stats.health <= 1.0
    assert stats.interruptions_per_hour > 0.0


@given(known=histories, market=st.sampled_from(Market))
def test_one_more_success_never_harms_and_one_more_failure_never_helps(  # SC-322, SC-361
    known: Experience, market: Market
) -> None:
    health = statistics(known, market).health

    assert statistics(known.after(Outcome(successes=1), known.at), market).health >= health
    assert statistics(known.after(Outcome(failures=1), known.at), market).health <= health
