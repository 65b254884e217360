"""`nodus offerings costs`: what is charged beside what it costs (SC-504)."""

import asyncio
import json

from tests.cli.conftest import Nodus
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.gangs import end
from tests.scheduler.world import World

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database, Role


async def test_margins_are_told(nodus: Nodus, clean_database: str, clock: ManualClock) -> None:
    async def told(*arguments: str) -> str:
        at = ("--database-url", clean_database)
        done = await asyncio.to_thread(nodus, "offerings", "costs", *arguments, *at)
        return str(done.stdout)

    assert "No machine has cost" in await told()
    database = Database(clean_database, role=Role.SCHEDULER, pinned_now=clock.now)
    fake = FakeSupplier(clock)
    fake.offered = [an_offer(rate="3.60")]
    world = World(database, clock, fake)
    runner = await world.run(estimate={"hours": "0.1"})
    await clock.advance(100)
    await end(runner)
    await world.settle(1)
    actual = (await world.status())["actual"]
    await database.close()

    (line,) = json.loads(await told("-o", "json"))["items"]
    assert line == {
        "class": "cpu-1c-4g-other",
        "machines": 1,
        "hours": actual["hours"],
        "costUSD": actual["costUSD"],
        "chargedUSD": actual["costUSD"],
        "coveredUSD": "0.000000",
        "marginUSD": "0.000000",
    }
    text = await told("--by", "supplier")
    assert text.startswith("SUPPLIER  MACHINES")
