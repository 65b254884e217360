"""`nodus simulate --study`: one week for all, an audit that sees faults, and what is told of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from tests.conftest import START, FirstRows
from tests.kernel.catalogs import (
    H100,
    NOW,
    catalogs,
    golden_request,
    golden_snapshot,
    requests,
)

from nodus_api.bench.simulation.audit import Books, findings
from nodus_api.bench.simulation.contenders import CONTENDERS, cheapest_first
from nodus_api.bench.simulation.plot import plot
from nodus_api.bench.simulation.study import Outcome, Study, run
from nodus_api.bench.simulation.week import span_of, week
from nodus_api.bench.simulation.week_fleet import week_fleet
from nodus_api.cli.study import study_text
from nodus_api.clock import ManualClock
from nodus_api.kernel.offering import Candidate, CatalogSnapshot
from nodus_api.kernel.placement import Decision, LostCandidate, PlacementRequest, place
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Market, OwnerKind, Profile
from nodus_api.suppliers.simulated import Fleet

BALANCED, COST, SPEED, CHEAPEST, ON_DEMAND = CONTENDERS


def test_a_week_is_the_same_for_all_and_holds_work_of_many_kinds() -> None:
    jobs = list(week(attempts=5000, seed=3))

    assert jobs == list(week(attempts=5000, seed=3)) != list(week(attempts=5000, seed=4))
    assert sum(job.slots for job in jobs) == 5000
    assert len({job.name for job in jobs}) == len(jobs)
    assert [job.after for job in jobs] == sorted(job.after for job in jobs)
    assert jobs[-1].after < span_of(5000) == timedelta(days=7)
    specs = [WorkloadSpec.from_json(OwnerKind.JOB, job.spec) for job in jobs]
    kinds = Counter((one.gang is not None, one.checkpoint.restartable) for one in specs)
    assert {(True, True), (False, True), (False, False)} == set(kinds)
    assert {one.resources.count for one in specs} == {0, 1, 4, 8}
    assert any(one.limits.max_duration_seconds for one in specs)
    assert any(one.estimate_hours is None for one in specs)


def test_a_smaller_week_is_a_shorter_one_under_the_same_load() -> None:
    assert span_of(500) == timedelta(days=7) / 10
    assert sum(job.slots for job in week(attempts=37, seed=1)) == 37


def test_the_fleet_asks_the_prices_of_the_sample() -> None:  # SC-207
    model = week_fleet(seed=1, span=timedelta(days=1))

    rates = {
        one.offered.name: (one.offered.rate_on_demand, one.offered.rate_spot)
        for one in model.classes
    }
    assert len(rates) == 12
    assert rates["h100-sxm-80g-x1-eu"] == (Decimal("2.95"), Decimal("1.25"))
    assert rates["v100-sxm-16g-x4-us"] == (Decimal("12.24"), Decimal("1.9241"))
    assert rates["b200-sxm-180g-x8-us"] == (Decimal(44), None)
    reclaims = [one.reclaims_per_hour for one in model.classes if one.offered.rate_spot]
    assert len(set(reclaims)) > 4


@given(request=requests(easy=True), catalog=catalogs)
def test_cheapest_first_is_the_lowest_rate_that_the_filters_let_through(
    request: PlacementRequest, catalog: Iterable[Candidate]
) -> None:
    snapshot = CatalogSnapshot.of(catalog)

    ours, product = cheapest_first(request, snapshot, NOW), place(request, snapshot, NOW)

    assert ours.outcome is product.outcome
    assert ours.relaxed is product.relaxed
    if ours.chosen is not None:
        least = ours.chosen.candidate.rate
        assert least <= min(one.candidate.rate for one in product.top)
        left = replace(request, max_rate_usd_per_hour=least)
        again = place(left, snapshot, NOW)
        assert again.chosen is not None
        assert again.chosen.candidate.rate == least


def test_cheapest_first_heeds_no_profile() -> None:
    request, snapshot = golden_request(Profile.SPEED), golden_snapshot()

    assert chosen(place(request, snapshot, NOW)) == ("h200-sxm-141g-x1-eu", Market.SPOT)
    assert chosen(cheapest_first(request, snapshot, NOW)) == (H100.name, Market.SPOT)


def test_cheapest_first_leaves_alone_what_was_just_lost() -> None:  # SC-311
    lost = LostCandidate(offering=H100.name, market=Market.SPOT, at=NOW)
    request, snapshot = replace(golden_request(), lost=(lost,)), golden_snapshot()

    assert chosen(cheapest_first(request, snapshot, NOW)) == ("h200-sxm-141g-x1-eu", Market.SPOT)


def chosen(decision: Decision) -> tuple[str, Market]:
    assert decision.chosen is not None
    return decision.chosen.candidate.key


def test_the_baselines_leave_out_one_thing_each() -> None:
    spec = {"placement": {"interruptible": "Allow"}}

    assert ON_DEMAND.asks(spec)["placement"] == {"profile": "Balanced", "interruptible": "Never"}
    assert COST.asks(spec)["placement"] == {"profile": "Cost", "interruptible": "Allow"}
    assert SPEED.asks({"placement": {}})["placement"] == {"profile": "Speed"}
    assert [one.name for one in CONTENDERS if one.baseline] == [CHEAPEST.name, ON_DEMAND.name]


@pytest.mark.slow  # whole lives of hours, twice: some 20 s
async def test_one_seed_gives_one_outcome_and_leaks_nothing(  # SC-730, P-05, P-09 to P-12
    clean_database: str, first_rows: FirstRows
) -> None:
    outcomes = []
    for _ in range(2):
        await first_rows.restore()
        outcomes.append(await run(clean_database, CHEAPEST, attempts=8, seed=2))

    first, second = outcomes
    assert first == second
    assert first.leaks == ()
    assert first.slots == 8 <= first.attempts
    assert first.results
    assert first.cost_usd > 0


def an_outcome(number: int, **changes: Any) -> Outcome:
    made = Outcome(
        contender=CONTENDERS[number],
        attempts=3,
        slots=2,
        cost_usd=Decimal("10.000001"),
        covered_usd=Decimal("0.5"),
        results={"a/one/0": timedelta(hours=2), "a/one/1": timedelta(hours=4)},
        interruptions=1,
        lost_hours=0.25,
        spot_share=0.5,
        leaks=(),
    )
    return replace(made, **changes)


def a_study(**speed: Any) -> Study:
    fast = {"a/one/0": timedelta(hours=1)}
    return Study.of(
        [
            an_outcome(0),
            an_outcome(1, cost_usd=Decimal(9)),
            an_outcome(2, results=fast, **speed),
            an_outcome(3, cost_usd=Decimal(12)),
            an_outcome(4, results={"a/one/0": timedelta(hours=5)}),
        ],
        seed=1,
    )


def test_times_are_compared_over_what_succeeded_everywhere() -> None:
    done = a_study()

    assert done.compared == 1
    assert [line.mean_hours for line in done.lines] == [2, 2, 1, 2, 5]
    assert all(done.claims.values())
    assert not Study.of([an_outcome(n) for n in range(5)], seed=1).claims[
        "Balanced is never the worst"
    ]


def test_a_study_is_told_as_a_table_and_as_json() -> None:
    done = a_study(leaks=("a machine is still there: k",))

    text = study_text(done)
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["PLACED", "BY", "COST"]
    assert lines[3].split()[0] == "Speed"
    assert lines[3].split()[-1] == "1"
    assert "Cost is the cheapest: yes." in text
    assert "Speed: a machine is still there: k" in text
    told = done.to_json()
    assert [one["name"] for one in told["runs"]] == [one.name for one in CONTENDERS]
    assert told["runs"][0]["costUSD"] == "10.000001"
    assert told["runs"][4]["timeToResultHours"] == {"mean": 5.0, "p95": 5.0}
    assert told["leaks"] == ["Speed: a machine is still there: k"]


def test_the_plot_is_svg_with_a_point_for_each() -> None:
    drawn = ElementTree.fromstring(plot(a_study()))  # noqa: S314 - our own text

    circles = list(drawn.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 5
    assert float(circles[2].attrib["cx"]) < float(circles[4].attrib["cx"])  # faster is left
    assert float(circles[3].attrib["cy"]) < float(circles[1].attrib["cy"])  # cheaper is below
    words = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "cheapest first (1 interruptions)" in words


# -- the audit sees what it is for -------------------------------------------------------------

MACHINE = {
    "no": 1,
    "key": "k",
    "handle": None,
    "state": "Gone",
    "gone": START,
    "billing_start": START,
}
ATTEMPT = {"no": 7, "name": "job-0", "stage": "Succeeded", "deletion_proven": START}
SEGMENTS = [
    {
        "attempt": 7,
        "machine": 1,
        "from_ts": START + timedelta(seconds=begin),
        "to_ts": START + timedelta(seconds=end),
        "covered": False,
        "rate": Decimal("1.000000"),
        "usd": Decimal(usd),
    }
    for begin, end, usd in ((0, 1, "0.000278"), (1, 2, "0.000278"), (2, 3, "0.000277"))
]
DOCUMENT = {"attempt": 7, "doc": b'{"status": {"actual": {"costUSD": "0.000833"}}}'}
NOBODY = Fleet(
    model=week_fleet(seed=1, span=timedelta(0)), clock=ManualClock(START), seed=1, start=START
)


def found(**changed: Any) -> list[str]:
    books = Books(attempts=[ATTEMPT], machines=[MACHINE], segments=SEGMENTS, documents=[DOCUMENT])
    return list(findings(replace(books, **changed), NOBODY))


def test_sound_books_have_no_finding() -> None:  # SC-505: amounts telescope
    assert found() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"machines": [MACHINE | {"state": "Releasing"}]}, "says Releasing"),
        ({"machines": [MACHINE | {"handle": "h"}]}, "has no machine"),
        ({"attempts": [ATTEMPT | {"stage": "Running"}]}, "is still Running"),
        ({"attempts": [ATTEMPT | {"deletion_proven": None}]}, "no deletionProvenTime"),
        ({"segments": SEGMENTS[:2]}, "is told 0.000833"),
        ({"segments": [SEGMENTS[0], SEGMENTS[2]]}, "begins at"),
        (
            {"segments": [*SEGMENTS[:2], SEGMENTS[2] | {"usd": Decimal("0.000278")}]},
            "costs 0.000278, not 0.000277",
        ),
        ({"segments": [SEGMENTS[1]]}, "the clock of machine 1 begins"),
    ],
)
def test_what_is_wrong_is_found(changed: dict[str, Any], said: str) -> None:  # P-09 to P-12
    assert any(said in one for one in found(**changed))
