"""Every row of SC-310 has a real cause: what the loop decides when that cause is there.

Each case changes one thing in the world. What was counted stands in the kept decision (SC-333).
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.world import World

from nodus_api.kernel.rejection import RejectionCode
from nodus_api.storage import tables as t
from nodus_api.storage.allowance_store import AllowanceStore
from nodus_api.suppliers.supplier import Auth, MachineCondition, NoCapacity, Quota, SupplierOffer

CPU = "cpu-1c-4g-other"
GPU = "h100-sxm-80g-x1-us"

Prepare = Callable[[World], Awaitable[None]]


def a_gpu(name: str = GPU, **changes: Any) -> SupplierOffer:
    """An offer of one H100; its class with what is changed."""
    one = an_offer(name, rate="2.95")
    offered = replace(
        one.offered_class,
        accelerator="h100",
        form="sxm",
        count=1,
        accelerator_memory_gib=Decimal(80),
        region_class="us",
    )
    return replace(one, offered_class=replace(offered, **changes))


async def nothing(world: World) -> None:
    """The spec alone is the cause."""


async def restricted(world: World) -> None:
    await world.settle()
    async with world.database.transaction() as connection:
        await connection.execute(sa.insert(t.projects).values(name="lab"))
    assert await AllowanceStore(world.database).restrict(CPU, ["lab"]) is None


async def drained(world: World) -> None:
    await world.settle()
    assert await AllowanceStore(world.database).enable(CPU, enabled=False)


async def over_quota(world: World) -> None:
    await AllowanceStore(world.database).set_quota("default", "cpu", 0)


async def refused_before(world: World) -> None:
    """Another Job was refused: for this one the class backs off, for that one it has no room."""
    world.fake.refusals = [NoCapacity("none")]
    await world.submit("earlier")
    await world.settle()


async def supplier_over_quota(world: World) -> None:
    world.fake.refusals = [Quota("the account is full")]


async def credentials_refused(world: World) -> None:
    world.fake.refusals = [Auth("no")]
    await world.submit("earlier")
    await world.settle()


async def lost_before(world: World) -> None:
    """It runs on one of two classes, and that machine dies."""
    world.fake.offered = [an_offer("cpu-1c-4g-us"), an_offer("cpu-1c-4g-eu", rate="0.09")]
    runner = await world.run(name="train")
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)


@dataclass(frozen=True)
class Case:
    """A cause: what is offered, what is asked, and what happened before."""

    code: RejectionCode
    offers: list[SupplierOffer] = field(default_factory=lambda: [an_offer()])
    spec: dict[str, Any] = field(default_factory=dict)
    prepare: Prepare = nothing


H100 = {"resources": {"accelerators": ["h100"], "count": 1}}
CASES = [
    Case(RejectionCode.ACCELERATOR_MISMATCH, spec=H100),
    Case(RejectionCode.ACCELERATOR_COUNT_MISMATCH, [a_gpu(count=8)], H100),
    Case(
        RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL,
        [a_gpu()],
        {"resources": H100["resources"] | {"acceleratorMemoryGiB": "96"}},
    ),
    Case(RejectionCode.ARCHITECTURE_MISMATCH, spec={"resources": {"arch": "arm64"}}),
    Case(RejectionCode.CPU_TOO_SMALL, spec={"resources": {"vcpus": "2"}}),
    Case(RejectionCode.MEMORY_TOO_SMALL, spec={"resources": {"memoryGiB": "5"}}),
    Case(RejectionCode.DISK_TOO_SMALL, spec={"resources": {"diskGiB": "11"}}),
    Case(
        RejectionCode.GANG_UNSUPPORTED,
        [an_offer(gang_capable=False)],
        {"completions": 2, "gang": True},
    ),
    Case(RejectionCode.REGION_NOT_ALLOWED, spec={"placement": {"regions": ["us"]}}),
    Case(RejectionCode.NOT_ENTITLED, prepare=restricted),
    Case(
        RejectionCode.INTERRUPTIBLE_NOT_ALLOWED,
        [an_offer(spot="0.02")],
        {"placement": {"interruptible": "Never"}},
    ),
    Case(RejectionCode.INTERRUPTIBLE_REQUIRED, spec={"placement": {"interruptible": "Require"}}),
    Case(RejectionCode.NOT_IN_ALLOW_LIST, spec={"placement": {"offerings": [GPU]}}),
    Case(RejectionCode.RATE_ABOVE_LIMIT, spec={"limits": {"maxRateUSDPerHour": "0.05"}}),
    Case(
        RejectionCode.COST_ABOVE_LIMIT,
        spec={"limits": {"maxCostUSD": "0.05"}, "estimate": {"hours": "1"}},
    ),
    Case(RejectionCode.DISABLED, prepare=drained),
    Case(RejectionCode.DISABLED, prepare=credentials_refused),
    Case(RejectionCode.QUOTA_EXCEEDED, prepare=over_quota),
    Case(RejectionCode.QUOTA_EXCEEDED, prepare=supplier_over_quota),
    Case(RejectionCode.RECENTLY_LOST, prepare=lost_before),
    Case(RejectionCode.BACKING_OFF, prepare=refused_before),
    Case(
        RejectionCode.GANG_TOO_LARGE,
        [an_offer(available=1)],
        {"completions": 2, "gang": True},
    ),
    Case(RejectionCode.INSUFFICIENT_CAPACITY, [an_offer(available=0)]),
]
_OWN = {lost_before}
"""Preparations that submit the Job themselves."""


async def counted(world: World) -> Counter[str]:
    """Return how many candidates each code ruled out in the last decision of the Job "train"."""
    query = (
        sa.select(t.decisions.c.counters)
        .join(t.attempts, t.attempts.c.no == t.decisions.c.attempt)
        .join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .where(t.workloads.c.name == "train")
        .order_by(t.decisions.c.at.desc(), t.decisions.c.attempt.desc(), t.decisions.c.n.desc())
    )
    async with world.database.single_reads() as connection:
        kept = (await connection.execute(query)).scalars().first()
    assert kept is not None
    return Counter(kept["reasons"])


@pytest.mark.parametrize("case", CASES, ids=lambda one: f"{one.code.number}-{one.code}")
async def test_the_cause_shows_as_its_code(world: World, case: Case) -> None:  # SC-310
    world.fake.offered = case.offers
    await case.prepare(world)
    if case.prepare not in _OWN:
        await world.submit("train", **case.spec)
    await world.settle()
    await world.settle(1)
    assert (await counted(world))[case.code.value] == 1


def test_the_codes_are_those_of_the_table() -> None:  # SC-310: stable, in this order
    assert [(one.number, one.value, one.permanent, one.soft) for one in RejectionCode] == [
        (0, "AcceleratorMismatch", True, False),
        (1, "AcceleratorCountMismatch", True, False),
        (2, "AcceleratorMemoryTooSmall", True, False),
        (3, "ArchitectureMismatch", True, False),
        (4, "CPUTooSmall", True, False),
        (5, "MemoryTooSmall", True, False),
        (6, "DiskTooSmall", True, False),
        (7, "GangUnsupported", True, False),
        (8, "RegionNotAllowed", True, False),
        (9, "NotEntitled", True, False),
        (10, "InterruptibleNotAllowed", True, False),
        (11, "InterruptibleRequired", True, False),
        (12, "NotInAllowList", True, False),
        (13, "RateAboveLimit", True, False),
        (14, "CostAboveLimit", True, False),
        (15, "Disabled", False, False),
        (16, "QuotaExceeded", False, False),
        (17, "RecentlyLost", False, True),
        (18, "BackingOff", False, False),
        (19, "Unhealthy", False, True),
        (20, "GangTooLarge", False, False),
        (21, "InsufficientCapacity", False, False),
    ]
