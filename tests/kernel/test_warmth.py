"""Machines kept warm: for how long, after which ends, and what they are worth (SC-343, SC-344)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import NOW, a_cpu_class
from tests.kernel.lives import failed, lost, running, stopped, succeeded

from nodus_api.kernel.attempt import Attempt, Drain
from nodus_api.kernel.billing import SECOND, MachineClock, billed_seconds, charge
from nodus_api.kernel.offering import CandidateStats, CatalogSnapshot, candidates_of
from nodus_api.kernel.placement import Outcome, PlacementRequest, place
from nodus_api.kernel.spec import Resources, WorkloadSpec
from nodus_api.kernel.vocabulary import Market, OwnerKind, Reason, Trigger
from nodus_api.kernel.warmth import WarmRoom, idle_time, leaves_healthy, with_warm

ONE_CPU = Resources(vcpus=Decimal(1))
KEY = ("cpu-1c-4g-other", Market.ON_DEMAND)
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (OwnerKind.JOB, 0),
        (OwnerKind.BUILD, 0),
        (OwnerKind.IMPORT, 0),
        (OwnerKind.WORKSPACE, 0),
        (OwnerKind.SANDBOX, 300),
        (OwnerKind.FUNCTION, 300),
        (OwnerKind.AGENT, 300),
    ],
)
def test_each_kind_has_its_idle_time_and_a_spec_its_own(kind: OwnerKind, seconds: int) -> None:
    assert idle_time(WorkloadSpec(kind=kind)) == timedelta(seconds=seconds)
    assert idle_time(WorkloadSpec(kind=kind, idle_seconds=7)) == timedelta(seconds=7)
    assert idle_time(WorkloadSpec(kind=kind, idle_seconds=0)) == timedelta(0)


@pytest.mark.parametrize("seconds", [None, 0, 90])
def test_a_spec_keeps_its_idle_time(seconds: int | None) -> None:
    spec = WorkloadSpec(kind=OwnerKind.SANDBOX, idle_seconds=seconds)
    assert WorkloadSpec.from_json(OwnerKind.SANDBOX, spec.to_json()).idle_seconds == seconds


NOTICED = Drain(trigger=Trigger.PREEMPTION_NOTICE, reason=Reason.PREEMPTED)
DRILLED = Drain(trigger=Trigger.DRILL, reason=Reason.PREEMPTED)
ASKED = Drain(trigger=Trigger.USER, reason=Reason.STOPPED)


@pytest.mark.parametrize(
    ("attempt", "drain", "healthy"),
    [
        (succeeded(), None, True),
        (succeeded(), NOTICED, False),  # scenario 22: done before the reclaim
        (failed(), None, True),
        (stopped(), ASKED, True),
        (lost(), None, False),
        (running(), None, False),
        (replace(failed(), reason=Reason.INTERNAL_ERROR), None, False),
        (replace(failed(), reason=Reason.CHECKPOINT_UNAVAILABLE), None, False),
        (replace(failed(), reason=Reason.OUT_OF_MEMORY), None, True),
        (replace(stopped(), reason=Reason.MAX_COST_REACHED), None, True),
        (replace(stopped(), reason=Reason.STOPPED), DRILLED, False),
        (replace(stopped(), reason=Reason.RELEASED), None, True),
        (replace(stopped(), reason=Reason.RELEASED), NOTICED, True),  # a peer's notice (SC-134)
    ],
)
def test_which_ends_leave_a_healthy_machine(
    attempt: Attempt, drain: Drain | None, *, healthy: bool
) -> None:
    assert leaves_healthy(attempt, drain) is healthy


def a_catalog(**stats: object) -> CatalogSnapshot:
    known = CandidateStats(**stats)  # type: ignore[arg-type]  # names checked by the class
    cheap = a_cpu_class("cpu-1c-4g-eu", rate_on_demand=Decimal("0.06"), rate_spot=None)
    dear = a_cpu_class("cpu-1c-4g-other", rate_on_demand=Decimal("0.061"), rate_spot=None)
    markets = {Market.ON_DEMAND: known}
    return CatalogSnapshot.of([*candidates_of(cheap, markets), *candidates_of(dear, markets)])


def test_what_is_warm_is_there_at_once() -> None:
    """q = 0 and b = warm p50 are in the scores, and in what is predicted (SC-343)."""
    request = PlacementRequest(resources=ONE_CPU, work_hours=0.05)
    snapshot = a_catalog()
    cold = place(request, snapshot, NOW)
    room = {KEY: WarmRoom(count=1, largest=1, boot_p50=12.0)}
    warm = place(request, with_warm(snapshot, room, ONE_CPU, 1), NOW)
    assert (cold.chosen, warm.chosen) != (None, None)
    assert cold.chosen is not None
    assert warm.chosen is not None
    assert cold.chosen.candidate.offering.name == "cpu-1c-4g-eu"
    assert warm.chosen.candidate.key == KEY
    saved = cold.chosen.outlook.time_to_result - warm.chosen.outlook.time_to_result
    assert saved == pytest.approx((10 + 60 - 12) / 3600)
    assert warm.snapshot_id != cold.snapshot_id  # a replay must know of it (SC-325)


def test_what_is_warm_needs_no_room_and_no_delivery() -> None:
    """No capacity, and a backoff: nobody has to deliver a machine that is there."""
    request = PlacementRequest(resources=ONE_CPU)
    full = a_catalog(available=0, largest_available=0, backoff_until=NOW + timedelta(hours=1))
    assert place(request, full, NOW).outcome is Outcome.WAITING
    room = {KEY: WarmRoom(count=1, largest=1)}
    assert place(request, with_warm(full, room, ONE_CPU, 1), NOW).outcome is Outcome.PLACED


def test_too_few_warm_machines_only_add_to_the_room() -> None:
    """A gang waits for the ranks that have none: it is scored like any other (SC-131)."""
    snapshot = a_catalog(available=2, largest_available=2)
    several = with_warm(snapshot, {KEY: WarmRoom(count=2, largest=4)}, ONE_CPU, 4)
    (candidate,) = [one for one in several if one.key == KEY]
    assert (candidate.stats.available, candidate.stats.largest_available) == (4, 4)
    assert candidate.stats.grant_p50 == CandidateStats().grant_p50
    assert candidate.stats.boot_p50 == CandidateStats().boot_p50


def test_what_cannot_be_counted_stays_unknown_and_others_stay_as_they_are() -> None:
    snapshot = a_catalog()
    assert with_warm(snapshot, {}, ONE_CPU, 1) is snapshot
    seen = with_warm(snapshot, {KEY: WarmRoom(count=1, largest=None)}, ONE_CPU, 1)
    before, after = list(snapshot), list(seen)
    assert [one for one in after if one.key != KEY] == [one for one in before if one.key != KEY]
    assert all(one.stats.available is None for one in after)
    other = Resources(accelerators=("h100",), count=8)
    assert list(with_warm(snapshot, {KEY: WarmRoom(count=1, largest=1)}, other, 1)) == before


@given(
    periods=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 400)), min_size=1, max_size=6),
    rest=st.integers(0, 400),
    rate=st.decimals("0", "50", places=6),
    increment=st.sampled_from((1, 60, 3600)),
    minimum=st.sampled_from((0, 60, 600)),
    ends_idle=st.booleans(),
)
def test_tenants_and_idle_time_are_the_machines_whole_clock(
    periods: list[tuple[int, int]],
    rest: int,
    rate: Decimal,
    increment: int,
    minimum: int,
    *,
    ends_idle: bool,
) -> None:
    """SC-344, SC-507: padded once, at the end, by whoever has the machine then."""
    at, seconds, charged = 0, 0, Decimal(0)
    for number, (held, idle) in enumerate(periods):
        last = number == len(periods) - 1 and not ends_idle
        clock = MachineClock(
            machine=1,
            rate_usd_per_hour=rate,
            start=START + at * SECOND,
            ended=START + (at + held) * SECOND,
            gone=START + (at + held) * SECOND,
            increment=increment * SECOND if last else SECOND,
            minimum=minimum * SECOND if last else timedelta(0),
            before=at * SECOND,
        )
        counted = charge(clock)
        seconds += sum(one.seconds for one in counted.segments)
        charged += counted.totals.cost_usd
        at += held
        if not last:
            at += idle
            seconds += idle
    if ends_idle:
        at += rest
        seconds += rest
        whole = billed_seconds(at, increment * SECOND, minimum * SECOND)
        seconds += whole - at
    empty = not ends_idle and periods[-1][0] == 0  # a clock of no length is billed nothing
    wanted = at if empty else billed_seconds(at, increment * SECOND, minimum * SECOND)
    assert seconds == wanted
    assert charged >= 0
