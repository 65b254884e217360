"""Warm machines: kept after an end, wiped, taken by the next Attempt or let go (SC-343, SC-344)."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import at_epoch, end, lose, run_gang, stages, start_gang, stop_by_order
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import Ambiguous, Invalid, MachineCondition, SupplierCaps

BOX = OwnerKind.SANDBOX


@pytest.fixture
def warm(world: World) -> World:
    world.fake.caps = SupplierCaps(sync_delete=True, warm=True)
    return world


async def ends(world: World, runner: Runner, code: int = 0, *, after: float = 60) -> None:
    await world.clock.advance(after)
    await runner.report("exited", exitCode=code, signal=None, oom=False)
    await world.settle()


async def starts(world: World, owner: str) -> Runner:
    """Bring the Attempt of a workload from its machine to Running, 10 s later."""
    runner = await world.runner_of(owner)
    await world.clock.advance(10)
    await runner.report("registered", checks={}, pullMs=0)
    await runner.report("canStart")
    await world.settle()
    await runner.report("started")
    await world.settle()
    return runner


async def status_of(world: World, owner: str) -> dict[str, Any]:
    for one in await world.all_documents():
        if one["metadata"]["ownerReferences"][0]["name"] == owner:
            status: dict[str, Any] = one["status"]
            return status
    raise LookupError(owner)


async def seconds_of(world: World) -> Mapping[int, int]:
    """Return by machine the seconds of its Attempts' ledgers and of its idle time, without gap."""
    periods: dict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
    for table in (t.cost_segments, t.idle_time):
        for row in await world.rows(table):
            periods[row["machine"]].append((row["from_ts"], row["to_ts"]))
    found = {}
    for number, several in periods.items():
        several.sort()
        for (_, before), (after, _) in pairwise(several):
            assert before == after, f"machine {number} has a gap or an overlap at {before}"
        found[number] = int((several[-1][1] - several[0][0]).total_seconds())
    return found


async def test_another_sandbox_takes_the_machine(warm: World) -> None:  # scenario 43, SC-344
    """Scenario 43. Given a Sandbox that ended, kept warm 300 s, when another starts, then
    warmReuse true, billingStart is the assignment, clocks + idle are the machine's clock."""
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    first = await status_of(warm, "one")
    assert first["timings"]["deletionProvenTime"] == "2026-01-01T00:01:10Z"  # the wipe
    assert warm.fake.wipes == list(warm.fake.machines)
    await warm.settle(100)
    await warm.submit("two", kind=BOX)
    await warm.settle()
    second = await status_of(warm, "two")
    assert second["progress"]["stage"] == "Starting"  # T3 and T7 in one transaction
    assert second["placement"]["warmReuse"] is True
    assert second["timings"]["acquiredTime"] == "2026-01-01T00:02:50Z"
    assert second["timings"]["billingStartTime"] == "2026-01-01T00:02:50Z"
    assert len(warm.fake.creates) == 1
    await ends(warm, await starts(warm, "two"))
    await warm.settle(300)

    assert warm.fake.machines == {}
    assert await seconds_of(warm) == {1: 540}  # 70 + 100 idle + 70 + 300 idle
    idle = await warm.rows(t.idle_time)
    assert [(row["to_ts"] - row["from_ts"]).total_seconds() for row in idle] == [100, 300]
    assert sum(row["usd"] for row in idle) == Decimal("0.006667")  # 400 s at 0.06
    for owner in ("one", "two"):
        status = await status_of(warm, owner)
        assert status["actual"]["costUSD"] == "0.001167"  # 70 s each
        assert "coveredByNodus" not in status["actual"]["segments"]
    await check_quiet(warm)


async def test_the_runner_of_the_last_tenant_is_nobody(warm: World) -> None:  # SC-125, P-06
    await warm.submit("one", kind=BOX)
    await warm.settle()
    old = await starts(warm, "one")
    await ends(warm, old)
    await warm.submit("two", kind=BOX)
    await warm.settle()
    new = await warm.runner_of("two")
    assert new.intent.key == old.intent.key
    assert new.intent.fence == old.intent.fence + 1
    assert new.intent.token != old.intent.token
    before = await warm.rows(t.runner_reports)
    standing = await old.report("registered", checks={}, pullMs=0)
    assert standing is not None
    assert not standing.current
    assert await warm.rows(t.runner_reports) == before


@pytest.mark.parametrize(
    ("kind", "spec", "kept"),
    [
        (OwnerKind.JOB, {}, 0),
        (OwnerKind.JOB, {"idleSeconds": 45}, 45),
        (OwnerKind.SANDBOX, {}, 300),
        (OwnerKind.SANDBOX, {"idleSeconds": 0}, 0),
        (OwnerKind.BUILD, {}, 0),
        (OwnerKind.FUNCTION, {}, 300),
        (OwnerKind.AGENT, {"idleSeconds": 20}, 20),
    ],
)
async def test_each_kind_keeps_its_machines_so_long(  # SC-343
    warm: World, kind: OwnerKind, spec: dict[str, Any], kept: int
) -> None:
    await warm.submit("one", kind=kind, **spec)
    await warm.settle()
    runner = await starts(warm, "one")
    await warm.ask("stop", "one", kind.value)
    await warm.settle()
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=0)
    await warm.settle()
    assert bool(warm.fake.machines) is (kept > 0)
    if kept:
        await warm.settle(kept - 1)
        assert warm.fake.machines
        await warm.settle(1)
    assert warm.fake.machines == {}
    assert len(await warm.rows(t.idle_time)) == (kept > 0)
    await check_quiet(warm)


async def test_a_supplier_that_keeps_nothing_warm_deletes(world: World) -> None:
    await world.submit("one", kind=BOX)
    await world.settle()
    await ends(world, await starts(world, "one"))
    assert world.fake.machines == {}
    assert world.fake.wipes == []


async def another_organization(world: World) -> None:
    async with world.database.transaction() as connection:
        await connection.execute(sa.insert(t.organizations).values(name="rival"))
        await connection.execute(sa.insert(t.funds).values(organization="rival"))
        row = {"name": "rival", "organization": "rival"}
        await connection.execute(sa.insert(t.projects).values(row))


async def test_never_across_organizations(warm: World) -> None:  # SC-343
    await another_organization(warm)
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.submit("two", kind=BOX, project="rival")
    await warm.settle()
    assert (await status_of(warm, "two"))["placement"]["warmReuse"] is False
    assert len(warm.fake.creates) == 2
    assert len(warm.fake.assigns) == 0


async def test_never_with_another_image(warm: World) -> None:  # SC-343: per image family
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.submit("two", kind=BOX, template={"image": "python:3.12"})
    await warm.settle()
    assert (await status_of(warm, "two"))["placement"]["warmReuse"] is False


async def test_a_warm_machine_is_scored_by_what_it_takes(warm: World) -> None:  # SC-343, SC-320
    """q = 0 and b = warm p50: under Speed the dearer class wins, since its machine is there."""
    cheap, dear = an_offer("cpu-1c-4g-eu", rate="0.06"), an_offer("cpu-1c-4g-us", rate="0.063")
    warm.fake.offered = [dear]
    speed: dict[str, Any] = {"placement": {"profile": "Speed"}, "estimate": {"hours": "0.05"}}
    await warm.submit("one", kind=BOX, **speed)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    warm.fake.offered = [cheap, dear]
    await warm.settle(20)
    await warm.settle(20)
    for owner in ("two", "three"):
        await warm.submit(owner, kind=BOX, **speed)
        await warm.settle()
    two, three = await status_of(warm, "two"), await status_of(warm, "three")
    assert two["placement"]["offering"] == "cpu-1c-4g-us"
    assert two["placement"]["warmReuse"] is True
    assert three["placement"]["warmReuse"] is False  # one machine serves one Attempt
    assert Decimal(two["predicted"]["hours"]) < Decimal(three["predicted"]["hours"])


async def test_a_warm_machine_is_taken_from_a_full_fleet(warm: World) -> None:  # SC-343
    warm.fake.slots = 1
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.settle(10)
    await warm.submit("two", kind=BOX)
    await warm.settle()
    assert (await status_of(warm, "two"))["placement"]["warmReuse"] is True


async def test_no_attempt_loses_its_machine_to_the_reaper(warm: World) -> None:  # field case D26
    for seconds in (299, 299.9, 300, 300.1):
        await warm.submit("one", kind=BOX)
        await warm.settle()
        await ends(warm, await starts(warm, "one"))
        await warm.clock.advance(seconds)
        await warm.submit("two", kind=BOX)
        await warm.settle()
        await starts(warm, "two")
        await warm.settle(60)
        assert (await status_of(warm, "two"))["progress"]["stage"] == "Running"
        for owner in ("one", "two"):
            await warm.ask("delete", owner, BOX.value)
        await warm.settle()
        runner = await warm.runner_of("two")
        await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=0)
        await warm.settle()
        await warm.settle(400)
        assert warm.fake.machines == {}


async def test_a_machine_that_cannot_be_wiped_is_deleted(warm: World) -> None:  # SC-344
    warm.fake.wipe_errors = [Ambiguous("no answer")] * 3
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    assert "deletionProvenTime" not in (await status_of(warm, "one"))["timings"]
    for _ in range(4):
        await warm.settle(5)
    assert warm.fake.machines == {}
    timings = (await status_of(warm, "one"))["timings"]
    assert timings["teardownSeconds"] > 0
    assert await warm.rows(t.idle_time) == []
    await check_quiet(warm)


async def test_a_wipe_is_repeated_and_ends_the_bill_once(warm: World) -> None:  # SC-344
    warm.fake.wipe_errors = [Ambiguous("no answer")]
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.settle(5)
    timings = (await status_of(warm, "one"))["timings"]
    assert timings["teardownSeconds"] == 5
    assert len(warm.fake.machines) == 1


async def test_an_assignment_is_repeated_on_its_fence(warm: World) -> None:  # SC-343
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    warm.fake.assign_errors = [Ambiguous("no answer")]
    await warm.submit("two", kind=BOX)
    await warm.settle()
    assert warm.fake.assigns == []
    await warm.settle(2)
    ((_, fence),) = warm.fake.assigns
    assert fence == 2
    await starts(warm, "two")
    assert (await status_of(warm, "two"))["progress"]["stage"] == "Running"


async def test_a_crash_before_the_assignment_loses_nothing(warm: World) -> None:  # SC-605, P-08
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.submit("two", kind=BOX)
    passes = await warm.lead()
    for _ in range(2):
        for step in ("intake", "fill", "offers", "place"):
            await passes.step(step)
            await passes.loop.calls.settled()
    assert (await status_of(warm, "two"))["progress"]["stage"] == "Starting"
    assert warm.fake.assigns == []
    await warm.lead()
    await warm.settle()
    assert len(warm.fake.assigns) == 1
    await warm.lead()  # its answer may be lost as well
    await warm.settle()
    await starts(warm, "two")
    assert (await status_of(warm, "two"))["progress"]["stage"] == "Running"


async def test_a_warm_machine_that_is_not_there_is_a_loss(warm: World) -> None:  # T12, SC-012
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    warm.fake.assign_errors = [Invalid("no such machine")]
    await warm.submit("two", kind=BOX)
    await warm.settle()
    documents = [
        one["status"]
        for one in await warm.all_documents()
        if one["metadata"]["ownerReferences"][0]["name"] == "two"
    ]
    ended = next(one for one in documents if one["phase"] == "Failed")
    assert (ended["reason"], ended["actual"]["costUSD"]) == ("NodeLost", "0.000000")
    assert len(documents) == 2  # and a replacement, for free
    await check(warm)


async def test_a_warm_machine_that_dies_is_let_go(warm: World) -> None:  # SC-343
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    (key,) = warm.fake.machines
    warm.fake.become(key, condition=MachineCondition.FAILED)
    await warm.settle(5)
    await warm.settle(5)
    assert warm.fake.machines == {}
    assert await seconds_of(warm) == {1: 75}
    await check_quiet(warm)


async def test_what_failed_by_us_or_was_lost_is_not_kept(warm: World) -> None:  # SC-343
    await warm.submit("one", idleSeconds=600, restart={"maxReplacements": 0})
    await warm.settle()
    await starts(warm, "one")
    (key,) = warm.fake.machines
    warm.fake.become(key, condition=MachineCondition.FAILED, ended_at=warm.clock.now())
    await warm.settle(5)
    assert warm.fake.wipes == []
    assert key not in warm.fake.machines


async def test_the_increment_is_padded_once_for_the_whole_machine(warm: World) -> None:  # SC-507
    """Two tenants and idle time of a machine billed by whole minutes: 70 + 5 + 71 → 180 s."""
    minute = timedelta(seconds=60)
    warm.fake.offered = [replace(an_offer(), increment=minute, minimum=minute)]
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.settle(5)
    await warm.submit("two", kind=BOX, idleSeconds=0)
    await warm.settle()
    await ends(warm, await starts(warm, "two"), after=61)
    assert await seconds_of(warm) == {1: 180}
    assert (await status_of(warm, "one"))["actual"]["hours"] == "0.019444"  # 70 s, not padded
    assert (await status_of(warm, "two"))["actual"]["hours"] == "0.029167"  # 71 s and 34 of padding
    await check_quiet(warm)


async def test_survivors_of_a_gang_are_reused(warm: World) -> None:  # scenario 30, SC-134
    warm.fake.slots = 10  # enough for a whole new gang, which is not wanted
    runners = await run_gang(warm, 4)
    lose(warm, runners[1])
    await warm.settle(1)
    await stop_by_order(warm, runners[0], runners[2])
    await stop_by_order(warm, runners[3])
    await warm.settle(1)
    documents = await warm.documents()
    assert await stages(warm, 1) == [
        "Stopped Released", "Lost NodeLost", "Stopped Released", "Stopped Released",
    ]  # fmt: skip
    reused = [documents[which]["status"]["placement"]["warmReuse"] for which in at_epoch(2, 4)]
    assert sorted(reused) == [False, True, True, True]
    assert len(warm.fake.creates) == 5
    assert {documents[which]["spec"]["gang"]["epoch"] for which in at_epoch(2, 4)} == {2}
    await start_gang(warm, 2, 4)
    for which in at_epoch(2, 4):
        await end(await warm.runner(which))
    await warm.settle()
    assert (await warm.workload())["state"] == "Succeeded"
    assert warm.fake.machines == {}  # a Job keeps none
    assert set((await seconds_of(warm)).values())
    await check_quiet(warm)


async def test_a_survivor_that_nobody_needs_is_kept_two_minutes(warm: World) -> None:  # SC-343
    runners = await run_gang(warm, 2)
    lose(warm, runners[1])
    await warm.settle(1)
    warm.fake.slots = 1  # there is no room for the other one: the gang waits
    for _ in range(2):
        await runners[0].report("heartbeat")
        await warm.settle(10)
    await stop_by_order(warm, runners[0])
    assert len(warm.fake.machines) == 1
    await warm.settle(118)
    assert len(warm.fake.machines) == 1
    await warm.settle(2)
    assert warm.fake.machines == {}


async def test_an_attempt_stays_while_its_machine_is_idle(warm: World) -> None:  # SC-806, SC-611
    """A deleted workload's machine is not forgotten with its rows."""
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.ask("delete", "one", BOX.value)
    for _ in range(8):
        await warm.settle(100)
    assert warm.fake.machines == {}
    assert await warm.rows(t.orphans) == []
    assert await warm.rows(t.attempts) == []


async def test_a_machine_that_is_in_use_again_is_no_orphan(warm: World) -> None:  # SC-611
    """Its last tenant ended long ago; the sweep looks at all of them."""
    await warm.submit("one", kind=BOX)
    await warm.settle()
    await ends(warm, await starts(warm, "one"))
    await warm.submit("two", kind=BOX)
    await warm.settle()
    runner = await starts(warm, "two")
    for _ in range(16):
        await runner.report("heartbeat")
        await warm.settle(60)
    assert await warm.rows(t.orphans) == []
    assert (await status_of(warm, "two"))["progress"]["stage"] == "Running"
