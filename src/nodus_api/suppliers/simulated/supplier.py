"""The simulated supplier: the protocol over a fleet, with the faults of its calls (SC-730 ff.)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from nodus_api.suppliers.simulated.faults import FaultKind
from nodus_api.suppliers.simulated.fleet import Fleet
from nodus_api.suppliers.simulated.machine import Machine
from nodus_api.suppliers.supplier import (
    Ambiguous,
    Auth,
    DeletionObservation,
    FaultInjection,
    Invalid,
    MachineIntent,
    MachineView,
    NoCapacity,
    Notice,
    Order,
    RateLimited,
    SupplierCaps,
    SupplierOffer,
    Verdict,
)

_ANSWER = timedelta(seconds=30)
"""A call that takes longer is given up (SC-701)."""
_SLOW = (timedelta(seconds=5), timedelta(seconds=60))
_PAUSE = (timedelta(seconds=5), timedelta(seconds=30))
_DRILLS = ("preemption", "node-loss", "heartbeat", "readiness")


class SimulatedSupplier:
    """Machines that exist in a `Fleet` alone; several suppliers may look at one fleet.

    Answers come at once, but for slow creates, which take the fleet's time. Programs are not run:
    `programs` says what they would do.
    """

    name = "simulated"

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.caps: SupplierCaps = fleet.model.caps
        self.asleep = 0
        """Calls that wait for the fleet's time to pass."""

    async def offers(self) -> Sequence[SupplierOffer]:
        """Return the classes, how many of each are free, and today's prices."""
        self._begin("offers")
        fleet = self.fleet
        since = fleet.clock.now() - fleet.start
        return [
            one.offer(fleet.free(one), fleet.model.factor(one.offered.name, since))
            for one in fleet.model.classes
        ]

    async def create(self, intent: MachineIntent) -> MachineView:
        """Make the machine of `intent.key`, or return it if it exists; GONE if it was deleted.

        Raises NoCapacity, Invalid, and what the fleet's faults make of it: RateLimited, Auth,
        Ambiguous.
        """
        fleet = self.fleet
        self._begin("create", key=intent.key)
        occasion, names = f"create of {intent.key}", (intent.key,)
        if fleet.hits(FaultKind.AUTH_LOST, occasion, names=names):
            raise Auth("the credentials were refused")
        if fleet.hits(FaultKind.CREATE_LOST, occasion, names=names):
            raise Ambiguous("the request was lost")
        if intent.key not in fleet.keys:
            if fleet.hits(FaultKind.CREATE_SLOW, occasion, names=names):
                return await self._create_slowly(intent)
            if fleet.hits(FaultKind.CREATE_UNANSWERED, occasion, names=names):
                fleet.make(intent, visible_after=self.caps.visibility_delay)
                raise Ambiguous("the answer was lost")
        return fleet.make(intent).view(fleet.clock.now())

    async def find(self, key: str) -> MachineView | None:
        """Return the machine of a key, or None if there is none."""
        self._begin("find", key=key)
        machine = self.fleet.keys.get(key)
        now = self.fleet.clock.now()
        return machine.view(now) if machine is not None and machine.shown(now) else None

    async def observe(self, handles: Sequence[str]) -> Mapping[str, MachineView]:
        """Return the machines that are there, by handle."""
        self._begin("observe")
        if self.fleet.hits(FaultKind.LIST_EMPTY, "observe"):
            return {}
        found = [self._shown(handle) for handle in handles]
        now = self.fleet.clock.now()
        return {one.handle: one.view(now) for one in found if one is not None}

    async def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        """Yield every machine tagged with this installation."""
        self._begin("list")
        if self.fleet.hits(FaultKind.LIST_EMPTY, "list"):
            return
        for machine in list(self.fleet.present()):
            now = self.fleet.clock.now()
            if machine.intent.installation == installation and machine.shown(now):
                yield machine.view(now)

    async def signal(self, handle: str, order: Order) -> None:
        """Hand an order to the runner of a machine that runs."""
        self._begin("signal")
        now, machine = self.fleet.clock.now(), self._shown(handle)
        if machine is not None and machine.runner is not None and machine.in_use(now):
            machine.runner.obey(order, now)

    async def delete(self, handle: str) -> None:
        """Begin to tear a machine down; idempotent, and succeeds on unknown handles."""
        self._begin("delete")
        if (machine := self.fleet.machines.get(handle)) is not None:
            self.fleet.delete(machine, self.fleet.clock.now())

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        """Look once whether a machine is gone."""
        self._begin("prove")
        now, machine = self.fleet.clock.now(), self.fleet.machines.get(handle)
        if machine is None:
            return DeletionObservation(verdict=Verdict.GONE, at=now)
        if not machine.there(now):
            return DeletionObservation(verdict=Verdict.GONE, at=machine.gone)
        if machine.deleting is not None and machine.false_proofs:
            machine.false_proofs -= 1
            return DeletionObservation(verdict=Verdict.GONE, at=now)
        return DeletionObservation(verdict=Verdict.PRESENT)

    async def kept_checkpoints(self) -> Sequence[UUID]:
        """Return the workloads of which checkpoints are kept (SC-126)."""
        self._begin("list of checkpoints")
        return sorted(workload for workload, kept in self.fleet.checkpoints.items() if kept)

    async def drop_checkpoints(self, workload: UUID) -> None:
        """Forget a workload's checkpoints."""
        self._begin("drop of checkpoints")
        self.fleet.checkpoints.pop(workload, None)

    async def notices(self) -> AsyncIterator[Notice]:
        """Yield the reclaims that are announced and not done."""
        self._begin("notices")
        now = self.fleet.clock.now()
        for machine in list(self.fleet.present()):
            reclaim = machine.reclaim
            if reclaim is None or not machine.in_use(now) or reclaim.deadline < now:
                continue
            notice = Notice(handle=machine.handle, deadline=reclaim.deadline)
            yield notice
            if self.fleet.hits(FaultKind.NOTICE_TWICE, machine.name, names=machine.names):
                yield notice

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        """Make a fault of a machine, once (SC-630). Raises Invalid."""
        self._begin("inject")
        now, machine = self.fleet.clock.now(), self._shown(handle)
        if machine is None or fault.kind not in _DRILLS:
            raise Invalid(f"no machine {handle!r} can have the fault {fault.kind!r}")
        # a repeat changes nothing: the first announcement stands, and each other fault is a state
        match fault.kind:
            case "preemption":
                self.fleet.announce(machine, now, notice=fault.notice or timedelta(0))
            case "node-loss":
                self.fleet.lose(machine, now)
            case "heartbeat":
                machine.frozen = True
            case _:
                machine.unfit = True

    async def wipe(self, handle: str) -> None:
        """End what runs on a machine and leave it empty (SC-343). Raises Invalid."""
        machine = self._warm(handle)
        if machine.runner is not None:
            machine.runner.kill(self.fleet.clock.now())
            machine.runner = None

    async def assign(self, handle: str, intent: MachineIntent, token: str) -> None:
        """Begin the next program on a wiped machine; the same fence again changes nothing.

        Raises Invalid for a machine that is not there or not wiped.
        """
        machine = self._warm(handle)
        if machine.runner is not None and machine.intent.fence == intent.fence:
            return
        if machine.runner is not None or token != intent.token:
            raise Invalid(f"machine {handle!r} is not wiped")
        self.fleet.rent_again(machine, intent, self.fleet.clock.now())

    def _begin(self, call: str, *, key: str = "") -> None:
        """Let everything happen that is due, then refuse the call where that is drawn."""
        self.fleet.catch_up()
        occasion = f"{call} of {key}" if key else call
        if self.fleet.hits(FaultKind.RATE_LIMIT, occasion, names=(key,)):
            pause = self.fleet.chance.of(occasion).between("pause", *_PAUSE)
            raise RateLimited("too many calls", pause)

    def _shown(self, handle: str) -> Machine | None:
        machine = self.fleet.machines.get(handle)
        shown = machine is not None and machine.shown(self.fleet.clock.now())
        return machine if shown else None

    def _warm(self, handle: str) -> Machine:
        self._begin("warm")
        machine = self._shown(handle)
        if not self.caps.warm or machine is None or not machine.in_use(self.fleet.clock.now()):
            raise Invalid(f"machine {handle!r} cannot be used again")
        return machine

    async def _create_slowly(self, intent: MachineIntent) -> MachineView:
        fleet = self.fleet
        takes = fleet.chance.of(intent.key).between("slow", *_SLOW)
        fleet.timetable.put(fleet.clock.now() + takes, lambda _: self._made_late(intent))
        waits = min(takes, _ANSWER)
        fleet.timetable.put(fleet.clock.now() + waits, lambda _: None)  # whoever drives stops here
        self.asleep += 1
        try:
            await fleet.clock.sleep(waits.total_seconds())
        finally:
            self.asleep -= 1
        fleet.catch_up()
        machine = fleet.keys.get(intent.key)
        if machine is None and takes <= _ANSWER:
            raise NoCapacity(f"no {intent.offering} is free")
        if machine is None or takes > _ANSWER:
            raise Ambiguous("no answer within 30 s")
        return machine.view(fleet.clock.now())

    def _made_late(self, intent: MachineIntent) -> None:
        try:
            self.fleet.make(intent)
        except (NoCapacity, Invalid):
            return  # nobody waits for the answer any more
