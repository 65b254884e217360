"""The sentences kept with a decision, and how one class stands under a kept request."""

from decimal import Decimal

from tests.kernel.catalogs import (
    NOW,
    a_class,
    a_cpu_class,
    a_request,
    golden_request,
    golden_snapshot,
    on_demand,
    spot,
)

from nodus_api.kernel.explaining import standings, told_of
from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import place
from nodus_api.kernel.request import PlacementRequest

SNAPSHOT = CatalogSnapshot.of(
    [
        on_demand(a_class("full"), available=0),
        spot(a_class("full"), available=0),
        on_demand(a_class("twin", count=8, rate_spot=None)),
        on_demand(a_cpu_class("cpu")),
    ]
)


def test_each_rejected_class_has_its_sentence_and_its_number() -> None:  # SC-009b, SC-332
    decision = place(a_request(), SNAPSHOT, NOW)

    told = told_of(a_request(), SNAPSHOT, decision, NOW)

    assert [(one.offering, one.market, one.message) for one in told.classes] == [
        ("full", "on-demand", "full has no capacity (asked for 1, 0 free)"),
        ("twin", "on-demand", "twin has 8 x h100 (asked for 1)"),
        ("cpu", "on-demand", "cpu has other accelerators (none)"),
    ]
    assert [one.offering for one in told.classes] == [
        one.offering for one in decision.placement.rejected
    ]
    assert told.to_json(decision.counters) == {
        "reasons": {
            "AcceleratorCountMismatch": 1,
            "AcceleratorMismatch": 1,
            "InsufficientCapacity": 2,
        },
        "classes": [
            {
                "offering": one.offering,
                "market": one.market,
                "reason": one.reason,
                "message": one.message,
            }
            for one in told.classes
        ],
        "sentence": "1 class tried: full has no capacity (asked for 1, 0 free)",
        "relaxed": False,
    }


def test_a_class_stands_by_its_own_filters_or_its_own_scores() -> None:  # SC-320, SC-334
    full = standings(a_request(), SNAPSHOT, "full", NOW)
    assert [(one.candidate.market.value, one.message) for one in full] == [
        ("on-demand", "full has no capacity (asked for 1, 0 free)"),
        ("spot", "full has no capacity (asked for 1, 0 free)"),
    ]
    (cpu,) = standings(a_request(), SNAPSHOT, "cpu", NOW)
    assert cpu.message == "cpu has other accelerators (none)"
    assert standings(a_request(), SNAPSHOT, "nothing", NOW) == ()

    decision = place(golden_request(), golden_snapshot(), NOW)
    (gh200,) = standings(golden_request(), golden_snapshot(), "gh200-96g-x1-us", NOW)
    assert gh200.ranked in decision.top
    assert gh200.message is None
    assert gh200.ranked is not None
    assert gh200.ranked.total == 651332  # SC-326


def test_a_kept_request_stands_as_the_request_did() -> None:  # SC-325
    request = golden_request()
    kept = PlacementRequest.from_json(request.to_json())

    assert standings(kept, golden_snapshot(), "gh200-96g-x1-us", NOW) == standings(
        request, golden_snapshot(), "gh200-96g-x1-us", NOW
    )
    assert kept.resources.accelerator_memory_gib == Decimal(80)
