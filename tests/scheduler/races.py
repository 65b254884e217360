"""What tests of hedging share: an Attempt that is late to run, and the runners of its machines."""

from typing import Any

import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import all_records
from tests.scheduler.world import Runner, World

from nodus_api.kernel.attempt import CostSegment
from nodus_api.kernel.vocabulary import LeaseRole
from nodus_api.storage import tables as t
from nodus_api.storage.records import AttemptRecord

SPEEDY = {"profile": "Speed", "hedge": "Auto"}
LATE = 240.0
"""Seconds from the placement to being late: 60 for the grant, 180 for the boot."""
FIRST, SECOND = "cpu-1c-4g-us", "cpu-1c-4g-eu"


def offer_two(world: World, *, first: str = "2.95", second: str = "3.50") -> None:
    """Offer the class that placement chooses, and the one that it would try next."""
    world.fake.slots = 100
    world.fake.offered = [an_offer(FIRST, rate=first), an_offer(SECOND, rate=second)]


async def hedge(world: World, **spec: Any) -> tuple[Runner, Runner]:
    """Bring an Attempt to be late, its machines granted; return the runners of both."""
    offer_two(world)
    await world.submit(**({"placement": SPEEDY} | spec))
    await world.settle()
    await world.settle(LATE)
    return runner_on(world, FIRST), runner_on(world, SECOND)


def runner_on(world: World, offering: str) -> Runner:
    """Return the runner of the latest machine of a class."""
    intent = [one for one in world.fake.intents.values() if one.offering == offering][-1]
    return world.runners.setdefault(intent.key, Runner(world.database, intent))


async def register(world: World, *runners: Runner) -> None:
    for runner in runners:
        await runner.report("registered", checks={}, pullMs=3000)
    await world.settle()


async def asks(world: World, runner: Runner) -> bool:
    """Let a runner ask until it is answered; return whether it may start."""
    await runner.report("canStart")
    await world.settle()
    standing = await runner.report("canStart")
    return standing is not None and standing.won


async def start(world: World, runner: Runner) -> None:
    """Let a runner start the program."""
    await register(world, runner)
    assert await asks(world, runner)
    await runner.report("started")
    await world.settle()


def die(world: World, runner: Runner) -> None:
    """Let a runner's machine die, as its supplier tells."""
    condition = "failed"
    world.fake.become(runner.intent.key, condition=condition, ended_at=world.clock.now())


async def the_record(world: World) -> AttemptRecord:
    (record,) = await all_records(world)
    return record


def ledger_of(record: AttemptRecord, offering: str) -> list[CostSegment]:
    """Return what the ledger holds of the machine of a class."""
    (number,) = (one.machine.no for one in record.tenancies if one.machine.offering == offering)
    return [one for one in record.view.segments if one.machine == number]


async def roles(world: World) -> list[str]:
    """Return the roles of the leases that were ever made, in order of machine."""
    async with world.database.single_reads() as connection:
        query = sa.select(t.leases.c.role).order_by(t.leases.c.machine)
        return list((await connection.execute(query)).scalars())


def hedged(record: AttemptRecord) -> bool:
    return any(one.lease.role is LeaseRole.HEDGE for one in record.tenancies)
