"""Hedging: a second machine races a slow first one for the start (SC-340 to SC-342)."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.invariants import all_records, check, check_quiet
from tests.scheduler.races import (
    FIRST,
    LATE,
    SECOND,
    SPEEDY,
    asks,
    die,
    hedge,
    ledger_of,
    offer_two,
    register,
    roles,
    runner_on,
    start,
    the_record,
)
from tests.scheduler.world import World

from nodus_api.kernel.vocabulary import Segment
from nodus_api.scheduler.settling import charged
from nodus_api.storage import statements
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import (
    MachineCondition,
    NoCapacity,
    SupplierCaps,
)


async def test_a_late_attempt_gets_a_second_machine_which_wins(world: World) -> None:
    """Scenario 36. Given Speed, hedge Auto and a slow boot, when p95 has passed, then a second
    machine, which wins; hedged true; the loser covered; the program started once (worked
    example 5)."""
    first, second = await hedge(world)
    status = await world.status()
    assert status["placement"]["hedged"] is True  # P-25
    assert status["placement"]["offering"] == FIRST
    await world.clock.advance(60)
    await register(world, second)
    world.fake.deaf_deletes = 1
    assert await asks(world, second)
    await second.report("started")
    await world.settle()
    assert world.fake.deaf_deletes == 0  # the loser is deleted at once
    assert await asks(world, first) is False
    await world.settle(40)  # 340 s after the loser's grant
    await world.clock.advance(1760)
    world.fake.deaf_deletes = 1
    await second.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    await world.settle(30)

    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["actual"] == {
        "costUSD": "1.837500",
        "hours": "0.525000",
        "segments": {
            "bootUSD": "0.058333",
            "runningUSD": "1.750000",
            "restoreUSD": "0.000000",
            "teardownUSD": "0.029167",
            "coveredByNodus": ["Boot", "Teardown"],
        },
    }
    lost = ledger_of(await the_record(world), FIRST)
    assert [(one.segment, one.covered, one.usd) for one in lost] == [
        (Segment.BOOT, True, Decimal("0.245833")),
        (Segment.TEARDOWN, True, Decimal("0.032778")),
    ]
    shown = status["placement"]
    assert (shown["offering"], shown["regionClass"]) == (SECOND, "other")
    assert (shown["rateUSDPerHour"], shown["hedged"]) == ("3.50", True)
    assert shown["explain"]["fallbacks"] == [FIRST]
    assert status["timings"] == {  # acquiredTime stays the first's, the others are the winner's
        "queuedTime": "2026-01-01T00:00:00Z",
        "acquiredTime": "2026-01-01T00:00:00Z",
        "billingStartTime": "2026-01-01T00:04:00Z",
        "registeredTime": "2026-01-01T00:05:00Z",
        "commandStartedTime": "2026-01-01T00:05:00Z",
        "finishedTime": "2026-01-01T00:35:00Z",
        "deletionProvenTime": "2026-01-01T00:35:30Z",
        "bootSeconds": 300,
        "pullSeconds": 3,
        "teardownSeconds": 30,
    }
    await check_quiet(world)


async def test_the_first_machine_wins_and_the_second_costs_nothing(world: World) -> None:  # P-25
    first, _second = await hedge(world)
    await world.clock.advance(60)
    await start(world, first)
    await world.clock.advance(600)
    await first.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert status["placement"]["offering"] == FIRST
    assert status["placement"]["hedged"] is True
    assert status["timings"]["billingStartTime"] == "2026-01-01T00:00:00Z"
    assert status["actual"]["costUSD"] == "0.737500"  # 900 s at 2.95: not a second of the other
    lost = ledger_of(await the_record(world), SECOND)
    assert lost
    assert all(one.covered for one in lost)
    await check_quiet(world)


async def test_the_bill_falls_only_when_the_winner_starts(world: World) -> None:  # SC-509, SC-508
    """What the first machine cost is shown until T10, then the winner's alone."""
    first, second = await hedge(world)
    shown = [await cost(world)]
    for _ in range(2):
        await first.report("registered", checks={}, pullMs=0)
        await world.settle(60)
        shown.append(await cost(world))
    assert shown == sorted(shown)
    assert shown[-1] > 0
    await register(world, second)
    assert await asks(world, second)  # the CAS alone changes no bill
    assert await cost(world) >= shown[-1]
    await second.report("started")
    await world.settle()
    assert await cost(world) == Decimal("0.116667")  # 120 s at 3.50
    await check(world)


async def cost(world: World) -> Decimal:
    return Decimal((await world.status())["actual"]["costUSD"])


@pytest.mark.parametrize("turn", range(4))
async def test_both_ask_in_the_same_second(world: World, turn: int) -> None:  # scenario 37, SC-341
    """Scenario 37. Given both machines of a hedge ready in the same second, when canStart is
    asked twice, then exactly one is granted, however often both ask again."""
    first, second = await hedge(world)
    await register(world, first, second)
    both = (first, second) if turn % 2 else (second, first)
    await asyncio.gather(*(one.report("canStart") for one in both))
    await asyncio.gather(world.settle(), *(one.report("canStart") for one in both))
    await world.settle()
    granted = await asyncio.gather(*(one.report("canStart") for one in both))
    assert sorted(one is not None and one.won for one in granted) == [False, True]
    assert sum(row["won"] for row in await world.rows(t.leases)) == 1
    await check(world)


async def test_two_starts_race_in_postgres_and_one_wins(world: World) -> None:  # SC-341, P-05
    """The statement itself: two transactions that know nothing of each other."""
    await hedge(world)
    leases = await world.rows(t.leases)
    met = asyncio.Barrier(2)

    async def claims(lease: Any) -> bool:
        of = {"of_machine": lease["machine"], "of_attempt": lease["attempt"], "of_fence": 1}
        try:
            async with world.database.transaction() as connection:
                await connection.execute(sa.select(1))
                await met.wait()
                return len((await connection.execute(statements.win_start(), of)).all()) == 1
        except Exception:  # noqa: BLE001 - refused by `leases_one_winner`
            return False

    assert sorted(await asyncio.gather(*(claims(one) for one in leases))) == [False, True]


async def test_whoever_asked_first_starts(world: World) -> None:  # SC-341
    """Both questions are heard in one pass: the earlier one counts, not the older machine's."""
    first, second = await hedge(world)
    await register(world, first, second)
    await second.report("canStart", age=2)
    await first.report("canStart", age=1)
    await world.settle()
    standing = await second.report("canStart")
    assert standing is not None
    assert standing.won


async def test_a_machine_that_has_not_registered_cannot_start(world: World) -> None:  # T9, SC-341
    first, second = await hedge(world)
    await register(world, first)
    assert not await asks(world, second)
    assert await world.stage() == "Starting"


async def test_one_of_two_machines_dies_and_the_other_goes_on(world: World) -> None:  # SC-342
    first, second = await hedge(world)
    await register(world, first)
    die(world, first)
    await world.settle(10)
    assert await world.stage() == "Starting"
    assert first.intent.key not in world.fake.machines
    await start(world, second)
    await world.clock.advance(100)
    await second.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["placement"]["offering"] == SECOND
    assert status["timings"]["billingStartTime"] == "2026-01-01T00:04:00Z"
    assert status["timings"]["registeredTime"] == "2026-01-01T00:04:10Z"
    assert status["actual"]["costUSD"] == "0.106944"  # 110 s at 3.50
    assert all(one.covered for one in ledger_of(await the_record(world), FIRST))
    assert "interruption" not in status
    await check_quiet(world)


async def test_a_machine_that_fails_its_checks_leaves_the_race(world: World) -> None:  # SC-360
    first, second = await hedge(world)
    await first.report("registered", checks={"failed": ["gpu"]})
    await world.settle()
    assert await world.stage() == "Starting"
    rests = {row["offer"]: row["backoff_until"] for row in await world.rows(t.offering_stats)}
    offers = {row["no"]: row["class"] for row in await world.rows(t.supplier_offers)}
    assert {offers[no] for no, until in rests.items() if until is not None} == {FIRST}
    await start(world, second)
    assert await world.stage() == "Running"


async def test_both_machines_die_and_none_has_won(world: World) -> None:  # SC-342, T12
    """The first granted is the billed one; its deletion is told once all are gone (T18)."""
    first, second = await hedge(world)
    die(world, first)
    await world.settle(10)
    world.fake.deaf_deletes = 3
    die(world, second)
    await world.settle(10)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert "deletionProvenTime" not in status["timings"]
    for _ in range(4):
        await world.settle(15)
    status = await world.status()
    assert status["timings"]["billingStartTime"] == "2026-01-01T00:00:00Z"
    assert status["timings"]["deletionProvenTime"] == status["timings"]["finishedTime"]
    assert status["actual"]["costUSD"] == "0.000000"
    assert status["actual"]["segments"]["coveredByNodus"] == ["Boot", "Teardown"]
    record = next(one for one in await all_records(world) if one.attempt.epoch == 1)
    assert {one.machine for one in record.view.segments} == {1, 2}
    lost = {one["offering"] for one in record.slot.lost_candidates}
    assert lost == {FIRST, SECOND}  # P-17: neither is tried again soon
    await check(world)


async def test_a_winner_that_dies_before_its_program_loses_the_attempt(world: World) -> None:
    """SC-342: the Attempt goes on with the other, unless the dead one had won, then Lost."""
    first, second = await hedge(world)
    await register(world, first, second)
    assert await asks(world, second)
    die(world, second)
    await world.settle(10)
    status = await world.status()
    assert (status["progress"]["stage"], status["reason"]) == ("Lost", "NodeLost")
    assert status["actual"]["costUSD"] == "0.000000"
    await check(world)


async def test_a_user_stops_a_race(world: World) -> None:  # T17, SC-520, P-25
    """None has won: the first granted is the billed machine, the other is Nodus's."""
    _first, second = await hedge(world)
    await register(world, second)
    await world.ask("stop")
    await world.clock.advance(20)
    await world.settle()
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert status["actual"]["costUSD"] == "0.213056"  # 260 s at 2.95
    assert status["timings"]["billingStartTime"] == "2026-01-01T00:00:00Z"
    assert all(one.covered for one in ledger_of(await the_record(world), SECOND))
    await check_quiet(world)


async def test_a_stop_after_the_first_machine_died_charges_it_to_its_death(world: World) -> None:
    """SC-509: what was shown of its Boot stays, its Teardown is the supplier's fault."""
    first, _second = await hedge(world)
    die(world, first)
    await world.settle(10)
    before = await cost(world)
    await world.ask("stop")
    await world.clock.advance(100)
    await world.settle()
    status = await world.status()
    assert status["reason"] == "Stopped"
    assert await cost(world) == Decimal("0.204861")  # 250 s at 2.95
    assert await cost(world) >= before
    assert status["actual"]["segments"]["coveredByNodus"] == ["Boot"]
    await check_quiet(world)


# who is hedged, and when


@pytest.mark.parametrize(
    ("placement", "begun"),
    [
        ({"profile": "Speed", "hedge": "Auto"}, True),
        ({"profile": "Balanced", "hedge": "Auto"}, False),
        ({"profile": "Cost", "hedge": "Always"}, True),
        ({"profile": "Speed", "hedge": "Never"}, False),
        ({"profile": "Speed"}, False),
    ],
)
async def test_the_policy_says_who_may_be_hedged(  # SC-340
    world: World, placement: dict[str, Any], begun: bool
) -> None:
    offer_two(world)
    await world.submit(placement=placement)
    await world.settle()
    await world.settle(LATE - 1)
    assert await roles(world) == ["first"]
    await world.settle(1)
    assert await roles(world) == (["first", "hedge"] if begun else ["first"])
    assert (await world.status())["placement"]["hedged"] is begun


async def test_a_gang_is_never_hedged(world: World) -> None:  # SC-340
    offer_two(world)
    await world.submit(completions=2, gang=True, placement=SPEEDY)
    await world.settle()
    await world.settle(LATE)
    assert await roles(world) == ["first", "first"]


async def test_a_program_that_runs_is_not_hedged(world: World) -> None:  # SC-340
    offer_two(world)
    await world.submit(placement=SPEEDY)
    await world.settle()
    await start(world, runner_on(world, FIRST))
    await world.clock.advance(LATE)
    await runner_on(world, FIRST).report("heartbeat")
    await world.settle()
    assert await roles(world) == ["first"]


async def test_a_start_that_was_granted_is_not_hedged(world: World) -> None:  # SC-340, SC-341
    offer_two(world)
    await world.submit(placement=SPEEDY)
    await world.settle()
    first = runner_on(world, FIRST)
    await register(world, first)
    assert await asks(world, first)
    await world.settle(LATE)
    assert await roles(world) == ["first"]


async def test_no_second_hedge_for_one_attempt(world: World) -> None:  # SC-340: ≤ 1 per Attempt
    _, second = await hedge(world)
    die(world, second)
    for _ in range(6):
        await world.settle(10)
    assert await roles(world) == ["first", "hedge"]


async def test_at_most_one_in_twenty_is_hedged_at_once(world: World) -> None:  # SC-340
    """Of two that are late one is hedged; the other when that race is over, if it still waits."""
    offer_two(world)
    await world.submit("one", placement=SPEEDY)
    await world.submit("two", placement=SPEEDY)
    await world.settle()
    await world.settle(LATE)
    await world.settle(20)
    assert (await roles(world)).count("hedge") == 1
    assert len(world.fake.machines) == 3
    await start(world, runner_on(world, SECOND))
    await world.settle(10)
    assert (await roles(world)).count("hedge") == 2
    await check(world)


async def test_a_fallback_that_is_not_feasible_is_waited_for(world: World) -> None:  # SC-340
    offer_two(world)
    await world.submit(placement=SPEEDY)
    await world.settle()
    assert world.fake.offered is not None
    full = [world.fake.offered[0]]
    both, world.fake.offered = world.fake.offered, full
    await world.settle(LATE - 10)
    await world.settle(10)
    assert await roles(world) == ["first"]
    world.fake.offered = both
    await world.settle(10)
    await world.settle(10)
    assert await roles(world) == ["first", "hedge"]


# machines that do not come


async def test_a_hedge_that_is_refused_leaves_the_first_alone(world: World) -> None:  # T6 not
    offer_two(world)
    await world.submit(placement=SPEEDY)
    await world.settle()
    world.fake.refusals.append(NoCapacity("none"))
    await world.settle(LATE)
    assert await world.stage() == "Starting"
    assert len(world.fake.machines) == 1
    first = runner_on(world, FIRST)
    await start(world, first)
    await world.clock.advance(60)
    await first.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert status["placement"]["hedged"] is True  # two machines were requested at once
    assert "coveredByNodus" not in status["actual"]["segments"]
    await check_quiet(world)


async def test_both_are_being_made_and_each_has_its_own_time(world: World) -> None:  # SC-613, T6
    """The first is given up after 300 s, the second 240 s later; then all is placed anew."""
    world.fake.starts = MachineCondition.PENDING
    first, second = await hedge(world)
    await world.settle(60)  # 300 s
    assert await world.stage() == "Acquiring"
    assert first.intent.key not in world.fake.machines
    await world.settle(239)
    assert await world.stage() == "Acquiring"
    assert second.intent.key in world.fake.machines
    await world.settle(1)
    assert len(world.fake.creates) == 3  # T6, and placed again
    status = await world.status()
    assert status["placement"]["hedged"] is False
    await world.settle(LATE)
    assert (await roles(world)).count("hedge") == 1  # at most one an Attempt, wherever it is placed
    await check(world)


async def test_the_second_is_granted_while_the_first_never_is(world: World) -> None:  # T7
    world.fake.starts = MachineCondition.PENDING
    _, second = await hedge(world)
    world.fake.become(second.intent.key, condition=MachineCondition.RUNNING)
    await world.settle(10)
    assert await world.stage() == "Starting"
    await start(world, second)
    status = await world.status()
    assert status["placement"]["offering"] == SECOND
    assert len(world.fake.machines) == 1
    record = await the_record(world)
    assert {one.machine for one in record.view.segments} <= {2}  # SC-523: never granted
    await check(world)


async def test_each_machine_has_its_own_time_to_start(world: World) -> None:  # SC-613
    """The first is out of the race 600 s after its grant, the second 600 s after its own."""
    first, second = await hedge(world)
    await world.settle(LATE)
    await world.settle(120)  # 600 s
    assert first.intent.key not in world.fake.machines
    assert await world.stage() == "Starting"
    await world.settle(239)
    assert await world.stage() == "Starting"
    await world.settle(1)
    status = await world.status()
    assert (status["progress"]["stage"], status["reason"]) == ("Lost", "StartupTimeout")
    assert status["interruption"]["trigger"] == "StartupTimeout"
    assert second.intent.key not in world.fake.machines
    await check(world)


async def test_the_first_dies_while_the_second_is_asked_for(world: World) -> None:  # SC-342
    offer_two(world)
    await world.submit(placement=SPEEDY)
    await world.settle()
    world.fake.starts = MachineCondition.PENDING
    await world.settle(LATE)
    first, second = runner_on(world, FIRST), runner_on(world, SECOND)
    await first.report("registered", checks={"failed": ["disk"]})
    await world.settle()
    assert await world.stage() == "Starting"
    world.fake.become(second.intent.key, condition=MachineCondition.RUNNING)
    await world.settle(10)
    await start(world, second)
    assert await world.stage() == "Running"


async def test_the_first_dies_and_the_second_is_refused(world: World) -> None:  # T12, SC-342
    """Nothing is left: the Attempt is lost by what its one machine died of."""
    offer_two(world)
    await world.submit(placement=SPEEDY)
    await world.settle()
    world.fake.before = TimeoutError("no answer")  # it is looked for twice, 30 s apart
    await world.settle(LATE)
    first = runner_on(world, FIRST)
    await first.report("registered", checks={"failed": ["disk"]})
    await world.settle()
    assert await world.stage() == "Starting"
    for _ in range(8):
        await world.settle(10)
    status = await world.status()
    assert (status["progress"]["stage"], status["reason"]) == ("Lost", "ReadinessFailed")
    assert status["actual"]["costUSD"] == "0.000000"
    await check(world)


# what else tells of one machine only


async def test_what_the_loser_says_is_no_sign_of_the_attempt(world: World) -> None:  # SC-614
    first, second = await hedge(world)
    world.fake.deaf_deletes = 1000
    await register(world, first)
    await start(world, second)
    world.fake.vanish(second.intent.key)
    for _ in range(6):
        await first.report("heartbeat")
        await world.settle(30)
    assert await world.stage() == "Lost"
    world.fake.deaf_deletes = 0


async def test_the_end_of_a_loser_is_not_the_attempts(world: World) -> None:  # SC-342
    first, second = await hedge(world)
    world.fake.deaf_deletes = 2
    await register(world, first)
    await start(world, second)
    die(world, first)
    await first.report("exited", exitCode=None, signal=None, oom=False, error="StartFailed")
    await world.settle(5)
    assert await world.stage() == "Running"


async def test_a_noticed_machine_leaves_the_race(world: World) -> None:  # SC-013, SC-342
    world.fake.caps = SupplierCaps(sync_delete=True, notices=True)
    first, second = await hedge(world)
    world.fake.announce(world.fake.machines[first.intent.key].handle, world.clock.now())
    await world.settle(5)
    await world.settle(5)
    assert await world.stage() == "Starting"
    assert first.intent.key not in world.fake.machines
    await start(world, second)
    assert await world.stage() == "Running"


async def test_a_notice_of_the_loser_drains_nothing(world: World) -> None:  # SC-013, SC-342
    world.fake.caps = SupplierCaps(sync_delete=True, notices=True)
    first, second = await hedge(world)
    world.fake.deaf_deletes = 1000
    await start(world, second)
    world.fake.announce(world.fake.machines[first.intent.key].handle, world.clock.now())
    await world.settle(5)
    await world.settle(30)
    await second.report("heartbeat")
    await world.settle(60)
    assert await world.stage() == "Running"
    assert world.fake.signals == []
    world.fake.deaf_deletes = 0


async def test_a_drill_hits_the_machine_that_runs(world: World) -> None:  # SC-630, SC-342
    world.fake.caps = SupplierCaps(sync_delete=True, inject=True)
    _, second = await hedge(world)
    world.fake.deaf_deletes = 1000
    await start(world, second)
    name = (await world.documents())["0/1"]["metadata"]["name"]
    await world.ask("drill", name, None, trigger="node-loss")
    await world.settle()
    handle = world.fake.machines[second.intent.key].handle
    assert [one for one, _ in world.fake.injections] == [handle]
    world.fake.deaf_deletes = 0


async def test_the_limit_of_money_counts_the_winner(world: World) -> None:  # P-14, SC-522
    _first, second = await hedge(world, limits={"maxCostUSD": "2"}, estimate={"hours": "0.1"})
    await start(world, second)
    for _ in range(80):
        await second.report("heartbeat")
        await world.settle(30)
        if world.fake.signals:
            break
    await second.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=0)
    await world.settle()
    status = await world.status()
    assert status["reason"] == "MaxCostReached"
    assert Decimal("1.2") < charged(await the_record(world)) <= 2
    await check_quiet(world)
