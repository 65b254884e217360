"""The filters: each code, and which of two comes first."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.kernel.catalogs import NOW, a_class, a_request, on_demand, spot

from nodus_api.kernel import rejection
from nodus_api.kernel.offering import Candidate, CatalogSnapshot
from nodus_api.kernel.placement import Outcome, place
from nodus_api.kernel.rejection import FailedAcquisition, LostCandidate, RejectionCode
from nodus_api.kernel.spec import InterruptiblePolicy, PlacementPolicy, Resources
from nodus_api.kernel.vocabulary import Market

LATER = NOW + timedelta(seconds=40)


def resources(**changes: Any) -> Mapping[str, Any]:
    facts: dict[str, Any] = {"accelerators": ("h100",), "count": 1, "vcpus": None}
    return {"resources": Resources(**(facts | changes))}


def policy(**changes: Any) -> Mapping[str, Any]:
    return {"policy": PlacementPolicy(**({"interruptible": InterruptiblePolicy.ALLOW} | changes))}


PLAIN = on_demand(a_class())
CHOICE = place(a_request(), CatalogSnapshot.of([PLAIN]), NOW).placement.choice
COST = CHOICE.predicted.cost_usd if CHOICE else Decimal(0)
"""What PLAIN is predicted to cost."""
CASES: list[tuple[str, Candidate, Mapping[str, Any], str]] = [
    ("AcceleratorMismatch", PLAIN, resources(accelerators=("a100",)), "with 1 x a100"),
    ("AcceleratorCountMismatch", PLAIN, resources(count=8), "with 8 x h100"),
    (
        "AcceleratorMemoryTooSmall",
        PLAIN,
        resources(accelerator_memory_gib=Decimal(141)),
        "needs 141 GiB per accelerator, the largest allowed class has 80",
    ),
    (
        "AcceleratorMemoryTooSmall",
        on_demand(a_class(accelerator_memory_gib=None)),
        resources(accelerator_memory_gib=Decimal(141)),
        "needs 141 GiB per accelerator, the largest allowed class has none",
    ),
    (
        "ArchitectureMismatch",
        PLAIN,
        resources(arch="arm64"),
        "h100-sxm-80g-x1-eu is amd64 (asked for arm64)",
    ),
    (
        "CPUTooSmall",
        PLAIN,
        resources(vcpus=Decimal("16.50")),
        "needs 16.5 vCPUs, the largest allowed class has 16",
    ),
    (
        "MemoryTooSmall",
        PLAIN,
        resources(memory_gib=Decimal(201)),
        "needs 201 GiB of memory, the largest allowed class has 200",
    ),
    (
        "DiskTooSmall",
        PLAIN,
        resources(disk_gib=Decimal(501)),
        "needs 501 GiB of disk, the largest allowed class has 500",
    ),
    (
        "GangUnsupported",
        on_demand(a_class(gang_capable=False)),
        {"gang_size": 4},
        "has no interconnect for a gang (gang of 4)",
    ),
    (
        "RegionNotAllowed",
        PLAIN,
        policy(regions=("us", "jp")),
        "is in eu (allowed: us, jp)",
    ),
    (
        "NotEntitled",
        PLAIN,
        {"closed_offerings": ("h100-sxm-80g-x1-eu",)},
        "is not open to this project",
    ),
    (
        "InterruptibleNotAllowed",
        spot(a_class()),
        policy(interruptible=InterruptiblePolicy.NEVER),
        "is spot, and placement.interruptible is Never",
    ),
    (
        "InterruptibleRequired",
        PLAIN,
        policy(interruptible=InterruptiblePolicy.REQUIRE),
        "is on-demand, and placement.interruptible is Require",
    ),
    (
        "NotInAllowList",
        PLAIN,
        policy(offerings=("h200-sxm-141g-x1-eu",)),
        "is not in placement.offerings",
    ),
    (
        "RateAboveLimit",
        PLAIN,
        {"max_rate_usd_per_hour": Decimal("2.94")},
        "costs 2.95 USD per hour (limit 2.94)",
    ),
    (
        "CostAboveLimit",
        PLAIN,
        {"remaining_cost_usd": Decimal("2.50")},
        "is predicted to cost more than the 2.5 USD left",
    ),
    ("Disabled", on_demand(a_class(enabled=False)), {}, "is closed by an operator"),
    (
        "Disabled",
        on_demand(a_class(), credentials_refused=True, available=0, backoff_until=LATER),
        {},
        "is closed until its credentials are renewed",
    ),
    (
        "QuotaExceeded",
        PLAIN,
        {"quota_left": {"h100": 0}},
        "is over the quota (0 left)",
    ),
    (
        "QuotaExceeded",
        on_demand(a_class(), supplier_quota_used_up=True),
        {},
        "is out of supplier quota",
    ),
    (
        "QuotaExceeded",
        on_demand(a_class(), supplier_quota_used_up=True),
        {"quota_left": {"h100": 8}},
        "is out of supplier quota",
    ),
    ("BackingOff", on_demand(a_class(), backoff_until=LATER), {}, "failed to deliver"),
    (
        "GangTooLarge",
        on_demand(a_class(), available=9, largest_available=3),
        {"gang_size": 4},
        "has too little capacity (gang of 4: 3 placed at most)",
    ),
    (
        "InsufficientCapacity",
        on_demand(a_class(), available=0),
        {},
        "has no capacity (asked for 1, 0 free)",
    ),
    (
        "InsufficientCapacity",
        on_demand(a_class(), available=0),
        {"gang_size": 4},
        "has no capacity (asked for 4, 0 free)",
    ),
    (
        "InsufficientCapacity",  # SC-332: whatever the snapshot says
        on_demand(a_class(), available=9),
        {
            "failed": (
                FailedAcquisition(
                    offering=PLAIN.offering.name, market=Market.ON_DEMAND, until=LATER
                ),
            )
        },
        "has no capacity (asked for 1, 0 free), next try at",
    ),
]


@pytest.mark.parametrize(("code", "candidate", "asked", "sentence"), CASES)
def test_each_code_and_its_sentence(  # SC-310, SC-009b
    code: str, candidate: Candidate, asked: Mapping[str, Any], sentence: str
) -> None:
    decision = place(a_request(**asked), CatalogSnapshot.of([candidate]), NOW)

    assert decision.counters == {code: 1}
    assert [one.reason for one in decision.placement.rejected] == [code]
    transient = not RejectionCode(code).permanent
    assert decision.outcome is (Outcome.WAITING if transient else Outcome.UNPLACEABLE)
    assert decision.waiting_message is not None
    assert sentence in decision.waiting_message


@pytest.mark.parametrize(
    ("candidate", "asked", "code"),
    [
        (on_demand(a_class(), failures=20.0), {}, "Unhealthy"),
        (
            PLAIN,
            {"lost": (LostCandidate(offering=PLAIN.offering.name, market=PLAIN.market, at=NOW),)},
            "RecentlyLost",
        ),
    ],
)
def test_soft_codes_stand_while_another_passes(  # SC-310, rows 17 and 19
    candidate: Candidate, asked: Mapping[str, Any], code: str
) -> None:
    other = on_demand(a_class("other", rate_on_demand=Decimal(20), rate_spot=None))

    decision = place(a_request(**asked), CatalogSnapshot.of([candidate, other]), NOW)

    assert decision.chosen is not None
    assert decision.chosen.candidate == other
    assert [(one.offering, one.reason) for one in decision.placement.rejected] == [
        (candidate.offering.name, code)
    ]


def test_the_first_failing_filter_is_the_reason() -> None:  # SC-310
    hopeless = spot(
        a_class(enabled=False, region_class="us", arch="arm64"), available=0, backoff_until=LATER
    )
    asked = {
        **resources(arch="amd64"),
        **policy(regions=("eu",), interruptible=InterruptiblePolicy.NEVER),
    }

    decision = place(a_request(**asked), CatalogSnapshot.of([hopeless]), NOW)

    assert decision.counters == {"ArchitectureMismatch": 1}


def test_codes_are_numbered_as_in_the_table() -> None:  # SC-310
    assert len(RejectionCode) == 22
    assert [code.number for code in RejectionCode] == list(range(22))
    assert RejectionCode.QUOTA_EXCEEDED.number == 16
    assert [code.number for code in RejectionCode if code.permanent] == list(range(15))
    assert [code.number for code in RejectionCode if code.soft] == [17, 19]


def test_filters_are_asked_in_the_order_of_the_codes() -> None:  # SC-310
    assert [code for code, _ in rejection._FILTERS] == list(RejectionCode)


def test_a_gang_needs_room_in_one_supplier_offer() -> None:  # SC-131
    roomy = on_demand(a_class(), available=9, largest_available=4)
    spread = on_demand(a_class(), available=9, largest_available=3)

    placed = place(a_request(gang_size=4), CatalogSnapshot.of([roomy]), NOW)
    waits = place(a_request(gang_size=4), CatalogSnapshot.of([spread]), NOW)

    assert placed.outcome is Outcome.PLACED
    assert waits.counters == {"GangTooLarge": 1}  # scenario 28


@pytest.mark.parametrize(
    ("candidate", "asked"),
    [
        (PLAIN, {"max_rate_usd_per_hour": Decimal("2.95")}),
        (PLAIN, {"remaining_cost_usd": COST}),
        (PLAIN, {"quota_left": {"h100": 1}}),
        (PLAIN, resources(accelerator_memory_gib=Decimal(80))),
        (on_demand(a_class(), successes=2.0, failures=8.0), {}),  # health 0.55
        (on_demand(a_class(), available=1), {}),
    ],
    ids=["rate", "cost", "quota", "size", "health", "capacity"],
)
def test_a_limit_that_is_just_met_passes(
    candidate: Candidate, asked: Mapping[str, Any]
) -> None:  # SC-310
    decision = place(a_request(**asked), CatalogSnapshot.of([candidate]), NOW)

    assert decision.outcome is Outcome.PLACED
    assert not decision.relaxed


def test_a_health_below_the_limit_is_avoided() -> None:  # SC-310, row 19
    sick = on_demand(a_class(), successes=2.0, failures=8.1)

    assert place(a_request(), CatalogSnapshot.of([sick]), NOW).relaxed


def test_a_second_gang_finds_the_offer_taken_by_the_first() -> None:  # SC-131, SC-371
    roomy = on_demand(a_class(), available=9, largest_available=4)
    left = CatalogSnapshot.of([roomy]).after_taking(roomy.key, 4)

    assert place(a_request(gang_size=4), left, NOW).counters == {"InsufficientCapacity": 1}
    assert place(a_request(), left, NOW).outcome is Outcome.PLACED  # 5 are left elsewhere


def test_a_gang_needs_the_quota_and_the_money_of_all_ranks() -> None:
    snapshot = CatalogSnapshot.of([PLAIN])

    assert place(a_request(quota_left={"h100": 3}), snapshot, NOW).outcome is Outcome.PLACED
    over = place(a_request(gang_size=4, quota_left={"h100": 3}), snapshot, NOW)
    assert over.counters == {"QuotaExceeded": 1}
    dear = place(a_request(gang_size=4, remaining_cost_usd=Decimal(9)), snapshot, NOW)
    assert dear.counters == {"CostAboveLimit": 1}


def test_a_loss_is_forgotten_after_fifteen_minutes() -> None:  # SC-310, row 17
    at = NOW - timedelta(minutes=15)
    lost = LostCandidate(offering=PLAIN.offering.name, market=Market.ON_DEMAND, at=at)

    decision = place(a_request(lost=(lost,)), CatalogSnapshot.of([PLAIN]), NOW)

    assert decision.outcome is Outcome.PLACED
    assert not decision.relaxed
