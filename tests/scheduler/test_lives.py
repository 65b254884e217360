"""Whole lives of Attempts, from the command to the proof that the machine is gone."""

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
    await world.submit()
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=139, signal=11, oom=False)
    await world.settle()
    status = await world.status()
    assert (status["reason"], status["exitCode"], status["signal"]) == ("CustomerExit", 139, 11)


async def test_a_memory_kill_has_its_own_reason(world: World) -> None:  # scenario 17
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


async def test_what_nothing_can_match_fails_at_once(world: World) -> None:  # scenario 2
    await world.submit(resources={"accelerators": ["h100"], "count": 1})
    await world.settle()
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Unplaceable")
    assert status["placement"]["candidates"] == 1
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
    world.fake.offered = [an_offer(available=0)]
    await world.submit()
    await world.settle()
    await world.settle(3600)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "NoCapacity")
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
