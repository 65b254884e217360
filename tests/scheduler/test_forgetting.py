"""Checkpoints of a deleted workload are removed at their supplier, and no others."""

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

from tests.scheduler.local_world import LocalWorld
from tests.scheduler.test_local_checkpoints import (
    QUICK,
    committed,
    folder,
    reached,
    saving,
    stored,
    there,
)
from tests.scheduler.world import World

from nodus_api.storage import tables as t


async def deleted(world: World) -> UUID:
    """Submit a Job, delete it while it runs, and return its uid."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    uid: UUID = (await world.workload())["uid"]
    world.fake.kept = {uid, uuid4()}  # the other is of nobody that is known here
    await world.ask("delete")
    await world.settle(1)
    assert world.fake.dropped == []  # it still runs
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=0)
    return uid


async def test_they_are_removed_once_the_last_attempt_is_retired(world: World) -> None:
    uid = await deleted(world)
    await world.settle(1)

    assert world.fake.dropped == [uid]
    assert len(world.fake.kept) == 1
    await world.settle(600)
    assert world.fake.dropped == [uid]


async def test_a_removal_that_failed_is_tried_again(world: World) -> None:
    uid = await deleted(world)
    world.fake.deaf_drops = 1
    await world.settle(1)
    assert uid in world.fake.kept
    await world.settle(301)

    assert world.fake.dropped == [uid]


async def test_another_leader_finishes_a_removal(world: World) -> None:  # SC-605
    uid = await deleted(world)
    world.fake.deaf_drops = 1
    await world.settle(1)
    await world.lead()
    await world.settle(1)

    assert world.fake.dropped == [uid]


async def test_what_may_still_be_restored_stays(world: World) -> None:  # SC-141
    """Neither a workload that goes on, nor one that ended, nor one that is deleted and alive."""
    await world.submit("suspended")
    await world.submit("stopped")
    await world.settle()
    await world.ask("suspend", "suspended")
    await world.ask("stop", "stopped")
    world.fake.kept = {row["uid"] for row in await world.workloads()}
    await world.settle(1)
    await world.settle(48 * 3600)

    assert {row["state"] for row in await world.workloads()} == {"Suspended", "Stopped"}
    assert world.fake.dropped == []


async def test_the_files_of_a_deleted_job_are_gone_and_the_rows_say_so(local: LocalWorld) -> None:
    world = local.world
    await world.submit("kept", **saving(local, 10, 5, 99))
    async with local.scheduling(pace=QUICK):
        await local.until(committed(local, 2))
        await local.until(reached(local, "0/1", "Succeeded"))
        before = stored(local)
        assert len(before) == 2
        await world.submit("doomed", **saving(local, 40, 5, 18))
        await local.until(there(folder(local) / "hanging"))
        await local.until(committed(local, 5))
        assert len(stored(local)) == 5
        doomed = next(row["uid"] for row in await world.workloads() if row["name"] == "doomed")
        # bytes that never became a checkpoint
        stray = folder(local) / "machines" / "checkpoints" / str(doomed) / "0" / "9" / "9"
        await asyncio.to_thread(stray.mkdir, parents=True)
        await world.ask("delete", "doomed")
        await local.until(lambda: _gone(stray.parent.parent.parent), 60)

        async def marked() -> bool:
            rows = [row for row in await world.rows(t.checkpoints) if row["workload"] == doomed]
            return len(rows) == 3 and all(row["deleted"] for row in rows)

        await local.until(marked)
    assert stored(local) == before
    assert [one["status"]["phase"] for one in await world.all_documents()] == ["Succeeded"]
    kept = [row for row in await world.rows(t.checkpoints) if row["workload"] != doomed]
    assert all(row["deleted"] is None for row in kept)


async def _gone(path: Path) -> bool:
    return not await asyncio.to_thread(path.exists)


async def test_the_age_of_what_is_kept_is_looked_at_again_after_five_minutes(world: World) -> None:
    """Without a retirement that tells: what an earlier leader left behind."""
    await world.submit()
    await world.settle()
    uid = (await world.workload())["uid"]
    await world.ask("delete")
    await world.settle()
    assert world.fake.dropped == []
    world.fake.kept = {uid}
    await world.settle(timedelta(minutes=6).total_seconds())

    assert world.fake.dropped == [uid]
