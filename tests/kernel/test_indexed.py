"""The index against the plain evaluation: the same answers, whatever is asked (SC-370)."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import (
    NOW,
    a_class,
    a_drawn_catalog,
    a_request,
    catalogs,
    on_demand,
    requests,
    spot,
)

from nodus_api.bench.plain_placement import PlainDecision, first_failure, place_plainly, plain
from nodus_api.kernel.bitmaps import Labelled, Ordered, bitmap, pick
from nodus_api.kernel.offering import Candidate, CandidateKey, CandidateStats, CatalogSnapshot
from nodus_api.kernel.placement import (
    FailedAcquisition,
    LostCandidate,
    PlacementRequest,
    RejectionCode,
    demand_of,
    place,
)
from nodus_api.kernel.rejection import sift
from nodus_api.kernel.spec import PlacementPolicy
from nodus_api.kernel.vocabulary import Market

names = st.sampled_from([f"class-{n}" for n in range(9)])
markets = st.sampled_from(Market)
lost = st.builds(
    LostCandidate,
    offering=names,
    market=markets,
    at=st.sampled_from([NOW, NOW - timedelta(minutes=20)]),
)
failed = st.builds(
    FailedAcquisition,
    offering=names,
    market=markets,
    until=st.sampled_from([NOW, NOW + timedelta(seconds=30)]),
    code=st.sampled_from([RejectionCode.INSUFFICIENT_CAPACITY, RejectionCode.QUOTA_EXCEEDED]),
)


@st.composite
def any_requests(draw: st.DrawFn) -> PlacementRequest:
    """Draw a request that may meet every row of SC-310; half of them reach the last ones."""
    strict = draw(st.booleans())
    request: PlacementRequest = draw(requests(easy=not strict))
    request = replace(
        request,
        lost=tuple(draw(st.lists(lost, max_size=5))),
        failed=tuple(draw(st.lists(failed, max_size=3))),
        on_demand_only=draw(st.booleans()),
        gang_size=draw(st.sampled_from([1, 1, 4])),
    )
    if not strict:
        return request
    policy = request.policy
    return replace(
        request,
        policy=PlacementPolicy(
            profile=policy.profile,
            regions=policy.regions,
            interruptible=policy.interruptible,
            offerings=tuple(draw(st.lists(names, max_size=6, unique=True))),
        ),
        resources=replace(
            request.resources,
            arch=draw(st.sampled_from([None, "amd64", "arm64"])),
            disk_gib=draw(st.sampled_from([None, Decimal(600), Decimal(100)])),
        ),
        closed_offerings=tuple(draw(st.lists(names, max_size=2, unique=True))),
        quota_left=draw(st.sampled_from([{}, {"h100": 3}, {"a100": 0}])),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> CatalogSnapshot:
    """Draw a catalog of which a batch may have taken something."""
    snapshot = CatalogSnapshot.of(draw(catalogs))
    keys = [one.key for one in snapshot]
    for key in draw(st.lists(st.sampled_from(keys), max_size=3)) if keys else ():
        snapshot = snapshot.after_taking(key, draw(st.sampled_from([1, 4])))
    return snapshot


def indexed(request: PlacementRequest, snapshot: CatalogSnapshot) -> PlainDecision:
    decision = place(request, snapshot, NOW)
    order = tuple((*one.candidate.key, one.total) for one in decision.top)
    return plain(decision.placement, order, dict(decision.counters), relaxed=decision.relaxed)


@given(request=any_requests(), snapshot=snapshots())
def test_the_index_answers_as_a_look_at_every_candidate(  # SC-370, SC-310, SC-324, SC-331 to SC-334
    request: PlacementRequest, snapshot: CatalogSnapshot
) -> None:
    assert indexed(request, snapshot) == place_plainly(request, snapshot, NOW)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_on_catalogs_of_hundreds(seed: int) -> None:  # SC-370, SC-332
    snapshot = CatalogSnapshot.of(a_drawn_catalog(seed, 150))
    request = PlacementRequest(remaining_cost_usd=Decimal(5) if seed % 2 else None)
    for one in list(snapshot)[:40:2]:
        snapshot = snapshot.after_taking(one.key, 3)

    assert indexed(request, snapshot) == place_plainly(request, snapshot, NOW)


@given(request=any_requests(), snapshot=snapshots(), forgiving=st.booleans())
def test_each_candidate_fails_the_same_filter(  # SC-310, SC-311
    request: PlacementRequest, snapshot: CatalogSnapshot, forgiving: bool
) -> None:
    demand = demand_of(request, snapshot, NOW)

    for bucket in snapshot.families.values():
        sifted = sift(demand, bucket, forgiving=forgiving)
        for one in bucket:
            assert sifted.code_of(one) == first_failure(demand, one, forgiving=forgiving)
        together = [sifted.feasible, *sifted.ruled_out.values()]
        assert sum(together) == bucket.everything  # each in one of them


@given(request=any_requests(), catalog=catalogs, data=st.data())
def test_news_of_some_candidates_make_the_snapshot_that_all_would_make(  # SC-205
    request: PlacementRequest, catalog: tuple[Candidate, ...], data: st.DataObject
) -> None:
    known = st.builds(CandidateStats, available=st.sampled_from([None, 0, 7]))
    chosen = st.lists(st.sampled_from(catalog), max_size=4) if catalog else st.just([])
    news: dict[CandidateKey, CandidateStats] = {
        one.key: data.draw(known) for one in data.draw(chosen)
    }
    before = CatalogSnapshot.of(catalog)
    anew = CatalogSnapshot.of(replace(one, stats=news.get(one.key, one.stats)) for one in catalog)

    after = before.knowing(news | {("gone", Market.SPOT): CandidateStats()})

    assert after == anew
    assert place(request, after, NOW) == place(request, anew, NOW)
    touched = {one.offering.family for one in catalog if one.key in news}
    assert all(
        after.families[family] is bucket
        for family, bucket in before.families.items()
        if family not in touched
    )


def test_what_is_learnt_ends_what_was_taken() -> None:  # SC-371
    some = on_demand(a_class(), available=1)
    taken = CatalogSnapshot.of([some]).after_taking(some.key, 1)

    assert taken.available(some) == 0
    assert taken.knowing({}).available(some) == 1


@pytest.mark.parametrize(
    ("taken", "reason"),
    [(1, None), (2, "GangTooLarge"), (5, "InsufficientCapacity")],
)
def test_a_gang_finds_what_the_batch_left(taken: int, reason: str | None) -> None:  # SC-131, SC-371
    roomy = on_demand(a_class(rate_spot=None), available=9, largest_available=5)
    unknown = on_demand(a_class("other", rate_spot=None, gang_capable=False))
    snapshot = CatalogSnapshot.of([roomy, unknown]).after_taking(roomy.key, taken)
    gang = replace(a_request(), gang_size=4)

    assert indexed(gang, snapshot) == place_plainly(gang, snapshot, NOW)
    assert (
        sift(demand_of(gang, snapshot, NOW), snapshot.families["h100", 1]).code_of(roomy) == reason
    )


def test_a_candidate_is_found_by_its_key() -> None:
    some = on_demand(a_class())
    snapshot = CatalogSnapshot.of([some])

    assert snapshot.find(some.key) == some
    assert snapshot.find((some.offering.name, Market.SPOT)) is None
    assert snapshot.find(("unheard-of", Market.SPOT)) is None


def test_a_class_of_one_market_is_whole() -> None:  # SC-312
    pair, alone = a_class("a"), a_class("b")
    snapshot = CatalogSnapshot.of([on_demand(pair), spot(pair), spot(alone)])
    bucket = snapshot.families["h100", 1]

    assert bucket.classes == 2
    assert [bucket.whole_classes(1 << n) for n in range(3)] == [0b011, 0b011, 0b100]
    assert bucket.one_a_class(0b111) == 0b101
    assert bucket.one_a_class(0b110) == 0b110


numbers = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=70)


@given(column=numbers, limit=st.integers(-4, 4))
def test_an_ordered_column_answers_as_a_look_at_every_value(
    column: list[int | None], limit: int
) -> None:
    index = Ordered(column)
    places = range(len(column))

    below = [n for n in places if column[n] is None or (column[n] or 0) < limit]
    above = [n for n in places if column[n] is not None and (column[n] or 0) > limit]

    assert list(pick(places, index.below(limit))) == below
    assert list(pick(places, index.above(limit))) == above


@given(column=st.lists(st.sampled_from("abc"), max_size=70), asked=st.sets(st.sampled_from("abd")))
def test_a_labelled_column_answers_as_a_look_at_every_value(
    column: list[str], asked: set[str]
) -> None:
    assert Labelled(column).among(asked) == bitmap(one in asked for one in column)
