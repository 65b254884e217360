"""Whole lives of Attempts, from the command to the proof that the machine is gone."""

from tests.scheduler.world import World


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
    assert world.fake.machines == {}
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
