"""Whole lives of Attempts, from the command to the proof that the machine is gone."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.storage import tables as t


async def test_a_job_succeeds(world: World) -> None:  # scenario 1
    command = await world.submit()
    await world.settle()
    assert await world.outcome(command) == "Applied"
    assert await world.stage() == "Starting"

    runner = await world.start()
    assert await world.stage() == "Running"

    await world.clock.advance(60)
    await runner.report("exited", exitCode=0, signal=None, oom=False, startAgeMs=60_000)
    await world.settle()

    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["exitCode"] == 0
    assert (await world.workload())["state"] == "Succeeded"
    assert status["timings"] == {
        "queuedTime": "2026-01-01T00:00:00Z",
        "acquiredTime": "2026-01-01T00:00:00Z",
        "billingStartTime": "2026-01-01T00:00:00Z",
        "registeredTime": "2026-01-01T00:00:00Z",
        "commandStartedTime": "2026-01-01T00:00:02Z",
        "finishedTime": "2026-01-01T00:01:02Z",
        "deletionProvenTime": "2026-01-01T00:01:02Z",
        "bootSeconds": 2,
        "pullSeconds": 0,
        "teardownSeconds": 0,
    }
    assert status["actual"] == {
        "costUSD": "0.001033",
        "hours": "0.017222",
        "segments": {
            "bootUSD": "0.000033",
            "runningUSD": "0.001000",
            "restoreUSD": "0.000000",
            "teardownUSD": "0.000000",
        },
    }
    await check_quiet(world)


async def test_a_crashing_program_is_retried_as_the_next_epoch(world: World) -> None:  # scenario 15
    """Scenario 15. Given a running program, when it exits 3, then Failed CustomerExit with
    exitCode 3 and no signal."""
    await world.submit(restart={"maxRetries": 1})
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=3, signal=None, oom=False)
    await world.settle()

    first = await world.status("0/1")
    assert (first["phase"], first["reason"], first["exitCode"]) == ("Failed", "CustomerExit", 3)
    assert "signal" not in first
    second = (await world.documents())["0/2"]
    assert first["supersededBy"] == second["metadata"]["name"]
    assert second["metadata"]["annotations"]["nodus.dev/waiting-for"] == "Backoff"
    assert await world.stage("0/2") == "Pending"

    await world.settle(12)  # SC-121: 10 s, at most 20 % more
    runner = await world.start("0/2")
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()

    assert (await world.status("0/2"))["phase"] == "Succeeded"
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


async def test_without_retries_left_the_job_fails(world: World) -> None:  # SC-120 rule 5
    await world.submit(completions=2)
    await world.settle()
    runner = await world.start("0/1")
    await world.start("1/1")
    await runner.report("exited", exitCode=1, signal=None, oom=False)
    await world.settle()

    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "CustomerExit")
    sibling = await world.runner("1/1")
    await sibling.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=10)
    await world.settle()
    status = await world.status("1/1")
    assert (status["phase"], status["reason"]) == ("Cancelled", "Released")  # SC-802
    assert "interruption" not in status
    await check_quiet(world)


async def test_a_signal_is_not_an_exit_code(world: World) -> None:  # scenario 16, SC-009
    """Scenario 16. Given a running program, when it gets SIGSEGV, then CustomerExit, signal 11,
    exitCode 139."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=139, signal=11, oom=False)
    await world.settle()
    status = await world.status()
    assert (status["reason"], status["exitCode"], status["signal"]) == ("CustomerExit", 139, 11)


async def test_a_memory_kill_has_its_own_reason(world: World) -> None:  # scenario 17
    """Scenario 17. Given a running program, when it hits its memory limit, then OutOfMemory,
    signal 9, exitCode 137."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=137, signal=9, oom=True)
    await world.settle()
    status = await world.status()
    assert (status["reason"], status["exitCode"], status["signal"]) == ("OutOfMemory", 137, 9)


async def test_a_program_that_cannot_start_is_the_customers_fault(world: World) -> None:
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={}, pullMs=0)
    await runner.report("canStart")
    await world.settle(1)
    await runner.report(
        "exited", exitCode=None, signal=None, oom=False, error="StartFailed", message="no such file"
    )
    await world.settle()
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "StartFailed")
    assert "commandStartedTime" not in status["timings"]
    await check_quiet(world)


async def test_an_image_that_is_not_there_is_charged_and_not_retried(
    world: World,
) -> None:  # scenario 13
    """Scenario 13. Given an image that is not found, when it is pulled, then Failed
    ImagePullFailed; charged; no replacement."""
    await world.submit(restart={"maxRetries": 0})
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await world.settle(42)
    await runner.report("exited", exitCode=None, error="ImagePullFailed", message="no such image")
    await world.settle()
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "ImagePullFailed")
    assert status["actual"]["costUSD"] == "0.000700"
    assert "coveredByNodus" not in status["actual"]["segments"]
    assert set(await world.documents()) == {"0/1"}
    assert (await world.workload())["outcome"] == "ImagePullFailed"
    await check_quiet(world)


async def test_our_own_fault_is_covered_and_made_good(world: World) -> None:  # scenario 14
    """Scenario 14. Given a registry that is down, when an image is pulled, then InternalError;
    covered; replaced."""
    await world.submit(restart={"maxRetries": 0})
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await world.settle(42)
    await runner.report("exited", exitCode=None, error="InternalError", message="registry down")
    await world.settle()
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "InternalError")
    assert first["actual"]["costUSD"] == "0.000000"
    assert first["actual"]["segments"]["coveredByNodus"] == ["Boot"]
    await world.settle(13)
    assert await world.stage("0/2") == "Starting"
    await check(world)


async def test_retries_wait_longer_each_time_and_are_counted(world: World) -> None:  # scenario 18
    """Scenario 18. Given maxRetries 2, when the program exits 1 always, then epochs 1 to 3,
    backoff 10 and 20 s; the workload has failed."""
    await world.submit(restart={"maxRetries": 2})  # SC-105: epochs 1, 2, 3
    await world.settle()
    for epoch, shortest, longest in ((1, 8, 12), (2, 16, 24)):  # SC-121: 10, 20 s, a fifth off
        runner = await world.start(f"0/{epoch}")
        await runner.report("exited", exitCode=1, signal=None, oom=False)
        await world.settle()
        await world.settle(shortest - 1)
        assert await world.stage(f"0/{epoch + 1}") == "Pending"
        await world.settle(longest - shortest + 2)
        assert await world.stage(f"0/{epoch + 1}") == "Starting"
    runner = await world.start("0/3")
    await runner.report("exited", exitCode=1, signal=None, oom=False)
    await world.settle()
    documents = await world.documents()
    assert sorted(documents) == ["0/1", "0/2", "0/3"]
    assert "supersededBy" not in documents["0/3"]["status"]
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "CustomerExit")
    await check_quiet(world)


async def test_a_rule_decides_before_the_retries(world: World) -> None:  # scenario 19
    """Scenario 19. Given a rule exit 42 to FailJob, when the program exits 42, then no retry
    despite maxRetries."""
    rules = [{"action": "FailJob", "exitCodes": [42]}]
    await world.submit(restart={"maxRetries": 5, "rules": rules})
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=42, signal=None, oom=False)
    await world.settle()
    assert set(await world.documents()) == {"0/1"}
    assert (await world.workload())["state"] == "Failed"


async def test_the_exit_is_the_stop_and_teardown_is_billed_after_it(world: World) -> None:  # SC-008
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.clock.advance(60)
    world.fake.deaf_deletes = 3
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    shown = await world.status()
    assert shown["phase"] == "Succeeded"
    assert shown["timings"]["finishedTime"] == "2026-01-01T00:01:02Z"
    assert shown["actual"]["segments"]["teardownUSD"] == "0.000000"
    for _ in range(3):
        await world.settle(4)
    ended = await world.status()
    assert ended["timings"]["finishedTime"] == shown["timings"]["finishedTime"]
    assert ended["timings"]["deletionProvenTime"] == "2026-01-01T00:01:14Z"
    assert ended["actual"]["segments"]["teardownUSD"] == "0.000200"
    assert ended["actual"]["costUSD"] > shown["actual"]["costUSD"]  # SC-509
    await world.settle(600)
    assert await world.status() == ended
    await check_quiet(world)


async def test_a_new_price_is_for_new_attempts(world: World) -> None:  # scenario 44, SC-504
    """Scenario 44. Given a running Attempt, when the catalog comes again at new prices, then
    old Attempts keep their rate, new ones use the new one."""
    await world.submit("old")
    await world.settle()
    world.fake.offered = [an_offer(rate="0.60")]
    await world.settle(11)
    await world.submit("new")
    await world.settle(1)
    rates = {
        one["metadata"]["ownerReferences"][0]["name"]: one["status"]["placement"]["rateUSDPerHour"]
        for one in await world.all_documents()
    }
    assert rates == {"old": "0.06", "new": "0.60"}
    runner = await world.runner_of("old")
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await world.settle()
    await runner.report("started")
    await world.clock.advance(48)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    costs = {
        one["metadata"]["ownerReferences"][0]["name"]: one["status"]["actual"]["costUSD"]
        for one in await world.all_documents()
    }
    assert costs["old"] == "0.001000"  # 60 s at the old rate


async def test_what_nothing_can_match_fails_at_once(world: World) -> None:  # scenario 2
    """Scenario 2. Given no class with the accelerator, when a Job is submitted, then Failed
    Unplaceable; rejected AcceleratorMismatch; cost 0."""
    await world.submit(resources={"accelerators": ["h100"], "count": 1})
    await world.settle()
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Unplaceable")
    assert status["placement"]["candidates"] == 1
    assert status["placement"]["explain"]["rejected"] == [
        {"offeringClass": "cpu-1c-4g-other", "reason": "AcceleratorMismatch"}
    ]
    assert status["actual"]["costUSD"] == "0.000000"
    assert (await world.workload())["outcome"] == "Unplaceable"
    await check_quiet(world)


async def test_without_capacity_an_attempt_waits_and_says_so(
    world: World,
) -> None:  # scenarios 3, 4
    world.fake.offered = [an_offer(available=0)]
    await world.submit()
    await world.settle()
    document = (await world.documents())["0/1"]
    annotations = document["metadata"]["annotations"]
    assert annotations["nodus.dev/waiting-for"] == "Capacity"
    assert "has no capacity (asked for 1, 0 free)" in annotations["nodus.dev/waiting-message"]
    assert document["status"]["placement"]["explain"]["rejected"] == [
        {"offeringClass": "cpu-1c-4g-other", "reason": "InsufficientCapacity"}
    ]

    before = await world.rows(t.changes)
    await world.settle(30)
    assert len(await world.rows(t.changes)) == len(before)  # SC-009b: no countdown, no event

    world.fake.offered = [an_offer(available=4)]
    await world.settle(70)
    placed = (await world.documents())["0/1"]
    assert placed["status"]["progress"]["stage"] == "Starting"
    assert placed["status"]["timings"]["queuedTime"] == "2026-01-01T00:00:00Z"
    assert "nodus.dev/waiting-for" not in placed["metadata"].get("annotations", {})
    await check(world)


async def test_the_start_deadline_ends_the_wait(world: World) -> None:  # T8, scenario 3
    """Scenario 3. Given a class of capacity 0, when a Job is submitted, then Pending with
    explain.rejected InsufficientCapacity; Failed NoCapacity at 3600 s."""
    world.fake.offered = [an_offer(available=0)]
    await world.submit()
    await world.settle()
    await world.settle(3599)
    status = await world.status()
    assert (status["phase"], status["progress"]["stage"]) == ("Queued", "Pending")
    assert status["placement"]["explain"]["rejected"] == [
        {"offeringClass": "cpu-1c-4g-other", "reason": "InsufficientCapacity"}
    ]
    await world.settle(1)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "NoCapacity")
    assert status["actual"]["costUSD"] == "0.000000"
    assert world.fake.creates == []
    assert (await world.workload())["state"] == "Failed"


async def test_a_freed_slot_is_given_to_the_one_that_waits(world: World) -> None:
    world.fake.slots = 1
    await world.submit("first")
    await world.settle()
    await world.submit("second")
    await world.settle()
    documents = {one["metadata"]["name"]: one for one in await world.all_documents()}
    waiting = next(one for name, one in documents.items() if name.startswith("second"))
    assert waiting["metadata"]["annotations"]["nodus.dev/waiting-for"] == "Capacity"

    runner = await world.runner_of("first")
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await world.settle()
    await runner.report("started")
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()  # no time passes: the freed slot is offered at once

    stages = {one["metadata"]["name"]: one["status"] for one in await world.all_documents()}
    second = next(one for name, one in stages.items() if name.startswith("second"))
    assert second["progress"]["stage"] == "Starting"


async def test_parallelism_bounds_what_lives(world: World) -> None:  # SC-802
    await world.submit(completions=3, parallelism=1)
    await world.settle()
    for index in range(3):
        documents = await world.documents()
        live = [k for k, one in documents.items() if one["status"]["phase"] == "Provisioning"]
        assert live == [f"{index}/1"]
        runner = await world.start(f"{index}/1")
        await runner.report("exited", exitCode=0, signal=None, oom=False)
        await world.settle()
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


@pytest.mark.parametrize(
    ("increment", "minimum", "seconds"), [(1, 0, 62), (60, 0, 120), (1, 300, 300), (60, 290, 300)]
)
async def test_a_clock_is_billed_by_its_offers_increment_and_minimum(
    world: World, increment: int, minimum: int, seconds: int
) -> None:  # SC-507
    offer = an_offer(rate="36.00")  # 0.01 USD a second
    by = timedelta(seconds=increment), timedelta(seconds=minimum)
    world.fake.offered = [replace(offer, increment=by[0], minimum=by[1])]
    runner = await world.run()
    await world.clock.advance(60)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()

    actual = (await world.status())["actual"]
    assert actual["costUSD"] == f"{seconds / 100:.6f}"
    assert actual["segments"]["teardownUSD"] == f"{(seconds - 62) / 100:.6f}"
    await check_quiet(world)


async def test_a_running_bill_grows_once_a_minute(world: World) -> None:  # SC-508
    await world.submit()
    await world.settle()
    runner = await world.start()
    costs = []
    for _ in range(7):
        await world.clock.advance(20)
        await runner.report("heartbeat")
        await world.settle()
        costs.append((await world.status())["actual"]["costUSD"])
    assert costs == sorted(costs)  # P-13
    assert len(set(costs)) == 3
    await check(world)
