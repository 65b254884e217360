"""Why an Attempt was Released: the cause that the record shows, and none where it shows none."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.told_lives import a_life, facts_of, moment, plain, told
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.gangs import end, lose, run_gang, stages, stop_by_order, submit_gang
from tests.scheduler.world import World

from nodus_api.cli.ending import ended
from nodus_api.cli.released import release_of
from nodus_api.clock import ManualClock
from nodus_api.storage.circumstances import Circumstances, Counted
from nodus_api.storage.engine import Database


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[World]:
    supplier = FakeSupplier(clock)
    yield World(scheduler_database, clock, supplier)
    assert_sound(rows.history_of(await rows.read(scheduler_database), supplier.machines))


async def two(world: World) -> None:
    """Run two slots at once."""
    await world.submit(completions=2, parallelism=2)
    await world.settle()
    for which in ("0/1", "1/1"):
        await world.start(which)
    await world.settle(10)


async def test_what_was_scaled_down_was_wanted_and_names_the_number(
    world: World,
) -> None:  # SC-010, SC-802, SC-520
    await two(world)
    await world.ask("scale", count=1)
    await world.settle(1)
    await stop_by_order(world, await world.runner("1/1"))

    text = await told(world, "1/1")
    said = (
        "Released: job/train was scaled down to 1, which releases the highest slots first;"
        " the program exited with 143.\n  It was wanted.\n  The project pays "
    )
    assert said in text
    assert "Nodus's own" not in text
    assert "What to do: Nothing, if that was wanted. `nodus scale job/train N` with a la" in text


async def test_what_its_job_no_longer_needed_says_so(world: World) -> None:  # SC-010, SC-101
    await two(world)
    await end(await world.runner("0/1"), 3)
    await world.settle(1)
    await stop_by_order(world, await world.runner("1/1"))

    facts = await facts_of(world, "1/1")
    assert facts["end"]["reason"] == "Released"
    assert facts["end"]["sentence"].startswith(
        "Released: job/train had failed by then, and nothing of it had to run on;"
    )
    assert "fault" not in facts["end"]


async def test_a_rank_names_the_rank_that_its_gang_was_restarted_for(
    world: World,
) -> None:  # SC-003, SC-134, SC-520
    runners = await run_gang(world, 2)
    lose(world, runners[1])
    await world.settle(1)
    await stop_by_order(world, runners[0])

    assert await stages(world, 1) == ["Stopped Released", "Lost NodeLost"]
    said = plain(await told(world, "0/1"))
    assert (
        "Released: rank 1 of its gang (train-1-e1-abcde) ended as NodeLost, so all of the gang was"
        " stopped to start again (the supplier says that the machine is gone; ProviderEvidence);"
        " the program exited with 143.\n  The fault is the supplier's.\n"
    ) in said


async def test_a_rank_whose_gang_is_over_says_by_which_rank(world: World) -> None:  # SC-120
    runners = await run_gang(world, 2)
    await end(runners[1], 3)
    await world.settle(1)
    await stop_by_order(world, runners[0])

    facts = await facts_of(world, "0/1")
    assert plain(facts["end"]["sentence"]).startswith(
        "Released: rank 1 of its gang (train-1-e1-abcde) ended as CustomerExit, so the gang is over"
    )
    assert facts["end"]["fault"] == "customer"
    assert (
        plain(facts["end"]["remedy"]) == "`nodus explain train-1-e1-abcde` says more of that rank."
    )


async def test_a_rank_that_ran_on_says_so(world: World) -> None:  # SC-135
    runners = await run_gang(world, 2)
    await end(runners[0])
    await world.settle(1)
    await runners[1].report("heartbeat")
    await world.settle(61)
    await stop_by_order(world, runners[1])

    sentence = (await facts_of(world, "1/1"))["end"]["sentence"]
    assert sentence.startswith(
        "Released: rank 0 of its gang had exited with 0, and this rank still ran 60 s later;"
    )


def test_where_the_record_does_not_tell_no_fault_is_named() -> None:  # SC-010
    document: dict[str, Any] = {
        "metadata": {"name": "a", "ownerReferences": [{"kind": "Job", "name": "train"}]},
        "spec": {"slot": "1", "epoch": 1},
        "status": {
            "phase": "Cancelled",
            "reason": "Released",
            "timings": {
                "queuedTime": "2026-03-01T10:00:00Z",
                "finishedTime": "2026-03-01T10:00:09Z",
            },
        },
    }
    lowered = (
        Counted(at=moment("10:00:00"), count=3),
        Counted(at=moment("10:00:04"), count=2),
        Counted(at=moment("10:00:05"), count=1),
    )
    both = Circumstances(counts=lowered, state="Failed", ended=moment("10:00:08"))
    later = Circumstances(counts=lowered, state="Failed", ended=moment("10:00:10"))
    for around in (Circumstances(), both, replace(both, counts=lowered[:1], state="Deleted")):
        assert release_of(document, around) is None
    told_later = release_of(document, later)
    assert told_later is not None
    assert told_later.cause.startswith("job/train was scaled down to 2, then to 1, which ")
    assert told_later.remedy == "Nothing, if that was wanted."

    end_of = ended(document["status"], None)
    assert end_of is not None
    assert "fault" not in end_of
    assert end_of["sentence"].startswith("Released: the Attempt was no longer needed: ")


async def test_a_gang_that_could_not_be_acquired_says_so(world: World) -> None:  # SC-132
    await submit_gang(world, 2)
    await world.settle()
    document = (await a_life(world, "0/1")).document
    peers = [(await a_life(world, which)).document for which in ("0/1", "1/1")]
    timings = {**document["status"]["timings"], "finishedTime": "2026-01-01T00:10:00Z"}
    released = {**document, "status": {**document["status"], "timings": timings}}
    found = release_of(released, Circumstances(peers=tuple(peers)))
    assert found is not None
    assert found.cause == "not every rank of its gang got a machine, so no rank of it started"
    assert release_of(released, Circumstances(peers=tuple(peers[:1]))) is None
