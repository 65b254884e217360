"""Runs that succeeded tell how long the next of their name take (SC-352, SC-301)."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.test_learning import works
from tests.scheduler.world import World

from nodus_api.storage import tables as t
from nodus_api.storage.calibration_store import KEPT


async def run_once(world: World, seconds: int, name: str = "train", code: int = 0) -> None:
    """Bring a run of the only live Attempt to its end, and forget the workload."""
    world.runners.clear()
    (uid,) = [
        one["metadata"]["uid"]
        for one in await world.all_documents()
        if one["status"]["phase"] not in ("Succeeded", "Failed", "Cancelled")
    ]
    runner = world._runner(uid)
    await runner.report("registered", checks={}, pullMs=0)
    await world.settle()
    await runner.report("canStart")
    await world.settle()
    await runner.report("started")
    await works(world, runner, seconds)
    await runner.report("exited", exitCode=code)
    await world.settle()
    await world.ask("delete", name)
    await world.settle()


async def kept(world: World) -> list[dict[str, Any]]:
    return [dict(row) for row in await world.rows(t.calibrations)]


async def asked(world: World) -> dict[str, Any]:
    """Return what was asked for in the decision about the only live Attempt."""
    (row,) = await world.rows(t.decisions)
    return dict(row["request"])


async def predicted_hours(world: World) -> float:
    (status,) = [
        one["status"]
        for one in await world.all_documents()
        if one["status"]["phase"] not in ("Succeeded", "Failed", "Cancelled")
    ]
    return float(status["predicted"]["hours"])


async def test_the_next_of_the_name_is_predicted_by_the_last(world: World) -> None:  # SC-352
    await world.submit(estimate={"hours": 2})
    await world.settle()
    first = await predicted_hours(world)
    await run_once(world, 3 * 3600)
    await world.submit(estimate={"hours": 2})
    await world.settle()

    (row,) = await kept(world)
    assert (row["project"], row["kind"], row["name"]) == ("default", "Job", "train")
    assert (row["accelerator"], row["count"]) == ("", 0)
    assert row["ratio"] == pytest.approx(1.1)  # 1 + 0.2 (1.5 - 1)
    assert await predicted_hours(world) - first == pytest.approx(0.2, abs=0.01)
    request = await asked(world)
    assert request["calibrations"] == {"": pytest.approx(1.1)}
    assert request["workHours"] == 2.0


async def test_without_an_estimate_the_usual_time_is_expected(world: World) -> None:  # SC-301
    await world.submit()
    await world.settle()
    expected = [(await asked(world))["workHours"]]
    for hours in (4, 6, 5):
        await run_once(world, hours * 3600)
        await world.submit()
        await world.settle()
        expected.append((await asked(world))["workHours"])

    (row,) = await kept(world)
    assert row["ratio"] is None
    assert row["hours"] == [4.0, 6.0, 5.0]
    assert expected == [1, 4, 5, 5]


async def test_a_run_that_failed_teaches_nothing(world: World) -> None:  # SC-352
    await world.submit(estimate={"hours": 2})
    await world.settle()
    await run_once(world, 60, code=3)

    assert await kept(world) == []


async def test_another_name_is_another_lineage(world: World) -> None:  # SC-352
    await world.submit("other", estimate={"hours": 2})
    await world.settle()
    await run_once(world, 3 * 3600, "other")
    await world.submit(estimate={"hours": 2})
    await world.settle()

    assert "calibrations" not in await asked(world)


async def test_a_name_that_runs_no_more_is_forgotten(world: World) -> None:
    await world.submit("old", estimate={"hours": 2})
    await world.settle()
    await run_once(world, 60, "old")
    async with world.database.transaction() as connection:
        long_ago = world.clock.now() - KEPT - timedelta(seconds=1)
        await connection.execute(sa.update(t.calibrations).values(updated=long_ago))
    await world.submit(estimate={"hours": 2})
    await world.settle()
    await run_once(world, 60)

    assert [row["name"] for row in await kept(world)] == ["train"]
