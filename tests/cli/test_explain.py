"""`nodus explain`: the facts and the text of lives that the real loop moved."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from tests.cli.told_lives import (
    a_life,
    a_plain_life,
    facts_of,
    golden,
    lose_and_finish,
    moment,
    plain,
    told,
)
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.gangs import stages, submit_gang
from tests.scheduler.world import World

from nodus_api.cli.ending import ended
from nodus_api.cli.explain import asked_now
from nodus_api.cli.explain_text import explain_text
from nodus_api.cli.explained import explained
from nodus_api.cli.refusals import Refused
from nodus_api.cli.why_not import kept_answer
from nodus_api.clock import ManualClock
from nodus_api.kernel.drills import Drill, Loss
from nodus_api.kernel.placement import place
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.scores import NAMES
from nodus_api.kernel.vocabulary import Reason, Trigger
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.suppliers.supplier import MachineCondition, NoCapacity


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[World]:
    supplier = FakeSupplier(clock)
    yield World(scheduler_database, clock, supplier)
    assert_sound(rows.history_of(await rows.read(scheduler_database), supplier.machines))


async def test_a_lost_and_replaced_attempt_is_explained_whole(world: World) -> None:
    # SC-009b, SC-331 to SC-334, SC-016, SC-520
    await lose_and_finish(world)

    assert plain(await told(world, "0/1")) == golden("explain_lost")
    second = await told(world, "0/2")
    assert "slot 0, epoch 2, goes on from checkpoint 2\n" in second
    assert "cpu-1c-4g-us was lost in the last 15 minutes  [RecentlyLost]\n" in second
    assert "The program exited with 0.\n" in second
    assert "replaced" not in second.lower()


@pytest.mark.parametrize("verb", ["stop", "delete"])
async def test_what_was_suspended_and_then_stopped_cannot_be_resumed(
    world: World, verb: str
) -> None:  # SC-806
    await world.submit()
    await world.settle()
    await world.ask("suspend")
    await world.settle()
    before = (await facts_of(world, "0/1"))["end"]["remedy"]
    assert before == "Run `nodus resume job/train` to go on from the last checkpoint."
    await world.ask(verb)
    await (await world.lead()).step("intake")  # before the deletion retires it

    end = (await facts_of(world, "0/1"))["end"]
    how = {
        "stop": "submit it under another name, or run `nodus delete job/train` first.",
        "delete": "submit it again: its name is free.",
    }
    assert (end["reason"], end["remedy"]) == (
        "Suspended",
        f"Nothing, if that was wanted; to run it again, {how[verb]}",
    )


async def test_a_gang_that_never_fits_waits_for_its_deadline_and_says_why(
    world: World,
) -> None:  # SC-310 row 20 is transient, so T8 and not T5; SC-009b
    await submit_gang(world, 8, limits={"startDeadlineSeconds": 600})
    await world.settle()
    missed = "1 class tried: cpu-1c-4g-other has too little capacity (gang of 8: 4 placed at most)"
    for _ in range(9):
        await world.settle(60)
        waiting = (await facts_of(world, "0/1"))["waiting"]
        assert (waiting["for"], waiting["message"]) == ("Gang", missed)
    rejected = [{"offeringClass": "cpu-1c-4g-other", "reason": "GangTooLarge"}]
    assert (await world.status())["placement"]["explain"]["rejected"] == rejected
    assert world.fake.creates == []
    await world.settle(60)

    assert await stages(world, 1) == ["Failed NoCapacity"] * 8
    assert missed in (await facts_of(world, "0/1"))["end"]["sentence"]
    workload = await world.workload()
    assert (workload["state"], workload["outcome"]) == ("Failed", "NoCapacity")


async def test_why_not_answers_in_one_sentence_with_the_number(world: World) -> None:
    await lose_and_finish(world)
    life = await a_life(world)

    assert sentence(life, "cpu-1c-4g-us") == (
        "cpu-1c-4g-us (on-demand) is the class that was chosen."
    )
    assert sentence(life, "cpu-1c-4g-full") == (
        "cpu-1c-4g-full has no capacity (asked for 1, 0 free), so it was ruled out"
        " (InsufficientCapacity)."
    )
    assert sentence(life, "cpu-1c-4g-eu") == (
        "cpu-1c-4g-eu (on-demand) fits, but came second with 0.672470 points, and cpu-1c-4g-us"
        " (on-demand) had 0.684008: fit 1.0000 against 1.0000, timeToResult 0.5012 against 0.5012,"
        " costToComplete 0.4614 against 0.4999, recoveryValue 0.9912 against 0.9912,"
        " health 0.9000 against 0.9000."
    )
    assert kept_answer(life, "h100") is None

    retired = replace(life, archived=True, decision=None)  # it keeps its document alone
    assert sentence(retired, "cpu-1c-4g-full") == (
        "cpu-1c-4g-full was ruled out (InsufficientCapacity): It has no capacity left at the"
        " moment."
    )


async def test_why_not_asks_the_catalog_of_now_about_other_classes(world: World) -> None:
    await lose_and_finish(world)
    life = await a_life(world)
    world.fake.offered = [
        an_offer("cpu-1c-4g-us"),
        an_offer("cpu-new", rate="0.05"),
        an_offer("cpu-none", available=0),
    ]
    await world.settle(3600)

    fits = await asked_now(world.database, ["fake"], life, "cpu-new", world.clock.now())
    assert (fits["standing"], fits["basis"]) == ("LostOnPoints", "Now")
    assert fits["sentence"].startswith(
        "cpu-new (on-demand) fits, but is not among the best five, and by the catalog of now has"
    )
    none = await asked_now(world.database, ["fake"], life, "cpu-none", world.clock.now())
    assert none["sentence"] == (
        "By the catalog of now, cpu-none has no capacity (asked for 1, 0 free)"
        " (InsufficientCapacity)."
    )
    with pytest.raises(Refused, match=r"no offering class 'cpu-nwe'.*Did you mean cpu-new"):
        await asked_now(world.database, ["fake"], life, "cpu-nwe", world.clock.now())
    retired = replace(life, archived=True, decision=None)
    with pytest.raises(Refused, match="is archived without its decision"):
        await asked_now(world.database, ["fake"], retired, "cpu-new", world.clock.now())


async def test_json_has_the_facts_of_the_text(world: World) -> None:  # SC-333, SC-334
    await lose_and_finish(world)
    facts = await facts_of(world)

    assert list(facts) == [
        *("attempt", "project", "owner", "slot", "epoch", "phase", "stage", "archived"),
        *("placement", "timings", "cost", "checkpoints", "lastCheckpoint", "end", "supersededBy"),
    ]
    assert facts["placement"]["chosen"] == {
        "offering": "cpu-1c-4g-us",
        "market": "on-demand",
        "regionClass": "other",
        "rateUSDPerHour": "0.06",
        "scores": {
            "fit": "1.0000",
            "timeToResult": "0.5012",
            "costToComplete": "0.4999",
            "recoveryValue": "0.9912",
            "health": "0.9000",
        },
        "total": "0.684008",
    }
    assert facts["placement"]["counters"] == {
        "InsufficientCapacity": 1,
        "InterruptibleNotAllowed": 1,
    }
    assert facts["placement"]["rejected"] == [
        {
            "offering": "cpu-1c-4g-full",
            "reason": "InsufficientCapacity",
            "message": "cpu-1c-4g-full has no capacity (asked for 1, 0 free)",
        }
    ]
    assert facts["cost"] == {
        "chargedUSD": "0.001450",
        "coveredUSD": "0.000250",
        "charged": {"Boot": "0.000033", "Running": "0.001417"},
        "covered": {"Teardown": "0.000250"},
    }
    assert (facts["end"]["fault"], facts["end"]["lostSeconds"]) == ("supplier", 5)


async def test_the_kept_decision_can_be_made_again(world: World) -> None:  # SC-325, SC-334
    world.fake.offered = [an_offer("cpu-1c-4g-us"), an_offer("cpu-1c-4g-eu", rate="0.07")]
    await world.submit()
    passes = await world.lead()
    for step in ("intake", "fill", "offers"):
        await passes.step(step)
    await passes.loop.calls.settled()
    await passes.step("offers")
    catalog = await passes.loop.view.look(world.clock.now())
    await world.settle()
    life = await a_life(world)
    assert life.decision is not None

    again = place(
        PlacementRequest.from_json(life.decision.request), catalog.snapshot, life.decision.at
    )

    assert again.top_to_json() == life.decision.top
    assert again.counters == life.decision.told["reasons"]
    (row,) = await world.rows(t.decisions)
    assert again.result_hash == row["result_hash"]
    assert set(life.decision.top[0]["scores"]) == set(NAMES)


async def test_a_decision_without_sentences_is_told_by_its_codes(world: World) -> None:
    await lose_and_finish(world)
    async with world.database.transaction() as connection:
        await connection.execute(
            sa.update(t.decisions).values(counters={"InsufficientCapacity": 1})
        )
    said = await told(world)

    assert "cpu-1c-4g-full: It has no capacity left at the moment.  [InsufficientCap" in said
    assert "Candidates by reason: InsufficientCapacity 1\n" in said


async def test_each_step_before_the_program_is_told(world: World) -> None:
    await world.submit()
    passes = await world.lead()
    for step in ("intake", "fill"):
        await passes.step(step)
    said = await told(world)
    assert "Waits for Loop: waiting for the scheduler's next pass.\n" in said
    assert "It has not been placed yet: no decision was made.\n" in said
    await world.settle()
    assert "granted at 2026-01-01T00:00:00Z and has not registered yet.\n" in await told(world)
    runner = await world.runner()
    await runner.report("registered", checks={}, pullMs=0)
    await world.settle(1)
    assert "registered at 2026-01-01T00:00:00Z; the program has not" in await told(world)
    runner = await world.start()
    said = await told(world)
    assert "Its program has run since" in said
    assert "So far it costs 0.0000" in said
    await world.ask("stop")
    await world.settle()
    assert "It is being stopped and will end as Stopped (User).\n" in await told(world)
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=10)
    await world.settle(1)
    said = await told(world)
    assert (
        "Stopped: someone stopped or deleted the workload (a user asked for it; User); the program"
        " died by signal 15 (SIGTERM), exit code 143.\n"
    ) in said
    assert "It was wanted.\n" in said
    assert "Nothing replaced it.\n" in said


async def test_capacity_that_was_asked_for_is_told(world: World) -> None:
    await world.submit()
    passes = await world.lead()
    for step in ("intake", "fill", "offers"):
        await passes.step(step)
    await passes.loop.calls.settled()
    for step in ("offers", "place"):
        await passes.step(step)
    assert "Capacity was asked for at 2026-01-01T00:00:00Z and is not granted yet." in (
        await told(world)
    )


async def test_an_unplaceable_attempt_names_what_it_missed(world: World) -> None:  # T5, SC-009b
    await world.submit(resources={"vcpus": 64})
    await world.settle()
    said = await told(world)

    assert (
        "Unplaceable: no offering can ever match what the workload asks for: needs 64 vCPUs,"
        " the largest allowed class has 1.\n"
    ) in said
    assert "  cpu-1c-4g-other has 1 vCPUs (asked for 64)  [CPUTooSmall]\n" in said
    assert "The project pays nothing.\n" in said
    assert "  What to do: Read status.placement.explain.rejected and ask for less" in said


async def test_a_class_that_was_taken_for_want_of_others_says_so(world: World) -> None:  # SC-311
    await world.submit()
    await world.settle()
    runner = await world.start()
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    said = await told(world, "0/2")

    assert "Ruled out" not in said
    assert "  only classes were left that are avoided otherwise, lost lately" in said
    assert "relaxed" not in (await facts_of(world, "0/1"))["placement"]


async def test_sentences_that_change_without_the_placement_are_kept(world: World) -> None:
    world.fake.before = NoCapacity("none")  # SC-009b, SC-360
    await world.submit()
    await world.settle()
    first = await facts_of(world)
    world.fake.offered = [an_offer(available=0)]
    (await world.lead()).loop.offers_due = 0.0  # it is asked before the rest is over
    await world.settle(5)
    await world.settle(40)
    second = await facts_of(world)

    assert first["placement"]["rejected"] == second["placement"]["rejected"]
    assert first["placement"]["sentence"] == first["waiting"]["message"]
    rest = r", next try at 2026-01-01T00:00:(2[4-9]|3[0-6])Z"  # 30 s, 20 % more or less
    assert re.search(rest, first["placement"]["sentence"])
    assert second["placement"]["sentence"] == second["waiting"]["message"]
    assert "next try" not in second["placement"]["sentence"]


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_sentence_and_a_fault(reason: Reason) -> None:  # SC-010
    status: dict[str, Any] = {
        "phase": "Failed",
        "reason": reason.value,
        "timings": {"finishedTime": "2026-01-01T00:00:00Z"},
    }
    for trigger in Trigger:
        status["interruption"] = {"trigger": trigger.value, "lostSeconds": 1}
        end = ended(status, None)
        assert end is not None
        assert end["sentence"].startswith(f"{reason}: ")
        assert end["sentence"].endswith(".")
        assert trigger is not Trigger.DRILL or end["fault"] == "nodus"


async def test_what_could_not_be_started_is_named(world: World) -> None:  # T11, SC-640
    await world.submit()
    await world.settle()
    runner = await world.runner()
    await runner.report("registered", checks={}, pullMs=0)
    missing = "command not found: train.sh"
    await runner.report("exited", exitCode=None, error="StartFailed", message=missing)
    await world.settle(1)

    text = await told(world)
    assert f"StartFailed: the program could not be started: {missing}.\n" in text
    assert (await facts_of(world))["end"]["message"] == missing


async def test_what_the_runner_says_beside_the_exit_is_told(world: World) -> None:
    runner = await world.run()  # SC-713
    killed = "the memory limit killed 1 of the program's processes"
    await runner.report("exited", exitCode=3, signal=None, oom=False, message=killed)
    await world.settle(1)

    sentence = (await facts_of(world))["end"]["sentence"]
    assert sentence == f"CustomerExit: the program exited with 3; its runner says: {killed}."


@pytest.mark.parametrize("loss", list(Loss))
def test_a_drill_is_told_as_a_drill(loss: Loss) -> None:  # SC-012, SC-630
    drill = Drill(loss=loss, since=moment("10:00:00"))
    status: dict[str, Any] = {
        "phase": "Failed",
        "reason": drill.reason.value,
        "timings": {"finishedTime": "2026-01-01T00:00:00Z"},
        "interruption": {"trigger": "Drill", "lostSeconds": 1},
    }
    as_if = {
        Loss.PREEMPTION: "the owner of interruptible capacity had taken it back",
        Loss.NODE_LOSS: "the machine had died or stopped answering",
        Loss.HEARTBEAT: "the machine had died or stopped answering",
        Loss.READINESS: "the machine had failed its checks before the program started",
    }
    end = ended(status, None)
    assert end is not None
    assert end["sentence"] == f"{drill.reason}: in a drill, as if {as_if[loss]} (Drill)."
    status["interruption"]["trigger"] = "ProviderEvidence"
    real = ended(status, None)
    assert real is not None
    assert "drill" not in real["sentence"]


def test_a_released_rank_says_that_another_one_was_lost() -> None:  # SC-003, SC-134
    status: dict[str, Any] = {
        "phase": "Cancelled",
        "reason": "Released",
        "timings": {"finishedTime": "2026-01-01T00:00:00Z"},
        "interruption": {"trigger": "ProviderEvidence", "lostSeconds": 1},
    }
    end = ended(status, None)
    assert end is not None
    assert (
        "(another rank of its gang: the supplier says that the machine is gone; ProviderEvidence)"
        in end["sentence"]
    )


def test_a_gang_member_and_an_archived_attempt_say_so() -> None:
    life = a_plain_life(
        "10:00:00 - - - 10:00:01", gang={"id": "g", "epoch": 1, "rank": 2, "size": 4}
    )
    text = explain_text(explained(life, moment("10:00:02")))
    assert "rank 2 of a gang of 4, archived\n" in text


def sentence(life: Any, offering: str) -> str:
    answer = kept_answer(life, offering)
    assert answer is not None
    assert answer["attempt"] == life.document["metadata"]["name"]
    return str(answer["sentence"])
