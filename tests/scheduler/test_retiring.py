"""Finished Attempts leave the API: those of a deleted workload, the old, and those too many."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.invariants import check_quiet
from tests.scheduler.test_crashes import WAYS, Killed, MortalDatabase, mortal
from tests.scheduler.world import World

from nodus_api.attempts import splice
from nodus_api.clock import ManualClock
from nodus_api.scheduler import Retention
from nodus_api.storage import tables as t
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.retirement import RetirementStore

__all__ = ["mortal"]

DAY = 24 * 3600


async def ended(world: World, which: str = "0/1", *, code: int = 0) -> None:
    """Run an Attempt's program to its end, and prove its machine gone."""
    runner = await world.start(which)
    await runner.report("exited", exitCode=code, signal=None, oom=False)
    await world.settle(1)


async def changes(world: World, kind: str) -> list[Mapping[str, Any]]:
    return [row for row in await world.rows(t.changes) if row["kind"] == kind]


async def archived(world: World) -> list[Mapping[str, Any]]:
    return await world.rows(t.attempts_archive)


async def test_a_deleted_running_job_is_stopped_then_leaves_the_api(world: World) -> None:  # SC-806
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.clock.advance(10)
    command = await world.ask("delete")
    await world.settle()
    assert await world.outcome(command) == "Applied"
    assert await world.stage() == "Running"  # it drains: nothing is retired while it lives
    last = (await world.rows(t.attempt_objects))[0]

    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=100)
    await world.settle(1)

    assert await world.documents() == {}
    assert await world.rows(t.attempts) == []
    assert world.fake.machines == {}
    (row,) = await archived(world)
    document = json.loads(splice(bytes(row["doc"]), row["rev"]))
    assert document["status"]["reason"] == "Stopped"
    assert document["status"]["timings"]["deletionProvenTime"]
    assert (row["workload_kind"], row["workload_name"], row["slot"]) == ("Job", "train", "0")
    assert (row["phase"], row["reason"]) == ("Cancelled", "Stopped")
    (gone,) = await changes(world, "D")  # H-09: the last state, at a revision of its own
    assert bytes(gone["doc"]) == bytes(row["doc"])
    assert gone["rev"] > row["rev"] > last["rev"]
    assert gone["prev_rev"] == row["rev"]
    (workload,) = await world.workloads()
    assert workload["state"] == "Deleted"
    assert str(workload["archived_usd"]) == document["status"]["actual"]["costUSD"]
    assert row["usd"] == workload["archived_usd"] > 0


async def test_what_a_retired_attempt_held_goes_with_it(world: World) -> None:  # storage.md 7
    await world.submit()
    await world.settle()
    await ended(world)
    assert len(await world.rows(t.machines)) == 1
    await world.ask("delete")
    await world.settle()

    for table in (t.attempts, t.leases, t.machines, t.attempt_work, t.cost_segments, t.decisions):
        assert await world.rows(table) == []
    await check_quiet(world)


async def test_a_deleted_job_that_never_had_a_machine_leaves_at_once(world: World) -> None:
    world.fake.offered = [an_offer(available=0)]
    await world.submit(completions=3)
    await world.settle()
    await world.ask("delete")
    await world.settle()

    assert await world.documents() == {}
    assert len(await archived(world)) == 3
    assert world.fake.creates == []


async def test_an_unproven_deletion_keeps_its_attempt_in_the_api(world: World) -> None:  # SC-610
    await world.submit()
    await world.settle()
    world.fake.deaf_deletes = 1
    await ended(world)
    await world.ask("delete")
    await world.settle()
    assert (await world.status())["phase"] == "Succeeded"
    assert await archived(world) == []

    await world.settle(5)
    assert await world.documents() == {}


async def test_the_name_of_a_deleted_job_is_free_at_once(world: World) -> None:  # SC-103
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.ask("delete")
    again = await world.submit()
    await world.settle()

    assert await world.outcome(again) == "Applied"
    names = {one["metadata"]["name"] for one in await world.all_documents()}
    assert len(names) == 2
    assert {name.rsplit("-", 1)[0] for name in names} == {"train-0-e1"}
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=0)
    await world.settle(1)
    assert len(await world.all_documents()) == 1
    second = await world.ask("delete")
    await world.settle()
    assert await world.outcome(second) == "Applied"


async def test_all_epochs_of_a_deleted_job_go(world: World) -> None:  # storage.md 5, order
    await world.submit(restart={"maxRetries": 1})
    await world.settle()
    await ended(world, "0/1", code=3)
    await world.settle(20)
    await ended(world, "0/2", code=3)
    assert set(await world.documents()) == {"0/1", "0/2"}
    await world.ask("delete")
    await world.settle()

    assert await world.documents() == {}
    assert sorted(row["epoch"] for row in await archived(world)) == [1, 2]


async def test_the_old_leave_after_24_hours(world: World) -> None:
    await world.submit()
    await world.settle()
    await ended(world)
    await world.settle(DAY - 120)
    assert await archived(world) == []
    await world.settle(180)

    assert await world.documents() == {}
    (workload,) = await world.workloads()
    assert workload["state"] == "Succeeded"  # its name stays taken
    again = await world.submit()
    await world.settle()
    assert await world.outcome(again) == "Unchanged"
    assert await world.documents() == {}


async def test_the_age_is_a_setting(world: World) -> None:
    await world.submit()
    await world.settle()
    assert world.passes is not None
    world.passes.loop.retention = Retention(finished=timedelta(minutes=5))
    await ended(world)
    await world.settle(200)
    assert await archived(world) == []
    await world.settle(200)

    assert len(await archived(world)) == 1


async def test_the_oldest_leave_beyond_the_number_kept_of_a_project(world: World) -> None:
    await world.settle()
    assert world.passes is not None
    world.passes.loop.retention = Retention(count=2)
    for name in ("one", "two", "three", "four"):
        await world.submit(name)
        await world.settle(5)
        runner = await world.runner_of(name)
        await runner.report("registered", checks={})
        await world.settle(1)
        await runner.report("canStart")
        await world.settle(1)
        await runner.report("started")
        await runner.report("exited", exitCode=0, signal=None, oom=False)
        await world.settle(1)
    await world.submit("five")  # lives, and is not counted
    await world.settle(60)

    assert sorted(row["workload_name"] for row in await archived(world)) == ["one", "two"]
    left = {one["metadata"]["ownerReferences"][0]["name"] for one in await world.all_documents()}
    assert left == {"three", "four", "five"}


async def test_the_predecessor_of_an_epoch_to_come_stays(world: World) -> None:  # SC-105, SC-140
    """A suspended Job's last Attempt is what its resumption goes on from, however old."""
    await world.submit()
    await world.settle()
    runner = await world.start()
    await world.ask("suspend")
    await world.settle()
    await runner.report("exited", exitCode=143, signal=15, oom=False, stopAgeMs=0)
    await world.settle(1)
    await world.settle(2 * DAY)
    assert (await world.status())["reason"] == "Suspended"

    await world.ask("resume")
    await world.settle()
    documents = await world.documents()
    assert documents["0/1"]["status"]["supersededBy"] == documents["0/2"]["metadata"]["name"]
    await world.settle(60)
    assert set(await world.documents()) == {"0/1", "0/2"}  # the successor has not started
    await world.start("0/2")
    await world.settle(120)
    assert set(await world.documents()) == {"0/2"}
    assert (await world.rows(t.slots))[0]["current_epoch"] == 2


async def test_a_loss_stays_until_its_recovery_is_known(world: World) -> None:  # SC-016
    await world.submit(limits={"startDeadlineSeconds": 10 * DAY})
    await world.settle()
    await world.start()
    (key,) = world.fake.machines
    world.fake.offered = [an_offer(available=0)]
    world.fake.vanish(key)
    for _ in range(4):
        await world.settle(5)
    assert await world.stage() == "Lost"
    await world.settle(2 * DAY)
    assert set(await world.documents()) == {"0/1", "0/2"}

    world.fake.offered = None
    await world.settle(60)
    await world.start("0/2")
    assert (await world.documents())["0/1"]["status"]["interruption"]["recoverySeconds"] > DAY
    await world.settle(60)
    assert set(await world.documents()) == {"0/2"}
    (row,) = await archived(world)
    assert json.loads(row["doc"])["status"]["interruption"]["recoverySeconds"] > DAY


async def test_a_limit_of_money_counts_the_archived(world: World) -> None:  # SC-806, SC-522
    await world.submit(
        completions=2,
        parallelism=1,
        estimate={"hours": 0.02},  # 0.04, once the first has taken its 900 s (SC-352)
        limits={"maxCostUSD": "0.020000"},
        stopGraceSeconds=0,
    )
    await world.settle()
    runner = await world.start()
    await world.clock.advance(900)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle(1)
    (first,) = [one for key, one in (await world.documents()).items() if key == "0/1"]
    spent = float(first["status"]["actual"]["costUSD"])
    assert 0.014 < spent < 0.016
    assert world.passes is not None
    world.passes.loop.retention = Retention(count=0)
    await world.settle(60)
    assert set(await world.documents()) == {"1/1"}  # a decided slot of a Job that goes on

    second = await world.start("1/1")
    for _ in range(12):
        await second.report("heartbeat")
        await world.settle(60)
    status = await world.status("1/1") if await world.documents() else None
    assert status is None or status["reason"] == "MaxCostReached"
    (workload,) = await world.workloads()
    assert workload["outcome"] == "MaxCostReached"
    assert workload["archived_usd"] <= 0.02


async def test_a_hundred_a_transaction(world: World) -> None:  # SC-606
    world.fake.offered = [an_offer(available=0)]
    await world.submit(completions=250)
    for _ in range(3):
        await world.settle()
    assert len(await world.documents()) == 250
    await world.ask("delete")
    await world.settle()

    assert await world.documents() == {}
    gone = await changes(world, "D")
    sizes = [sum(row["tx"] == tx for row in gone) for tx in sorted({row["tx"] for row in gone})]
    assert sizes == [100, 100, 50]


async def test_one_that_cannot_be_retired_holds_up_no_other(  # SC-606, P-28
    world: World, clean_database: str
) -> None:
    """Its row of the archive is taken already; of 99 others each goes at once."""
    world.fake.offered = [an_offer(available=0)]
    await world.submit(completions=100)
    for _ in range(3):
        await world.settle()
    await world.ask("stop")
    await world.settle()
    connection: Any = await asyncpg.connect(clean_database)
    await connection.execute(
        "SELECT nodus.ensure_archive('2026-01-01'); INSERT INTO nodus.attempts_archive"
        " SELECT finished, uid, project, name, workload, 'Job', 'train', slot, epoch, phase,"
        " reason, 1, 0, '[]', '' FROM nodus.attempts WHERE slot = '0'"
    )
    await world.ask("delete")
    await world.settle()
    assert set(await world.documents()) == {"0/1"}
    assert world.passes is not None
    assert world.passes.loop.setbacks.resting("retire", world.clock.monotonic()) == 1

    await connection.execute("DELETE FROM nodus.attempts_archive WHERE doc = ''")
    await connection.close()
    await world.settle(2)
    assert await world.documents() == {}


async def test_a_later_epoch_alone_is_not_retired(world: World) -> None:
    """Asked under the locks again: what a look found may have changed."""
    await world.submit(restart={"maxRetries": 1})
    await world.settle()
    await ended(world, "0/1", code=3)
    await world.settle(20)
    await ended(world, "0/2", code=3)
    assert world.passes is not None
    loop = world.passes.loop
    first, second = sorted(row["no"] for row in await world.rows(t.attempts))

    assert await loop.retirement.retire(loop.reign.token, [second]) == 0
    assert await loop.retirement.retire(loop.reign.token, [first, second, 999]) == 2
    assert await loop.retirement.retire(loop.reign.token, [first, second]) == 0


async def test_the_partitions_of_two_months_are_made_in_time(world: World) -> None:
    await world.settle()
    assert {"attempts_archive_202601", "attempts_archive_202602"} <= set(await partitions(world))


@pytest.mark.slow  # many whole lives
@pytest.mark.parametrize("late", WAYS)
async def test_dying_in_a_retirement_leaves_nothing_behind(  # P-08
    mortal: MortalDatabase, clock: ManualClock, late: bool | None
) -> None:
    world = World(mortal, clock, FakeSupplier(clock))
    deaths = 0
    for lives in range(12):
        name = f"job-{lives}"
        await world.submit(name)
        await world.lead()
        await world.settle()
        runner = await world.runner_of(name)
        await runner.report("registered", checks={})
        await world.settle(1)
        await world.ask("delete", name)
        for _ in range(2):
            mortal.dies_after(lives, late=lives % 2 == 0 if late is None else late)
            try:
                await world.lead()
                await world.settle()
            except Killed:
                deaths += 1
            finally:
                assert world.passes is not None
                await world.passes.loop.calls.settled()
                mortal.lives = None
        await world.lead()
        await world.settle(1)
        assert await world.all_documents() == []
        assert await world.rows(t.machines) == []
    assert deaths >= 10
    assert len(await archived(world)) == 12
    assert len(await changes(world, "D")) == 12


async def test_two_who_make_the_same_partition_do_not_collide(world: World) -> None:
    """Whoever comes second waits, and finds it made."""
    await world.settle()
    store = RetirementStore(world.database)
    assert world.passes is not None
    token = world.passes.loop.reign.token
    await world.clock.advance(400 * DAY)
    await asyncio.gather(store.make_partitions(token), store.make_partitions(token))


async def partitions(world: World) -> list[str]:
    query = sa.text(
        "SELECT relname FROM pg_class WHERE relname ~ '^attempts_archive_[0-9]{6}$' ORDER BY 1"
    )
    async with world.database.single_reads() as connection:
        return list((await connection.execute(query)).scalars())


async def test_the_archive_keeps_90_days(world: World) -> None:
    await world.submit()
    await world.settle()
    await ended(world)
    await world.ask("delete")
    await world.settle()
    assert len(await archived(world)) == 1
    first = (await partitions(world))[0]
    await world.settle((31 + 89) * DAY)  # January's last Attempt is 89 days old
    assert first in await partitions(world)
    assert len(await archived(world)) == 1
    assert world.passes is not None
    with pytest.raises(FencedOff):
        await world.passes.loop.retirement.drop_partition(0, first)
    await world.settle(2 * DAY)

    assert first not in await partitions(world)
    assert await archived(world) == []


async def test_only_a_month_of_the_archive_is_dropped(world: World) -> None:
    await world.settle()
    assert world.passes is not None
    loop = world.passes.loop
    for name in ("attempts", "attempts_archive", "attempts_archive_202601; DROP TABLE x"):
        with pytest.raises(ValueError, match="no partition"):
            await loop.retirement.drop_partition(loop.reign.token, name)
