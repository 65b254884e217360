"""Faults that users of other schedulers met: spec/field-cases.md, area "scheduler and cost".

D03 (a cancel at any moment) is in `test_simulated_fleet`, D26 (the idle reaper) in `test_warm`.
"""

import itertools
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import at_epoch, lose, run_gang, stages, start_gang, stop_by_order
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.kernel.money import cumulative_usd
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import (
    Ambiguous,
    MachineCondition,
    MachineIntent,
    MachineView,
    NoCapacity,
    RateLimited,
)

MILESTONES = ("queued", "acquired", "registered", "commandStarted", "finished", "deletionProven")


def moment(status: dict[str, Any], name: str) -> datetime:
    return datetime.fromisoformat(status["timings"][f"{name}Time"])


async def exits(world: World, runner: Runner, code: int = 0, **body: Any) -> None:
    await runner.report("exited", exitCode=code, signal=None, oom=False, **body)
    await world.settle()


# -- D01 -------------------------------------------------------------------------------------------


async def test_what_cannot_be_deleted_is_not_called_gone(world: World) -> None:  # field case D01
    """Deletes fail for ten minutes after a cancel: Cancelled, not proven, and not forgotten."""
    runner = await world.run()
    await world.ask("stop")
    await world.settle(1)
    refusals: list[Exception] = [Ambiguous("connection reset") for _ in range(1000)]
    world.fake.delete_refusals = refusals
    await exits(world, runner, 143, stopAgeMs=1)
    ended = world.clock.now()
    costs = []
    for _ in range(20):
        await world.settle(30)
        status = await world.status()
        assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
        assert "deletionProvenTime" not in status["timings"]
        costs.append(Decimal(status["actual"]["costUSD"]))
        await check(world)
    assert costs == sorted(costs)
    assert 5 <= 1000 - len(refusals) <= 15  # SC-610: again and again, each time later

    refusals.clear()
    proven = None
    while proven is None:  # SC-610: at most five minutes later
        await world.settle(10)
        assert world.clock.now() - ended < timedelta(minutes=16)
        proven = (await world.status())["timings"].get("deletionProvenTime")
    status = await world.status()
    gone = moment(status, "deletionProven")
    assert gone - ended > timedelta(minutes=10)
    assert status["timings"]["teardownSeconds"] == (gone - ended).total_seconds()
    whole = cumulative_usd(
        Decimal(status["placement"]["rateUSDPerHour"]),
        int((gone - moment(status, "billingStart")).total_seconds()),
    )
    assert Decimal(status["actual"]["costUSD"]) == whole  # SC-520: a stop is charged to the end
    await check_quiet(world)


# -- D06, D08 --------------------------------------------------------------------------------------


async def test_nothing_starts_on_an_offering_that_was_removed(world: World) -> None:
    """Field case D06: it is sought elsewhere; what may run on that one alone ends, and says why.

    A class that an operator drains is another case: what needs it waits (`test_quota`).
    """
    gone, stays = an_offer("cpu-1c-4g-us"), an_offer("cpu-1c-4g-eu", rate="0.07")
    world.fake.offered = [gone, stays]
    await world.submit("before")
    await world.settle()
    assert (await _placement(world, "before"))["offering"] == "cpu-1c-4g-us"

    world.fake.offered = [stays]
    await world.settle(11)
    made = len(world.fake.creates)
    await world.submit("after")
    await world.submit("only", placement={"offerings": ["cpu-1c-4g-us"]})
    await world.settle(1)
    assert (await _placement(world, "after"))["offering"] == "cpu-1c-4g-eu"
    for _ in range(5):
        await world.settle(60)
    assert len(world.fake.creates) == made + 1
    only = next(one for one in await world.all_documents() if _owner(one) == "only")["status"]
    assert (only["phase"], only["reason"]) == ("Failed", "Unplaceable")  # retired, not drained
    (rejected,) = only["placement"]["explain"]["rejected"]
    assert rejected == {"offeringClass": "cpu-1c-4g-eu", "reason": "NotInAllowList"}
    assert only["actual"]["costUSD"] == "0.000000"
    await check(world)


def _owner(document: dict[str, Any]) -> str:
    return str(document["metadata"]["ownerReferences"][0]["name"])


async def _placement(world: World, owner: str) -> dict[str, Any]:
    found = [one for one in await world.all_documents() if _owner(one) == owner]
    placement: dict[str, Any] = found[-1]["status"]["placement"]
    return placement


async def test_what_never_launched_is_cancelled_at_once(world: World) -> None:  # field case D08
    """Every offering answers InsufficientCapacity: there is nothing to delete, and nobody tries."""
    world.fake.offered = [an_offer("cpu-1c-4g-us"), an_offer("cpu-1c-4g-eu", rate="0.07")]
    world.fake.refusals = [NoCapacity("none")] * 1000
    deletes: list[str] = []
    delete = world.fake.delete

    async def noted(handle: str) -> None:
        deletes.append(handle)
        await delete(handle)

    world.fake.delete = noted  # type: ignore[method-assign]
    await world.submit()
    await world.settle()
    for _ in range(4):
        await world.settle(30)
    assert await world.stage() == "Pending"
    rejected = (await world.status())["placement"]["explain"]["rejected"]
    assert {one["reason"] for one in rejected} <= {"InsufficientCapacity", "BackingOff"}
    await world.ask("stop")
    await world.settle()

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert (status["actual"]["costUSD"], status["actual"]["hours"]) == ("0.000000", "0.000000")
    assert "billingStartTime" not in status["timings"]
    tried = len(world.fake.creates)
    for _ in range(5):
        await world.settle(60)
    assert (deletes, len(world.fake.creates)) == ([], tried)


# -- D11, D13 --------------------------------------------------------------------------------------


async def test_a_lost_worker_that_comes_back_is_refused(world: World) -> None:  # field case D11
    """Frozen past the limit, replaced, thawed: its reports change nothing, its machine goes."""
    old = await world.run()
    for _ in range(21):
        await world.settle(30)  # SC-614: the supplier vouches for it for 600 s
    lost = await world.status("0/1")
    assert (lost["phase"], lost["reason"]) == ("Failed", "NodeLost")
    assert old.intent.key not in world.fake.machines  # and so its process is dead
    await world.start("0/2")
    kept = await world.status("0/1")
    for kind, body in (
        ("heartbeat", {}),
        ("started", {}),
        ("checkpoint", {"seq": 1, "bytes": 1, "uri": "file:///1", "sha256": "0" * 64}),
        ("exited", {"exitCode": 0, "signal": None, "oom": False}),
    ):
        standing = await old.report(kind, **body)
        assert standing is not None
        assert (standing.current, standing.slot_epoch) == (False, 2)  # answered 409: SC-125
        await world.settle(1)
    assert await world.status("0/1") == kept
    stages = {key: await world.stage(key) for key in await world.documents()}
    assert stages == {"0/1": "Lost", "0/2": "Running"}
    await check(world)


async def run_all(world: World, size: int) -> list[Runner]:
    """Bring a Job of so many indexes to Running, all in the same second."""
    world.fake.slots = size
    world.fake.offered = [an_offer(available=size)]
    await world.submit(completions=size)
    await world.settle()
    runners = [await world.runner(f"{slot}/1") for slot in range(size)]
    for kind in ("registered", "canStart", "started"):
        await report_all(world, runners, kind)
    return runners


async def report_all(world: World, runners: list[Runner], kind: str) -> None:
    for runner in runners:
        await runner.report(kind)
    await world.settle()


async def test_silence_around_the_limit_makes_one_epoch_or_none(world: World) -> None:
    """Field case D13: fifty runners silent just under the limit, fifty just over it."""
    runners = await run_all(world, 100)
    over, under = range(50), range(50, 100)
    await world.settle(2)
    await report_all(world, runners[50:], "heartbeat")
    for seconds in [30] * 19 + [29]:  # 601 s after the one, 599 s after the other
        await world.settle(seconds)
    for _ in range(3):
        await report_all(world, runners[50:], "heartbeat")
        await world.settle(20)

    documents = await world.documents()
    assert set(documents) == {
        *(f"{slot}/1" for slot in (*over, *under)),
        *(f"{slot}/2" for slot in over),
    }
    for slot in over:
        first, second = documents[f"{slot}/1"], documents[f"{slot}/2"]
        assert first["status"]["supersededBy"] == second["metadata"]["name"]
    assert {documents[f"{slot}/1"]["status"]["phase"] for slot in under} == {"Running"}
    await check(world)


# -- D16, D18 --------------------------------------------------------------------------------------


async def test_the_bill_of_a_machine_that_went_stands_still(world: World) -> None:
    """Field case D16: preempted at 90 s, proven gone at 150 s; one cost, whenever it is read."""
    world.fake.offered = [an_offer(spot="0.02")]
    runner = await world.run(placement={"interruptible": "Require"}, restart={"maxReplacements": 0})
    started = moment(await world.status(), "billingStart")
    await world.settle((started + timedelta(seconds=90) - world.clock.now()).total_seconds())
    world.fake.deaf_deletes = 1000
    world.fake.become(
        runner.intent.key,
        condition=MachineCondition.FAILED,
        reclaimed=True,
        ended_at=world.clock.now(),
    )
    await runner.report("heartbeat")
    await world.settle()
    assert (await world.status())["reason"] == "Preempted"
    while world.clock.now() < started + timedelta(seconds=149):
        await world.settle(1)
    world.fake.deaf_deletes = 0
    while "deletionProvenTime" not in (await world.status())["timings"]:
        await world.settle(1)

    status = await world.status()
    gone = moment(status, "deletionProven")
    ledger = await world.rows(t.cost_segments)
    assert (ledger[0]["from_ts"], ledger[-1]["to_ts"]) == (started, gone)  # no hole: SC-523
    assert all(a["to_ts"] == b["from_ts"] for a, b in itertools.pairwise(ledger))
    assert status["actual"]["costUSD"] == f"{cumulative_usd(Decimal('0.02'), 90):.6f}"
    assert status["actual"]["hours"] == "0.025000"
    assert status["actual"]["segments"]["coveredByNodus"] == ["Teardown"]
    for seconds in (10, 3600):
        await world.settle(seconds)
        assert await world.status() == status
    await world.lead("after a restart")
    await world.settle(60)
    assert await world.status() == status
    await check_quiet(world)


@pytest.mark.parametrize("off", [-600, 600])
async def test_clocks_that_are_off_give_no_impossible_time(world: World, off: int) -> None:
    """Field case D18: a supplier ten minutes off, and our own clock set back in the middle."""
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    (key,) = world.fake.machines
    skew = timedelta(seconds=off)
    world.fake.become(
        key, condition=MachineCondition.RUNNING, billing_start=world.clock.now() + skew
    )
    await world.settle(5)
    runner = await world.start()
    await world.settle(60)
    await runner.report("heartbeat")
    await world.settle()
    world.clock._start -= timedelta(minutes=2)
    await world.settle(5)
    await runner.report("heartbeat")
    await world.settle(5)
    assert await world.stage() == "Running"
    await exits(world, runner)
    for _ in range(3):
        await world.settle(30)

    status = await world.status()
    assert status["phase"] == "Succeeded"
    known = [moment(status, name) for name in MILESTONES]
    assert known == sorted(known)
    lengths = {name: v for name, v in status["timings"].items() if name.endswith("Seconds")}
    assert lengths
    assert min(lengths.values()) >= 0
    clock = (moment(status, "deletionProven") - moment(status, "billingStart")).total_seconds()
    assert 0 <= clock <= 180  # our own clock's, whatever the supplier's says
    whole = cumulative_usd(Decimal("0.06"), int(clock))
    assert Decimal(status["actual"]["costUSD"]) == whole
    await check_quiet(world)


# -- D21, D23 --------------------------------------------------------------------------------------


async def test_a_storm_of_refusals_fails_nobody(world: World) -> None:  # field case D21
    """429 (Retry-After 7) for two minutes, no capacity for three, then room for all of fifty."""
    size, began = 50, world.clock.now()
    world.fake.slots = size
    world.fake.offered = [an_offer(available=size)]
    calls: list[float] = []
    create = world.fake.create

    async def stormy(intent: MachineIntent) -> MachineView:
        since = (world.clock.now() - began).total_seconds()
        calls.append(since)
        if since < 120:
            raise RateLimited("slow down", timedelta(seconds=7))
        if since < 300:
            raise NoCapacity("none")
        return await create(intent)

    world.fake.create = stormy  # type: ignore[method-assign]
    for number in range(size):
        await world.submit(f"train-{number}")
    await world.settle()
    found: set[str] = set()
    for _ in range(80):
        await world.settle(8)
        documents = await world.all_documents()
        found = {one["status"]["progress"]["stage"] for one in documents}
        assert "Failed" not in found
        for one in documents:
            if one["status"]["phase"] == "Queued":
                assert "nodus.dev/waiting-for" in one["metadata"]["annotations"]
        if found == {"Starting"}:
            break
    assert found == {"Starting"}
    refused = sorted({at for at in calls if at < 120})
    assert min(later - at for at, later in itertools.pairwise(refused)) >= 7
    assert max(later - at for at, later in itertools.pairwise(sorted(calls))) <= 240  # SC-360
    assert len(world.fake.machines) == size
    await check(world)


@pytest.mark.parametrize("rank", [0, 2])
async def test_a_gang_goes_on_together_or_not(world: World, rank: int) -> None:  # field case D23
    """One rank is killed, rank 0 too: all move to the next gang epoch, never two run at once."""
    runners = await run_gang(world, 4)
    lose(world, runners[rank])
    await world.settle(1)
    for survivor in (one for number, one in enumerate(runners) if number != rank):
        assert await stages(world, 2) == []  # not before the last of the old ones ended
        await stop_by_order(world, survivor)
    wanted = ["Stopped Released"] * 4
    wanted[rank] = "Lost NodeLost"
    assert await stages(world, 1) == wanted
    documents = await world.documents()
    for which in at_epoch(1, 4):
        assert documents[which]["status"]["interruption"]["trigger"] == "ProviderEvidence"
    for which in at_epoch(2, 4):
        assert documents[which]["spec"]["gang"]["epoch"] == 2
    await world.settle(5)
    await start_gang(world, 2, 4)
    assert await stages(world, 2) == ["Running"] * 4
    assert await stages(world, 1) == wanted
    await check(world)
