"""An organization's money: held before a start, captured as it is charged, and never exceeded."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import run_gang, stop_by_order, submit_gang
from tests.scheduler.invariants import all_records, check, check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.kernel.billing import actual
from nodus_api.scheduler import Pace
from nodus_api.storage import tables as t
from nodus_api.storage.fund_store import FundStore
from nodus_api.suppliers.supplier import NoCapacity

USD = Decimal
RATE = "36.00"  # 0.01 USD a second
START = USD("12.00")  # boot p95 180 s + 15 min + teardown p95 120 s
AHEAD = USD("10.20")  # 15 min + teardown p95


async def fund(world: World, usd: str, project: str = "default") -> None:
    assert await FundStore(world.database).deposit(project, USD(usd)) is not None


async def money(world: World) -> tuple[Any, Any, Any]:
    """Return balance, held, captured."""
    account = (await FundStore(world.database).accounts())["default"]
    return account.balance, account.held, account.captured


async def waits(world: World, which: str = "0/1") -> tuple[str | None, str | None]:
    notes = (await world.documents())[which]["metadata"].get("annotations", {})
    return notes.get("nodus.dev/waiting-for"), notes.get("nodus.dev/waiting-message")


async def beat(world: World, runners: Sequence[Runner], seconds: int, *, every: int = 30) -> None:
    """Let programs go on, with a heartbeat each time."""
    for _ in range(seconds // every):
        await world.clock.advance(every)
        for runner in runners:
            await runner.report("heartbeat")
        await world.settle()
        await check(world)


async def until_stopped(world: World, runners: Sequence[Runner], *, orders: int = 1) -> None:
    """Let programs go on until so many were ordered to stop; no more than an hour."""
    for _ in range(120):
        if len(world.fake.signals) >= orders:
            return
        await beat(world, runners, 30)
    raise AssertionError("nobody was ordered to stop")


async def exits(world: World, runner: Runner, *, stopped: bool = True) -> None:
    age = {"stopAgeMs": 1000} if stopped else {}
    await runner.report("exited", exitCode=143 if stopped else 0, signal=None, oom=False, **age)
    await world.settle(1)


@pytest.fixture
def dear(world: World) -> World:
    world.fake.offered = [an_offer(rate=RATE)]
    return world


async def test_without_control_every_hold_succeeds(dear: World) -> None:  # SC-620
    runner = await dear.run(estimate={"hours": "0.01"})
    _, held, captured = await money(dear)
    assert held + captured == START
    await beat(dear, [runner], 120)
    await exits(dear, runner, stopped=False)

    cost = USD((await dear.status())["actual"]["costUSD"])
    assert await money(dear) == (None, 0, cost)
    assert await FundStore(dear.database).deposit("nowhere", USD(1)) is None
    await check_quiet(dear)


async def test_a_start_is_held_at_the_placed_rate(dear: World) -> None:  # SC-620
    await fund(dear, "100")
    await dear.submit()
    await dear.settle()
    assert await money(dear) == (100 - START, START, 0)
    (row,) = await dear.rows(t.holds)
    assert (row["amount"], row["captured"], row["released"]) == (START, 0, None)


async def test_a_hold_is_at_most_what_the_limit_leaves(dear: World) -> None:  # SC-620
    await fund(dear, "100")
    await dear.submit(limits={"maxCostUSD": "5"}, estimate={"hours": "0.01"})
    await dear.settle()
    assert await money(dear) == (95, 5, 0)


async def test_a_start_waits_for_funds_and_goes_on_when_they_come(dear: World) -> None:
    """SC-620, SC-009a, SC-009b: the number that missed; and no wait beyond the deposit."""
    await fund(dear, "11.999999")
    await dear.submit()
    await dear.settle()
    assert await dear.stage() == "Pending"
    assert await waits(dear) == (
        "Funds",
        "the start needs 12.000000 USD to be held, 11.999999 USD of the organization's funds"
        " are free",
    )
    assert "placement" not in await dear.status()  # T2 has not happened
    before = [row["rev"] for row in await dear.rows(t.attempt_objects)]
    await dear.settle(61)
    assert [row["rev"] for row in await dear.rows(t.attempt_objects)] == before
    assert await money(dear) == (USD("11.999999"), 0, 0)

    await fund(dear, "0.000001")
    await dear.settle()
    assert await dear.stage() == "Starting"
    assert await money(dear) == (0, START, 0)
    await check(dear)


async def test_a_wait_for_funds_does_not_count_to_the_start_deadline(dear: World) -> None:  # T8
    await fund(dear, "1")
    await dear.submit(limits={"startDeadlineSeconds": 60})
    await dear.settle()
    await dear.settle(3600)
    assert await dear.stage() == "Pending"
    await fund(dear, "20")
    await dear.settle()
    assert await dear.stage() == "Starting"


@pytest.mark.parametrize("wait", [None, 7200])
async def test_who_waits_too_long_is_unfunded(dear: World, wait: int | None) -> None:  # SC-620
    await fund(dear, "1")
    await dear.submit(limits={} if wait is None else {"fundingWaitSeconds": wait})
    await dear.settle()
    longest = wait or 86_400
    await dear.settle(longest // 2)
    await dear.settle(longest // 2 - 2)
    assert await dear.stage() == "Pending"
    await dear.settle(2)

    status = await dear.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Unfunded")
    assert status["interruption"]["trigger"] == "Funding"
    assert status["interruption"]["lostSeconds"] == 0
    workload = await dear.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "Unfunded")
    assert await money(dear) == (1, 0, 0)
    await check_quiet(dear)


async def test_no_capacity_keeps_the_hold(dear: World) -> None:  # T4, SC-621
    """Held at the lowest rate until something is chosen, and then at the placed one (T3)."""
    dear.fake.offered = [
        an_offer("cheap", rate="1.80", available=0),
        an_offer("dear", rate="36.00", available=0),
    ]
    await fund(dear, "5")
    await dear.submit()
    await dear.settle()
    assert (await waits(dear))[0] == "Capacity"
    assert await money(dear) == (USD("4.40"), USD("0.60"), 0)

    dear.fake.offered = [
        an_offer("cheap", rate="1.80", available=0),
        an_offer("dear", rate="36.00", available=1),
    ]
    await dear.settle(11)
    await dear.settle(11)
    assert await dear.stage() == "Pending"
    assert (await waits(dear))[0] == "Funds"
    assert await money(dear) == (USD("4.40"), USD("0.60"), 0)
    await fund(dear, "7")
    await dear.settle()
    assert await dear.stage() == "Starting"
    assert await money(dear) == (0, 12, 0)
    await check(dear)


async def test_what_never_had_a_machine_releases_at_its_end(dear: World) -> None:  # SC-621, T16
    dear.fake.offered = [an_offer(rate=RATE, available=0)]
    await fund(dear, "20")
    await dear.submit()
    await dear.settle()
    assert await money(dear) == (8, 12, 0)
    await dear.ask("stop")
    await dear.settle()
    assert await money(dear) == (20, 0, 0)
    (row,) = await dear.rows(t.holds)
    assert row["released"] == dear.clock.now()


async def test_an_acquisition_that_fails_keeps_the_hold(dear: World) -> None:  # T6, SC-621
    await fund(dear, "20")
    dear.fake.refusals = [NoCapacity("none")]
    await dear.submit()
    await dear.settle()
    assert await dear.stage() == "Pending"
    assert await money(dear) == (8, 12, 0)
    await check(dear)


async def test_the_hold_is_released_when_the_machine_is_gone(dear: World) -> None:  # T18
    await fund(dear, "20")
    runner = await dear.run(estimate={"hours": "0.01"})
    await beat(dear, [runner], 60)
    dear.fake.deaf_deletes = 5
    await exits(dear, runner, stopped=False)
    _, held, captured = await money(dear)
    assert captured == USD((await dear.status())["actual"]["costUSD"])
    assert held == 12 - captured
    for _ in range(6):
        await dear.settle(60)
    cost = USD((await dear.status())["actual"]["costUSD"])
    assert await money(dear) == (20 - cost, 0, cost)
    await check_quiet(dear)


async def test_holds_are_renewed_each_minute(dear: World) -> None:  # SC-621
    await fund(dear, "100")
    runner = await dear.run(estimate={"hours": "0.01"})
    await beat(dear, [runner], 600)
    balance, held, captured = await money(dear)
    assert captured > 5
    assert AHEAD <= held <= START
    assert balance == 100 - held - captured
    (row,) = await dear.rows(t.holds)
    assert row["amount"] == row["captured"] + held


async def test_funds_run_out_in_mid_run(dear: World) -> None:  # scenario 34, SC-621
    """Scenario 34. Given funds that run out mid-run, when the renewal fails, then drained,
    Cancelled Unfunded, trigger Funding; captured at most the funds."""
    await fund(dear, "14")
    runner = await dear.run(estimate={"hours": "0.01"}, stopGraceSeconds=10)
    await until_stopped(dear, [runner])
    assert [row["drain_cause"] for row in await dear.rows(t.attempt_work)] == ["Funding/Unfunded"]
    await exits(dear, runner)

    status = await dear.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Unfunded")
    assert status["interruption"]["trigger"] == "Funding"
    assert "coveredByNodus" not in status["actual"]["segments"]
    cost = USD(status["actual"]["costUSD"])
    assert 0 < cost <= 14
    assert await money(dear) == (14 - cost, 0, cost)
    workload = await dear.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "Unfunded")
    await check_quiet(dear)


async def test_no_capture_exceeds_hold_and_balance(dear: World) -> None:  # SC-522, SC-621
    """The supplier is deaf for an hour: what the funds do not cover, Nodus pays."""
    await fund(dear, "12.5")
    runner = await dear.run(estimate={"hours": "0.01"}, stopGraceSeconds=5)
    await until_stopped(dear, [runner])
    dear.fake.deaf_deletes = 1000
    await beat(dear, [runner], 30)
    for _ in range(40):
        await dear.settle(60)
        await check(dear)
    dear.fake.deaf_deletes = 0
    for _ in range(3):
        await dear.settle(301)

    status = await dear.status()
    assert status["reason"] == "Unfunded"
    assert status["actual"]["costUSD"] == "12.500000"
    assert status["actual"]["segments"]["coveredByNodus"] == ["Teardown"]
    assert await money(dear) == (0, 0, USD("12.5"))
    await check_quiet(dear)


async def test_parallel_attempts_share_the_funds(dear: World) -> None:  # SC-621
    """What cannot be renewed is stopped, and what it held comes back."""
    await fund(dear, "27")
    await dear.submit(
        completions=2, estimate={"hours": "0.01"}, stopGraceSeconds=5, autoResume=True
    )
    await dear.settle()
    runners = [await dear.start("0/1"), await dear.start("1/1")]
    await until_stopped(dear, runners, orders=2)
    await beat(dear, runners, 60)  # their programs do not listen
    documents = await dear.documents()
    first = [one for which, one in documents.items() if which.endswith("/1")]
    assert [one["status"]["reason"] for one in first] == ["Unfunded", "Unfunded"]
    spent = sum(actual(one.view.segments).cost_usd for one in await all_records(dear))
    balance, held, captured = await money(dear)
    assert (captured, balance) == (spent, 27 - held - spent)
    await check(dear)


async def test_what_was_covered_is_held_again(dear: World) -> None:  # SC-621: a negative capture
    """A machine that was paid for while it booted, and then never started."""
    await fund(dear, "100")
    await dear.submit(restart={"maxReplacements": 0})
    await dear.settle()
    await dear.settle(70)
    await dear.settle(70)
    _, _, before = await money(dear)
    assert before > 0
    for _ in range(10):
        await dear.settle(60)
        await check(dear)
    assert (await dear.status())["reason"] == "StartupTimeout"
    assert await money(dear) == (100, 0, 0)


async def test_funds_that_return_resume_what_asked_for_it(dear: World) -> None:  # SC-623, SC-120
    await fund(dear, "12.5")
    runner = await dear.run(estimate={"hours": "0.01"}, stopGraceSeconds=5, autoResume=True)
    await until_stopped(dear, [runner])
    await exits(dear, runner)
    (slot,) = await dear.rows(t.slots)
    assert (slot["state"], slot["current_epoch"]) == ("Unfunded", 1)
    assert (await dear.workload())["state"] == "Active"
    await dear.settle(600)
    assert list(await dear.documents()) == ["0/1"]  # what is left does not cover a start

    await fund(dear, "12")
    await dear.settle()
    documents = await dear.documents()
    assert sorted(documents) == ["0/1", "0/2"]
    assert documents["0/1"]["status"]["supersededBy"] == documents["0/2"]["metadata"]["name"]
    assert await dear.stage("0/2") == "Starting"
    await check(dear)


async def test_a_new_leader_reopens_what_its_first_pass_cannot(dear: World) -> None:  # SC-605
    """Nothing is known of the offers then, and the balance does not change any more."""
    await fund(dear, "12.5")
    runner = await dear.run(estimate={"hours": "0.01"}, stopGraceSeconds=5, autoResume=True)
    await until_stopped(dear, [runner])
    await exits(dear, runner)
    await fund(dear, "12")
    await dear.lead()
    await dear.settle()  # hears what is offered
    await dear.settle()
    assert "0/2" in await dear.documents()


async def test_a_gang_resumes_though_a_rank_had_ended(dear: World) -> None:  # SC-134, SC-623
    """Rank 1 exits 0 while the money of the others runs out: the gang starts whole again."""
    await fund(dear, "40")
    runners = await run_gang(
        dear, 3, estimate={"hours": "0.01"}, stopGraceSeconds=5, autoResume=True
    )
    await until_stopped(dear, runners)
    await dear.settle()
    await runners[1].report("exited", exitCode=0, signal=None, oom=False)
    await dear.settle()
    await stop_by_order(dear, runners[0], runners[2])
    await dear.settle(1)
    assert sorted(row["state"] for row in await dear.rows(t.slots)) == [
        "Open",
        "Unfunded",
        "Unfunded",
    ]
    await fund(dear, "30")
    await dear.settle()
    assert sorted(await dear.documents()) == ["0/1", "0/2", "1/1", "1/2", "2/1", "2/2"]
    await check(dear)


async def test_without_auto_resume_funds_change_nothing(dear: World) -> None:  # SC-623
    await fund(dear, "12.5")
    runner = await dear.run(estimate={"hours": "0.01"}, stopGraceSeconds=5)
    await until_stopped(dear, [runner])
    await exits(dear, runner)
    await fund(dear, "100")
    await dear.settle()
    assert list(await dear.documents()) == ["0/1"]


async def test_money_that_another_hold_gives_back_counts_as_returned(dear: World) -> None:
    """SC-620, SC-623: nobody pays in; the first Job ends and its hold is released."""
    await fund(dear, "12.5")
    runner = await dear.run(estimate={"hours": "0.01"})
    await dear.submit("second")
    await dear.settle()
    assert len(dear.fake.machines) == 1
    await exits(dear, runner, stopped=False)
    await dear.settle(1)
    assert len(dear.fake.machines) == 1  # the second one's: of 12.50 USD 12 are free again
    held = (await money(dear))[1]
    assert USD("11.9") < held <= START  # less, as the first machine was gone sooner than usual


async def test_a_gang_is_funded_whole_or_not(dear: World) -> None:  # SC-130, T2
    await fund(dear, "35.9")
    await submit_gang(dear, 3)
    await dear.settle()
    assert {await dear.stage(f"{rank}/1") for rank in range(3)} == {"Pending"}
    assert await money(dear) == (USD("35.9"), 0, 0)
    await fund(dear, "0.1")
    await dear.settle()
    assert {await dear.stage(f"{rank}/1") for rank in range(3)} == {"Starting"}
    assert await money(dear) == (0, 36, 0)


@pytest.mark.parametrize("usd", ["36.2", "37", "40"])
async def test_a_gang_whose_money_runs_out_stops_and_resumes_whole(dear: World, usd: str) -> None:
    """SC-621, SC-623, SC-134: no rank goes on without the others, even if it is paid for."""
    await fund(dear, usd)
    runners = await run_gang(
        dear, 3, estimate={"hours": "0.01"}, stopGraceSeconds=5, autoResume=True
    )
    await until_stopped(dear, runners)
    await dear.settle()
    assert len(dear.fake.signals) == 3
    await stop_by_order(dear, *runners)
    await dear.settle(1)
    documents = await dear.documents()
    assert {one["status"]["reason"] for one in documents.values()} == {"Unfunded"}
    assert {row["state"] for row in await dear.rows(t.slots)} == {"Unfunded"}
    await fund(dear, "30")
    await dear.settle()
    assert sorted(await dear.documents()) == ["0/1", "0/2", "1/1", "1/2", "2/1", "2/2"]
    await check(dear)


async def test_control_that_begins_in_mid_run_keeps_what_was_granted(dear: World) -> None:
    """SC-620: what was held before counts as paid in; what comes after is paid by the deposit."""
    runner = await dear.run(estimate={"hours": "0.01"})
    await beat(dear, [runner], 120)
    _, held, captured = await money(dear)
    await fund(dear, "5")
    assert await money(dear) == (5, held, captured)
    entries = [(row["kind"], row["amount"]) for row in await dear.rows(t.fund_entries)]
    assert entries == [("Opening", held + captured), ("Deposit", 5)]
    await until_stopped(dear, [runner])
    await exits(dear, runner)
    assert (await dear.status())["reason"] == "Unfunded"
    await check_quiet(dear)


async def test_a_users_stop_and_money_at_once(dear: World) -> None:  # SC-013, SC-014
    """The user's stop came first: it keeps its reason, and money only forbids a replacement."""
    await fund(dear, "12.2")
    runner = await dear.run(estimate={"hours": "0.01"}, stopGraceSeconds=600, autoResume=True)
    await dear.ask("suspend")
    await dear.settle()
    await beat(dear, [runner], 300)
    await exits(dear, runner)
    status = await dear.status()
    assert (status["reason"], status["interruption"]["trigger"]) == ("Suspended", "User")
    await check_quiet(dear)


async def test_organizations_do_not_share(dear: World) -> None:  # SC-620
    async with dear.database.transaction() as connection:
        await connection.execute(sa.text("INSERT INTO nodus.organizations VALUES ('acme')"))
        await connection.execute(sa.text("INSERT INTO nodus.funds VALUES ('acme')"))
        await connection.execute(
            sa.text("INSERT INTO nodus.projects (name, organization) VALUES ('lab', 'acme')")
        )
    await fund(dear, "1", "lab")
    await dear.submit()  # in project default
    await dear.settle()
    assert await dear.stage() == "Starting"
    accounts = await FundStore(dear.database).accounts()
    assert accounts["acme"].balance == 1
    assert accounts["default"].balance is None


@pytest.mark.parametrize("batch", [1, 100])
async def test_a_batch_does_not_spend_what_another_start_took(dear: World, batch: int) -> None:
    """Each hold is missing for the next, in one transaction as in several."""
    dear.pace = Pace(batch=batch)
    await fund(dear, "30")
    await dear.submit(completions=4)
    await dear.settle()
    stages = [await dear.stage(f"{slot}/1") for slot in range(4)]
    assert sorted(stages) == ["Pending", "Pending", "Starting", "Starting"]
    assert await money(dear) == (6, 24, 0)
    await check(dear)


async def test_retired_attempts_stay_counted(dear: World) -> None:  # P-15, SC-806
    await fund(dear, "100")
    runner = await dear.run(estimate={"hours": "0.01"})
    await beat(dear, [runner], 60)
    await exits(dear, runner, stopped=False)
    before = await money(dear)
    await dear.settle(timedelta(hours=25).total_seconds())
    await dear.settle(61)
    assert await dear.rows(t.holds) == []
    assert await money(dear) == before
    statement = await FundStore(dear.database).statement("default")
    assert statement is not None
    assert statement.archived == before[2]
    await check(dear)
