"""A supplier in memory with scripted answers, and its truth: what was made, and when it ended."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from tests.scheduler.fake_supplier import FakeSupplier, an_offer

from nodus_api.suppliers.supplier import (
    Ambiguous,
    DeletionObservation,
    ExitRecord,
    FaultInjection,
    Invalid,
    MachineCondition,
    MachineIntent,
    MachineView,
    NoCapacity,
    Notice,
    Order,
    Quota,
    RateLimited,
    SupplierOffer,
    Verdict,
)

FAULTS: Mapping[str, tuple[str, ...]] = {
    "create": (
        "full", "quota", "rate", "invalid", "lost", "unanswered", "late", "hidden", "pending",
    ),
    "find": ("error", "rate"),
    "observe": ("error", "empty"),
    "list": ("error", "empty"),
    "delete": ("ignored", "error", "unanswered"),
    "prove": ("error", "unknown", "present"),
    "signal": ("error", "unanswered"),
    "offers": ("error", "none"),
    "notices": ("error",),
    "inject": ("error", "unanswered"),
    "wipe": ("error", "unanswered", "invalid"),
    "assign": ("error", "unanswered", "invalid"),
}  # fmt: skip
"""What each call may be told to do once, instead of what it was asked."""

_REFUSALS: Mapping[str, Callable[[], Exception]] = {
    "full": lambda: NoCapacity("nothing is free"),
    "quota": lambda: Quota("the quota is used up"),
    "rate": lambda: RateLimited("too many calls", timedelta(seconds=20)),
    "invalid": lambda: Invalid("no such image format"),
    "lost": lambda: Ambiguous("the request was lost"),
    "error": lambda: Ambiguous("no answer"),
}


@dataclass
class Made:
    """One machine as it truly was. `key` may have had others before."""

    handle: str
    intent: MachineIntent
    since: datetime
    ended: datetime | None = None
    order: Order | None = None
    """The last order that reached it."""
    faults: set[str] = field(default_factory=set)
    """The drills' faults that it has had, by their kinds."""
    frozen: bool = False
    """Its runner says nothing more; its program goes on."""
    unfit: bool = False
    """Its runner's checks fail from now on."""
    tenant: bool = True
    """Whether it runs somebody's program; it is wiped else."""


@dataclass(frozen=True)
class Reclaim:
    """What was announced for a machine. Not every reclaim that is announced comes."""

    deadline: datetime
    comes: bool


@dataclass
class ScriptedSupplier(FakeSupplier):
    """`faults` are used up one a call, oldest first."""

    faults: dict[str, list[str]] = field(default_factory=dict)
    truth: dict[str, Made] = field(default_factory=dict)
    """Every machine ever made, by handle."""
    on_call: Callable[[str], None] = lambda _: None
    """Told of each call before its effect."""
    after_call: Callable[[str], None] = lambda _: None
    """Told of each call after its effect, before its answer."""
    _late: list[tuple[datetime, MachineIntent]] = field(default_factory=list)
    _hidden: dict[str, datetime] = field(default_factory=dict)
    _boots: dict[str, datetime] = field(default_factory=dict)
    _reclaims: dict[str, Reclaim] = field(default_factory=dict)
    """By handle; the first announcement stands."""

    async def offers(self) -> Sequence[SupplierOffer]:
        fault = self._begin("offers")
        if fault == "error":
            raise Ambiguous("no answer")
        free = 0 if fault == "none" else max(self.slots - len(self.machines), 0)
        return [
            an_offer("cpu-1c-4g-other", available=free, spot="0.02"),
            an_offer("cpu-1c-4g-us", available=free, rate="0.09"),
        ]

    async def create(self, intent: MachineIntent) -> MachineView:
        fault = self._begin("create")
        self.creates.append(intent.key)
        if fault is not None and fault in _REFUSALS:
            raise _REFUSALS[fault]()
        if fault == "late":
            self._late.append((self._visible_at(), intent))
            raise Ambiguous("no answer yet")
        if fault == "hidden":
            self._hidden[intent.key] = self._visible_at()
        self._make(intent, pending=fault == "pending")
        self.after_call("create")
        if fault in ("unanswered", "hidden"):
            raise Ambiguous("the answer was lost")
        return self.machines[intent.key]

    async def find(self, key: str) -> MachineView | None:
        fault = self._begin("find")
        if fault is not None and fault in _REFUSALS:
            raise _REFUSALS[fault]()
        return self.machines.get(key) if self._shows(key) else None

    async def observe(self, handles: Sequence[str]) -> Mapping[str, MachineView]:
        fault = self._begin("observe")
        if fault == "error":
            raise Ambiguous("no answer")
        if fault == "empty":
            return {}
        return await super().observe(handles)

    async def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        fault = self._begin("list")
        if fault == "error":
            raise Ambiguous("no answer")
        if fault != "empty":
            async for one in super().list_owned(installation):
                if self._shows(one.key):
                    yield one

    async def signal(self, handle: str, order: Order) -> None:
        fault = self._begin("signal")
        if fault != "error" and handle in self.truth:
            self.truth[handle].order = order
        self.after_call("signal")
        if fault is not None:
            raise Ambiguous("no answer")

    async def delete(self, handle: str) -> None:
        fault = self._begin("delete")
        if fault == "ignored":
            return
        if fault == "error":
            raise Ambiguous("no answer")
        self.end(handle)
        self.after_call("delete")
        if fault == "unanswered":
            raise Ambiguous("the answer was lost")

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        fault = self._begin("prove")
        if fault == "error":
            raise Ambiguous("no answer")
        if fault == "unknown":
            return DeletionObservation(verdict=Verdict.UNKNOWN)
        if fault == "present":
            return DeletionObservation(verdict=Verdict.PRESENT)
        return await super().prove_deleted(handle)

    async def notices(self) -> AsyncIterator[Notice]:
        if self._begin("notices") == "error":
            raise Ambiguous("no answer")
        for handle, reclaim in list(self._reclaims.items()):
            if self.runs(handle):
                yield Notice(handle=handle, deadline=reclaim.deadline)

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        scripted = self._begin("inject")
        if scripted == "error":
            raise Ambiguous("no answer")
        if handle not in self.truth or not self.runs(handle):
            raise Invalid(f"no machine {handle!r}")
        made = self.truth[handle]
        if fault.kind not in made.faults:
            made.faults.add(fault.kind)
            self._make_fault(made, fault)
        self.after_call("inject")
        if scripted == "unanswered":
            raise Ambiguous("the answer was lost")

    async def wipe(self, handle: str) -> None:
        fault = self._begin("wipe")
        if fault in ("error", "invalid"):
            raise _REFUSALS[fault]()
        if handle not in self.truth or not self._stands(handle):
            raise Invalid(f"no machine {handle!r}")
        made = self.truth[handle]
        made.tenant = False
        self.become(made.intent.key, condition=MachineCondition.RUNNING, exit=None, ended_at=None)
        self.after_call("wipe")
        if fault == "unanswered":
            raise Ambiguous("the answer was lost")

    async def assign(self, handle: str, intent: MachineIntent, token: str) -> None:
        fault = self._begin("assign")
        if fault in ("error", "invalid"):
            raise _REFUSALS[fault]()
        if handle not in self.truth or not self._stands(handle) or intent.token != token:
            raise Invalid(f"no machine {handle!r}")
        made = self.truth[handle]
        if made.intent.fence != intent.fence:
            if made.tenant or intent.fence < made.intent.fence:
                raise Invalid(f"machine {handle!r} is not wiped")
            self.intents[intent.key] = intent
            self.truth[handle] = Made(handle=handle, intent=intent, since=made.since)
        self.after_call("assign")
        if fault == "unanswered":
            raise Ambiguous("the answer was lost")

    def _stands(self, handle: str) -> bool:
        """Whether a machine is there and has not failed; its program may have ended."""
        view = self.machines.get(self.truth[handle].intent.key)
        there = view is not None and view.handle == handle
        return there and view is not None and view.condition is not MachineCondition.FAILED

    def _make_fault(self, made: Made, fault: FaultInjection) -> None:
        match fault.kind:
            case "preemption":
                deadline = self.clock.now() + (fault.notice or timedelta(0))
                self.announce_reclaim(made.handle, deadline, comes=True)
                self.catch_up()
            case "node-loss":
                self.fail(made.handle, reclaimed=False)
            case "heartbeat":
                made.frozen = True
            case "readiness":
                made.unfit = True
            case _:
                raise Invalid(f"no fault is called {fault.kind!r}")

    # what truly happens

    def runs(self, handle: str) -> bool:
        """Whether a machine is there and has not failed or gone by itself."""
        view = self.machines.get(self.truth[handle].intent.key)
        ended = (MachineCondition.FAILED, MachineCondition.GONE)
        return view is not None and view.handle == handle and view.condition not in ended

    def announce_reclaim(self, handle: str, deadline: datetime, *, comes: bool) -> None:
        """Announce that a machine is taken away, which then happens or not."""
        self._reclaims.setdefault(handle, Reclaim(deadline, comes))

    def alive(self, handle: str) -> bool:
        """Whether a machine is there, whatever runs on it."""
        return self.truth[handle].ended is None

    def end(self, handle: str) -> None:
        """Take a machine away; nothing is listed any more."""
        for key, one in list(self.machines.items()):
            if one.handle == handle:
                self.deleted[key] = self.machines.pop(key)
                self.truth[handle].ended = self.clock.now()

    def fail(self, handle: str, *, reclaimed: bool, at: datetime | None = None) -> None:
        """Let a machine die; it is listed as failed until it is deleted."""
        key = self.truth[handle].intent.key
        at = at or self.clock.now()
        self.become(key, condition=MachineCondition.FAILED, reclaimed=reclaimed, ended_at=at)

    def note_exit(self, handle: str, exit_: ExitRecord) -> None:
        """Show how the program on a machine ended, without the network (SC-644)."""
        if self.alive(handle):
            key = self.truth[handle].intent.key
            now = self.clock.now()
            self.become(key, condition=MachineCondition.GONE, ended_at=now, exit=exit_)

    def catch_up(self) -> None:
        """Let what was to happen by now happen."""
        now = self.clock.now()
        for at, intent in list(self._late):
            if at <= now:
                self._late.remove((at, intent))
                if len(self.machines) < self.slots:
                    self._make(intent, pending=False)
        for key, at in list(self._boots.items()):
            if at <= now:
                del self._boots[key]
                if key in self.machines:
                    self.become(key, condition=MachineCondition.RUNNING, billing_start=at)
        for handle, reclaim in self._reclaims.items():
            if reclaim.comes and reclaim.deadline <= now and self.runs(handle):
                self.fail(handle, reclaimed=True, at=reclaim.deadline)

    def _begin(self, call: str) -> str | None:
        self.on_call(call)
        self.catch_up()
        waiting = self.faults.get(call)
        return waiting.pop(0) if waiting else None

    def _visible_at(self) -> datetime:
        return self.clock.now() + self.caps.visibility_delay

    def _shows(self, key: str) -> bool:
        return self._hidden.get(key, self.clock.now()) <= self.clock.now()

    def _make(self, intent: MachineIntent, *, pending: bool) -> None:
        if intent.key in self.machines:
            return
        if len(self.machines) >= self.slots:
            raise NoCapacity("every slot is taken")
        now = self.clock.now()
        view = MachineView(
            handle=f"h-{len(self.truth)}-{intent.key[:8]}",
            key=intent.key,
            condition=MachineCondition.RUNNING,
            billing_start=now,
            installation=intent.installation,
        )
        if pending:
            view = replace(view, condition=MachineCondition.PENDING, billing_start=None)
            self._boots[intent.key] = now + timedelta(seconds=15)
        self.intents[intent.key] = intent
        self.machines[intent.key] = view
        self.truth[view.handle] = Made(handle=view.handle, intent=intent, since=now)
