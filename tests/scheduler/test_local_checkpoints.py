"""Checkpoints for real: programs, runners, sockets and Postgres; and what a loss leaves of them."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.scheduler.local_world import LocalWorld

import nodus_api
from nodus_api.runner.files import CHANNEL
from nodus_api.scheduler.context import Pace
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import FaultInjection

PROGRAM = Path(__file__).with_name("saving_program.py")
QUICK = Pace(full_pass=timedelta(seconds=0.2))


def saving(local: LocalWorld, total: int, every: int, hang: int) -> dict[str, Any]:
    """Return the spec of a Job whose program saves."""
    numbers = (str(total), str(every), str(hang))
    return {
        "template": {"command": [sys.executable, str(PROGRAM), str(folder(local)), *numbers]},
        "checkpoint": {"restartable": True},
    }


def folder(local: LocalWorld) -> Path:
    return local.socket.parent


def there(path: Path) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await asyncio.to_thread(path.exists)

    return look


def reached(local: LocalWorld, which: str, *stages: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        documents = await local.world.documents()
        status = documents.get(which, {}).get("status", {})
        return status.get("progress", {}).get("stage") in stages

    return look


def committed(local: LocalWorld, count: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return len(await local.world.rows(t.checkpoints)) == count

    return look


async def the_machine(local: LocalWorld) -> str:
    (handle,) = [view.handle async for view in local.supplier.list_owned(local.installation)]
    return handle


async def kill(local: LocalWorld) -> None:
    """Kill everything of the one machine, its runner first."""
    await local.supplier.inject(await the_machine(local), FaultInjection(kind="node-loss"))


def stored(local: LocalWorld) -> list[str]:
    """Return EPOCH/SEQ of what lies in the store, hidden copies too."""
    root = folder(local) / "machines" / "checkpoints"
    found = [path for path in root.glob("*/*/*/*") if path.is_dir()]
    return sorted(f"{path.parent.name}/{path.name}" for path in found)


def place_of(row: Mapping[str, Any]) -> Path:
    return Path(row["uri"].removeprefix("file://"))


async def test_a_replacement_goes_on_from_the_cursor_to_the_same_result(
    local: LocalWorld,
) -> None:  # SC-140, SC-141, SC-143
    world = local.world
    await world.submit(**saving(local, 40, 5, 18))
    async with local.scheduling(pace=QUICK):
        await local.until(there(folder(local) / "hanging"))
        await kill(local)
        await local.until(reached(local, "0/2", "Succeeded"))
        await local.until(lambda: proven(local, "0/2"))

    assert (folder(local) / "result").read_text() == str(sum(n * n for n in range(1, 41)))
    steps = (folder(local) / "steps").read_text().splitlines()
    assert steps == [*(f"1:{n}" for n in range(1, 19)), *(f"2:{n}" for n in range(16, 41))]
    documents = await world.documents()
    first, second = documents["0/1"], documents["0/2"]
    assert first["status"]["reason"] == "NodeLost"
    assert first["status"]["checkpoints"] == {"count": 3, "lastSeq": 3}
    assert first["status"]["interruption"]["recoverySeconds"] >= 0
    assert second["spec"]["restoreFrom"] == {"seq": 3, "cursor": {"completed": 15, "total": 40}}
    restored = second["status"]["checkpoints"]
    assert (restored["count"], restored["lastSeq"]) == (5, 8)
    assert restored["restoreBytes"] == len('{"done": 15, "result": 1240}')
    assert second["status"]["timings"]["restoreSeconds"] >= 0
    assert stored(local) == ["1/1", "1/2", "1/3", "2/4", "2/5", "2/6", "2/7", "2/8"]  # SC-126


async def proven(local: LocalWorld, which: str) -> bool:
    status = (await local.world.documents())[which]["status"]
    return "deletionProvenTime" in status["timings"]


async def test_a_checkpoint_waits_for_a_scheduler_that_is_away(local: LocalWorld) -> None:
    world, go = local.world, folder(local) / "go"  # SC-643
    script = (
        f"mkdir state; echo one > state/data; while [ ! -e {go} ]; do sleep 0.02; done;"
        """ echo '{"checkpoint": {"dir": "state"}, "id": "a"}' > $NODUS_PROGRESS;"""
        " answer=$(dirname $NODUS_PROGRESS)/answers/a;"
        f" touch {folder(local)}/said; while [ ! -e $answer ]; do sleep 0.02; done;"
        f" cp $answer $(dirname $NODUS_PROGRESS)/committed {folder(local)}"
    )
    await world.submit(template={"command": ["/bin/sh", "-c", script]})
    async with local.scheduling(pace=QUICK):
        await local.until(reached(local, "0/1", "Running"))
    go.touch()
    await local.until(there(folder(local) / "said"))

    async def copied() -> bool:
        return stored(local) == ["1/1"]

    await local.until(copied)
    channel = folder(local) / "machines" / await the_machine(local) / CHANNEL
    assert not (channel / "committed").exists()
    assert await world.rows(t.checkpoints) == []

    async with local.scheduling(pace=QUICK):
        await local.until(reached(local, "0/1", "Succeeded"))

    assert (folder(local) / "committed").read_text() == "1\n"
    assert (folder(local) / "a").read_text() == '{"committed":true,"seq":1}'
    (row,) = await world.rows(t.checkpoints)
    assert (row["epoch"], row["seq"], row["bytes"]) == (1, 1, 4)
    assert place_of(row).joinpath("data").read_text() == "one\n"


async def test_a_copy_without_its_commit_is_no_checkpoint(local: LocalWorld) -> None:  # SC-126
    world = local.world
    script = (
        "mkdir state; echo $NODUS_EPOCH > state/data;"
        f" [ $NODUS_EPOCH = 2 ] || while [ ! -e {folder(local)}/go ]; do sleep 0.02; done;"
        """ echo '{"checkpoint": {"dir": "state"}, "id": "a"}' > $NODUS_PROGRESS;"""
        " while [ ! -e $(dirname $NODUS_PROGRESS)/answers/a ]; do sleep 0.02; done;"
        f" echo ${{NODUS_RESTORE_SEQ-none}} > {folder(local)}/restored"
    )
    await world.submit(template={"command": ["/bin/sh", "-c", script]})
    async with local.scheduling(pace=QUICK):
        await local.until(reached(local, "0/1", "Running"))
    (folder(local) / "go").touch()

    async def copied() -> bool:
        return stored(local) == ["1/1"]

    await local.until(copied)
    await kill(local)

    async with local.scheduling(pace=QUICK):
        await local.until(reached(local, "0/2", "Succeeded"))

    documents = await world.documents()
    assert "restoreFrom" not in documents["0/2"]["spec"]
    assert documents["0/1"]["status"]["checkpoints"] == {"count": 0}
    assert (folder(local) / "restored").read_text() == "none\n"
    assert [(row["epoch"], row["seq"]) for row in await world.rows(t.checkpoints)] == [(2, 1)]
    assert stored(local) == ["1/1", "2/1"]


async def test_a_spoilt_checkpoint_is_unavailable_and_not_charged(local: LocalWorld) -> None:
    world = local.world  # SC-141
    await world.submit(**saving(local, 40, 5, 18))
    async with local.scheduling(pace=QUICK):
        await local.until(there(folder(local) / "hanging"))
        last = max(await world.rows(t.checkpoints), key=lambda row: int(row["seq"]))
        place_of(last).joinpath("sum.json").write_text("{}")
        await kill(local)
        await local.until(reached(local, "0/2", "Failed"))
        await local.until(lambda: proven(local, "0/2"))

    status = (await world.documents())["0/2"]["status"]
    assert status["reason"] == "CheckpointUnavailable"
    assert status["actual"]["costUSD"] == "0.000000"
    rows = {row["seq"]: row["deleted"] is None for row in await world.rows(t.checkpoints)}
    assert rows == {1: True, 2: True, 3: False}


async def test_the_command_saves_and_tells_the_seq(local: LocalWorld) -> None:  # SC-642
    world = local.world
    nodus = f"{sys.executable} -m nodus_api.cli.main checkpoint"
    script = (
        f"mkdir state; echo one > state/data; {nodus} --dir state --completed 1 --total 4"
        f" > {folder(local)}/said && {nodus} --dir state -o json >> {folder(local)}/said"
    )
    source = {"PYTHONPATH": str(Path(nodus_api.__file__).parent.parent)}
    environment = source | {"PATH": os.environ["PATH"]}
    await world.submit(template={"command": ["/bin/sh", "-c", script], "env": environment})
    async with local.scheduling(pace=QUICK):
        await local.until(reached(local, "0/1", "Succeeded", "Failed"))

    said = (folder(local) / "said").read_text().splitlines()
    assert said == ["committed 1", '{"committed": true, "seq": 2}']
    cursors = [(row["cursor_completed"], row["cursor_total"]) for row in await rows_by_seq(local)]
    assert cursors == [(1, 4), (None, None)]
    assert await world.stage() == "Succeeded"


async def rows_by_seq(local: LocalWorld) -> list[Any]:
    rows = await local.world.rows(t.checkpoints)
    return sorted(rows, key=lambda row: int(row["seq"]))
