"""One item that cannot be moved holds up nothing else (SC-606)."""

from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa
from tests.scheduler.world import World

from nodus_api.scheduler.setbacks import LONGEST_OF_CALLS, Setbacks
from nodus_api.storage import tables as t
from nodus_api.storage.batch import Batch


def test_failures_in_a_row_wait_longer_up_to_five_minutes() -> None:
    setbacks = Setbacks()
    waits = [setbacks.failed(("place", 1), now=0.0) for _ in range(10)]
    for wait, at_most in zip(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300], strict=True):
        assert at_most * 0.8 < wait <= at_most
    assert not setbacks.over(("place", 1), now=240.0)
    assert setbacks.over(("place", 1), now=300.0)
    assert setbacks.over(("place", 2), now=0.0)
    setbacks.passed(("place", 1))
    assert setbacks.failed(("place", 1), now=0.0) == waits[0]


def test_calls_that_failed_together_are_repeated_apart() -> None:  # SC-617
    once, again = Setbacks(), Setbacks()
    keys = [("find", no) for no in range(100)]
    waits: list[float] = []
    for _ in range(9):
        waits = [once.failed(key, now=0.0, longest=LONGEST_OF_CALLS) for key in keys]
        assert [again.failed(key, now=0.0, longest=LONGEST_OF_CALLS) for key in keys] == waits
        assert len(set(waits)) == len(keys)
    assert all(48 < wait <= 60 for wait in waits)
    assert max(waits) - min(waits) > 6


async def test_deletes_that_failed_together_are_repeated_apart(world: World) -> None:  # SC-617
    for name in ("one", "two"):
        await world.submit(name)
    await world.settle()
    world.fake.deaf_deletes = 2
    for name in ("one", "two"):
        await world.ask("delete", name)
    await world.settle()
    first, second = await world.rows(t.machines)
    assert (first["tries"], second["tries"]) == (1, 1)
    assert first["next_try"] != second["next_try"]
    for row in (first, second):
        assert timedelta(seconds=0.8) < row["next_try"] - world.clock.now() <= timedelta(seconds=1)


async def test_a_broken_workload_holds_up_no_other(world: World) -> None:
    await world.submit("broken")
    passes = await world.lead()
    await passes.step("intake")
    async with world.database.transaction() as connection:
        await connection.execute(sa.update(t.workloads).values(spec={"completions": "many"}))
    await world.submit("sound")
    await world.settle()
    assert [one["status"]["progress"]["stage"] for one in await world.all_documents()] == [
        "Starting"
    ]
    failed = passes.loop.metrics.registry.get_sample_value(
        "nodus_scheduler_failed_items_total", {"step": "fill"}
    )
    assert failed
    async with world.database.transaction() as connection:
        mended = {"template": {"command": ["true"]}}
        broken = t.workloads.c.name == "broken"
        await connection.execute(sa.update(t.workloads).where(broken).values(spec=mended))
    await world.settle(60)
    assert len(await world.all_documents()) == 2


async def test_a_call_follows_the_commit_of_its_intent_or_is_not_made(
    world: World,
) -> None:  # SC-603
    await world.submit()
    passes = await world.lead()
    for step in ("intake", "fill"):
        await passes.step(step)
    (row,) = await world.rows(t.attempts)
    made: list[str] = []

    async def refused(batch: Batch) -> None:
        record = batch.records[row["no"]]
        batch.put(replace(record, slot=replace(record.slot, slot="no slot has this name")))

    async def fine(batch: Batch) -> None:
        pass

    await passes.loop.in_batches("test", [row["no"]], refused, then=lambda: made.append("early"))
    await passes.loop.in_batches("other", [row["no"]], fine, then=lambda: made.append("after"))
    assert made == ["after"]


async def test_an_attempt_that_fails_in_a_batch_fails_alone(world: World) -> None:
    for name in ("one", "two", "three"):
        await world.submit(name)
    passes = await world.lead()
    for step in ("intake", "fill", "offers"):
        await passes.step(step)
    async with world.database.transaction() as connection:
        broken = t.workloads.c.name == "two"
        spec = {"placement": {"profile": "Nonsense"}}
        await connection.execute(sa.update(t.workloads).where(broken).values(spec=spec))
    await world.settle()
    stages = {
        one["metadata"]["ownerReferences"][0]["name"]: one["status"]["progress"]["stage"]
        for one in await world.all_documents()
    }
    assert stages == {"one": "Starting", "two": "Pending", "three": "Starting"}


async def test_a_command_that_cannot_be_applied_lets_others_pass(world: World) -> None:
    broken = await world.ask("submit", "broken", spec={"completions": "many"})
    behind = await world.ask("stop", "broken")
    sound = await world.submit("sound")
    await world.settle()
    assert await world.outcome(sound) == "Applied"
    assert await world.outcome(broken) is None
    assert await world.outcome(behind) is None  # commands of one workload keep their order
