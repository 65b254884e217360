"""Intents and machines: no capacity, doubt, and what a crash leaves behind."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import (
    Ambiguous,
    Auth,
    Invalid,
    MachineCondition,
    MachineIntent,
    MachineView,
    NoCapacity,
    Quota,
    RateLimited,
    SupplierCaps,
)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (NoCapacity("none"), "InsufficientCapacity"),
        (Quota("used up"), "QuotaExceeded"),  # SC-332
        (Auth("expired"), "Disabled"),  # SC-617
    ],
)
async def test_a_refused_machine_is_sought_elsewhere(
    world: World, refusal: Exception, reason: str
) -> None:
    """Scenario 5. Given a winner that answers NoCapacity, when it is acquired, then T6; the
    first fallback is granted; the winner in rejected; one Attempt, epoch 1."""
    world.fake.offered = [an_offer("cpu-1c-4g-us"), an_offer("cpu-1c-4g-eu", rate="0.07")]
    world.fake.before = refusal  # scenario 5, T6
    await world.submit()
    await world.settle()

    status = await world.status()
    assert status["progress"]["stage"] == "Starting"
    assert status["placement"]["offering"] == "cpu-1c-4g-eu"
    assert status["placement"]["explain"]["rejected"] == [
        {"offeringClass": "cpu-1c-4g-us", "reason": reason}
    ]
    assert set(await world.documents()) == {"0/1"}
    assert len(set(world.fake.creates)) == 2
    assert len(await world.rows(t.decisions)) == 2
    states = [row["state"] for row in await world.rows(t.machines)]
    assert sorted(states) == ["Gone", "Granted"]
    await check(world)

    runner = await world.start()
    world.fake.deaf_deletes = 1
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()  # T18: one of two machines is gone, and that proves nothing
    assert "deletionProvenTime" not in (await world.status())["timings"]
    await world.settle(2)
    assert "deletionProvenTime" in (await world.status())["timings"]
    await check_quiet(world)


async def test_the_only_offer_rests_before_it_is_asked_again(world: World) -> None:  # SC-360
    world.fake.before = NoCapacity("none")
    await world.submit()
    await world.settle()
    document = (await world.documents())["0/1"]
    assert document["status"]["progress"]["stage"] == "Pending"
    assert "offering" not in document["status"]["placement"]
    assert len(world.fake.creates) == 1
    await world.settle(20)
    assert len(world.fake.creates) == 1
    await world.settle(17)  # 30 s, at most 20 % more
    assert await world.stage() == "Starting"
    (stats,) = await world.rows(t.offering_stats)
    assert stats["failures_in_row"] == 1  # a grant delivers nothing yet
    await world.start()
    (stats,) = await world.rows(t.offering_stats)
    assert (stats["failures_in_row"], stats["backoff_until"]) == (0, None)


async def test_a_quota_that_is_used_up_is_told_as_such(world: World) -> None:  # SC-332, SC-009b
    world.fake.before = Quota("used up")
    await world.submit("first")
    await world.settle()
    await world.submit("second")  # which did not ask: the offer's rest has a cause for all
    await world.settle()
    for document in await world.all_documents():
        assert document["metadata"]["annotations"]["nodus.dev/waiting-for"] == "Quota"
        assert document["status"]["placement"]["explain"]["rejected"] == [
            {"offeringClass": "cpu-1c-4g-other", "reason": "QuotaExceeded"}
        ]
    for row in await world.rows(t.attempts):
        assert "is out of supplier quota, next try at" in row["waiting_message"]
    assert len(world.fake.creates) == 1

    await world.settle(37)  # 30 s, at most 20 % more
    stages = [one["status"]["progress"]["stage"] for one in await world.all_documents()]
    assert stages == ["Starting"] * 2
    (runner, _) = [await world.runner_of(name) for name in ("first", "second")]
    for kind in ("registered", "canStart"):
        await runner.report(kind, checks={}, pullMs=0)
        await world.settle(1)
    await runner.report("canStart")
    await runner.report("started")
    await world.settle()
    (stats,) = await world.rows(t.offering_stats)
    assert (stats["failures_in_row"], stats["stats"].get("failure")) == (0, None)


async def test_a_class_is_over_quota_only_if_each_of_its_offers_is(world: World) -> None:  # SC-360
    here = an_offer()
    world.fake.offered = [here, replace(here, region="there", cost_on_demand=Decimal("0.05"))]
    world.fake.refusals = [Quota("used up"), NoCapacity("none")]
    for name in ("first", "second", "third"):
        await world.submit(name)
        await world.settle()
    assert len({row["offer"] for row in await world.rows(t.machines)}) == 2
    (third,) = [
        one["status"]["placement"]["explain"]["rejected"]
        for one in await world.all_documents()
        if one["metadata"]["ownerReferences"][0]["name"] == "third"
    ]
    assert third == [{"offeringClass": "cpu-1c-4g-other", "reason": "BackingOff"}]


CLOSED = "an offer is closed: the supplier refuses our credentials"


async def test_refused_credentials_close_an_offer_until_it_rested_and_is_offered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:  # SC-617, SC-310 row 15
    world.fake.refusals = [Auth("expired"), Auth("expired")]
    await world.submit("first")
    await world.submit("second")
    await world.settle()
    for document in await world.all_documents():
        assert document["status"]["progress"]["stage"] == "Pending"
        assert document["status"]["placement"]["explain"]["rejected"] == [
            {"offeringClass": "cpu-1c-4g-other", "reason": "Disabled"}
        ]
    for row in await world.rows(t.attempts):
        assert row["waiting_message"].endswith("is closed until its credentials are renewed")
    assert len(_alerts(caplog)) == 1
    assert await _closed_offers(world) == 1

    (stats,) = await world.rows(t.offering_stats)
    ask, world.fake.offer_error = stats["backoff_until"], Auth("expired")
    while world.clock.now() <= ask + timedelta(seconds=60):
        await world.settle(10)
    assert len(world.fake.creates) == 2  # it rested, and nobody says that it is there
    world.fake.offer_error = None
    await world.settle(10)
    await world.settle(10)
    assert [one["status"]["progress"]["stage"] for one in await world.all_documents()] == [
        "Starting"
    ] * 2
    assert len(_alerts(caplog)) == 1


async def test_a_class_has_what_its_open_offers_have(world: World) -> None:  # SC-617, SC-360
    cheaper = replace(an_offer(), region="there", cost_on_demand=Decimal("0.05"))
    world.fake.offered = [an_offer(), cheaper]
    world.fake.before = Auth("expired")
    await world.submit()
    await world.settle()
    assert await world.stage() == "Starting"
    status = await world.status()
    assert status["placement"]["explain"]["rejected"] == []
    refused, taken = await world.rows(t.machines)
    assert (refused["state"], taken["state"]) == ("Gone", "Granted")
    assert refused["offer"] != taken["offer"]


async def test_a_new_process_opens_what_refused_credentials_closed(world: World) -> None:  # SC-617
    world.fake.before = Auth("expired")
    await world.submit()
    await world.settle()
    await world.lead("with new credentials")
    await world.settle(10)
    assert await world.stage() == "Starting"
    (stats,) = await world.rows(t.offering_stats)
    # a grant delivers nothing yet
    assert (stats["failures_in_row"], stats["stats"].get("failure")) == (1, None)


async def test_an_answer_to_what_was_asked_before_opens_no_closed_offer(world: World) -> None:
    """Neither a machine on its way nor its refusal says that the credentials are good (SC-617)."""
    await world.submit("first")
    await world.settle()
    world.fake.refusals = [Auth("expired"), NoCapacity("none")]
    await world.submit("second")
    await world.submit("third")
    await world.settle()
    runner = await world.runner_of("first")
    for kind in ("registered", "canStart"):
        await runner.report(kind, checks={}, pullMs=0)
        await world.settle()
    await runner.report("canStart")
    await runner.report("started")
    await world.settle()
    (stats,) = await world.rows(t.offering_stats)
    assert (stats["failures_in_row"], stats["stats"].get("failure")) == (1, "Auth")


def _alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one for one in caplog.messages if one.startswith(CLOSED)]


async def _closed_offers(world: World) -> float | None:
    passes = world.passes
    assert passes is not None
    return passes.loop.metrics.registry.get_sample_value("nodus_scheduler_closed_offers_total")


async def test_an_offer_whose_machines_never_become_ready_rests_longer_each_time(
    world: World,
) -> None:  # SC-360: k counts failures in a row, and the grants between them are no success
    await world.submit()
    await world.settle()
    for epoch, longest in ((1, 36), (2, 72), (3, 144)):
        runner = await world.runner(f"0/{epoch}")
        failed_at = world.clock.now()
        await runner.report("registered", checks={"failed": ["disk"]})
        await world.settle()
        (stats,) = await world.rows(t.offering_stats)
        assert stats["failures_in_row"] == epoch
        rest = (stats["backoff_until"] - failed_at).total_seconds()
        assert longest * 2 / 3 <= rest <= longest  # 30·2^k s, ± 20 %
        while await world.stage(f"0/{epoch + 1}") != "Starting":
            await world.settle(30)
            assert world.clock.now() - failed_at < timedelta(seconds=1000)
    await world.start("0/4")
    (stats,) = await world.rows(t.offering_stats)
    assert (stats["failures_in_row"], stats["backoff_until"]) == (0, None)


async def test_a_create_that_took_effect_unheard_is_adopted(world: World) -> None:  # scenario 6
    """Scenario 6. Given a create that timed out but succeeded, when find(key) is asked, then
    the same machine is adopted; no second machine."""
    world.fake.after = Ambiguous("connection reset")
    await world.submit()
    await world.settle()
    assert await world.stage() == "Acquiring"
    await world.settle(2)
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 1
    assert len(world.fake.machines) == 1


async def test_a_create_that_never_happened_is_given_up_after_two_looks(world: World) -> None:
    """Scenario 7. Given a create that timed out and never happened, when find is absent twice,
    then T6 after at least 30 s."""
    world.fake.before = Ambiguous("connection reset")  # scenario 7
    await world.submit()
    await world.settle()
    await world.settle(2)
    assert await world.stage() == "Acquiring"  # one look is no proof
    await world.settle(29)
    assert await world.stage() == "Acquiring"
    await world.settle(2)
    assert await world.stage() == "Starting"  # placed anew, with a new key
    assert len(set(world.fake.creates)) == 2
    (offer,) = await world.rows(t.offering_stats)
    assert offer["failures_in_row"] == 0  # SC-609: doubt is no failure to deliver
    await check(world)


async def test_nothing_is_asked_for_before_its_intent_is_committed(
    world: World,
) -> None:  # SC-603, SC-607, SC-608
    seen: list[tuple[str, int]] = []
    create = world.fake.create

    async def watched(intent: MachineIntent) -> MachineView:
        seen.extend((row["state"], row["tries"]) for row in await world.rows(t.machines))
        return await create(intent)

    world.fake.create = watched  # type: ignore[method-assign]  # what others see at that moment
    await world.submit()
    await world.settle()
    assert seen == [("Requested", 1)]


async def test_a_crash_after_create_finds_the_machine_by_its_key(
    world: World,
) -> None:  # scenario 8
    """Scenario 8. Given a loop killed after create, before the grant is written, when it
    restarts, then the machine is adopted by its key."""
    await world.submit()
    passes = await world.lead()
    for name in ("intake", "fill", "offers"):
        await passes.step(name)
    await passes.loop.calls.settled()
    for name in ("offers", "place", "request"):
        await passes.step(name)
    await passes.loop.calls.settled()  # created, and then the process dies
    assert len(world.fake.machines) == 1
    assert await world.stage() == "Acquiring"

    await world.lead()
    await world.settle(3)
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 1
    assert len(world.fake.machines) == 1


async def test_a_crash_before_create_arrived_creates_once_more(world: World) -> None:  # SC-609
    await world.submit()
    passes = await world.lead()
    for name in ("intake", "fill", "offers"):
        await passes.step(name)
    await passes.loop.calls.settled()
    world.fake.before = ConnectionError("the process died while sending")
    for name in ("offers", "place", "request"):
        await passes.step(name)
    await passes.loop.calls.settled()
    assert world.fake.machines == {}

    await world.lead()
    await world.settle(3)
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 2
    assert len(set(world.fake.creates)) == 1  # the same key


async def test_a_rate_limit_is_waited_out(world: World) -> None:  # SC-616
    world.fake.before = RateLimited("slow down", timedelta(seconds=7))
    await world.submit()
    await world.settle()
    await world.settle(6)
    assert len(world.fake.creates) == 1
    await world.settle(2)
    assert await world.stage() == "Starting"


async def test_an_invalid_intent_is_our_fault(world: World) -> None:  # SC-617
    world.fake.before = Invalid("no such instance type")
    await world.submit()
    await world.settle()
    first = await world.status("0/1")
    assert (first["phase"], first["reason"]) == ("Failed", "InternalError")
    assert first["actual"]["costUSD"] == "0.000000"
    await world.settle(13)
    assert await world.stage("0/2") == "Starting"  # SC-120 rule 4
    await check(world)


async def test_a_machine_that_is_never_granted_is_given_up(world: World) -> None:  # SC-613
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    world.fake.starts = MachineCondition.RUNNING
    await world.settle(301)
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 2
    machines = await world.rows(t.machines)
    assert sorted(row["state"] for row in machines) == ["Gone", "Granted"]
    assert len(world.fake.machines) == 1
    await check(world)


async def test_a_machine_without_a_handle_is_looked_for_twice(
    world: World,
) -> None:  # SC-609, SC-610, P-10
    find, silent = world.fake.find, Ambiguous("no answer")

    async def away(key: str) -> MachineView | None:
        raise silent

    world.fake.before = silent
    world.fake.find = away  # type: ignore[method-assign]  # for as long as acquiring may take
    await world.submit()
    await world.settle()
    await world.settle(301)
    assert await world.stage() == "Starting"  # T6: placed anew, and the first is to be deleted
    world.fake.find = find  # type: ignore[method-assign]
    (first, second) = dict.fromkeys(world.fake.creates)
    await world.settle(10)  # the first look: nothing
    late = replace(world.fake.machines[second], key=first, handle="h-late")
    world.fake.machines[first] = late
    await world.settle(30)
    assert "h-late" not in [one.handle for one in world.fake.machines.values()]
    deleted = world.clock.now()
    await world.settle(29)
    assert await _states(world) == {first: "Releasing", second: "Granted"}
    await world.settle(32)
    assert await _states(world) == {first: "Gone", second: "Granted"}
    (gone,) = [row["gone"] for row in await world.rows(t.machines) if row["gone"]]
    assert gone >= deleted


async def test_a_deletion_is_proven_by_two_looks(world: World) -> None:  # SC-610
    world.fake.caps = SupplierCaps(sync_delete=False)
    await world.submit()
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    assert world.fake.machines == {}
    await world.settle(4)
    assert "deletionProvenTime" not in (await world.status())["timings"]
    await world.settle(1)
    timings = (await world.status())["timings"]
    assert timings["deletionProvenTime"] == "2026-01-01T00:00:02Z"  # the first look's
    await check_quiet(world)


async def test_an_unproven_deletion_alerts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:  # scenario 38, SC-610, SC-613
    await world.submit()
    await world.settle()
    runner = await world.start()
    world.fake.deaf_deletes = 1000
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    await world.settle(890)
    alert = "a machine is not gone 15 minutes after its release"
    assert alert not in caplog.messages
    await world.settle(301)
    assert alert in caplog.messages
    world.fake.deaf_deletes = 0
    await world.settle(301)
    await check_quiet(world)


async def _states(world: World) -> dict[str, str]:
    return {row["key"]: row["state"] for row in await world.rows(t.machines)}


async def test_a_machine_of_ours_without_a_row_is_swept(world: World) -> None:  # scenario 9, SC-611
    """Scenarios 9 and 10. Given a machine with our tag and no row, and one with another
    installation's tag, when the sweep comes, then ours is deleted and recorded as an orphan;
    the other is untouched."""
    await world.submit()
    await world.settle()
    (key,) = world.fake.machines
    orphan = world.fake.machines[key]
    world.fake.machines["0" * 64] = type(orphan)(
        handle="h-orphan",
        key="0" * 64,
        condition=MachineCondition.RUNNING,
        installation=orphan.installation,
    )
    world.fake.machines["1" * 64] = type(orphan)(
        handle="h-stranger", key="1" * 64, condition=MachineCondition.RUNNING
    )
    await world.settle(300)
    await world.settle()
    assert set(world.fake.machines) == {key, "1" * 64}  # scenario 10: a stranger is not touched
    (row,) = await world.rows(t.orphans)
    assert (row["handle"], row["cause"]) == ("h-orphan", "no row")
    assert row["gone"] is not None


async def test_a_machine_that_ended_and_holds_room_is_swept(world: World) -> None:  # SC-611
    await world.submit()
    await world.settle()
    (key,) = world.fake.machines
    ours = world.fake.machines[key]
    for name in ("held", "listed"):
        world.fake.machines[name] = type(ours)(
            handle=f"h-{name}",
            key=name,
            condition=MachineCondition.GONE,
            installation=ours.installation,
        )
    world.fake.proven.add("h-listed")  # a supplier lists it for a while, and that is all
    await world.settle(300)
    await world.settle()
    assert set(world.fake.machines) == {key, "listed"}
    assert [row["handle"] for row in await world.rows(t.orphans)] == ["h-held"]


async def test_a_placement_that_came_to_nothing_shows_no_choice(
    world: World,
) -> None:  # T6, SC-017
    await world.submit()
    world.fake.before = NoCapacity("taken meanwhile")
    passes = await world.lead()
    await passes.step("intake")
    await passes.step("fill")
    for step in ("offers", "offers", "place", "request"):
        await passes.step(step)
        await passes.loop.calls.settled()
    assert "offering" in (await world.status())["placement"]
    await passes.step("request")

    status = await world.status()
    assert status["progress"]["stage"] == "Placing"
    assert status["placement"] == {
        "candidates": 1,
        "explain": {"profile": "Balanced", "rejected": []},
        "profile": "Balanced",
    }
    assert "predicted" not in status
    assert "actual" not in status


async def test_a_machine_that_goes_while_it_is_listed_is_no_orphan(  # SC-611
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.submit()
    await world.settle()
    runner = await world.start()
    (listed,) = world.fake.machines.values()
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    await world.settle(5)
    (machine,) = await world.rows(t.machines)
    assert (machine["state"], world.fake.machines) == ("Gone", {})

    async def late(_: UUID) -> AsyncIterator[MachineView]:
        """The answer to a list that was asked for before the machine went."""
        yield listed

    monkeypatch.setattr(world.fake, "list_owned", late)
    await world.settle(300)
    await world.settle()
    assert await world.rows(t.orphans) == []


async def test_a_machine_that_nobody_released_is_swept(world: World) -> None:  # SC-611
    await world.submit()
    await world.settle()
    runner = await world.start()
    world.fake.deaf_deletes = 1
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    async with world.database.transaction() as connection:
        forgotten = {"state": "Registered", "releasing": None, "next_try": None}
        await connection.execute(sa.update(t.machines).values(forgotten))
    await world.settle(300)
    await world.settle()
    assert await world.rows(t.orphans) == []
    await world.settle(301)
    await world.settle()
    (row,) = await world.rows(t.orphans)
    assert row["cause"] == "its Attempt ended long ago"
    assert world.fake.machines == {}
    await world.settle(5)
    (machine,) = await world.rows(t.machines)
    assert machine["state"] == "Gone"  # P-09
    (lease,) = await world.rows(t.leases)
    assert lease["held"].upper is not None
    assert "deletionProvenTime" in (await world.status())["timings"]
    (row,) = await world.rows(t.orphans)
    assert row["gone"] is not None


async def test_a_runner_that_reports_proves_its_machine(world: World) -> None:  # SC-606 step 7
    world.fake.after = Ambiguous("connection reset")
    await world.submit()
    await world.settle()
    assert await world.stage() == "Acquiring"
    (intent,) = world.fake.intents.values()
    await Runner(world.database, intent).report("registered", checks={})
    await world.settle()  # no time passes: it is found at once, and then heard
    assert "registeredTime" in (await world.status())["timings"]
    assert len(world.fake.creates) == 1


async def test_deletion_is_retried_until_it_is_proven(world: World) -> None:  # scenario 38, SC-610
    """Scenario 38. Given a supplier that ignores delete 5 times, when the program has ended,
    then terminal at once; deletionProvenTime after the 6th; teardown as billed (alert: the test
    above)."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    world.fake.deaf_deletes = 5
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle()
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert "deletionProvenTime" not in status["timings"]
    for _ in range(5):
        await world.settle(16)
    status = await world.status()
    assert "deletionProvenTime" in status["timings"]
    assert status["timings"]["teardownSeconds"] >= 31  # 1 + 2 + 4 + 8 + 16 s
    await check_quiet(world)


async def test_a_runner_that_reports_brings_no_storm_of_finds(world: World) -> None:  # SC-617
    """Its machine is looked for at once, and if that fails, with patience (SC-606 step 7)."""
    world.fake.after = Ambiguous("no answer")
    await world.submit()
    await world.settle()
    await (await world.runner()).report("registered", checks={}, pullMs=0)
    world.fake.deaf_finds = 10
    await world.settle()
    assert len(world.fake.finds) == 1
    await world.settle(1)
    await world.settle(1)
    assert len(world.fake.finds) == 2
    world.fake.deaf_finds = 0
    await world.settle(2)
    assert await world.stage() == "Starting"
    assert (await world.status())["timings"]["registeredTime"]


async def test_a_find_that_fails_is_repeated_with_patience(world: World) -> None:  # SC-617
    world.fake.after = Ambiguous("no answer")
    world.fake.deaf_finds = 5
    await world.submit()
    await world.settle()
    await world.settle(2)
    assert len(world.fake.finds) == 1
    for looks, most in ((2, 1), (3, 2), (4, 4), (5, 8), (6, 16)):
        await world.settle(most * 0.8)
        assert len(world.fake.finds) == looks - 1
        await world.settle(most * 0.2)
        assert len(world.fake.finds) == looks
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 1


@pytest.mark.parametrize("refusal", [Auth("expired"), Quota("used up"), Invalid("no such key")])
async def test_a_find_that_is_refused_proves_nothing(
    world: World, refusal: Exception
) -> None:  # SC-609
    world.fake.after = Ambiguous("no answer")  # and the machine is there
    world.fake.find_error = refusal
    await world.submit()
    await world.settle()
    await world.settle(2)
    assert len(world.fake.finds) == 1
    assert [row["state"] for row in await world.rows(t.machines)] == ["Requested"]
    world.fake.find_error = None
    await world.settle(1)
    assert await world.stage() == "Starting"
    assert len(world.fake.creates) == 1
    (stats,) = await world.rows(t.offering_stats)
    assert (stats["failures_in_row"], stats["stats"].get("failure")) == (0, None)


async def test_a_runner_that_reports_early_is_not_asked_for_without_pause(world: World) -> None:
    """The supplier knows the machine, but does not call it running yet (SC-608)."""
    world.fake.starts = MachineCondition.PENDING
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={}, pullMs=0)
    await world.settle()
    assert await world.stage() == "Acquiring"
    world.fake.become(runner.intent.key, condition=MachineCondition.RUNNING)
    await world.settle(2)
    assert await world.stage() == "Starting"
    assert (await world.status())["timings"]["registeredTime"]


async def test_capacity_that_appears_is_taken_at_the_next_try(world: World) -> None:  # scenario 4
    """Scenario 4. Given a class of capacity 0, when capacity appears at 100 s, then placed at
    the next try; queuedTime unchanged."""
    world.fake.offered = [an_offer(available=0)]
    await world.submit()
    await world.settle()
    assert await world.stage() == "Pending"
    queued = (await world.status())["timings"]["queuedTime"]
    await world.settle(100)
    world.fake.offered = [an_offer(available=1)]
    for _ in range(4):
        await world.settle(15)
    status = await world.status()
    assert status["progress"]["stage"] == "Starting"
    assert status["timings"]["queuedTime"] == queued
    assert set(await world.documents()) == {"0/1"}
