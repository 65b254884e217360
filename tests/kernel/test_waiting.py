"""The sentences that say why an Attempt waits."""

from datetime import timedelta, timezone
from decimal import Decimal

import pytest
from tests.kernel.catalogs import NOW, a_class, a_cpu_class, a_request, on_demand, spot

from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import place
from nodus_api.kernel.rejection import Demand, RejectionCode
from nodus_api.kernel.scores import Work
from nodus_api.kernel.spec import PlacementPolicy, Resources
from nodus_api.kernel.vocabulary import WaitingFor
from nodus_api.kernel.waiting import explain, waiting_for


def a_demand(snapshot: CatalogSnapshot) -> Demand:
    return Demand(
        resources=Resources(
            accelerators=("h100",), count=8, accelerator_memory_gib=Decimal(141), vcpus=None
        ),
        policy=PlacementPolicy(),
        gang_size=1,
        max_rate_usd_per_hour=None,
        remaining_cost_usd=None,
        closed_offerings=frozenset(),
        quota_left={},
        lost=frozenset(),
        failed={},
        on_demand_only=False,
        work=Work(
            hours=1.0,
            restartable=False,
            interval_seconds=None,
            cost_seconds=30.0,
            restore_seconds=60.0,
            resumes=False,
            reference_rate=2.95,
            sizes=(),
        ),
        calibrations={},
        snapshot=snapshot,
        now=NOW,
    )


@pytest.mark.parametrize(
    ("counters", "wait"),
    [
        ({"InsufficientCapacity": 1, "BackingOff": 9}, WaitingFor.CAPACITY),
        ({"GangTooLarge": 1, "BackingOff": 9}, WaitingFor.GANG),
        ({"BackingOff": 1, "QuotaExceeded": 9}, WaitingFor.BACKOFF),
        ({"QuotaExceeded": 1, "Disabled": 9}, WaitingFor.QUOTA),
        ({"Disabled": 1}, WaitingFor.CAPACITY),
    ],
)
def test_what_the_nearest_miss_lacks(counters: dict[str, int], wait: WaitingFor) -> None:  # SC-009a
    assert waiting_for(counters) is wait


def test_the_nearest_miss_is_told_with_the_number_of_classes() -> None:  # SC-009b
    candidates = [
        on_demand(a_class("far", accelerator_memory_gib=Decimal(8), rate_spot=None)),
        on_demand(a_class("dear", rate_on_demand=Decimal(9)), available=0),
        spot(a_class("dear", rate_on_demand=Decimal(9)), backoff_until=NOW + timedelta(seconds=9)),
        on_demand(a_class("cheap", rate_spot=None), available=0),
    ]
    request = a_request(
        resources=Resources(
            accelerators=("h100",), count=1, accelerator_memory_gib=Decimal(80), vcpus=None
        )
    )

    decision = place(request, CatalogSnapshot.of(candidates), NOW)

    assert decision.waiting_message == (
        "3 classes tried: cheap has no capacity (asked for 1, 0 free), "
        "next try at 2026-03-01T10:00:09Z"
    )


def test_the_text_stands_while_its_facts_do() -> None:  # SC-009b
    snapshot = CatalogSnapshot.of([on_demand(a_class(), available=0)])

    now = place(a_request(), snapshot, NOW)
    later = place(a_request(), snapshot, NOW + timedelta(seconds=10))

    assert now.waiting_message == later.waiting_message


def test_the_next_try_is_told_in_utc() -> None:  # SC-009b
    until = (NOW + timedelta(seconds=9)).astimezone(timezone(timedelta(hours=2)))
    resting = on_demand(a_class(rate_spot=None), backoff_until=until)

    message = place(a_request(), CatalogSnapshot.of([resting]), NOW).waiting_message

    assert message is not None
    assert message.endswith("next try at 2026-03-01T10:00:09Z")


def test_the_largest_class_is_named_where_a_size_is_missed() -> None:  # SC-009b
    sizes = [
        on_demand(a_class(f"h100-{n}", accelerator_memory_gib=Decimal(n), rate_spot=None))
        for n in (48, 40)
    ]
    request = a_request(
        resources=Resources(
            accelerators=("h100",), count=1, accelerator_memory_gib=Decimal(80), vcpus=None
        )
    )

    decision = place(request, CatalogSnapshot.of(sizes), NOW)

    assert (
        decision.waiting_message == "needs 80 GiB per accelerator, the largest allowed class has 48"
    )


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            RejectionCode.ACCELERATOR_MISMATCH,
            "h100-sxm-80g-x1-eu has other accelerators (1 x h100)",
        ),
        (
            RejectionCode.ACCELERATOR_COUNT_MISMATCH,
            "h100-sxm-80g-x1-eu has 1 x h100 (asked for 8)",
        ),
        (
            RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL,
            "h100-sxm-80g-x1-eu has 80 GiB per accelerator (asked for 141)",
        ),
        (RejectionCode.RECENTLY_LOST, "h100-sxm-80g-x1-eu was lost in the last 15 minutes"),
        (
            RejectionCode.UNHEALTHY,
            "h100-sxm-80g-x1-eu delivers too seldom (health 0.45, at least 0.55)",
        ),
    ],
)
def test_one_class_can_be_explained(code: RejectionCode, sentence: str) -> None:  # SC-009b
    candidate = on_demand(a_class(), failures=10.0)

    assert explain(a_demand(CatalogSnapshot.of([candidate])), candidate, code) == sentence


def test_every_code_has_a_sentence() -> None:  # SC-009b
    candidate = on_demand(a_cpu_class())
    demand = a_demand(CatalogSnapshot.of([candidate]))

    sentences = [explain(demand, candidate, code) for code in RejectionCode]

    assert len(set(sentences)) == len(RejectionCode)
    assert all(one.startswith("cpu-1c-4g-other ") for one in sentences)
