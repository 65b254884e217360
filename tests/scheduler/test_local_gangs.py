"""Gangs for real: processes that meet over TCP, save together, and are started again together."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scheduler.invariants import check
from tests.scheduler.local_world import LocalWorld, a_local_world

from nodus_api.scheduler.context import Pace
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import FaultInjection

pytestmark = pytest.mark.slow  # real processes that wait for one another
PROGRAM = Path(__file__).with_name("gang_program.py")
QUICK = Pace(full_pass=timedelta(seconds=0.2))
PATIENCE = 90.0


def folder(local: LocalWorld) -> Path:
    return local.socket.parent


def a_gang(local: LocalWorld, size: int, total: int, hang: int) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAM), str(folder(local)), str(total), str(hang)]
    return {
        "template": {"command": command},
        "completions": size,
        "gang": True,
        "checkpoint": {"restartable": True},
        "stopGraceSeconds": 1,
    }


def all_reached(local: LocalWorld, epoch: int, *stages: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        documents = await local.world.documents()
        found = [
            one["status"]["progress"]["stage"]
            for which, one in documents.items()
            if which.endswith(f"/{epoch}")
        ]
        return bool(found) and all(stage in stages for stage in found)

    return look


def hanging(local: LocalWorld, size: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return all((folder(local) / f"hanging-{rank}").exists() for rank in range(size))

    return look


def notes(local: LocalWorld, rank: int) -> list[list[str]]:
    lines = (folder(local) / f"notes-{rank}").read_text().splitlines()
    return [line.split(" ", 2) for line in lines]


@pytest.mark.parametrize("killed", ["program", "machine"])
async def test_a_killed_rank_restarts_both_from_the_same_seq(
    local: LocalWorld, killed: str
) -> None:  # scenario 30, SC-133, SC-134, SC-141, SC-142, SC-143
    world = local.world
    retries = 1 if killed == "program" else 0
    await world.submit(restart={"maxRetries": retries}, **a_gang(local, 2, total=5, hang=3))
    async with local.scheduling(pace=QUICK):
        await local.until(hanging(local, 2), PATIENCE)
        if killed == "program":
            os.kill(int((folder(local) / "hanging-1").read_text()), signal.SIGKILL)
        else:
            await local.supplier.inject(
                await machine_of(local, "1"), FaultInjection(kind="node-loss")
            )
        await local.until(all_reached(local, 2, "Succeeded"), PATIENCE)
        await local.until(lambda: all_proven(local), PATIENCE)

    documents = await world.documents()
    first = [documents[f"{rank}/1"]["status"] for rank in range(2)]
    if killed == "program":
        assert [one["reason"] for one in first] == ["Released", "CustomerExit"]
        assert first[1]["signal"] == 9
        assert "interruption" not in first[0]
    else:
        assert [one["reason"] for one in first] == ["Released", "NodeLost"]
        assert [one["interruption"]["trigger"] for one in first] == ["ProviderEvidence"] * 2
    for rank in range(2):
        spec = documents[f"{rank}/2"]["spec"]
        assert spec["restoreFrom"] == {"seq": 3, "cursor": {"completed": 3, "total": 5}}
        assert spec["gang"]["epoch"] == 2
    rows = await world.rows(t.checkpoints)
    committed = sorted((row["slot"], row["seq"], row["epoch"]) for row in rows)
    seqs = [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert committed == [(slot, *one) for slot in "01" for one in seqs]
    told = [notes(local, rank) for rank in range(2)]
    said = ["from 0 seq none", "from 3 seq 3", "to 5"]
    assert [[text for _, _, text in one] for one in told] == [said, said]
    places = [[(epoch, place) for epoch, place, _ in one] for one in told]
    assert places[0] == places[1]
    assert (await world.workload())["state"] == "Succeeded"
    await check(world)


async def test_the_gang_outlives_its_scheduler(local: LocalWorld) -> None:  # SC-605, SC-608
    world = local.world
    await world.submit(**a_gang(local, 2, total=4, hang=2))
    async with local.scheduling(pace=QUICK):
        await local.until(hanging(local, 2), PATIENCE)
    os.kill(int((folder(local) / "hanging-0").read_text()), signal.SIGKILL)
    async with local.scheduling(pace=QUICK):
        await local.until(all_reached(local, 1, "Failed", "Stopped"), PATIENCE)
        await local.until(lambda: all_proven(local), PATIENCE)

    documents = await world.documents()
    reasons = [documents[f"{rank}/1"]["status"]["reason"] for rank in range(2)]
    assert reasons == ["CustomerExit", "Released"]
    assert (await world.workload())["outcome"] == "CustomerExit"


async def test_two_gangs_at_once_meet_at_two_places(clean_database: str) -> None:  # SC-143
    async with a_local_world(clean_database, slots=4) as local:
        names = ("one", "other")
        for name in names:
            place = folder(local) / name
            place.mkdir()
            spec = a_gang(local, 2, total=2, hang=9)
            spec["template"]["command"][2] = str(place)
            await local.world.submit(name, **spec)
        async with local.scheduling(pace=QUICK):
            await local.until(lambda: ended(local, 2), PATIENCE)
        assert [one["state"] for one in await local.world.workloads()] == ["Succeeded"] * 2
        places = {
            (folder(local) / name / f"notes-{rank}").read_text().split(" ")[1]
            for name in names
            for rank in range(2)
        }
        assert len(places) == 2


async def ended(local: LocalWorld, count: int) -> bool:
    states = [one["state"] for one in await local.world.workloads()]
    return len(states) == count and "Active" not in states


async def all_proven(local: LocalWorld) -> bool:
    documents = (await local.world.documents()).values()
    return all("deletionProvenTime" in one["status"]["timings"] for one in documents)


async def machine_of(local: LocalWorld, slot: str) -> str:
    numbers = {row["no"]: row["slot"] for row in await local.world.rows(t.attempts)}
    machines = {row["machine"]: numbers[row["attempt"]] for row in await local.world.rows(t.leases)}
    (handle,) = [
        str(row["handle"])
        for row in await local.world.rows(t.machines)
        if machines[row["no"]] == slot
    ]
    return handle
