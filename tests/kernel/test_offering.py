"""The catalog at one moment: candidates, index, constants."""

import random
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import (
    GH200,
    GOLDEN,
    H100,
    a_class,
    a_cpu_class,
    catalogs,
    golden_snapshot,
    on_demand,
    spot,
)

from nodus_api.kernel.offering import Candidate, CandidateStats, CatalogSnapshot, candidates_of
from nodus_api.kernel.vocabulary import Market


def test_a_market_without_a_rate_does_not_exist() -> None:  # SC-312
    assert [one.market for one in candidates_of(H100, {})] == [Market.ON_DEMAND, Market.SPOT]
    assert [one.market for one in candidates_of(GH200, {})] == [Market.ON_DEMAND]
    with pytest.raises(ValueError, match="gh200-96g-x1-us is not sold on spot"):
        spot(GH200)


def test_a_candidate_takes_the_statistics_of_its_market() -> None:  # SC-205
    known = CandidateStats(boot_p50=7.0)

    found = candidates_of(H100, {Market.SPOT: known})

    assert [one.stats for one in found] == [CandidateStats(), known]
    assert [one.rate for one in found] == [Decimal("2.95"), Decimal("1.25")]


@pytest.mark.parametrize(
    ("successes", "failures", "health"),
    [(0, 0, 0.9), (10, 0, 0.95), (0, 1.25, 0.8), (0, 9, 9 / 19)],
)
def test_health_is_drawn_towards_nine_of_ten(  # SC-320
    successes: float, failures: float, health: float
) -> None:
    assert CandidateStats(successes=successes, failures=failures).health == health


def test_the_index_is_by_accelerator_and_count() -> None:  # SC-370
    snapshot = golden_snapshot()

    assert set(snapshot.families) == {("h100", 1), ("h200", 1), ("gh200", 1)}
    assert [one.key for one in snapshot.families["h100", 1]] == [
        ("h100-sxm-80g-x1-eu", Market.ON_DEMAND),
        ("h100-sxm-80g-x1-eu", Market.SPOT),
    ]
    assert snapshot.size == len(list(snapshot)) == 5


def test_a_family_is_sorted_by_rate_then_name() -> None:  # SC-370
    cheap, b, a = (
        a_class("z", rate_on_demand=Decimal(1), rate_spot=None),
        a_class("b", rate_spot=None),
        a_class("a", rate_spot=None),
    )

    snapshot = CatalogSnapshot.of(map(on_demand, (b, a, cheap)))

    assert [one.offering.name for one in snapshot.families["h100", 1]] == ["z", "a", "b"]


@given(catalog=catalogs, chance=st.randoms(use_true_random=True))
def test_the_order_of_the_input_does_not_show(  # P-16
    catalog: tuple[Candidate, ...], chance: random.Random
) -> None:
    shuffled = list(catalog)
    chance.shuffle(shuffled)

    first, second = CatalogSnapshot.of(catalog), CatalogSnapshot.of(shuffled)

    assert first == second
    assert list(first.families) == list(second.families)


def test_the_id_tells_catalogs_apart_unless_it_is_given() -> None:
    dearer = replace(GOLDEN[0], offering=replace(H100, rate_on_demand=Decimal(3)))

    assert golden_snapshot().id != CatalogSnapshot.of([dearer, *GOLDEN[1:]]).id
    assert CatalogSnapshot.of(GOLDEN, id="7").id == "7"


def test_a_candidate_stands_once() -> None:
    with pytest.raises(ValueError, match="two candidates have the same offering class"):
        CatalogSnapshot.of([GOLDEN[0], GOLDEN[0]])


def test_constants_survive_the_removal_of_a_candidate() -> None:  # SC-321
    cpus = [
        on_demand(a_cpu_class(f"cpu-{n}", vcpus=Decimal(n), rate_on_demand=Decimal(rate)))
        for n, rate in ((1, "0.06"), (2, "0.20"), (4, "0.20"))
    ]
    snapshot = CatalogSnapshot.of([*GOLDEN, *cpus])

    less = snapshot.without(("gh200-96g-x1-us", Market.ON_DEMAND)).without(
        ("cpu-2", Market.ON_DEMAND)
    )

    assert less.size == 6
    assert less.reference_rates == snapshot.reference_rates
    assert less.reference_rates["gh200", 1] == Decimal("1.49")
    assert less.cpu_rate_per_vcpu == Decimal("0.06")


def test_the_cpu_constant_of_an_even_number_is_the_mean_of_the_middle_two() -> None:  # SC-320
    cpus = [
        on_demand(a_cpu_class(f"cpu-{rate}", rate_on_demand=Decimal(rate)))
        for rate in ("0.06", "0.10")
    ]

    assert CatalogSnapshot.of(cpus).cpu_rate_per_vcpu == Decimal("0.08")
    assert golden_snapshot().cpu_rate_per_vcpu == 0


def test_what_a_batch_took_is_gone() -> None:  # SC-371
    some = on_demand(H100, available=5, largest_available=3)
    unknown = spot(H100)
    snapshot = CatalogSnapshot.of([some, unknown])

    after = snapshot.after_taking(some.key, 1).after_taking(some.key, 3)

    assert (snapshot.available(some), snapshot.largest_available(some)) == (5, 3)
    assert (after.available(some), after.largest_available(some)) == (1, 0)
    assert (after.available(unknown), after.largest_available(unknown)) == (None, None)


def test_what_was_taken_in_one_market_is_gone_in_the_other() -> None:  # SC-371
    dear, cheap = on_demand(H100, available=2), spot(H100, available=2)

    after = CatalogSnapshot.of([dear, cheap]).after_taking(cheap.key, 2)

    assert (after.available(dear), after.available(cheap)) == (0, 0)
    assert (after.largest_available(dear), after.largest_available(cheap)) == (0, 0)


def test_a_single_offer_has_all_the_capacity() -> None:  # SC-131
    some = on_demand(H100, available=5)

    assert CatalogSnapshot.of([some]).largest_available(some) == 5
