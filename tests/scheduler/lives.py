"""Whole lives as scripts of fixed moments, what stands after each moment, and what must be true.

A life is told once without a fault; each later telling has one fault and must come, within the time
to the next moment, to what stood then (P-08). What may differ is when a machine was asked for and
when it was proven gone: that is compared with the supplier's truth instead.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.conftest import START
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.failpoints import Failpoints, Plan, Site
from tests.scheduler.invariants import all_records, check, check_quiet
from tests.scheduler.mortal_world import MortalWorld, TrueSupplier
from tests.scheduler.saved_rows import RowKeeper, Rows, SavedRows
from tests.scheduler.world import Runner

from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import MachineCondition, MachineIntent, SupplierCaps

BETWEEN = timedelta(seconds=90)
"""Between two moments: more than a fault may cost, less than silence that loses a machine."""
PATIENCE = timedelta(seconds=85)
LOOK_AGAIN_SECONDS = 5.0

_DELAYED = {"acquiredTime", "billingStartTime", "deletionProvenTime", "queuedTime"}
_COSTED = {"bootUSD", "restoreUSD", "teardownUSD"}


@dataclass(frozen=True, kw_only=True)
class Life:
    """`words`: what each Attempt's runner says, one word a moment from its machine's first on.

    `orders`: what users do at a moment. `offsets`: seconds after a moment at which the passes run.
    `doubts`: how the supplier answers the first create of an Attempt.
    """

    name: str
    spec: Mapping[str, Any]
    words: Mapping[str, Sequence[str]]
    orders: Mapping[int, str] = field(default_factory=dict)
    offsets: Sequence[float] = (0, 15)
    doubts: Mapping[str, str] = field(default_factory=dict)
    sync_delete: bool = True
    boots: int = 0
    """The moment from which on machines run; before, they are only being made."""
    moments: int


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A world at the beginning of a moment: its rows, its machines, and what was said."""

    rows: SavedRows
    supplier: Mapping[str, Any]
    reports: Mapping[str, int]
    said: Mapping[str, int]
    starts: Mapping[tuple[str, int], Sequence[str]]


@dataclass(kw_only=True)
class Reference:
    """A life without a fault: how each moment began and ended, its sites, and the documents."""

    kept: list[Kept] = field(default_factory=list)
    sites: list[Sequence[Site]] = field(default_factory=list)
    standings: list[Mapping[str, Any]] = field(default_factory=list)
    meanings: list[tuple[Rows, Any]] = field(default_factory=list)
    documents: list[Mapping[str, Any]] = field(default_factory=list)


class Telling:
    """One telling of a life, from a moment on."""

    def __init__(
        self, world: MortalWorld, life: Life, keeper: RowKeeper, reference: Reference | None = None
    ) -> None:
        self._world = world
        self._life = life
        self._keeper = keeper
        self._reference = reference
        self._said: dict[str, int] = {}

    @property
    def supplier(self) -> TrueSupplier:
        assert isinstance(self._world.supplier, TrueSupplier)
        return self._world.supplier

    async def tell(self) -> Reference:
        """Tell the whole life without a fault, and check it at each moment and at its end."""
        self.supplier.doubts = dict(self._life.doubts)
        self.supplier.caps = SupplierCaps(sync_delete=self._life.sync_delete)
        told = Reference()
        for number in range(self._life.moments):
            told.kept.append(await self._kept())
            self._world.points = Failpoints()
            await self._passes(number)
            told.sites.append(self._world.points.sites)
            told.standings.append(await self._standing())
            told.meanings.append(await self._meaning())
            told.documents.append(await self._documents())
        await self._ends()
        return told

    async def tell_from(self, number: int, plan: Plan, *, to_the_end: bool = False) -> bool:
        """Tell the life from a moment on, with a fault in it; return whether it went to the end.

        It goes on until nothing can follow from its rows and machines but what followed from the
        reference's.
        """
        assert self._reference is not None
        await self._restore(self._reference.kept[number], number)
        self._world.points = Failpoints(plan)
        for later in range(number, self._life.moments):
            await self._passes(later)
            await self._comes_to(later)
            same = await self._meaning() == self._reference.meanings[later]
            if same and not to_the_end:
                await self._true()
                return False
        await self._ends()
        return True

    async def _passes(self, number: int) -> None:
        """A moment: what happens, and what a new leader makes of it, at the life's offsets."""
        world, moment = self._world, START + number * BETWEEN
        await world.comes(moment)
        await world.reigns_anew()
        await self._happens(number)
        for offset in self._life.offsets:
            ahead = (moment + timedelta(seconds=offset) - world.clock.now()).total_seconds()
            await world.live_until_settled(max(0.0, ahead))
        await check(world)

    async def _comes_to(self, number: int) -> None:
        """Make passes until there stands what stood."""
        assert self._reference is not None
        world, moment = self._world, START + number * BETWEEN
        wanted = self._reference.standings[number]
        while (found := await self._standing()) != wanted:
            late = world.clock.now() + timedelta(seconds=LOOK_AGAIN_SECONDS) > moment + PATIENCE
            assert not late, f"moment {number}: {difference(found, wanted)}"
            await world.live_until_settled(LOOK_AGAIN_SECONDS)
            await check(world)
        documents, meant = await self._documents(), self._reference.documents[number]
        assert documents == meant, f"moment {number}: {difference(documents, meant)}"

    async def _ends(self) -> None:
        await check_quiet(self._world)
        assert self.supplier.made.keys() == self.supplier.ended.keys()  # P-09
        history = rows.history_of(await rows.read(self._world.database), self.supplier.machines)
        assert_sound(replace(history, quiet=True))
        await self._true()

    async def _documents(self) -> Mapping[str, Any]:
        """Return the documents of Attempts that are over, as far as no delay changes them."""
        found = (await self._world.documents()).items()
        return {key: _told(one) for key, one in found if _over(one)}

    async def _meaning(self) -> tuple[Rows, Any]:
        saved = await self._keeper.save()
        here = self.supplier.machines
        said = {key: number for key, number in self._said.items() if key in here}
        return saved.meaning(), (self.supplier.living(), said)

    async def _kept(self) -> Kept:
        return Kept(
            rows=await self._keeper.save(),
            supplier=self.supplier.truth(),
            reports={key: one.n for key, one in self._world.runners.items()},
            said=dict(self._said),
            starts=copy.deepcopy(self._world.starts),
        )

    async def _restore(self, kept: Kept, number: int) -> None:
        world = self._world
        await self._keeper.restore(kept.rows)
        self.supplier.come_back(kept.supplier)
        for key, n in kept.reports.items():
            world.runners[key] = Runner(world.database, self.supplier.intents[key], n)
        self._said = dict(kept.said)
        world.starts = copy.deepcopy(dict(kept.starts))  # type: ignore[arg-type]  # lists, as kept
        await world.clock.advance(number * BETWEEN.total_seconds())

    async def _happens(self, number: int) -> None:
        world, running = self._world, number >= self._life.boots
        self.supplier.starts = MachineCondition.RUNNING if running else MachineCondition.PENDING
        if number == 0:
            await world.order_job("first", **self._life.spec)
        if number in self._life.orders:
            await world.order(f"order {number}", self._life.orders[number])
        if number == self._life.boots:
            for key in self.supplier.machines:
                self.supplier.become(key, condition=MachineCondition.RUNNING)
        for intent in list(self.supplier.intents.values()):
            if intent.key in self.supplier.machines:
                await self._speaks(intent)

    async def _speaks(self, intent: MachineIntent) -> None:
        """Let a runner say its next word; while its machine stands idle it only beats."""
        machine = self.supplier.machines[intent.key]
        if machine.condition is not MachineCondition.RUNNING:
            return
        which = f"{intent.incarnation.slot}/{intent.epoch}"
        number = self._said.get(intent.key, 0)
        self._said[intent.key] = number + 1
        words = self._life.words.get(which, ())
        word = words[number] if number < len(words) else "beat"
        await self._say(intent, which, word)

    async def _say(self, intent: MachineIntent, which: str, word: str) -> None:
        world = self._world
        match word.split():
            case ["registered"]:
                await world.say(intent, "registered", checks={}, pullMs=0)
            case ["asks"]:
                await world.say(intent, "canStart")
            case ["starts"]:
                standing = await world.say(intent, "canStart")
                assert standing is not None
                if standing.won:
                    slot = (intent.incarnation.slot, intent.epoch)
                    world.starts.setdefault(slot, []).append(intent.key)
                    await world.say(intent, "started")
            case ["saves", seq]:
                await world.say(
                    intent,
                    "checkpoint",
                    seq=int(seq),
                    bytes=7,
                    uri=f"file:///{which}/{seq}",
                    sha256="ab" * 32,
                    cursor={"completed": int(seq), "total": 10},
                )
            case ["exits", code]:
                await world.say(intent, "exited", exitCode=int(code), signal=None, oom=False)
            case ["stopped"]:
                await world.say(
                    intent, "exited", exitCode=143, signal=15, oom=False, stopAgeMs=1000
                )
            case ["dies"]:
                self.supplier.become(
                    intent.key, condition=MachineCondition.FAILED, ended_at=world.moment
                )
            case _:
                await world.say(intent, "heartbeat")

    async def _standing(self) -> Mapping[str, Any]:
        """Return what stands, but for what a delay may change."""
        documents = await self._world.documents()
        attempts = {key: _stands(one) for key, one in documents.items()}
        workloads = [(row["state"], row["outcome"]) for row in await self._world.workloads()]
        leases = await self._world.rows(t.leases)
        machines = await self._world.rows(t.machines)
        return {
            **attempts,
            "workloads": workloads,
            "granted starts": sum(row["won"] for row in leases),
            "machines": sorted(row["state"] for row in machines if row["state"] != "Gone"),
            "commands": [row["outcome"] for row in await self._world.rows(t.commands)],
            "reports": len(await self._world.rows(t.runner_reports)),
        }

    async def _true(self) -> None:
        """Compare the books with the supplier's truth, of machines that are proven gone."""
        supplier, world = self.supplier, self._world
        assert all(len(machines) == 1 for machines in world.starts.values()), world.starts  # P-05
        assert supplier.made_again == []
        assert await world.rows(t.orphans) == []
        known = {row["key"]: row for row in await world.rows(t.machines)}
        assert supplier.made.keys() <= known.keys()  # SC-608
        for record in await all_records(world):
            for tenancy in record.tenancies:
                machine = tenancy.machine
                proven = machine.gone
                if machine.billing_start is None or proven is None:
                    continue
                made, ended = supplier.made[machine.key], supplier.ended[machine.key]
                assert machine.billing_start == made.replace(microsecond=0)
                assert ended <= proven <= ended + PATIENCE  # P-10
                billed = [one for one in record.view.segments if one.machine == machine.no]
                seconds = sum((one.end - one.start).total_seconds() for one in billed)
                assert seconds == (_ceiling(proven) - machine.billing_start).total_seconds()  # P-11


def _ceiling(at: datetime) -> datetime:
    floor = at.replace(microsecond=0)
    return floor if floor == at else floor + timedelta(seconds=1)


def _over(document: Mapping[str, Any]) -> bool:
    return "deletionProvenTime" in document["status"]["timings"]


def _stands(document: Mapping[str, Any]) -> Mapping[str, Any]:
    status = document["status"]
    return {
        "stage": status["progress"]["stage"],
        "reason": status.get("reason"),
        "registered": status["timings"].get("registeredTime"),
        "started": status["timings"].get("commandStartedTime"),
        "proven": "deletionProvenTime" in status["timings"],
        "checkpoints": status.get("checkpoints"),
    }


def _told(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document without what a delay of a request or of a proof changes."""
    kept: dict[str, Any] = json.loads(json.dumps(document))
    del kept["metadata"]
    status = kept["status"]
    timings, delayed = status["timings"], set(_DELAYED)
    if "commandStartedTime" not in timings:  # it ends when the scheduler comes to it
        delayed.add("finishedTime")
        status.get("interruption", {}).pop("time", None)
    status["timings"] = {
        name: value
        for name, value in timings.items()
        if name not in delayed and not name.endswith("Seconds")
    }
    status["actual"] = {
        "runningUSD": status["actual"]["segments"].get("runningUSD"),
        "covered": status["actual"]["segments"].get("coveredByNodus"),
        "segments": sorted(status["actual"]["segments"]),
    }
    status["placement"] = {"offering": status["placement"].get("offering")}
    status["progress"] = {"stage": status["progress"]["stage"]}
    return kept


def difference(found: Any, wanted: Any, path: str = "") -> str:
    """Return where two values differ, and how."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
        return "; ".join(
            difference(found.get(key), wanted.get(key), f"{path}.{key}") for key in keys
        )
    return f"{path} is {found}, not {wanted}"


_BOOT = ("registered", "asks", "starts")

LOSS = Life(  # a machine is lost and replaced from its checkpoint, a program fails and is retried
    name="loss",
    spec={
        "completions": 2,
        "parallelism": 2,
        "restart": {"maxRetries": 1},
        "checkpoint": {"restartable": True},
    },
    words={
        "0/1": (*_BOOT, "saves 1", "dies"),
        "0/2": (*_BOOT, "exits 0"),
        "1/1": (*_BOOT, "exits 3"),
        "1/2": (*_BOOT, "exits 0"),
    },
    moments=11,
)
DOUBT = Life(  # a create that took effect unheard, one that did not, and one refused; slow proofs
    name="doubt",
    spec={"completions": 3, "parallelism": 3},
    words=dict.fromkeys(("0/1", "1/1", "2/1"), (*_BOOT, "exits 0")),
    doubts={"0/1": "after", "1/1": "before", "2/1": "none"},
    offsets=(0, 3, 35, 45),
    sync_delete=False,
    moments=6,
)
STOPS = Life(  # suspended, resumed, stopped; a deletion takes away the rows that are compared
    name="stops",
    spec={"stopGraceSeconds": 200},
    words={"0/1": (*_BOOT, "beat", "stopped"), "0/2": (*_BOOT, "beat", "stopped")},
    orders={4: "suspend", 6: "resume", 10: "stop"},
    moments=13,
)
EARLY = Life(  # stopped while a machine is being made
    name="early",
    spec={"completions": 2, "parallelism": 2},
    words={},
    orders={1: "stop"},
    doubts={"1/1": "after"},
    offsets=(0, 3),
    boots=2,
    moments=4,
)
LIVES = (LOSS, DOUBT, STOPS, EARLY)
