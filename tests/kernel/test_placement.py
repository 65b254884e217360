"""The placement decision: who wins, who is next, who is ruled out, and what is kept."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.kernel.catalogs import (
    GOLDEN,
    H100,
    NOW,
    a_class,
    a_cpu_class,
    a_request,
    catalogs,
    fuller_catalogs,
    golden_request,
    golden_snapshot,
    on_demand,
    requests,
    spot,
)

from nodus_api.kernel import placement
from nodus_api.kernel.attempt import Cursor, Rejection
from nodus_api.kernel.offering import Candidate, CandidateStats, CatalogSnapshot
from nodus_api.kernel.placement import (
    Decision,
    FailedAcquisition,
    LostCandidate,
    Outcome,
    PlacementRequest,
    RejectionCode,
    place,
)
from nodus_api.kernel.spec import Limits, PlacementPolicy, Resources, WorkloadSpec
from nodus_api.kernel.vocabulary import Market, OwnerKind, Profile, WaitingFor

H100_SPOT = ("h100-sxm-80g-x1-eu", Market.SPOT)
H200_SPOT = ("h200-sxm-141g-x1-eu", Market.SPOT)


def winner_of(decision: Decision) -> tuple[str, Market]:
    assert decision.chosen is not None
    return decision.chosen.candidate.key


@pytest.mark.parametrize(
    ("profile", "winner", "fallbacks"),
    [
        (Profile.BALANCED, H100_SPOT, ("h200-sxm-141g-x1-eu", "gh200-96g-x1-us")),
        (Profile.COST, H100_SPOT, ("h200-sxm-141g-x1-eu", "gh200-96g-x1-us")),
        (Profile.SPEED, H200_SPOT, ("h100-sxm-80g-x1-eu", "gh200-96g-x1-us")),
    ],
)
def test_the_golden_winners(  # SC-326
    profile: Profile, winner: tuple[str, Market], fallbacks: tuple[str, ...]
) -> None:
    decision = place(golden_request(profile), golden_snapshot(), NOW)

    choice = decision.placement.choice
    assert choice is not None
    assert (choice.offering, choice.market) == winner == winner_of(decision)
    assert choice.fallbacks == fallbacks  # SC-331
    assert decision.outcome is Outcome.PLACED
    assert decision.placement.candidates == 5  # SC-330
    assert decision.placement.profile is profile  # SC-325
    assert decision.placement.rejected == ()


def test_the_golden_choice_as_it_is_published() -> None:  # SC-326, SC-350
    choice = place(golden_request(), golden_snapshot(), NOW).placement.choice

    assert choice is not None
    assert choice.region_class == "eu"
    assert choice.rate_usd_per_hour == Decimal("1.25")
    assert choice.interruptible
    assert {name: str(value) for name, value in choice.scores.items()} == {
        "fit": "0.7050",
        "timeToResult": "0.4922",
        "costToComplete": "0.6959",
        "recoveryValue": "0.9696",
        "health": "0.9000",
    }
    assert choice.predicted.hours == Decimal("6.717400")
    assert choice.predicted.cost_usd == Decimal("8.396750")


def test_the_best_five_are_kept_with_their_totals() -> None:  # SC-334
    decision = place(golden_request(), golden_snapshot(), NOW)

    kept = decision.top_to_json()
    assert [(one["offering"], one["market"], one["total"]) for one in kept] == [
        ("h100-sxm-80g-x1-eu", "spot", 707369),
        ("h200-sxm-141g-x1-eu", "spot", 706386),
        ("h100-sxm-80g-x1-eu", "on-demand", 658012),
        ("h200-sxm-141g-x1-eu", "on-demand", 655240),
        ("gh200-96g-x1-us", "on-demand", 651332),
    ]
    assert json.loads(json.dumps(kept)) == kept


def test_no_more_than_five_are_kept() -> None:  # SC-334
    many = [on_demand(a_class(f"c{n}")) for n in range(8)]

    assert len(place(a_request(), CatalogSnapshot.of(many), NOW).top) == 5


def test_a_family_that_went_is_not_counted() -> None:  # SC-333
    request = a_request(resources=Resources(accelerators=("h200",), count=1, vcpus=None))
    snapshot = golden_snapshot().without(("gh200-96g-x1-us", Market.ON_DEMAND))
    for market in Market:
        snapshot = snapshot.without((H100.name, market))

    assert place(request, snapshot, NOW).counters == {}


def test_the_winner_says_how_often_to_save() -> None:  # SC-144
    chosen = place(golden_request(), golden_snapshot(), NOW).chosen
    unsaved = place(
        a_request(checkpoint=WorkloadSpec(kind=OwnerKind.JOB).checkpoint), golden_snapshot(), NOW
    ).chosen

    assert chosen is not None
    assert chosen.checkpoint_interval_seconds == 1800
    assert unsaved is not None
    assert unsaved.checkpoint_interval_seconds is None


@pytest.mark.parametrize(
    ("second", "winner"),
    [
        (on_demand(a_class("b", rate_spot=None)), "a"),
        (on_demand(a_class("b", rate_spot=None), successes=20.0), "b"),
        (on_demand(a_class("b", rate_spot=None, rate_on_demand=Decimal("2.90"))), "b"),
    ],
    ids=["name", "health", "rate"],
)
def test_equals_are_told_apart(second: Candidate, winner: str) -> None:  # SC-324
    first = on_demand(a_class("a", rate_spot=None))

    decision = place(a_request(), CatalogSnapshot.of([first, second]), NOW)

    assert winner_of(decision)[0] == winner


def test_the_order_is_total_then_cost_then_health_then_name_then_market() -> None:  # SC-324
    def standing(
        total: int, cost: int, successes: int, name: str, market: Market
    ) -> placement.Standing:
        known = CandidateStats(successes=successes)
        candidate = Candidate(offering=a_class(name), market=market, stats=known)
        return placement._standing(candidate, total, cost)

    in_order = [
        standing(9, 9, 1, "z", Market.SPOT),
        standing(8, 1, 1, "z", Market.SPOT),
        standing(8, 2, 9, "z", Market.SPOT),
        standing(8, 2, 8, "a", Market.SPOT),
        standing(8, 2, 8, "b", Market.ON_DEMAND),
        standing(8, 2, 8, "b", Market.SPOT),
    ]

    assert sorted([*in_order[3:], *in_order[:3]]) == in_order


def test_on_demand_comes_before_spot_at_the_same_rate() -> None:  # SC-324
    offering = a_class(rate_spot=Decimal("2.95"))
    pair = [spot(offering), on_demand(offering)]

    decision = place(a_request(), CatalogSnapshot.of(pair), NOW)

    assert winner_of(decision)[1] is Market.ON_DEMAND


def test_cpu_work_goes_to_classes_without_accelerator() -> None:  # SC-209
    cpu = on_demand(a_cpu_class())
    snapshot = CatalogSnapshot.of([*GOLDEN, cpu])

    decision = place(PlacementRequest(), snapshot, NOW)

    assert winner_of(decision) == cpu.key
    assert decision.counters == {"AcceleratorMismatch": 5}
    assert decision.placement.candidates == 6
    assert [one.offering for one in decision.placement.rejected] == [
        "gh200-96g-x1-us",
        "h100-sxm-80g-x1-eu",
        "h200-sxm-141g-x1-eu",
    ]


@pytest.mark.parametrize(
    ("vcpus", "cost"),
    [
        (Decimal(4), "0.5019"),  # K = 1.0333 h at 0.24, C = 1.0255 h at 0.24
        (Decimal(1), "0.2012"),  # K at 0.06
        (None, "0.2012"),
    ],
)
def test_cpu_work_is_anchored_by_the_vcpus_asked_for(
    vcpus: Decimal | None, cost: str
) -> None:  # SC-320
    four = on_demand(a_cpu_class(vcpus=Decimal(4), rate_on_demand=Decimal("0.24")))
    request = PlacementRequest(resources=Resources(vcpus=vcpus))

    choice = place(request, CatalogSnapshot.of([four]), NOW).placement.choice

    assert choice is not None
    assert choice.scores["costToComplete"] == Decimal(cost)


def test_no_class_with_the_accelerator_is_permanent() -> None:  # scenario 2
    request = a_request(resources=Resources(accelerators=("tpu", "npu"), count=4))

    decision = place(request, golden_snapshot(), NOW)

    assert decision.outcome is Outcome.UNPLACEABLE
    assert decision.placement.choice is None
    assert {one.reason for one in decision.placement.rejected} == {"AcceleratorMismatch"}
    assert decision.counters == {"AcceleratorMismatch": 5}
    assert (decision.next_try, decision.waiting_for) == (None, None)
    assert decision.waiting_message == "the catalog has no class with 4 x tpu or npu"


def test_an_empty_catalog_has_no_candidate() -> None:  # SC-330
    decision = place(PlacementRequest(), CatalogSnapshot.of([]), NOW)

    assert decision.placement.candidates == 0
    assert decision.outcome is Outcome.UNPLACEABLE
    assert decision.waiting_message == "the catalog has no class without accelerators"


def test_no_capacity_waits_and_explains() -> None:  # scenario 3, T4
    full = on_demand(a_cpu_class(), available=0)

    decision = place(PlacementRequest(), CatalogSnapshot.of([full]), NOW)

    assert decision.outcome is Outcome.WAITING
    assert decision.placement.rejected == (
        Rejection(offering="cpu-1c-4g-other", reason="InsufficientCapacity"),
    )
    assert decision.waiting_for is WaitingFor.CAPACITY
    assert decision.next_try == NOW + timedelta(seconds=10)
    assert (
        decision.waiting_message
        == "1 class tried: cpu-1c-4g-other has no capacity (asked for 1, 0 free)"
    )


@pytest.mark.parametrize(("wait", "next_try"), [(20, 20), (300, 60)])
def test_the_next_try_is_the_end_of_the_first_backoff(wait: int, next_try: int) -> None:  # SC-311
    until = NOW + timedelta(seconds=wait)
    pair = [
        on_demand(H100, backoff_until=until + timedelta(seconds=7)),
        spot(H100, backoff_until=until),
    ]

    decision = place(a_request(), CatalogSnapshot.of(pair), NOW)

    assert decision.outcome is Outcome.WAITING
    assert decision.next_try == NOW + timedelta(seconds=next_try)
    assert decision.waiting_for is WaitingFor.BACKOFF
    assert decision.waiting_message == (
        "1 class tried: h100-sxm-80g-x1-eu failed to deliver and backs off, "
        f"next try at {until:%Y-%m-%dT%H:%M:%SZ}"
    )


def test_a_backoff_that_is_over_is_none() -> None:  # SC-360
    decision = place(a_request(), CatalogSnapshot.of([on_demand(H100, backoff_until=NOW)]), NOW)

    assert decision.outcome is Outcome.PLACED


def test_a_backoff_that_is_over_sets_no_next_try() -> None:  # SC-311
    full = on_demand(H100, available=0, backoff_until=NOW - timedelta(seconds=5))

    decision = place(a_request(), CatalogSnapshot.of([full]), NOW)

    assert decision.next_try == NOW + timedelta(seconds=10)


def test_backing_off_is_not_forgiven_in_the_second_pass() -> None:  # SC-311
    bad = spot(H100, backoff_until=NOW + timedelta(seconds=20), failures=20.0)

    decision = place(a_request(), CatalogSnapshot.of([bad]), NOW)

    assert decision.outcome is Outcome.WAITING
    assert decision.counters == {"BackingOff": 1}


def test_soft_reasons_are_forgiven_if_nothing_else_passes() -> None:  # SC-311
    sick = spot(H100, failures=20.0)
    lost = on_demand(H100)
    request = a_request(lost=(LostCandidate(offering=H100.name, market=Market.ON_DEMAND, at=NOW),))

    decision = place(request, CatalogSnapshot.of([sick, lost]), NOW)

    assert decision.relaxed
    assert decision.outcome is Outcome.PLACED
    assert decision.counters == {}


def test_the_progress_guard_forces_on_demand_while_it_can() -> None:  # SC-122
    cheap, steady = spot(H100), on_demand(H100)
    request = a_request(on_demand_only=True)

    guarded = place(request, CatalogSnapshot.of([cheap, steady]), NOW)
    alone = place(request, CatalogSnapshot.of([cheap]), NOW)

    assert winner_of(guarded) == steady.key
    assert guarded.counters == {"RecentlyLost": 1}
    assert winner_of(alone) == cheap.key
    assert alone.relaxed


def test_a_failed_acquisition_counts_until_its_backoff_ends() -> None:  # SC-332
    failed = FailedAcquisition(
        offering=H100.name,
        market=Market.ON_DEMAND,
        until=NOW + timedelta(seconds=30),
        code=RejectionCode.QUOTA_EXCEEDED,
    )
    full = on_demand(a_class("h100-pcie-80g-x1-us", rate_spot=None), available=0)
    snapshot = CatalogSnapshot.of([on_demand(H100, available=9), full])
    request = a_request(failed=(failed,))

    before = place(request, snapshot, NOW)
    after = place(request, snapshot, failed.until)

    assert before.placement.rejected == (  # listed first, though its number is lower
        Rejection(offering="h100-sxm-80g-x1-eu", reason="QuotaExceeded"),
        Rejection(offering="h100-pcie-80g-x1-us", reason="InsufficientCapacity"),
    )
    assert before.next_try == failed.until
    assert winner_of(after) == (H100.name, Market.ON_DEMAND)


def test_a_supplier_out_of_quota_is_asked_again_when_its_offers_have_rested() -> None:  # SC-360
    until = NOW + timedelta(seconds=30)
    used_up = on_demand(H100, supplier_quota_used_up=True, backoff_until=until)
    request = a_request()

    decision = place(request, CatalogSnapshot.of([used_up]), NOW)
    projects = place(
        replace(request, quota_left={"h100": 0}),
        CatalogSnapshot.of([on_demand(H100, backoff_until=until)]),
        NOW,
    )

    assert decision.waiting_for is WaitingFor.QUOTA
    assert decision.next_try == until
    assert projects.counters == {"QuotaExceeded": 1}  # whose end no backoff tells
    assert projects.next_try == NOW + placement.CAPACITY_WAIT


def test_a_failed_acquisition_is_listed_first_no_longer_than_its_backoff() -> None:  # SC-332
    failed = FailedAcquisition(offering=H100.name, market=Market.ON_DEMAND, until=NOW)
    full = on_demand(a_class("h100-pcie-80g-x1-us", rate_spot=None), available=0)
    closed = on_demand(replace(H100, enabled=False))

    decision = place(a_request(failed=(failed,)), CatalogSnapshot.of([closed, full]), NOW)

    assert decision.placement.rejected == (
        Rejection(offering="h100-pcie-80g-x1-us", reason="InsufficientCapacity"),
        Rejection(offering="h100-sxm-80g-x1-eu", reason="Disabled"),
    )


def test_a_class_is_rejected_by_its_nearest_market_only_if_none_is_open() -> None:  # SC-332
    policy = PlacementPolicy(interruptible=WorkloadSpec(kind=OwnerKind.JOB).placement.interruptible)
    open_class = on_demand(a_class("open"))
    shut = on_demand(a_class("shut"), available=0)
    snapshot = CatalogSnapshot.of(
        [open_class, spot(open_class.offering), shut, spot(shut.offering)]
    )

    decision = place(a_request(policy=policy), snapshot, NOW)

    assert decision.placement.rejected == (
        Rejection(offering="shut", reason="InsufficientCapacity"),
    )
    assert decision.counters == {"InsufficientCapacity": 1, "InterruptibleNotAllowed": 2}  # SC-333


def test_a_class_is_rejected_by_its_nearest_market() -> None:  # SC-332
    pair = [on_demand(H100), spot(H100, available=0)]

    decision = place(a_request(max_rate_usd_per_hour=Decimal(2)), CatalogSnapshot.of(pair), NOW)

    assert decision.placement.rejected == (
        Rejection(offering=H100.name, reason="InsufficientCapacity"),
    )
    assert decision.counters == {"InsufficientCapacity": 1, "RateAboveLimit": 1}


def test_twenty_rejections_near_misses_first() -> None:  # SC-332
    def one(name: str, rate: int, **changes: object) -> Candidate:
        available = 0 if name.startswith("full") else None
        offering = a_class(name, rate_on_demand=Decimal(rate), rate_spot=None, **changes)
        return on_demand(offering, available=available)

    full = [one(f"full-{n}", 9 - n) for n in range(3)]
    small = [one(f"small-{n}", 2, accelerator_memory_gib=Decimal(8)) for n in range(2)]
    counts = [one(f"eight-{n:02}", 30, count=8) for n in range(9)]
    others = [one(f"other-{n:02}", 40 - n, accelerator=f"a{n % 3}") for n in range(9)]
    request = a_request(
        resources=Resources(
            accelerators=("h100",), count=1, accelerator_memory_gib=Decimal(80), vcpus=None
        )
    )

    decision = place(request, CatalogSnapshot.of([*others, *counts, *small, *full]), NOW)

    assert [one.offering for one in decision.placement.rejected] == [
        "full-2",
        "full-1",
        "full-0",
        "small-0",
        "small-1",
        *(f"eight-{n:02}" for n in range(9)),
        *(f"other-{n:02}" for n in range(8, 2, -1)),
    ]
    assert decision.counters == {
        "AcceleratorCountMismatch": 9,
        "AcceleratorMemoryTooSmall": 2,
        "AcceleratorMismatch": 9,
        "InsufficientCapacity": 3,
    }


def test_more_than_twenty_near_misses_leave_no_room() -> None:  # SC-332
    full = [on_demand(a_class(f"c{n:02}", rate_spot=None), available=0) for n in range(25)]

    decision = place(a_request(), CatalogSnapshot.of([*full, *GOLDEN]), NOW)

    assert len(place(a_request(), CatalogSnapshot.of(full), NOW).placement.rejected) == 20
    assert len(decision.placement.rejected) == 20


def test_at_most_five_fallbacks_each_class_once() -> None:  # SC-331
    classes = [a_class(f"c{n}") for n in range(8)]
    pairs = [make(one) for one in classes for make in (on_demand, spot)]

    choice = place(a_request(), CatalogSnapshot.of(pairs), NOW).placement.choice

    assert choice is not None
    assert (choice.offering, choice.fallbacks) == ("c0", ("c1", "c2", "c3", "c4", "c5"))


def test_the_first_accelerator_asked_for_anchors_the_cost() -> None:  # SC-320
    def cost_score(*accelerators: str) -> Decimal:
        request = replace(
            golden_request(), resources=Resources(accelerators=accelerators, count=1, vcpus=None)
        )
        snapshot = CatalogSnapshot.of(GOLDEN[:1] + GOLDEN[4:])
        choice = place(request, snapshot, NOW).placement.choice
        assert choice is not None
        return choice.scores["costToComplete"]

    assert cost_score("h100") == cost_score("tpu", "h100")
    assert cost_score("gh200", "h100") < cost_score("h100", "gh200")


def test_a_request_of_a_spec() -> None:  # SC-301
    spec = WorkloadSpec.from_json(
        OwnerKind.JOB,
        {
            "resources": {"accelerators": ["h100"]},
            "gang": True,
            "completions": 4,
            "estimate": {"hours": 8},
            "limits": {"maxRateUSDPerHour": "3"},
        },
    )

    request = PlacementRequest.of(
        spec,
        cursor=Cursor(completed=3, total=4),
        resumes=True,
        restore_bytes=1_000_000_000,
        calibrations={"h100": 1.5},
    )

    assert (request.work_hours, request.calibrations) == (2.0, {"h100": 1.5})
    assert request.restore_seconds == 2.0
    assert request.gang_size == 4
    assert request.max_rate_usd_per_hour == 3
    assert request.resumes


def test_a_request_of_a_spec_that_says_little() -> None:  # SC-301
    spec = WorkloadSpec(kind=OwnerKind.JOB, limits=Limits())

    request = PlacementRequest.of(spec, cursor=Cursor(completed=0, total=0))

    assert (request.work_hours, request.restore_seconds, request.gang_size) == (1.0, 60.0, 1)
    assert PlacementRequest.of(spec, usual_hours=2.5).work_hours == 2.5


def test_finished_work_can_be_placed() -> None:  # a cursor at its end still needs a last run
    request = replace(golden_request(), work_hours=0.0)

    assert place(request, golden_snapshot(), NOW).outcome is Outcome.PLACED


@given(request=requests(), catalog=catalogs, chance=st.randoms(use_true_random=True))
def test_a_pure_function_of_request_snapshot_and_moment(  # P-16
    request: PlacementRequest, catalog: tuple[Candidate, ...], chance: random.Random
) -> None:
    shuffled = list(catalog)
    chance.shuffle(shuffled)

    first = place(request, CatalogSnapshot.of(catalog), NOW)
    second = place(request, CatalogSnapshot.of(shuffled), NOW)

    assert first == second


@given(request=requests(), catalog=catalogs, lost=st.booleans())
def test_a_kept_request_replays_to_the_same_hash(  # SC-325
    request: PlacementRequest, catalog: tuple[Candidate, ...], lost: bool
) -> None:
    if lost:
        request = replace(
            request,
            lost=(LostCandidate(offering="class-0", market=Market.SPOT, at=NOW),),
            failed=(FailedAcquisition(offering="class-1", market=Market.SPOT, until=NOW),),
            start_deadline=NOW,
            quota_left={"h100": 8},
        )
    decision = place(request, CatalogSnapshot.of(catalog), NOW)

    kept = PlacementRequest.from_json(json.loads(json.dumps(request.to_json())))

    assert kept == request
    assert place(kept, CatalogSnapshot.of(catalog), NOW).result_hash == decision.result_hash


def test_another_answer_has_another_hash() -> None:  # SC-325
    decision = place(golden_request(), golden_snapshot(), NOW)
    other = place(golden_request(), golden_snapshot().without(H200_SPOT), NOW)
    faster = place(golden_request(Profile.SPEED), golden_snapshot(), NOW)

    assert decision.request_hash == other.request_hash != faster.request_hash
    assert len({decision.result_hash, other.result_hash, faster.result_hash}) == 3


@given(request=requests(easy=True), catalog=fuller_catalogs, data=st.data())
def test_a_loser_that_goes_changes_neither_winner_nor_scores(  # P-18
    request: PlacementRequest, catalog: tuple[Candidate, ...], data: st.DataObject
) -> None:
    snapshot = CatalogSnapshot.of(catalog)
    decision = place(request, snapshot, NOW)
    assume(decision.chosen is not None and len(catalog) > 1)
    losers = [one.key for one in catalog if one.key != winner_of(decision)]
    gone = data.draw(st.lists(st.sampled_from(losers), min_size=1, unique=True))

    less = snapshot
    for key in gone:
        less = less.without(key)
    again = place(request, less, NOW)

    assert winner_of(again) == winner_of(decision)
    before = {one.candidate.key: one.scores for one in decision.top}
    after = {one.candidate.key: one.scores for one in again.top}
    assert all(after[key] == before[key] for key in after.keys() & before.keys())


@given(request=requests(), catalog=catalogs)
def test_what_is_published_holds_together(  # P-20
    request: PlacementRequest, catalog: tuple[Candidate, ...]
) -> None:
    decision = place(request, CatalogSnapshot.of(catalog), NOW)
    published, choice = decision.placement, decision.placement.choice

    rejected = [one.offering for one in published.rejected]
    assert published.candidates == len(catalog)
    assert len(rejected) <= 20
    assert len(set(rejected)) == len(rejected)
    assert sum(decision.counters.values()) <= len(catalog)
    assert (choice is None) == (decision.outcome is not Outcome.PLACED)
    assert (decision.next_try is None) == (decision.outcome is not Outcome.WAITING)
    assert (decision.waiting_message is None) == (decision.outcome is Outcome.PLACED)
    if choice is None:
        assert sum(decision.counters.values()) == len(catalog)
        return
    assert published.candidates >= 1 + len(choice.fallbacks)
    assert len(choice.fallbacks) <= 5
    assert choice.offering not in rejected
    assert choice.offering not in choice.fallbacks
    assert not set(choice.fallbacks) & set(rejected)


@given(request=requests(easy=True), catalog=fuller_catalogs, profile=st.sampled_from(Profile))
def test_a_cheaper_copy_of_the_winner_wins(  # P-21
    request: PlacementRequest, catalog: tuple[Candidate, ...], profile: Profile
) -> None:
    request = replace(
        request,
        work_hours=1.0 + request.work_hours,
        policy=replace(request.policy, profile=profile),
    )
    snapshot = CatalogSnapshot.of(catalog)
    decision = place(request, snapshot, NOW)
    assume(decision.chosen is not None)
    winner = next(one for one in catalog if one.key == winner_of(decision))
    offering = replace(
        winner.offering,
        name="zz-copy",
        rate_on_demand=winner.offering.rate_on_demand / 2,
        rate_spot=winner.offering.rate_spot and winner.offering.rate_spot / 2,
    )

    # the catalog's constants stay as they are: they do not follow prices between imports
    wider = replace(
        CatalogSnapshot.of([*catalog, replace(winner, offering=offering)]),
        reference_rates=snapshot.reference_rates,
        cpu_rate_per_vcpu=snapshot.cpu_rate_per_vcpu,
    )

    assert winner_of(place(request, wider, NOW)) == ("zz-copy", winner.market)


@given(request=requests(easy=True), catalog=fuller_catalogs, minutes=st.integers(0, 30))
def test_the_lost_candidate_is_avoided_while_another_passes(  # P-17
    request: PlacementRequest, catalog: tuple[Candidate, ...], minutes: int
) -> None:
    snapshot = CatalogSnapshot.of(catalog)
    first = place(request, snapshot, NOW)
    assume(first.chosen is not None and not first.relaxed)
    name, market = winner_of(first)
    at = NOW - timedelta(minutes=minutes)
    request = replace(request, lost=(LostCandidate(offering=name, market=market, at=at),))

    again = place(request, snapshot, NOW)

    another = place(request, snapshot.without((name, market)), NOW)
    if minutes < 15 and another.chosen is not None and not another.relaxed:
        assert winner_of(again) == winner_of(another) != (name, market)
    elif minutes >= 15 or another.chosen is None:
        assert winner_of(again) == (name, market)
