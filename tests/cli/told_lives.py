"""Lives for the human views: whole ones, moved through the real loop by a clock that stands."""

import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.world import World

from nodus_api.cli.explain_text import explain_text
from nodus_api.cli.explained import explained
from nodus_api.cli.spans import Timeline, timeline_of
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.metav1.times import format_time, parse_time
from nodus_api.storage.lives import (
    LedgerRow,
    Life,
    SavedPoint,
    database_time,
    find_owner,
    read_life,
    read_lives,
)
from nodus_api.suppliers.supplier import MachineCondition

SHA = "ab" * 32
GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    """Return a text as it is to be printed."""
    return (GOLDEN / f"{name}.txt").read_text()


def plain(text: str) -> str:
    """Return a text with the hashes in Attempts' names, which no two runs share, made equal."""
    return re.sub(r"(-e[0-9]+-)[a-z2-7]{5}", r"\1abcde", text)


async def a_life(world: World, which: str = "0/1") -> Life:
    """Return one Attempt of a world with one workload, as the views read it."""
    name = (await world.documents())[which]["metadata"]["name"]
    async with world.database.snapshot() as connection:
        life = await read_life(connection, "default", name)
    assert life is not None
    return life


async def facts_of(world: World, which: str = "0/1") -> dict[str, Any]:
    """Return what `nodus explain -o json` says."""
    return explained(await a_life(world, which), world.clock.now())


async def told(world: World, which: str = "0/1") -> str:
    """Return what `nodus explain` prints."""
    return explain_text(await facts_of(world, which))


async def timeline(world: World, name: str = "train") -> Timeline:
    """Return what `nodus timeline` draws."""
    async with world.database.snapshot() as connection:
        owner = await find_owner(connection, "default", OwnerKind.JOB, name)
        assert owner is not None
        lives = await read_lives(connection, owner.uid)
        now = await database_time(connection)
    return timeline_of(f"job/{name}", "default", owner.state, lives, now)


async def lose_and_finish(world: World) -> None:
    """Run a Job whose machine fails after a checkpoint, and whose second epoch succeeds."""
    world.fake.offered = [
        an_offer("cpu-1c-4g-us", spot="0.02"),
        an_offer("cpu-1c-4g-eu", rate="0.07"),
        an_offer("cpu-1c-4g-full", rate="0.01", available=0),
    ]
    await world.submit(
        checkpoint={"restartable": True}, placement={"interruptible": "Never"}, workHours=1
    )
    await world.settle()
    runner = await world.start()
    for seq in (1, 2):
        await world.clock.advance(40)
        await runner.report("checkpoint", seq=seq, bytes=7, uri=f"file:///s/0/1/{seq}", sha256=SHA)
        await world.settle()
    await world.clock.advance(5)
    await runner.report("heartbeat")
    await world.settle()
    world.fake.become(
        runner.intent.key, condition=MachineCondition.FAILED, ended_at=world.clock.now()
    )
    await world.settle(15)
    runner = await world.start("0/2")
    await world.settle(50)
    await runner.report("exited", exitCode=0, signal=None, oom=False)
    await world.settle(2)


def moment(text: str) -> datetime:
    """Return `10:00:05` of one day, or a whole RFC 3339 time."""
    return parse_time(text if "T" in text else f"2026-03-01T{text}Z")


def a_plain_life(
    times: str,
    *,
    slot: str = "0",
    epoch: int = 1,
    stage: str = "Succeeded",
    gang: dict[str, Any] | None = None,
    saved: str = "",
    covered: str = "",
    **status: Any,
) -> Life:
    """Return a life by hand: `times` are up to six milestones, `-` where one is not reached.

    queued, acquired, billing, started, finished, gone. `covered` is `from..to`.
    """
    names = (
        *("queuedTime", "acquiredTime", "billingStartTime"),
        *("commandStartedTime", "finishedTime", "deletionProvenTime"),
    )
    timings = {
        name: format_time(moment(text))
        for name, text in zip(names, times.split(), strict=False)
        if text != "-"
    }
    phase = {"Lost": "Failed", "Pending": "Queued", "Starting": "Provisioning"}.get(stage, stage)
    name = f"train-{slot}-e{epoch}-abcde"
    spec: dict[str, Any] = {"slot": slot, "epoch": epoch}
    ledger = []
    if covered:
        start, _, end = covered.partition("..")
        ledger.append(
            LedgerRow(
                machine=1,
                segment="Teardown",
                start=moment(start),
                end=moment(end),
                covered=True,
                usd=Decimal("0.5"),
            )
        )
    return Life(
        document={
            "metadata": {
                "name": name,
                "namespace": "default",
                "ownerReferences": [{"kind": "Job", "name": "train"}],
            },
            "spec": spec | ({"gang": gang} if gang else {}),
            "status": {
                "phase": phase,
                "progress": {"stage": stage},
                "timings": timings,
                **status,
            },
        },
        archived=True,
        ledger=tuple(ledger),
        checkpoints=tuple(
            SavedPoint(seq=seq, committed=moment(text), size=1)
            for seq, text in enumerate(saved.split(), start=1)
        ),
    )
