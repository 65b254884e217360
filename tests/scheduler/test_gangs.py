"""Gangs: ranks that are made, placed, started, restarted and ended together (SC-130 to SC-135)."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.gangs import (
    at_epoch,
    end,
    lose,
    register,
    run_gang,
    stages,
    start_gang,
    stop_by_order,
    submit_gang,
)
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.scheduler import Pace
from nodus_api.scheduler.ganging import chunks
from nodus_api.storage import tables as t
from nodus_api.storage.gang_store import GangEpoch
from nodus_api.suppliers.supplier import MachineCondition, NoCapacity, SupplierCaps


async def test_all_ranks_are_made_in_one_transaction(world: World) -> None:  # SC-130, P-23
    await submit_gang(world, 4)
    await (await world.lead()).once()

    changes = [row for row in await world.rows(t.changes) if row["kind"] == "A"]
    assert len({row["tx"] for row in changes}) == 1
    gangs = [one["spec"]["gang"] for _, one in sorted((await world.documents()).items())]
    wanted = {"id": await gang_id(world), "epoch": 1, "size": 4}
    assert gangs == [wanted | {"rank": rank} for rank in range(4)]


async def gang_id(world: World) -> str:
    return f"{str((await world.workload())['uid'])[:8]}-workers"


async def test_a_gang_lives_and_succeeds(world: World) -> None:  # SC-130, SC-131, SC-135
    runners = await run_gang(world, 3)
    assert await stages(world, 1) == ["Running"] * 3
    seats = [runner.intent.incarnation.gang for runner in runners]
    assert [one.rank for one in seats if one] == [0, 1, 2]
    assert {(one.id, one.size, one.epoch) for one in seats if one} == {(await gang_id(world), 3, 1)}
    for runner in (runners[1], runners[0]):
        await end(runner)
        await world.settle(1)
        assert (await world.workload())["state"] == "Active"
    await end(runners[2])
    await world.settle(1)
    await world.settle(10)
    assert await stages(world, 1) == ["Succeeded"] * 3
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


async def test_no_rank_starts_before_all_are_registered(world: World) -> None:  # SC-133
    await submit_gang(world, 3)
    await world.settle()
    runners = await register(world, "0/1", "2/1")
    for runner in runners:
        await runner.report("canStart")
    await world.settle(1)
    assert all(not row["won"] for row in await world.rows(t.leases))

    await register(world, "1/1")
    for runner in runners:
        await runner.report("canStart")
    await world.settle()
    assert sum(row["won"] for row in await world.rows(t.leases)) == 2


async def test_a_gang_too_large_for_the_room_waits_whole(world: World) -> None:  # scenario 28
    """Scenario 28. Given a gang of 4 and capacity 3, when it is placed, then all stay Queued,
    GangTooLarge; no machine is requested."""
    world.fake.slots = 3
    await submit_gang(world, 4)
    await world.settle()
    assert await stages(world, 1) == ["Pending"] * 4
    for document in (await world.documents()).values():
        notes = document["metadata"]["annotations"]
        assert notes["nodus.dev/waiting-for"] == "Gang"
        assert "gang of 4: 3 placed at most" in notes["nodus.dev/waiting-message"]
        rejected = document["status"]["placement"]["explain"]["rejected"]
        assert [one["reason"] for one in rejected] == ["GangTooLarge"]
    assert await world.rows(t.machines) == []
    assert world.fake.creates == []

    world.fake.slots = 4
    await world.settle(15)
    await world.settle(15)
    assert await stages(world, 1) == ["Starting"] * 4


async def test_a_gang_stays_within_one_offer(world: World) -> None:  # SC-131
    """Four machines are free in the class, but three of them nowhere together, then somewhere."""
    near = replace(an_offer(available=1), region="near", cost_on_demand=Decimal("0.01"))
    far = an_offer(available=2)
    world.fake.offered = [near, far]
    await submit_gang(world, 3)
    await world.settle()
    assert await stages(world, 1) == ["Pending"] * 3
    notes = (await world.documents())["0/1"]["metadata"]["annotations"]
    assert "gang of 3: 2 placed at most" in notes["nodus.dev/waiting-message"]

    world.fake.offered = [near, an_offer(available=3)]
    await world.settle(15)
    await world.settle(15)
    assert await stages(world, 1) == ["Starting"] * 3
    assert len({row["offer"] for row in await world.rows(t.machines)}) == 1
    assert {one.region for one in world.fake.intents.values()} == {"here"}


async def test_a_class_without_a_network_is_never_for_a_gang(world: World) -> None:  # SC-310
    world.fake.offered = [an_offer(gang_capable=False)]
    await submit_gang(world, 2)
    await world.settle()
    assert await stages(world, 1) == ["Failed Unplaceable"] * 2
    assert (await world.workload())["state"] == "Failed"


async def test_ranks_are_placed_in_one_transaction(world: World) -> None:  # SC-130, P-23
    world.pace = Pace(batch=2)  # smaller than the gang
    await submit_gang(world, 3)
    await world.submit("single")
    await world.settle()
    async with world.database.single_reads() as connection:
        query = sa.select(t.machines.c.requested).distinct()
        moments = (await connection.execute(query)).scalars().all()
    assert len(moments) <= 2
    assert await stages(world, 1)


async def test_no_machine_for_one_rank_sends_all_back(world: World) -> None:  # SC-132
    world.fake.refused[1] = NoCapacity("gone")
    world.fake.slow = {0, 2}
    await submit_gang(world, 3)
    await world.settle()
    assert all(stage in ("Placing", "Pending") for stage in await stages(world, 1))
    world.fake.slow = set()
    await world.settle(5)
    assert world.fake.machines == {}  # those that existed are deleted

    await world.settle(40)
    await world.settle(20)
    assert await stages(world, 1) == ["Starting"] * 3
    assert [one["spec"]["epoch"] for one in (await world.documents()).values()] == [1, 1, 1]
    await check(world)


async def test_a_grant_cannot_be_taken_back(world: World) -> None:  # scenario 29, SC-132, SC-520
    """Scenario 29. Given a gang of 4 with rank 1 granted, when rank 2's acquire fails, then the
    remaining ranks are released, covered; gang epoch 2 after the wait of SC-132."""
    world.fake.refused[2] = NoCapacity("gone")
    await submit_gang(world, 4)
    await world.settle()
    assert await stages(world, 1) == ["Stopped Released"] * 4
    for _ in range(3):
        await world.settle(2)
    for which in at_epoch(1, 4):
        status = await world.status(which)
        assert "interruption" not in status
        assert status["actual"]["costUSD"] == "0.000000"
    slots = await world.rows(t.slots)
    assert len({row["not_before"] for row in slots}) == 1
    assert all(row["retries_used"] == row["replacements"] == 0 for row in slots)
    assert await stages(world, 2) == ["Pending"] * 4

    await world.settle(60)
    await world.settle(10)
    runners = await start_gang(world, 2, 4)
    assert await stages(world, 2) == ["Running"] * 4
    assert {one.intent.epoch for one in runners} == {2}
    await check(world)


async def test_ten_vain_epochs_fail_the_gang(world: World) -> None:  # SC-132
    await submit_gang(world, 2, limits={"startDeadlineSeconds": 90_000})
    for _ in range(60):
        world.fake.refused[1] = NoCapacity("gone")
        await world.settle(700)
        if (await world.workload())["state"] == "Failed":
            break
    assert (await world.workload())["outcome"] == "NoCapacity"
    assert await stages(world, 10) == ["Stopped Released"] * 2
    assert await stages(world, 11) == []


async def test_a_lost_rank_restarts_the_gang(world: World) -> None:  # scenario 30, SC-134, SC-120
    runners = await run_gang(world, 4)
    lose(world, runners[1])
    await world.settle(1)
    assert await stages(world, 1) == ["Running", "Lost NodeLost", "Running", "Running"]
    assert len(world.fake.signals) == 3
    await stop_by_order(world, runners[0], runners[2])
    assert await stages(world, 2) == []  # the last one drains still
    await stop_by_order(world, runners[3])

    documents = await world.documents()
    assert await stages(world, 1) == [
        "Stopped Released", "Lost NodeLost", "Stopped Released", "Stopped Released",
    ]  # fmt: skip
    for rank in range(4):
        status = documents[f"{rank}/1"]["status"]
        assert status["interruption"]["trigger"] == "ProviderEvidence"
        assert status["supersededBy"] == documents[f"{rank}/2"]["metadata"]["name"]
        assert documents[f"{rank}/2"]["spec"]["gang"]["epoch"] == 2
    slots = {row["slot"]: row for row in await world.rows(t.slots)}
    assert [slots[str(rank)]["replacements"] for rank in range(4)] == [1, 0, 0, 0]

    await world.settle(5)
    await start_gang(world, 2, 4)
    for which in at_epoch(1, 4):
        assert (await world.status(which))["interruption"]["recoverySeconds"] > 0
        covered = (await world.status(which))["actual"]["segments"]
        assert covered.get("coveredByNodus", []) in ([], ["Teardown"])
    await check(world)


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_failed_rank_counts_one_retry(world: World, retries: int) -> None:  # SC-134
    runners = await run_gang(world, 3, restart={"maxRetries": retries})
    await end(runners[2], 3)
    await world.settle(1)
    await stop_by_order(world, *runners[:2])
    await world.settle(30)
    assert await stages(world, 1) == ["Stopped Released", "Stopped Released", "Failed CustomerExit"]
    assert "interruption" not in await world.status("0/1")
    assert (await world.workload())["state"] == ("Active" if retries else "Failed")
    assert await stages(world, 2) == (["Starting"] * 3 if retries else [])
    slots = {row["slot"]: row["retries_used"] for row in await world.rows(t.slots)}
    assert slots == {"0": retries, "1": 0, "2": 0}


async def test_a_rank_that_succeeded_starts_again_with_its_gang(world: World) -> None:  # SC-134
    runners = await run_gang(world, 2)
    await end(runners[1])
    await world.settle(1)
    lose(world, runners[0])
    await world.settle(1)
    await world.settle(5)
    assert await stages(world, 1) == ["Lost NodeLost", "Succeeded"]
    second = await start_gang(world, 2, 2)
    assert (await world.status("1/1"))["supersededBy"].startswith("train-1-e2-")
    for runner in second:
        await end(runner)
    await world.settle(1)
    await world.settle(5)
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


async def test_a_limit_that_rises_gives_a_late_rank_no_more_time(
    world: World,
) -> None:  # SC-135, SC-802
    runners = await run_gang(world, 2, limits={"maxDurationSeconds": 500})
    await world.clock.advance(50)
    for runner in runners:
        await runner.report("heartbeat")
    await world.settle(10)
    await runners[0].report("exited", exitCode=0, age=10.0)
    await world.settle()
    await submit_gang(world, 2, limits={"maxDurationSeconds": 5000})
    await world.settle(45)
    assert not world.fake.signals
    await world.settle(6)
    assert len(world.fake.signals) == 1
    await stop_by_order(world, runners[1])
    assert await stages(world, 1) == ["Succeeded", "Stopped Released"]


async def test_a_late_rank_is_released(world: World) -> None:  # SC-135
    runners = await run_gang(world, 3)
    await end(runners[0])
    await world.settle(1)
    await end(runners[1])
    await world.settle(57)
    assert await stages(world, 1) == ["Succeeded", "Succeeded", "Running"]
    assert not world.fake.signals
    await runners[2].report("heartbeat")
    await world.settle(3)
    assert len(world.fake.signals) == 1
    await stop_by_order(world, runners[2])
    await world.settle(5)
    assert await stages(world, 1) == ["Succeeded", "Succeeded", "Stopped Released"]
    assert "interruption" not in await world.status("2/1")
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


async def test_a_stop_ends_every_rank(world: World) -> None:
    runners = await run_gang(world, 2)
    await world.ask("stop")
    await world.settle(1)
    await stop_by_order(world, *runners)
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped Stopped"] * 2
    assert await stages(world, 2) == []
    await check_quiet(world)


async def test_a_suspended_gang_resumes_whole(world: World) -> None:
    runners = await run_gang(world, 3)
    await end(runners[2])
    await world.settle(1)
    await world.ask("suspend")
    await world.settle(1)
    await end(runners[1])  # before its stop signal
    await stop_by_order(world, runners[0])
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped Suspended", "Succeeded", "Succeeded"]
    await world.ask("resume")
    await world.settle(1)
    await world.settle(5)
    assert await stages(world, 2) == ["Starting"] * 3
    await start_gang(world, 2, 3)
    await check(world)


async def test_a_gang_cannot_be_scaled_or_be_too_large(world: World) -> None:
    await submit_gang(world, 2)
    await world.settle()
    scaled = await world.ask("scale", count=1)
    large = await submit_gang(world, 101, "large")
    await world.settle()
    assert await world.outcome(scaled) == "Refused"
    assert await world.outcome(large) == "Refused"


async def test_a_start_deadline_ends_the_whole_gang(world: World) -> None:  # T8
    world.fake.slots = 1
    await submit_gang(world, 2, limits={"startDeadlineSeconds": 100})
    await world.settle()
    await world.settle(101)
    assert await stages(world, 1) == ["Failed NoCapacity"] * 2
    assert (await world.workload())["outcome"] == "NoCapacity"


async def test_a_start_deadline_while_acquiring_ends_the_gang(world: World) -> None:  # SC-006a
    world.fake.slow = {1}
    await submit_gang(world, 2, limits={"startDeadlineSeconds": 100})
    await world.settle()
    await world.settle(101)
    key = (await world.runner("1/1")).intent.key
    world.fake.become(key, condition=MachineCondition.RUNNING)
    await world.settle(3)
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped Released", "Failed NoCapacity"]
    assert (await world.workload())["outcome"] == "NoCapacity"
    for which in at_epoch(1, 2):
        assert (await world.status(which))["actual"]["costUSD"] == "0.000000"
    await check_quiet(world)


async def test_one_deadline_ends_the_gang(world: World) -> None:  # DeadlineExceeded of one rank
    runners = await run_gang(world, 2, limits={"maxDurationSeconds": 100})
    for runner in runners:
        await runner.report("heartbeat")
    await world.settle(50)
    for runner in runners:
        await runner.report("heartbeat")
    await world.settle(51)
    await world.settle(5)
    found = await stages(world, 1)
    assert "Failed DeadlineExceeded" in found
    assert (await world.workload())["state"] == "Failed"


async def test_the_last_replacement_fails_the_gang(world: World) -> None:  # SC-120
    runners = await run_gang(world, 2, restart={"maxReplacements": 0})
    lose(world, runners[1])
    await world.settle(1)
    await stop_by_order(world, runners[0])
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped Released", "Lost NodeLost"]
    assert "interruption" not in await world.status("0/1")
    assert (await world.workload())["outcome"] == "NodeLost"
    await check_quiet(world)


async def test_a_gang_goes_before_singles_of_its_age(world: World) -> None:  # SC-371
    world.fake.slots = 2
    await world.submit("single")
    await submit_gang(world, 2)
    await world.settle()
    documents = await world.all_documents()
    starting = [one for one in documents if one["status"]["progress"]["stage"] == "Starting"]
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in starting} == {"train"}


def test_a_transaction_takes_gangs_whole() -> None:  # SC-130, SC-606
    small, large = (GangEpoch(gang=name, epoch=1, size=size) for name, size in (("a", 3), ("b", 9)))
    gangs = {2: small, 5: small, 7: large}

    assert list(chunks([1, 2, 3, 4, 5, 6, 7, 8], gangs, 4)) == [[1, 2, 5], [3, 4, 6], [7], [8]]
    assert list(chunks([9, 2], gangs, 4)) == [[9, 2]]
    assert list(chunks([], {}, 4)) == []


async def test_a_gang_shares_its_limit(world: World) -> None:  # SC-622, P-14
    world.fake.offered = [an_offer(rate="36.00")]
    limits = {"maxCostUSD": "8"}
    runners = await run_gang(
        world, 2, limits=limits, estimate={"hours": "0.01"}, stopGraceSeconds=5
    )
    while not world.fake.signals:
        for runner in runners:
            await runner.report("heartbeat")
        await world.settle(10)
    assert len(world.fake.signals) == 2
    await stop_by_order(world, *runners)
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped MaxCostReached"] * 2
    assert await stages(world, 2) == []
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "MaxCostReached")
    spent = [await world.status(which) for which in at_epoch(1, 2)]
    assert sum(Decimal(one["actual"]["costUSD"]) for one in spent) <= 8
    await check_quiet(world)


async def test_a_gang_is_not_placed_beyond_its_limit(world: World) -> None:  # SC-310
    world.fake.offered = [an_offer(rate="1.00")]
    limits = {"maxCostUSD": "1.5"}  # enough for one rank
    await submit_gang(world, 2, limits=limits, estimate={"hours": "1"})
    await world.settle()
    assert await stages(world, 1) == ["Failed Unplaceable"] * 2
    rejected = (await world.status())["placement"]["explain"]["rejected"]
    assert [one["reason"] for one in rejected] == ["CostAboveLimit"]


async def test_a_deleted_gang_ends_while_it_waits(world: World) -> None:  # SC-806
    world.fake.slots = 1
    await submit_gang(world, 2)
    await world.settle()
    await world.ask("delete")
    await world.settle(1)
    assert await world.documents() == {}  # it never had a machine, so it leaves at once
    archived = await world.rows(t.attempts_archive)
    assert [row["reason"] for row in archived] == ["Stopped"] * 2


async def test_a_second_failure_of_a_gang_is_not_counted(world: World) -> None:  # SC-120
    runners = await run_gang(world, 3, restart={"maxRetries": 5})
    await end(runners[0], 3)
    await world.settle(1)
    await end(runners[1], 4)  # by itself, before its stop signal
    await world.settle(1)
    await stop_by_order(world, runners[2])
    await world.settle(30)
    assert await stages(world, 2) == ["Starting"] * 3
    assert [row["retries_used"] for row in await world.rows(t.slots) if row["slot"] == "0"] == [1]
    waits = {row["not_before"] for row in await world.rows(t.slots)}
    assert len(waits) == 1


async def test_a_start_that_fails_covers_the_ranks_that_never_started(world: World) -> None:
    await submit_gang(world, 3, limits={"startDeadlineSeconds": 9000})  # SC-520
    await world.settle()
    runners = await register(world, "0/1", "1/1")
    await world.settle(30)
    for _ in range(5):
        for runner in runners:
            await runner.report("heartbeat")
        await world.settle(150)
    assert await stages(world, 1) == [
        "Stopped Released", "Stopped Released", "Lost StartupTimeout",
    ]  # fmt: skip
    for which in at_epoch(1, 3):
        status = await world.status(which)
        assert status["actual"]["costUSD"] == "0.000000"
        assert status["actual"]["segments"]["coveredByNodus"]
        assert status["interruption"]["trigger"] == "StartupTimeout"
    assert await stages(world, 2)


async def test_a_machine_that_does_not_come_ends_the_gang_epoch(world: World) -> None:
    world.fake.slow = {2}  # SC-132, SC-520, SC-613
    await submit_gang(world, 3)
    await world.settle()
    assert await stages(world, 1) == ["Starting", "Starting", "Acquiring"]
    for _ in range(10):
        await world.settle(31)
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped Released"] * 3
    for which in at_epoch(1, 2):
        actual = (await world.status(which))["actual"]
        assert actual["costUSD"] == "0.000000"
        assert actual["segments"]["coveredByNodus"][0] == "Boot"
    assert await stages(world, 2)
    await check(world)


async def test_a_rank_counts_as_signalled_when_it_was_reached(world: World) -> None:  # SC-013
    runners = await run_gang(world, 3)
    world.fake.deaf_signals = 1
    lose(world, runners[1])
    passes = await world.lead()
    for _ in range(4):
        await passes.once()
        await passes.loop.calls.settled()
    work = await world.rows(t.attempt_work)
    assert sum(row["drain_signalled"] is not None for row in work) == 1


async def test_a_rank_that_no_order_reaches_ends_though_its_peer_was_only_noticed(
    world: World,
) -> None:  # SC-013, SC-134: its own drain is no notice, and is never cleared
    world.fake.caps = SupplierCaps(sync_delete=True, notices=True)
    runners = await run_gang(world, 2, stopGraceSeconds=30)
    handle = world.fake.machines[runners[1].intent.key].handle
    world.fake.announce(handle, world.clock.now() + timedelta(seconds=120))
    await world.settle(5)
    world.fake.deaf_signals = 1000
    await stop_by_order(world, runners[1])
    assert await stages(world, 1) == ["Running", "Lost Preempted"]
    await world.settle(50)  # its grace, and 20 s
    assert await stages(world, 1) == ["Stopped Released", "Lost Preempted"]
    released = await world.status("0/1")
    assert released["interruption"]["trigger"] == "PreemptionNotice"
    assert len(await stages(world, 2)) == 2
    await check(world)


async def test_a_gang_that_waited_in_vain_is_placed_again_whole(world: World) -> None:
    world.fake.slow = {0, 1}  # SC-132, SC-613
    await submit_gang(world, 2)
    await world.settle()
    assert await stages(world, 1) == ["Acquiring"] * 2
    first = set(world.fake.intents)
    world.fake.slow = set()
    await world.settle(301)
    await world.settle(40)
    assert await stages(world, 1) == ["Starting"] * 2
    assert await stages(world, 2) == []
    assert first.isdisjoint(world.fake.machines)
    await check(world)


async def test_a_stop_of_a_gang_that_acquires_waits_for_every_grant(world: World) -> None:
    world.fake.slow = {1}  # SC-006a, T17
    await submit_gang(world, 2)
    await world.settle()
    await world.ask("stop")
    await world.settle(1)
    assert await stages(world, 1) == ["Stopped Stopped", "Acquiring"]
    world.fake.become((await world.runner("1/1")).intent.key, condition=MachineCondition.RUNNING)
    await world.settle(3)
    await world.settle(5)
    assert await stages(world, 1) == ["Stopped Stopped"] * 2
    assert await stages(world, 2) == []
    await check_quiet(world)
