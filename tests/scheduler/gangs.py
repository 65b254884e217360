"""What the tests of gangs share: a Job of ranks, and its whole epochs at once."""

from typing import Any

from tests.scheduler.world import Runner, World

from nodus_api.storage.checkpoint_store import Verdict
from nodus_api.suppliers.supplier import MachineCondition

SHA = "ab" * 32


async def submit_gang(world: World, size: int, name: str = "train", **spec: Any) -> int:
    return await world.submit(name, completions=size, gang=True, **spec)


def at_epoch(epoch: int, size: int) -> list[str]:
    return [f"{rank}/{epoch}" for rank in range(size)]


async def register(world: World, *ranks: str) -> list[Runner]:
    runners = [await world.runner(which) for which in ranks]
    for runner in runners:
        await runner.report("registered", checks={}, pullMs=0)
    await world.settle(1)
    return runners


async def start_gang(world: World, epoch: int, size: int) -> list[Runner]:
    """Bring a gang epoch from its grants to Running."""
    runners = await register(world, *at_epoch(epoch, size))
    for runner in runners:
        await runner.report("canStart")
    await world.settle()
    for runner in runners:
        standing = await runner.report("canStart")
        assert standing is not None
        assert standing.won
    await world.settle(1)
    for runner in runners:
        await runner.report("started")
    await world.settle()
    return runners


async def run_gang(world: World, size: int, **spec: Any) -> list[Runner]:
    """Return the runners of a new gang whose programs run."""
    await submit_gang(world, size, **spec)
    await world.settle()
    return await start_gang(world, 1, size)


async def end(runner: Runner, code: int = 0, *, stopped: bool = False) -> None:
    age = {"stopAgeMs": 0} if stopped else {}
    await runner.report("exited", exitCode=code, signal=None, oom=False, **age)


async def stop_by_order(world: World, *runners: Runner) -> None:
    """Let programs end by the order to stop, as their runners do."""
    for runner in runners:
        await end(runner, 143, stopped=True)
    await world.settle(1)


def lose(world: World, runner: Runner) -> None:
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)


async def propose(runner: Runner, seq: int, sha256: str = SHA, **fields: Any) -> Verdict | None:
    rank = runner.intent.incarnation.slot
    uri = f"file:///store/{rank}/{runner.intent.epoch}/{seq}"
    body: dict[str, Any] = {"seq": seq, "bytes": 7, "uri": uri, "sha256": sha256} | fields
    standing = await runner.report("checkpoint", **body)
    return standing.verdict if standing else None


async def save_together(world: World, runners: list[Runner], seq: int, **fields: Any) -> None:
    for runner in runners:
        await propose(runner, seq, **fields)
    await world.settle()
    for runner in runners:
        assert await propose(runner, seq, **fields) is Verdict.COMMITTED


async def stages(world: World, epoch: int) -> list[str]:
    """Return the stages of a gang epoch's ranks, with the reasons of those that ended."""
    found = {
        int(which.partition("/")[0]): one["status"]
        for which, one in (await world.documents()).items()
        if which.endswith(f"/{epoch}")
    }
    return [
        " ".join(filter(None, (found[rank]["progress"]["stage"], found[rank].get("reason"))))
        for rank in sorted(found)
    ]
