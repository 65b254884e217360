"""Scenario 43 with real processes: one Sandbox after another on one machine of this host."""

from typing import Any

from tests.scheduler.local_world import LocalWorld

from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t


async def test_a_second_sandbox_runs_on_the_first_ones_machine(local: LocalWorld) -> None:
    """SC-343, SC-344: warmReuse true, and clocks + idle = the machine's clock."""
    world = local.world

    async def status_of(owner: str) -> dict[str, Any]:
        for one in await world.all_documents():
            if one["metadata"]["ownerReferences"][0]["name"] == owner:
                status: dict[str, Any] = one["status"]
                return status
        return {}

    async def runs(owner: str, script: str, **spec: Any) -> dict[str, Any]:
        command = {"command": ["/bin/sh", "-c", script]}
        await world.submit(owner, kind=OwnerKind.SANDBOX, template=command, **spec)
        await scheduler.wake()

        async def over() -> bool:
            return "deletionProvenTime" in (await status_of(owner)).get("timings", {})

        await local.until(over)
        return await status_of(owner)

    async with local.scheduling() as scheduler:
        first = await runs("one", "echo hush > secret; sleep 1", idleSeconds=30)
        assert first["phase"] == "Succeeded"
        (machine,) = await world.rows(t.machines)
        assert machine["state"] == "Registered"
        second = await runs("two", "test ! -e secret && sleep 1", idleSeconds=0)
    assert (second["phase"], second["exitCode"]) == ("Succeeded", 0)  # nothing of the first's
    assert second["placement"]["warmReuse"] is True
    (machine,) = await world.rows(t.machines)
    assert machine["state"] == "Gone"
    periods = [
        (row["from_ts"], row["to_ts"])
        for table in (t.cost_segments, t.idle_time)
        for row in await world.rows(table)
    ]
    clock = machine["gone"].replace(microsecond=0) - machine["billing_start"]
    assert sum((end - start for start, end in periods), type(clock)()) == clock
    assert second["timings"]["billingStartTime"] == second["timings"]["acquiredTime"]
