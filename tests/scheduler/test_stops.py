"""Stops: at once while nothing runs, else as drains; suspend, resume, scale, delete."""

from datetime import timedelta

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import Ambiguous, MachineCondition, Order


async def test_a_stop_while_pending_ends_at_once(world: World) -> None:  # scenario 31, T16
    """Scenario 31. Given an Attempt that is Pending, when its user stops it, then Cancelled
    Stopped at once; cost 0; no machine."""
    world.fake.offered = [an_offer(available=0)]
    await world.submit()
    await world.settle()
    command = await world.ask("stop")
    await world.settle()

    assert await world.outcome(command) == "Applied"
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert status["interruption"]["trigger"] == "User"
    assert status["interruption"]["lostSeconds"] == 0
    assert status["actual"]["costUSD"] == "0.000000"
    assert (await world.workload())["state"] == "Stopped"
    assert world.fake.creates == []
    await check_quiet(world)


async def test_a_stop_before_create_was_called_ends_at_once(world: World) -> None:  # SC-006a
    await world.submit()
    passes = await world.lead()
    for name in ("intake", "fill", "offers"):
        await passes.step(name)
    await passes.loop.calls.settled()
    for name in ("offers", "place"):
        await passes.step(name)
    assert await world.stage() == "Acquiring"
    await world.ask("stop")
    await world.settle()

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert "billingStartTime" not in status["timings"]
    assert world.fake.creates == []
    await check_quiet(world)


async def test_a_stop_while_acquiring_waits_for_the_grant(world: World) -> None:  # scenario 32
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    await world.ask("stop")
    await world.settle()
    assert await world.stage() == "Acquiring"
    assert (await world.rows(t.attempt_work))[0]["drain_cause"] == "User/Stopped"

    (key,) = world.fake.machines
    world.fake.become(key, condition=MachineCondition.RUNNING)
    await world.settle(5)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert status["timings"]["billingStartTime"] == "2026-01-01T00:00:00Z"
    assert status["timings"]["deletionProvenTime"] == "2026-01-01T00:00:05Z"
    assert len(world.fake.deleted) == 1
    await check_quiet(world)


async def test_a_stop_does_not_wait_for_ever_for_a_grant(world: World) -> None:  # SC-006a, P-28
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    await world.ask("stop")
    await world.settle(299)
    assert await world.stage() == "Acquiring"
    world.fake.deaf_deletes = 1
    await world.settle(1)
    assert await world.stage() == "Acquiring"  # its deletion is not proven yet
    await world.settle(2)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert "billingStartTime" not in status["timings"]
    assert status["timings"]["deletionProvenTime"] == "2026-01-01T00:05:02Z"
    assert len(world.fake.creates) == 1
    await check_quiet(world)


async def test_a_stop_while_acquiring_ends_when_absence_is_proven(world: World) -> None:
    world.fake.before = Ambiguous("lost on the way")  # SC-006a, SC-609
    await world.submit()
    await world.settle()
    await world.ask("stop")
    await world.settle(5)
    assert await world.stage() == "Acquiring"
    await world.settle(31)
    assert (await world.status())["phase"] == "Cancelled"
    assert len(world.fake.creates) == 1
    await check_quiet(world)


async def test_a_stop_while_starting_ends_what_never_ran(world: World) -> None:  # T17
    await world.submit()
    await world.settle()
    assert await world.stage() == "Starting"
    await world.ask("stop")
    await world.settle(1)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert "commandStartedTime" not in status["timings"]
    await check_quiet(world)


async def test_a_stop_after_the_grant_waits_for_the_program(world: World) -> None:  # SC-013, T17
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await world.settle()
    await world.ask("stop")  # the program may run already: its start was granted
    await world.settle(1)
    assert await world.stage() == "Starting"
    standing = await runner.report("started")
    assert standing is not None
    assert [order["kind"] for order in standing.orders] == ["stop"]
    await world.settle(1)
    assert await world.stage() == "Running"
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=1)
    await world.settle()
    status = await world.status()
    assert (status["reason"], status["signal"]) == ("Stopped", 15)
    assert "commandStartedTime" in status["timings"]
    await check_quiet(world)


async def test_a_stop_while_running_drains(world: World) -> None:  # SC-013, T17
    await world.submit(stopGraceSeconds=20)
    await world.settle()
    runner = await world.start()
    await world.ask("stop")
    await world.settle(1)

    assert await world.stage() == "Running"
    (handle, order) = world.fake.signals[0]
    assert order == Order(kind="stop", grace=timedelta(seconds=20))
    assert handle == world.fake.machines[runner.intent.key].handle
    standing = await runner.report("heartbeat")
    assert standing is not None
    assert standing.orders == ({"kind": "stop", "graceMs": 20_000},)

    await world.clock.advance(3)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=3000)
    await world.settle()
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert (status["exitCode"], status["signal"]) == (143, 15)
    assert status["interruption"]["trigger"] == "User"
    await check_quiet(world)


async def test_an_order_that_did_not_arrive_is_sent_again_with_patience(
    world: World,
) -> None:  # SC-617
    await world.submit()
    await world.settle()
    await world.start()
    world.fake.deaf_signals = 2
    await world.ask("stop")
    for waited, sent in ((0, 1), (0.5, 1), (0.5, 2), (1, 2), (1, 3), (5, 3)):
        await world.settle(waited)
        assert len(world.fake.signals) == sent
    (work,) = await world.rows(t.attempt_work)
    assert work["drain_signalled"] is not None


async def test_an_exit_before_the_signal_keeps_its_own_outcome(world: World) -> None:  # SC-013
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.ask("stop")
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert "interruption" not in status


@pytest.mark.parametrize(
    ("error", "reason"),
    [("ImagePullFailed", "ImagePullFailed"), (None, "Stopped")],
)
async def test_an_end_before_the_start_that_was_reported_comes_before_a_stop(
    world: World, error: str | None, reason: str
) -> None:  # SC-014: the runner's report, then the user; both are seen in one pass
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await world.settle(1)
    await runner.report("exited", exitCode=None, signal=None, oom=False, error=error)
    await world.ask("stop")
    await world.settle()
    status = await world.status()
    assert status["reason"] == reason
    assert (await world.workload())["state"] == "Stopped"
    assert [row["state"] for row in await world.rows(t.slots)] == ["Failed" if error else "Stopped"]
    await check_quiet(world)


async def test_a_stop_comes_before_a_machine_that_failed_its_checks(
    world: World,
) -> None:  # SC-014: User, then ReadinessFailed
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={"failed": ["disk"]})
    await world.ask("stop")
    await world.settle()
    status = await world.status()
    assert (status["reason"], status["interruption"]["trigger"]) == ("Stopped", "User")
    await check_quiet(world)


async def test_a_start_that_was_asked_for_is_not_granted_after_a_stop(
    world: World,
) -> None:  # SC-341: what waits is heard, and the end comes in the same pass
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={})
    await runner.report("canStart")
    await world.ask("stop")
    await (await world.lead()).once()
    status = await world.status()
    assert status["reason"] == "Stopped"
    assert "registeredTime" in status["timings"]
    assert [row["won"] for row in await world.rows(t.leases)] == [False]


async def test_a_drain_without_an_exit_ends_20_s_after_its_deadline(world: World) -> None:
    await world.submit(stopGraceSeconds=10)  # SC-013
    await world.settle()
    runner = await world.start()
    started = world.clock.now()
    await world.ask("stop")
    await world.settle()
    await world.clock.advance(4)
    await runner.report("heartbeat")
    await world.settle(20)
    assert await world.stage() == "Running"
    await world.settle(6)
    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert "exitCode" not in status
    deadline = started + timedelta(seconds=10)
    assert status["timings"]["finishedTime"] == f"{deadline:%Y-%m-%dT%H:%M:%SZ}"
    await check_quiet(world)


async def test_suspend_and_resume_continue_as_the_next_epoch(world: World) -> None:  # scenario 33
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.ask("suspend")
    await world.settle(1)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=1)
    await world.settle()
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Cancelled", "Suspended")
    assert (await world.workload())["state"] == "Suspended"

    await world.settle(3600)
    assert list(await world.documents()) == ["0/1"]
    await world.ask("resume")
    await world.settle()
    runner = await world.start("0/2")
    first = await world.status("0/1")
    assert first["supersededBy"] == (await world.documents())["0/2"]["metadata"]["name"]
    assert first["interruption"]["recoverySeconds"] == 3602
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    assert (await world.workload())["state"] == "Succeeded"
    await check_quiet(world)


@pytest.mark.parametrize(("verb", "state"), [("stop", "Stopped"), ("delete", "Deleted")])
async def test_a_stop_closes_the_slots_of_what_is_suspended(
    world: World, verb: str, state: str
) -> None:  # SC-806: it is final, so nothing waits for a resume any more
    await world.submit(completions=3, parallelism=1)
    await world.settle()
    runner = await world.start()
    await world.ask("suspend")
    await world.settle(1)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=1)
    await world.settle()
    assert {row["state"] for row in await world.rows(t.slots)} == {"Suspended"}
    command = await world.ask(verb)
    await world.settle()

    assert await world.outcome(command) == "Applied"
    workload = await world.workload()
    assert (workload["state"], workload["ended"]) == (state, world.clock.now())
    slots = {row["slot"]: row["state"] for row in await world.rows(t.slots)}
    assert slots == dict.fromkeys("012", "Stopped")
    again = await world.ask("resume")
    await world.settle()
    assert await world.outcome(again) == ("NotFound" if verb == "delete" else "Refused")
    kept = await world.rows(t.attempts_archive if verb == "delete" else t.attempts)
    assert [row["reason"] for row in kept] == ["Suspended"]  # it ended by the suspension
    await check_quiet(world)


async def test_scaling_down_releases_the_highest(world: World) -> None:  # SC-802
    await world.submit(completions=3, parallelism=3)
    await world.settle()
    for index in range(3):
        await world.start(f"{index}/1")
    command = await world.ask("scale", count=1)
    await world.settle(1)
    assert await world.outcome(command) == "Applied"
    for index in (1, 2):
        runner = await world.runner(f"{index}/1")
        await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=1)
    await world.settle()
    documents = await world.documents()
    assert {key: one["status"]["phase"] for key, one in documents.items()} == {
        "0/1": "Running",
        "1/1": "Cancelled",
        "2/1": "Cancelled",
    }
    assert documents["2/1"]["status"]["reason"] == "Released"

    await world.ask("scale", count=3)
    await world.settle()
    assert set(await world.documents()) == {"0/1", "1/1", "1/2", "2/1", "2/2"}
    await check(world)


async def test_delete_stops_and_frees_the_name(world: World) -> None:  # SC-806
    await world.submit()
    await world.settle()
    await world.ask("delete")
    await world.settle()
    assert (await world.workload())["state"] == "Deleted"
    assert [row["reason"] for row in await world.rows(t.attempts_archive)] == ["Stopped"]
    command = await world.submit()
    await world.settle()
    assert await world.outcome(command) == "Applied"
    assert len(await world.rows(t.workloads)) == 2
    await check(world)


async def test_limits_may_be_raised_and_not_lowered(world: World) -> None:  # SC-802
    given = [{"maxCostUSD": "5"}, {"maxCostUSD": "4.999999"}, {"maxCostUSD": "5.5"}, {}]
    commands = [await world.submit(limits=limits) for limits in (*given, given[0])]
    await world.settle()
    assert [await world.outcome(one) for one in commands] == [
        "Applied",
        "AlreadyExists",
        "Applied",
        "Applied",  # without a limit is the highest
        "AlreadyExists",
    ]


async def test_submitting_again_is_a_no_op_or_refused(world: World) -> None:  # SC-802
    commands = [
        await world.submit(completions=2),
        await world.submit(completions=2),
        await world.submit(completions=3),
        await world.submit(completions=2, parallelism=1),
        await world.ask("stop", "nobody"),
        await world.ask("resume"),
    ]
    await world.settle()
    assert [await world.outcome(one) for one in commands] == [
        "Applied",
        "Unchanged",
        "AlreadyExists",
        "Applied",
        "NotFound",
        "Unchanged",
    ]
