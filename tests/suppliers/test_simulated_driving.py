"""A fleet beside a scheduler that runs: what is due happens by itself (SC-730)."""

import asyncio

from tests.suppliers.simulated_fleet import SimulatedFleet
from tests.suppliers.test_simulated import wants

from nodus_api.clock import ManualClock, give_way
from nodus_api.suppliers.simulated import drive
from nodus_api.tasks import spawn


async def test_a_fleet_lives_by_its_clock_until_it_is_stopped() -> None:
    fleet, stop = SimulatedFleet(), asyncio.Event()
    clock = fleet.fleet.clock
    assert isinstance(clock, ManualClock)
    driving = spawn("fleet", drive(fleet.fleet, fleet.desk, stop))
    await clock.advance(0)
    await fleet.supplier.create(wants("a", env={"SIMULATED_SECONDS": "60"}))

    for _ in range(600):
        await clock.advance(0.5)
        for _ in range(8):  # a report and its answer are several turns
            await give_way()

    kinds = [one["kind"] for one in fleet.desk.heard]
    assert kinds[:3] == ["registered", "canStart", "started"]
    assert kinds[-1] == "exited"
    assert max(one["ageMs"] for one in fleet.desk.heard) <= 500
    stop.set()
    await clock.advance(5)
    assert driving.done()
    await driving
