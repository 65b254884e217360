"""Real processes: the whole loop with the local supplier, the runner and the report socket."""

import asyncio
import sys

import asyncpg
from tests.scheduler.local_world import LocalWorld

from nodus_api.clock import SystemClock
from nodus_api.scheduler import Scheduler
from nodus_api.storage import tables as t
from nodus_api.tasks import spawn


async def test_a_real_process_lives_and_is_proven_gone(local: LocalWorld) -> None:
    world = local.world
    await world.submit(template={"command": [sys.executable, "-c", "print('worked')"]})
    async with local.scheduling():
        await local.until(local.proven)
    status = await world.status()
    assert status["phase"] == "Succeeded"
    assert status["exitCode"] == 0
    assert (await world.workload())["state"] == "Succeeded"


async def test_a_running_program_outlives_its_scheduler(local: LocalWorld) -> None:  # SC-710
    world, folder = local.world, local.socket.parent
    program = (
        "import pathlib, time\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "with open(folder / 'starts', 'a') as starts: starts.write('started\\n')\n"
        "while not (folder / 'go').exists(): time.sleep(0.02)\n"
        "raise SystemExit(3)\n"
    )
    await world.submit(template={"command": [sys.executable, "-c", program]})
    async with local.scheduling():
        await local.until(local.stage_is("Running"))
    tokens = [row["token"] for row in await world.rows(t.leader)]

    (folder / "go").touch()
    (machine,) = [view async for view in local.supplier.list_owned(local.installation)]

    async def ended() -> bool:
        seen = await local.supplier.observe([machine.handle])
        return seen[machine.handle].exit is not None

    await local.until(ended)  # nobody schedules: the end is kept on the machine
    assert await world.stage() == "Running"

    async with local.scheduling():
        await local.until(local.proven)
    status = await world.status()
    assert (status["reason"], status["exitCode"]) == ("CustomerExit", 3)
    assert (folder / "starts").read_text().splitlines() == ["started"]  # P-05
    assert [row["token"] for row in await world.rows(t.leader)] == [tokens[0] + 1]
    assert len(await world.rows(t.machines)) == 1


async def test_a_running_program_is_stopped(local: LocalWorld) -> None:  # T17
    world = local.world
    program = "import time; time.sleep(600)"
    await world.submit(template={"command": [sys.executable, "-c", program]}, stopGraceSeconds=5)
    async with local.scheduling() as scheduler:
        await local.until(local.stage_is("Running"))
        await world.ask("stop")
        await scheduler.wake()
        await local.until(local.proven)
    status = await world.status()
    assert (status["phase"], status["reason"], status["signal"]) == ("Cancelled", "Stopped", 15)
    assert status["interruption"]["trigger"] == "User"


async def test_one_scheduler_leads_and_the_other_takes_over(  # SC-601, SC-604
    local: LocalWorld, clean_database: str
) -> None:
    stop = asyncio.Event()
    schedulers = [
        Scheduler(local.database, local.supplier, SystemClock(), holder=name)
        for name in ("one", "two")
    ]
    tasks = [spawn("scheduler", scheduler.run(stop)) for scheduler in schedulers]
    operator = await asyncpg.connect(clean_database)
    try:

        async def one_leads() -> bool:
            return sum(scheduler.leading for scheduler in schedulers) == 1

        await local.until(one_leads)
        leader = next(one for one in schedulers if one.leading)
        await operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND granted AND objid = 7237381"
        )

        async def another_leads() -> bool:
            return not leader.leading and await one_leads()

        await local.until(another_leads)
        assert [row["token"] for row in await local.world.rows(t.leader)] == [2]
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        await operator.close()
    assert not any(scheduler.leading for scheduler in schedulers)
