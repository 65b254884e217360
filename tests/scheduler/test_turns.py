"""A pass takes so much and no more, and nothing that has no work keeps others out (P-28)."""

import pytest
from tests.scheduler.invariants import check_quiet
from tests.scheduler.world import World

from nodus_api.scheduler import Pace
from nodus_api.storage import tables as t
from nodus_api.storage.report_store import AT_ONCE


@pytest.fixture
def world(world: World) -> World:
    """A world whose loop takes two workloads or Attempts a step."""
    world.pace = Pace(batch=2)
    return world


async def test_workloads_at_their_parallelism_keep_no_other_out(world: World) -> None:  # SC-606
    for name in ("one", "two"):
        await world.submit(name, completions=3, parallelism=1)
    await world.settle()
    await world.clock.advance(1)  # the oldest come first
    await world.submit("three")
    await world.settle()
    stages = {
        one["metadata"]["ownerReferences"][0]["name"]: one["status"]["progress"]["stage"]
        for one in await world.all_documents()
    }
    assert stages == {"one": "Starting", "two": "Starting", "three": "Starting"}


async def test_workloads_that_are_half_done_hold_up_no_end(world: World) -> None:  # SC-101
    for name in ("one", "two"):
        await world.submit(name, completions=2, parallelism=1)
        await world.settle()
        await _succeed(world, name)
    await world.submit("three")
    await world.settle(11)  # the supplier is asked anew what room there is
    await _succeed(world, "three")
    states = {row["name"]: row["state"] for row in await world.workloads()}
    assert states == {"one": "Active", "two": "Active", "three": "Succeeded"}


async def test_more_attempts_than_a_batch_are_moved_in_one_pass(world: World) -> None:  # SC-606
    world.fake.slots = 9
    await world.submit(completions=7)
    await world.settle()
    documents = await world.documents()
    assert {one["status"]["progress"]["stage"] for one in documents.values()} == {"Starting"}
    await world.ask("stop")
    await world.settle()
    documents = await world.documents()
    assert {one["status"]["phase"] for one in documents.values()} == {"Cancelled"}
    await check_quiet(world)


async def test_a_flood_of_reports_is_applied_in_portions(world: World) -> None:  # SC-606
    await world.submit()
    await world.settle()
    runner = await world.start()
    applied = runner.n
    for _ in range(AT_ONCE + 4):
        await runner.report("heartbeat")
    assert world.passes is not None
    await world.passes.step("reports")
    (lease,) = await world.rows(t.leases)
    assert lease["last_report"] == applied + AT_ONCE
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    assert (await world.status())["phase"] == "Succeeded"
    await check_quiet(world)


async def test_a_moment_that_comes_during_a_pass_is_not_slept_over(world: World) -> None:  # SC-605
    world.fake.slots = 0
    await world.submit()
    await world.settle()
    assert world.passes is not None
    wait = await world.passes.until_next()
    assert wait is not None
    assert wait > 0
    await world.clock.advance(wait + 1)
    late = await world.passes.until_next()  # it was not there to be found when the pass looked
    assert late is not None
    assert late < 0


async def _succeed(world: World, owner: str) -> None:
    """Let the running program of a workload end well."""
    runner = await world.runner_of(owner)
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await world.settle()
    await runner.report("started")
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
