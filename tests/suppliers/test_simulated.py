"""The simulated fleet: one seed is one fleet, and each fault is what it says (SC-730 to SC-732)."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import START
from tests.suppliers.conformance import INSTALLATION, Does, an_intent
from tests.suppliers.simulated_fleet import (
    CLASS,
    OpenDesk,
    SimulatedFleet,
    a_class,
    a_fleet,
    a_model,
)

from nodus_api.suppliers.simulated import (
    FaultKind,
    FaultPlan,
    PriceChange,
    ProgramProfile,
    Scripted,
    Trace,
    sample_fleet,
    truth,
)
from nodus_api.suppliers.simulated.chance import Chance, Spread
from nodus_api.suppliers.simulated.faults import FaultKind as Kind
from nodus_api.suppliers.simulated.programs import name_of, program_of
from nodus_api.suppliers.supplier import (
    Ambiguous,
    Auth,
    FaultInjection,
    Incarnation,
    Invalid,
    MachineCondition,
    MachineIntent,
    NoCapacity,
    Order,
    Program,
    RateLimited,
    RestorePoint,
    Verdict,
)

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def faulty(kind: Kind, **changes: Any) -> SimulatedFleet:
    """A fleet where one kind of fault always happens."""
    return SimulatedFleet(a_fleet(a_model(faults=FaultPlan(rates={kind: 1.0}), **changes)))


def wants(key: str, *, spot: bool = False, env: Mapping[str, str] | None = None) -> MachineIntent:
    program = Program(command=("x",), environment=env or {"SIMULATED_SECONDS": "600"})
    return replace(an_intent(key, program=program), spot=spot, tags={"job": key, "project": "demo"})


async def granted(fleet: SimulatedFleet, key: str = "a", **more: Any) -> str:
    """Create a machine and let time pass until its program runs, or would."""
    view = await fleet.supplier.create(wants(key, **more))
    await fleet.pass_each(8 * MINUTE)
    return view.handle


async def condition(fleet: SimulatedFleet, handle: str) -> MachineCondition | None:
    view = (await fleet.supplier.observe([handle])).get(handle)
    return view.condition if view else None


# -- chance -------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), what=st.text(max_size=8))
def test_a_draw_depends_on_its_path_alone(seed: int, what: str) -> None:  # SC-730
    chance = Chance(seed).of("machine")

    assert 0 <= chance.uniform(what) < 1
    assert chance.uniform(what) == Chance(seed, ("machine",)).uniform(what)
    assert Chance(seed).of("machi", "ne").uniform(what) != chance.uniform(what)


def test_a_spread_has_its_median() -> None:
    spread = Spread(median=MINUTE, sigma=0.5)
    drawn = sorted(Chance(1).of(str(n)).length("boot", spread) for n in range(999))

    assert 55 * SECOND < drawn[499] < 65 * SECOND
    assert Chance(1).length("boot", Spread(median=MINUTE)) == MINUTE


def test_events_come_as_often_as_their_rate_says() -> None:
    waits = [Chance(1).of(str(n)).until_event("loss", 2.0) for n in range(999)]

    mean = sum((wait or HOUR for wait in waits), timedelta(0)) / 999
    assert 27 * MINUTE < mean < 33 * MINUTE
    assert Chance(1).until_event("loss", 0.0) is None


async def lives(seed: int, *, more: bool) -> list[tuple[Any, ...]]:
    """Return what becomes of three machines, with or without calls elsewhere."""
    model = a_model(
        a_class(capacity=Trace.always(9), losses_per_hour=2.0, reclaims_per_hour=4.0),
        programs=ProgramProfile(work=Spread(median=10 * MINUTE, sigma=1)),
        faults=FaultPlan.every(0.2),
    )
    quiet = {kind: p for kind, p in model.faults.rates.items() if not kind.startswith("create")}
    for kind in (Kind.RATE_LIMIT, Kind.AUTH_LOST):
        del quiet[kind]
    fleet = SimulatedFleet(
        a_fleet(replace(model, faults=FaultPlan(rates=quiet)), seed=seed), OpenDesk()
    )
    if more:
        await fleet.supplier.offers()
        await fleet.supplier.create(replace(wants("other", spot=True), key="other"))
    for key in ("a", "b", "c"):
        env = {"SIMULATED_NAME": key}
        await fleet.supplier.create(wants(key, spot=True, env=env))
    await fleet.pass_each(HOUR)
    return [
        (one.name, one.created, one.granted, one.failed, one.reclaimed, one.skew, one.faults)
        for one in fleet.fleet.machines.values()
        if one.key != "other"
    ]


async def test_one_seed_gives_the_same_machines_whatever_else_is_called() -> None:  # SC-730
    first = await lives(7, more=False)

    assert await lives(7, more=False) == first
    assert await lives(7, more=True) == first
    assert await lives(8, more=False) != first


# -- capacity and prices ------------------------------------------------------------------------


def test_a_trace_is_what_was_last_said() -> None:  # SC-731
    trace = Trace(points=((MINUTE, 2), (3 * MINUTE, 5)))

    assert [trace.at(n * MINUTE) for n in range(5)] == [0, 2, 2, 5, 5]
    assert trace.sped_up(60).at(3 * SECOND) == 5


def test_a_capacity_comes_and_goes() -> None:
    trace = Trace.on_off(Chance(1), 4, on=HOUR, off=30 * MINUTE, span=100 * HOUR)

    there = sum(trace.at(n * MINUTE) == 4 for n in range(6000)) / 6000
    assert 0.5 < there < 0.8
    assert {trace.at(n * MINUTE) for n in range(6000)} == {0, 4}


async def test_no_more_machines_are_made_than_there_are() -> None:
    fleet = SimulatedFleet()
    for key in ("a", "b"):
        await fleet.supplier.create(wants(key))

    with pytest.raises(NoCapacity):
        await fleet.supplier.create(wants("c"))
    with pytest.raises(Invalid):
        await fleet.supplier.create(replace(wants("c"), offering="nothing"))
    (offer,) = await fleet.supplier.offers()
    assert offer.available == 0
    await fleet.supplier.delete((await fleet.supplier.create(wants("a"))).handle)
    await fleet.pass_each(5 * MINUTE)
    (offer,) = await fleet.supplier.offers()
    assert offer.available == 1  # only once nothing is left of it


async def test_spot_that_runs_short_is_reclaimed_the_youngest_first() -> None:
    trace = Trace(points=((timedelta(0), 2), (10 * MINUTE, 1)))
    model = a_model(a_class(spot_capacity=trace, notice=MINUTE))
    fleet = SimulatedFleet(a_fleet(model))
    for key in ("old", "young"):
        await fleet.supplier.create(wants(key, spot=True))
    await fleet.pass_each(10 * MINUTE)
    (notice,) = [one async for one in fleet.supplier.notices()]
    await fleet.pass_each(2 * MINUTE)

    old, young = fleet.fleet.machines.values()
    assert (notice.handle, notice.deadline) == (young.handle, START + 11 * MINUTE)
    assert (old.failed, young.failed) == (None, START + 11 * MINUTE)
    assert young.view(START + 12 * MINUTE).reclaimed
    with pytest.raises(NoCapacity):
        await fleet.supplier.create(wants("third", spot=True))


async def test_a_price_changes_when_it_is_said() -> None:
    change = PriceChange(at=HOUR, offering=CLASS, factor=Decimal("1.5"))
    fleet = SimulatedFleet(a_fleet(a_model(prices=(change,))))
    before = (await fleet.supplier.offers())[0].cost_on_demand

    await fleet.pass_time(3600)

    (offer,) = await fleet.supplier.offers()
    assert (before, offer.cost_on_demand) == (Decimal("0.060000"), Decimal("0.090000"))
    assert offer.offered_class.rate_spot == Decimal("0.030000")


# -- programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "ended"),
    [
        ({"SIMULATED_SECONDS": "5"}, (0, None, False)),
        ({"SIMULATED_SECONDS": "5", "SIMULATED_EXIT_CODE": "3"}, (3, None, False)),
        ({"SIMULATED_SECONDS": "5", "SIMULATED_SIGNAL": "11"}, (139, 11, False)),
        ({"SIMULATED_WORK_SECONDS": "5", "SIMULATED_OUT_OF_MEMORY": "1"}, (137, 9, True)),
    ],
)
async def test_a_program_ends_as_its_environment_says(
    env: dict[str, str], ended: tuple[int, int | None, bool]
) -> None:
    fleet = SimulatedFleet()
    await granted(fleet, env=env)

    said = fleet.desk.heard[-1]
    assert [one["kind"] for one in fleet.desk.heard][:3] == ["registered", "canStart", "started"]
    assert said["kind"] == "exited"
    assert (said["exitCode"], said.get("signal"), said["oom"]) == ended
    assert said["startAgeMs"] == 5000
    assert [one["n"] for one in fleet.desk.heard] == list(range(1, len(fleet.desk.heard) + 1))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"SIMULATED_SECONDS": "soon"},
            "SIMULATED_SECONDS is a number of seconds, not 'soon'",
        ),
        ({"SIMULATED_SECONDS": "-1"}, "SIMULATED_SECONDS is a number of seconds, not '-1'"),
        (
            {"SIMULATED_SECONDS": "1", "SIMULATED_EXIT_CODE": "256"},
            "SIMULATED_EXIT_CODE is a whole number up to 255, not '256'",
        ),
        (
            {"SIMULATED_SECONDS": "1", "SIMULATED_SIGNAL": "x"},
            "SIMULATED_SIGNAL is a whole number up to 64, not 'x'",
        ),
    ],
)
async def test_what_an_environment_says_wrongly_is_told(env: dict[str, str], message: str) -> None:
    fleet = SimulatedFleet()
    await granted(fleet, env=env)

    said = fleet.desk.heard[-1]
    assert (said["kind"], said["error"], said["message"]) == ("exited", "StartFailed", message)


def test_work_is_the_slots_and_takes_as_long_as_its_class_is_slow() -> None:
    model, chance = sample_fleet(), Chance(4)
    intent = wants("a", env={"X": "1"})

    one = program_of(intent, model, 1.0, chance)
    again = program_of(replace(intent, epoch=2), model, 0.5, chance)

    assert name_of(intent) == "demo/a/0/1"
    assert one.length is not None
    assert again.length == one.length * 2


async def test_a_stop_is_obeyed_or_ends_by_the_signal_that_cannot_be_ignored() -> None:
    fleet = SimulatedFleet()
    for key, does, code in (
        ("a", Does(on_stop=7), 7),
        ("b", Does(ignores_stop=True), 137),
    ):
        intent = an_intent(key, program=fleet.program(key, does))
        handle = (await fleet.supplier.create(intent)).handle
        await fleet.pass_each(5 * MINUTE)
        await fleet.supplier.signal(handle, Order(kind="stop", grace=10 * SECOND))
        await fleet.pass_each(MINUTE)

        said = fleet.desk.heard[-1]
        assert (said["kind"], said["exitCode"]) == ("exited", code)
        assert said["stopAgeMs"] == (5000 if code == 7 else 10000)


async def test_checkpoints_are_proposed_on_time_and_gone_on_from() -> None:  # SC-142
    fleet = SimulatedFleet()
    saves = replace(wants("a").incarnation, checkpoint_interval=MINUTE)
    first = replace(wants("a"), incarnation=saves)
    await fleet.supplier.create(first)
    await fleet.pass_each(5 * MINUTE)
    proposed = [one for one in fleet.desk.heard if one["kind"] == "checkpoint"]
    last = proposed[-1]
    point = RestorePoint(seq=last["seq"], **last["cursor"], uri=last["uri"], sha256=last["sha256"])

    again = replace(first, key="again", epoch=2, incarnation=replace(saves, restore=point))
    await fleet.supplier.create(again)
    await fleet.pass_each(20 * MINUTE)

    ends = [one for one in fleet.desk.heard if one["kind"] == "exited"]
    starts = [one for one in fleet.desk.heard if one["kind"] == "started"]
    assert [one["seq"] for one in proposed] == list(range(1, len(proposed) + 1))
    assert starts[1]["restoreBytes"] == last["bytes"]
    whole, rest = (one["startAgeMs"] for one in ends)
    assert rest == pytest.approx(whole * (1 - point.completed / 1000), rel=0.01)  # type: ignore[operator]


async def test_a_checkpoint_that_was_dropped_cannot_be_gone_on_from() -> None:  # SC-140
    fleet = SimulatedFleet()
    point = RestorePoint(seq=1, uri="simulated:///gone", sha256="0" * 64)
    given_up = replace(wants("a").incarnation, restore=point)
    await fleet.supplier.create(replace(wants("a"), incarnation=given_up))
    await fleet.pass_each(5 * MINUTE)

    assert fleet.desk.heard[-1]["error"] == "CheckpointUnavailable"


# -- what a runner does with answers -----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"), [(401, {"reason": "Unauthorized"}), (409, {"reason": "StaleEpoch"})]
)
async def test_a_runner_whose_epoch_is_over_ends_its_program(
    status: int, body: dict[str, Any]
) -> None:  # SC-643
    fleet = SimulatedFleet()
    handle = await granted(fleet)
    fleet.desk.status, fleet.desk.body = status, body
    await fleet.pass_each(MINUTE)
    heard = len(fleet.desk.heard)
    await fleet.pass_each(10 * MINUTE)

    runner = fleet.fleet.machines[handle].runner
    assert runner is not None
    assert runner.exit is not None
    assert (runner.exit.code, runner.exit.signal) == (137, 9)
    assert len(fleet.desk.heard) == heard  # it says nothing more


async def test_a_start_that_is_not_granted_is_asked_for_again() -> None:  # SC-645, P-05
    fleet = SimulatedFleet()
    fleet.desk.grants = False
    await granted(fleet)
    asked = [one["n"] for one in fleet.desk.heard if one["kind"] == "canStart"]

    assert len(asked) == len(set(asked)) > 100
    assert fleet.fleet.runs == []
    fleet.desk.grants = True
    await fleet.pass_each(SECOND)
    assert len(fleet.fleet.runs) == 1


async def test_a_report_is_repeated_until_it_is_taken() -> None:  # SC-643
    fleet = SimulatedFleet()
    fleet.desk.status, fleet.desk.body = 503, {"reason": "ServiceUnavailable"}
    await granted(fleet)
    assert {(one["kind"], one["n"]) for one in fleet.desk.heard} == {("registered", 1)}
    assert len(fleet.desk.heard) > 100

    fleet.desk.status, fleet.desk.body = 200, {}
    await fleet.pass_each(MINUTE)
    assert "started" in {one["kind"] for one in fleet.desk.heard}


# -- faults -------------------------------------------------------------------------------------


async def test_a_create_is_lost() -> None:  # SC-732; scenario 7
    fleet = faulty(Kind.CREATE_LOST)
    with pytest.raises(Ambiguous):
        await fleet.supplier.create(wants("a"))

    assert await fleet.supplier.find("a") is None
    assert fleet.fleet.machines == {}


async def test_a_create_is_not_answered_and_was_made() -> None:  # scenario 6
    caps = replace(a_model().caps, visibility_delay=20 * SECOND)
    fleet = faulty(Kind.CREATE_UNANSWERED, caps=caps)
    with pytest.raises(Ambiguous):
        await fleet.supplier.create(wants("a"))

    assert await fleet.supplier.find("a") is None  # not yet, by visibility_delay_s
    await fleet.pass_time(20)
    assert await fleet.supplier.find("a") is not None


async def test_a_create_takes_its_time() -> None:
    roomy = a_model(a_class(capacity=Trace.always(9)))
    slow = FaultPlan(rates={Kind.CREATE_SLOW: 1.0})
    fleet = SimulatedFleet(a_fleet(replace(roomy, faults=slow)))
    answers: dict[str, Any] = {}

    async def create(key: str) -> None:
        try:
            answers[key] = await fleet.supplier.create(wants(key))
        except Ambiguous as error:
            answers[key] = error

    keys = ["a", "b", "c", "d"]
    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(create(key))
        await fleet.pass_time(4)
        assert (answers, fleet.fleet.machines) == ({}, {})
        await fleet.pass_time(90)

    assert {type(one).__name__ for one in answers.values()} == {"Ambiguous", "MachineView"}
    assert {one.key for one in fleet.fleet.machines.values()} == set(keys)


async def test_a_call_is_refused() -> None:
    with pytest.raises(RateLimited) as limited:
        await faulty(Kind.RATE_LIMIT).supplier.offers()
    assert 5 * SECOND <= limited.value.after <= 30 * SECOND
    with pytest.raises(Auth):
        await faulty(Kind.AUTH_LOST).supplier.create(wants("a"))


async def test_a_list_shows_nothing() -> None:  # scenario 39
    fleet = faulty(Kind.LIST_EMPTY)
    handle = await granted(fleet)

    assert await fleet.supplier.observe([handle]) == {}
    assert [one async for one in fleet.supplier.list_owned(INSTALLATION)] == []
    assert await fleet.supplier.find("a") is not None


async def test_deletes_do_nothing_for_a_while() -> None:  # scenario 38
    fleet = faulty(Kind.DELETE_IGNORED)
    handle = await granted(fleet)
    deletes = 0
    while fleet.fleet.machines[handle].deleting is None:
        deletes += 1
        await fleet.supplier.delete(handle)

    assert 2 <= deletes <= 6


async def test_a_machine_that_was_called_gone_is_back() -> None:
    fleet = faulty(Kind.DELETED_BACK)
    handle = await granted(fleet)
    await fleet.supplier.delete(handle)

    looks = [(await fleet.supplier.prove_deleted(handle)).verdict for _ in range(3)]
    assert looks == [Verdict.GONE, Verdict.PRESENT, Verdict.PRESENT]
    await fleet.pass_each(5 * MINUTE)
    assert (await fleet.supplier.prove_deleted(handle)).verdict is Verdict.GONE


async def test_a_boot_is_stuck() -> None:  # scenario 11
    fleet = faulty(Kind.BOOT_STUCK)
    handle = await granted(fleet)

    assert await condition(fleet, handle) is MachineCondition.RUNNING
    assert fleet.desk.heard == []


async def test_a_runner_finds_less_than_was_promised() -> None:  # scenario 12
    fleet = faulty(Kind.READINESS_LIE)
    await granted(fleet)

    assert fleet.desk.heard[0]["checks"] == {"failed": ["accelerators"]}


async def test_a_lost_machine_goes_on_talking() -> None:
    fleet = faulty(Kind.ZOMBIE)
    handle = await granted(fleet)
    await fleet.supplier.inject(handle, FaultInjection(kind="node-loss"))
    heard = len(fleet.desk.heard)
    await fleet.pass_each(MINUTE)

    assert await condition(fleet, handle) is MachineCondition.FAILED
    assert len(fleet.desk.heard) > heard
    await fleet.supplier.delete(handle)
    heard = len(fleet.desk.heard)
    await fleet.pass_each(MINUTE)
    assert len(fleet.desk.heard) == heard


async def test_a_reclaim_is_announced_and_does_not_come() -> None:  # scenario 23
    fleet = faulty(Kind.NOTICE_EMPTY)
    await fleet.supplier.create(wants("a", env={"SIMULATED_SECONDS": "forever"}))
    seen = 0
    for _ in range(60):
        await fleet.pass_each(MINUTE / 2)
        seen += len([one async for one in fleet.supplier.notices()])

    assert seen > 0
    (machine,) = fleet.fleet.machines.values()
    assert machine.failed is None


async def test_a_notice_is_told_twice() -> None:
    fleet = faulty(Kind.NOTICE_TWICE)
    handle = await granted(fleet)
    await fleet.supplier.inject(handle, FaultInjection(kind="preemption", notice=HOUR))

    told = [one async for one in fleet.supplier.notices()]
    assert len(told) == 2
    assert told[0] == told[1]


async def test_reports_are_late_and_still_each_is_heard() -> None:
    rates = {Kind.REPORT_LATE: 0.5}
    fleet = SimulatedFleet(a_fleet(a_model(faults=FaultPlan(rates=rates))))
    await granted(fleet, env={"SIMULATED_SECONDS": "60"})
    await fleet.pass_each(20 * MINUTE)

    numbers = [one["n"] for one in fleet.desk.heard]
    assert numbers != sorted(numbers)  # copies arrive long after what was said later
    assert len(numbers) > len(set(numbers))
    assert set(numbers) == set(range(1, max(numbers) + 1))
    assert truth.started_twice(fleet.fleet) == []


async def test_heartbeats_are_overtaken() -> None:
    fleet = faulty(Kind.REPORT_REORDERED)
    await granted(fleet, env={"SIMULATED_SECONDS": "300"})
    await fleet.pass_each(2 * MINUTE)

    numbers = [one["n"] for one in fleet.desk.heard]
    assert numbers != sorted(numbers)
    assert len(numbers) == len(set(numbers))


async def test_a_runner_is_silent_for_a_while() -> None:  # scenarios 24, 25
    fleet = faulty(Kind.HEARTBEAT_GAP)
    await fleet.supplier.create(wants("a", env={"SIMULATED_SECONDS": "forever"}))
    times = []
    for _ in range(360):
        before = len(fleet.desk.heard)
        await fleet.pass_each(10 * SECOND)
        times.append(len(fleet.desk.heard) > before)

    (machine,) = fleet.fleet.machines.values()
    assert machine.silent is not None
    gap = int((machine.silent[1] - machine.silent[0]) / (10 * SECOND))
    running = times[times.index(True) + 12 :]
    assert abs(running.count(False) - gap) <= 2


async def test_an_exit_is_told_by_the_record_alone() -> None:  # SC-644
    fleet = faulty(Kind.EXIT_UNREPORTED)
    handle = await granted(fleet, env={"SIMULATED_SECONDS": "60", "SIMULATED_EXIT_CODE": "3"})

    view = (await fleet.supplier.observe([handle]))[handle]
    assert "exited" not in {one["kind"] for one in fleet.desk.heard}
    assert view.exit is not None
    assert (view.condition, view.exit.exit_code) == (MachineCondition.GONE, 3)


async def test_an_exit_is_told_by_nobody() -> None:
    fleet = faulty(Kind.EXIT_LOST)
    handle = await granted(fleet, env={"SIMULATED_SECONDS": "60"})

    view = (await fleet.supplier.observe([handle]))[handle]
    assert "exited" not in {one["kind"] for one in fleet.desk.heard}
    assert (view.condition, view.exit) == (MachineCondition.FAILED, None)


async def test_a_clock_is_off() -> None:
    fleet = faulty(Kind.CLOCK_SKEW)
    handle = await granted(fleet, env={"SIMULATED_SECONDS": "60"})
    machine = fleet.fleet.machines[handle]

    view = machine.view(fleet.fleet.clock.now())
    assert timedelta(0) < abs(machine.skew) <= 120 * SECOND
    assert machine.granted is not None
    assert view.billing_start == machine.granted + machine.skew
    assert fleet.desk.heard[-1]["ageMs"] == 0  # a runner tells ages


async def test_a_script_says_what_happens_to_whom_and_when() -> None:
    scripts = (
        Scripted(kind=FaultKind.NODE_LOST, at=9 * MINUTE, match="demo/a/*"),
        Scripted(kind=FaultKind.RECLAIMED, at=9 * MINUTE, match="key-of-nobody"),
        Scripted(kind=FaultKind.CREATE_LOST, at=HOUR, until=2 * HOUR),
    )
    fleet = SimulatedFleet(a_fleet(a_model(faults=FaultPlan(scripts=scripts))))
    for key in ("a", "b"):
        await fleet.supplier.create(wants(key))
    await fleet.pass_each(10 * MINUTE)
    lost = {one.key: one.failed for one in fleet.fleet.machines.values()}
    await fleet.pass_time(3600)

    assert lost == {"a": START + 9 * MINUTE, "b": None}
    with pytest.raises(Ambiguous):
        await fleet.supplier.create(wants("c"))
    await fleet.pass_time(3600)
    with pytest.raises(NoCapacity):
        await fleet.supplier.create(wants("c"))


async def test_every_kind_of_fault_is_named_by_a_plan_of_all() -> None:  # SC-732
    scripted = {FaultKind.NODE_LOST, FaultKind.RECLAIMED}

    assert set(FaultPlan.every(0.1).rates) == set(FaultKind) - scripted


async def test_a_drill_of_the_heartbeat_is_silence() -> None:  # SC-630
    fleet = SimulatedFleet()
    handle = await granted(fleet)
    await fleet.supplier.inject(handle, FaultInjection(kind="heartbeat"))
    heard = len(fleet.desk.heard)
    await fleet.pass_each(MINUTE)

    assert len(fleet.desk.heard) == heard
    assert await condition(fleet, handle) is MachineCondition.RUNNING


async def test_everything_is_so_many_times_as_fast() -> None:  # SC-730
    slow, fast = SimulatedFleet(), SimulatedFleet(a_fleet(a_model().sped_up(60)))
    for fleet, wait in ((slow, HOUR), (fast, MINUTE)):
        await fleet.supplier.create(wants("a"))
        await fleet.pass_each(wait)

    (one,), (two,) = slow.fleet.machines.values(), fast.fleet.machines.values()
    assert one.granted is not None
    assert two.granted is not None
    assert one.runner is not None
    assert two.runner is not None
    assert one.runner.exit is not None
    assert two.runner.exit is not None
    apart = (one.granted - START) / 60 - (two.granted - START)
    assert abs(apart) < timedelta(milliseconds=1)
    assert abs((one.runner.exit.at - START) / 60 - (two.runner.exit.at - START)) < SECOND


def test_an_incarnation_is_named_alike_in_every_database() -> None:
    own = Incarnation(project="p", workload=INSTALLATION, attempt_name="x", slot="3")
    intent = replace(wants("k"), incarnation=own, epoch=4, tags={"project": "p", "job": "train"})

    assert name_of(intent) == "p/train/3/4"
