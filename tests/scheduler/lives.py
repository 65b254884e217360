"""Whole lives as scripts of fixed moments, what stands after each moment, and what must be true.

A life is told once without a fault; each later telling has one fault and must come, within the time
to the next moment, to what stood then (P-08). What may differ is when a machine was asked for and
when it was proven gone: that is compared with the supplier's truth instead.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.conftest import START
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.failpoints import Failpoints, Fault, Plan, Site
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import all_records, check, check_quiet
from tests.scheduler.life_scripts import Life
from tests.scheduler.mortal_world import MortalWorld, TrueSupplier
from tests.scheduler.outcomes import difference, over, stands, told
from tests.scheduler.saved_rows import Onlooker, RowKeeper, Rows, SavedRows
from tests.scheduler.sweeping import Run
from tests.scheduler.world import Runner

from nodus_api.attempts import splice
from nodus_api.storage import tables as t
from nodus_api.suppliers.supplier import (
    FaultInjection,
    MachineCondition,
    MachineIntent,
    SupplierOffer,
)

BETWEEN = timedelta(seconds=90)
"""Between two moments: more than a fault may cost, less than silence that loses a machine."""
PATIENCE = timedelta(seconds=85)
LOOK_AGAIN_SECONDS = 5.0


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
    deaths: list[Run] = field(default_factory=list)
    """What a death at each site would leave, if somebody looked on."""
    standings: list[Mapping[str, Any]] = field(default_factory=list)
    meanings: list[tuple[Rows, Any]] = field(default_factory=list)
    documents: list[Mapping[str, Any]] = field(default_factory=list)


class ToldAlready(Exception):
    """The state that a death left is one from which a life was told on already."""


class Telling:
    """One telling of a life, from a moment on."""

    def __init__(
        self, world: MortalWorld, life: Life, keeper: RowKeeper, reference: Reference | None = None
    ) -> None:
        self._world = world
        self._life = life
        self._keeper = keeper
        self._reference = reference
        self._moment = 0
        self._said: dict[str, int] = {}

    @property
    def supplier(self) -> TrueSupplier:
        assert isinstance(self._world.supplier, TrueSupplier)
        return self._world.supplier

    async def tell(self, onlooker: Onlooker | None = None) -> Reference:
        """Tell the whole life without a fault, and check it at each moment and at its end.

        The onlooker sees at each site the state that a death there would leave.
        """
        self.supplier.doubts = dict(self._life.doubts)
        self.supplier.caps = self._life.caps
        self.supplier.offered = offers_of(self._life)
        reference = Reference()
        for number in range(self._life.moments):
            reference.kept.append(await self._kept())
            self._world.points = Failpoints()
            if onlooker is not None:
                self._world.points.watch = self._looked_on(onlooker, reference.deaths)
            await self._passes(number)
            reference.sites.append(self._world.points.sites)
            reference.standings.append(await self._standing())
            reference.meanings.append(await self._meaning())
            reference.documents.append(await self._documents())
        await self._ends()
        return reference

    def _looked_on(
        self, onlooker: Onlooker, deaths: list[Run]
    ) -> Callable[[int, Site, Fault], None]:
        def look(number: int, site: Site, death: Fault) -> None:
            state = self._state(onlooker.fingerprint())
            deaths.append(Run(self._moment, number, site, death, state))

        return look

    def _state(self, rows_now: str) -> str:
        """Return what tells a state of the world, without its process, from all others."""
        world = self._world
        script = (self._moment, world.steps, world.clock.now(), self._said)
        reports = {key: one.n for key, one in world.runners.items()}
        whole = repr((script, reports, world.starts, self.supplier.truth(), rows_now))
        return hashlib.sha256(whole.encode()).hexdigest()

    async def tell_from(
        self, run: Run, *, to_the_end: bool = False, known: set[tuple[str, float]] | None = None
    ) -> bool:
        """Tell the life with the fault of a run in it; return whether it went to the end.

        It goes on until nothing can follow from its rows and machines but what followed from the
        reference's. Raises ToldAlready if a death leaves one of the states `known`, each with the
        time that nobody leads then; else that state is known afterwards.
        """
        left: set[tuple[str, float]] = set()

        async def mourned() -> None:
            state = self._state(await self._keeper.fingerprint())
            assert run.state in ("", state), "a death left another state than was seen at its site"
            if known is not None and (state, self._world.gap) in known:
                raise ToldAlready
            left.add((state, self._world.gap))

        self._world.mourned = mourned
        whole = await self._tell_from(run.moment, Plan(run.number, run.fault), to_the_end)
        if known is not None:
            known |= left
        return whole

    async def _tell_from(self, number: int, plan: Plan, to_the_end: bool) -> bool:
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
        self._moment = number
        world.steps = 0
        await world.comes(moment)
        await world.reigns_anew()
        await self._happens(number)
        for offset in self._life.looks.get(number, self._life.offsets):
            ahead = (moment + timedelta(seconds=offset) - world.clock.now()).total_seconds()
            await world.live_until_settled(max(0.0, ahead))
        if not world.points.undisturbed:
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
        found = {**await self._archived(), **await self._world.documents()}
        return {key: told(one) for key, one in found.items() if over(one)}

    async def _archived(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the last documents of Attempts that have left the API, by `slot/epoch`."""
        return {
            f"{row['slot']}/{row['epoch']}": json.loads(splice(bytes(row["doc"]), row["rev"]))
            for row in await self._world.rows(t.attempts_archive)
        }

    async def _meaning(self) -> tuple[Rows, Any]:
        saved = await self._keeper.save()
        here = self.supplier.machines
        said = {key: number for key, number in self._said.items() if key in here}
        return saved.meaning(), (self.supplier.living(), said)

    async def _kept(self) -> Kept:
        return Kept(
            rows=replace(await self._keeper.save(), numbers=await self._keeper.numbers()),
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
        for no, order in enumerate(self._life.orders.get(number, ())):
            await self._ordered(f"order {number}.{no}", order)
        if number == self._life.boots:
            for key in self.supplier.machines:
                self.supplier.become(key, condition=MachineCondition.RUNNING)
        for intent in list(self.supplier.intents.values()):
            if intent.key in self.supplier.machines:
                await self._speaks(intent)

    async def _ordered(self, key: str, order: str) -> None:
        match order.split():
            case ["drill", which, loss, *notice]:
                name = (await self._world.documents())[which]["metadata"]["name"]
                body = {"noticeSeconds": int(notice[0])} if notice else {}
                await self._world.order(key, "drill", name, None, trigger=loss, **body)
            case _:
                await self._world.order(key, order)

    async def _speaks(self, intent: MachineIntent) -> None:
        """Let a runner say its next word; while its machine stands idle it only beats."""
        machine = self.supplier.machines[intent.key]
        if machine.condition is not MachineCondition.RUNNING:
            return
        which = f"{intent.incarnation.slot}/{intent.epoch}"
        second = f"{which} second"
        if second in self._life.words and not self._is_first(intent):
            which = second
        number = self._said.get(intent.key, 0)
        self._said[intent.key] = number + 1
        words = self._life.words.get(which, ())
        word = words[number] if number < len(words) else "beat"
        await self._say(intent, which, word)

    def _is_first(self, intent: MachineIntent) -> bool:
        """Whether it is the first machine that was made for its Attempt."""
        of_it = [
            key
            for key, one in self.supplier.intents.items()
            if one.attempt_uid == intent.attempt_uid
        ]
        return of_it[0] == intent.key

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
            case ["dies", *drilled]:
                handle = self.supplier.machines[intent.key].handle
                for kind in drilled:
                    assert (handle, FaultInjection(kind=kind)) in self.supplier.injections
                self.supplier.become(
                    intent.key, condition=MachineCondition.FAILED, ended_at=world.moment
                )
            case _:
                await world.say(intent, "heartbeat")

    async def _standing(self) -> Mapping[str, Any]:
        """Return what stands, but for what a delay may change."""
        archived = await self._archived()
        documents = {**archived, **await self._world.documents()}
        attempts = {key: stands(one) for key, one in documents.items()}
        workloads = [(row["state"], row["outcome"]) for row in await self._world.workloads()]
        leases = await self._world.rows(t.leases)
        machines = await self._world.rows(t.machines)
        return {
            **attempts,
            "archived": sorted(archived),
            "workloads": workloads,
            "drilled": [(handle, one.kind) for handle, one in self.supplier.injections],
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
        archived = await world.rows(t.attempts_archive)
        retired = {row["uid"] for row in archived}
        known = {row["key"] for row in await world.rows(t.machines)}
        forgotten = {key for key, one in supplier.intents.items() if one.attempt_uid in retired}
        assert supplier.made.keys() <= known | forgotten  # SC-608
        assert not known & forgotten, "machines of Attempts that were retired"
        for row in archived:
            self._true_of_archived(row)
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

    def _true_of_archived(self, row: Mapping[str, Any]) -> None:
        """Compare what the archive keeps of an Attempt with the truth of its machines."""
        document = json.loads(row["doc"])
        timings = document["status"]["timings"]
        keys = [key for key, one in self.supplier.intents.items() if one.attempt_uid == row["uid"]]
        made = [key for key in keys if key in self.supplier.made]
        assert made == [key for key in made if key in self.supplier.ended]  # P-09
        assert ("deletionProvenTime" in timings) == bool(made)
        charged = [one for one in row["ledger"] if not one["covered"]]
        assert row["usd"] == sum(Decimal(str(one["usd"])) for one in charged)
        assert str(row["usd"]) == document["status"]["actual"]["costUSD"]
        if "billingStartTime" not in timings:
            assert row["ledger"] == []
            return
        start, proven = (
            datetime.fromisoformat(timings[name])
            for name in ("billingStartTime", "deletionProvenTime")
        )
        (began,) = (self.supplier.made[key] for key in made)
        (ended,) = (self.supplier.ended[key] for key in made)
        assert start == began.replace(microsecond=0)
        assert ended <= proven <= ended + PATIENCE  # P-10
        spans = [
            datetime.fromisoformat(one["to_ts"]) - datetime.fromisoformat(one["from_ts"])
            for one in row["ledger"]
        ]
        assert sum(spans, timedelta(0)) == _ceiling(proven) - start  # P-11


def offers_of(life: Life) -> list[SupplierOffer] | None:
    """Return the classes that are offered in a life, the cheapest first; None for the usual one."""
    if life.offers == 1:
        return None
    return [an_offer(f"cpu-1c-4g-{n}", rate=f"0.0{6 + n}") for n in range(life.offers)]


def _ceiling(at: datetime) -> datetime:
    floor = at.replace(microsecond=0)
    return floor if floor == at else floor + timedelta(seconds=1)
