"""A supplier in memory: it makes machines at once, unless a test tells it otherwise."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from nodus_api.clock import Clock
from nodus_api.suppliers.supplier import (
    Ambiguous,
    DeletionObservation,
    FaultInjection,
    Invalid,
    MachineCondition,
    MachineIntent,
    MachineView,
    NoCapacity,
    Notice,
    OfferedClass,
    Order,
    SupplierCaps,
    SupplierOffer,
    Verdict,
)


def an_offer(
    name: str = "cpu-1c-4g-other",
    *,
    available: int | None = 4,
    rate: str = "0.06",
    spot: str | None = None,
    gang_capable: bool = True,
) -> SupplierOffer:
    return SupplierOffer(
        offered_class=OfferedClass(
            name=name,
            accelerator=None,
            form=None,
            count=0,
            accelerator_memory_gib=None,
            vcpus=Decimal(1),
            memory_gib=Decimal(4),
            disk_gib=Decimal(10),
            arch="x86_64",
            region_class="other",
            gang_capable=gang_capable,
            rate_on_demand=Decimal(rate),
            rate_spot=None if spot is None else Decimal(spot),
            speed=Decimal(1),
            reference_rate=Decimal(rate),
        ),
        instance_type=f"type-{name}",
        region="here",
        cost_on_demand=Decimal(rate),
        cost_spot=None if spot is None else Decimal(spot),
        available=available,
    )


@dataclass
class FakeSupplier:
    """`before` and `after` are raised once by the next create, without or with its effect.

    `refused` and `slow` are for ranks of gangs: what their next create raises, and whose machines
    exist but do not run yet.
    """

    clock: Clock
    slots: int = 4
    name: str = "fake"
    caps: SupplierCaps = field(default_factory=lambda: SupplierCaps(sync_delete=True))
    offered: list[SupplierOffer] | None = None
    offer_error: Exception | None = None
    starts: MachineCondition = MachineCondition.RUNNING
    before: Exception | None = None
    after: Exception | None = None
    refusals: list[Exception] = field(default_factory=list)
    """What the next creates raise, without effect, one each."""
    refused: dict[int, Exception] = field(default_factory=dict)
    slow: set[int] = field(default_factory=set)
    delete_refusals: list[Exception] = field(default_factory=list)
    """What the next deletes raise, without effect, one each."""
    deaf_deletes: int = 0
    deaf_signals: int = 0
    deaf_finds: int = 0
    find_error: Exception | None = None
    finds: list[str] = field(default_factory=list)
    proven: set[str] = field(default_factory=set)
    """Handles that are listed still, but proven gone."""
    machines: dict[str, MachineView] = field(default_factory=dict)
    intents: dict[str, MachineIntent] = field(default_factory=dict)
    creates: list[str] = field(default_factory=list)
    signals: list[tuple[str, Order]] = field(default_factory=list)
    deleted: dict[str, MachineView] = field(default_factory=dict)
    kept: set[UUID] = field(default_factory=set)
    """Workloads of which it has checkpoints."""
    dropped: list[UUID] = field(default_factory=list)
    deaf_drops: int = 0
    announced: dict[str, Notice] = field(default_factory=dict)
    injections: list[tuple[str, FaultInjection]] = field(default_factory=list)
    before_inject: Exception | None = None
    after_inject: Exception | None = None
    wipes: list[str] = field(default_factory=list)
    """Keys of the machines that were wiped."""
    wipe_errors: list[Exception] = field(default_factory=list)
    assigns: list[tuple[str, int]] = field(default_factory=list)
    """Keys and fences of the machines that were assigned."""
    assign_errors: list[Exception] = field(default_factory=list)

    async def offers(self) -> Sequence[SupplierOffer]:
        if self.offer_error is not None:
            raise self.offer_error
        if self.offered is not None:
            return self.offered
        return [an_offer(available=self.slots - len(self.machines))]

    async def create(self, intent: MachineIntent) -> MachineView:
        self.creates.append(intent.key)
        before, self.before = self.before, None
        if before is not None:
            raise before
        if self.refusals:
            raise self.refusals.pop(0)
        gang = intent.incarnation.gang
        if gang is not None and gang.rank in self.refused:
            raise self.refused.pop(gang.rank)
        if intent.key not in self.machines:
            if len(self.machines) >= self.slots:
                raise NoCapacity("every slot is taken")
            self.intents[intent.key] = intent
            slow = gang is not None and gang.rank in self.slow
            self.machines[intent.key] = MachineView(
                handle=f"h-{intent.key[:12]}",
                key=intent.key,
                condition=MachineCondition.PENDING if slow else self.starts,
                billing_start=self.clock.now(),
                installation=intent.installation,
            )
        after, self.after = self.after, None
        if after is not None:
            raise after
        return self.machines[intent.key]

    async def find(self, key: str) -> MachineView | None:
        self.finds.append(key)
        if self.find_error is not None:
            raise self.find_error
        if self.deaf_finds:
            self.deaf_finds -= 1
            raise Ambiguous("no answer")
        return self.machines.get(key)

    async def observe(self, handles: Sequence[str]) -> Mapping[str, MachineView]:
        return {one.handle: one for one in self.machines.values() if one.handle in handles}

    async def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        for one in list(self.machines.values()):
            if one.installation == installation:
                yield one

    async def signal(self, handle: str, order: Order) -> None:
        self.signals.append((handle, order))
        if self.deaf_signals:
            self.deaf_signals -= 1
            raise Ambiguous("no answer")

    async def delete(self, handle: str) -> None:
        if self.delete_refusals:
            raise self.delete_refusals.pop(0)
        if self.deaf_deletes:
            self.deaf_deletes -= 1
            return
        for key, one in list(self.machines.items()):
            if one.handle == handle:
                self.deleted[key] = self.machines.pop(key)

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        listed = any(one.handle == handle for one in self.machines.values())
        if listed and handle not in self.proven:
            return DeletionObservation(verdict=Verdict.PRESENT)
        return DeletionObservation(verdict=Verdict.GONE, at=self.clock.now())

    async def kept_checkpoints(self) -> Sequence[UUID]:
        return sorted(self.kept)

    async def drop_checkpoints(self, workload: UUID) -> None:
        if self.deaf_drops:
            self.deaf_drops -= 1
            raise Ambiguous("some of it is left")
        self.dropped.append(workload)
        self.kept.discard(workload)

    async def notices(self) -> AsyncIterator[Notice]:
        for notice in list(self.announced.values()):
            yield notice

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        """Take note of it; a preemption is announced, what else follows is the test's to do."""
        before, self.before_inject = self.before_inject, None
        if before is not None:
            raise before
        self.injections.append((handle, fault))
        if fault.kind == "preemption" and fault.notice:
            self.announce(handle, self.clock.now() + fault.notice)
        after, self.after_inject = self.after_inject, None
        if after is not None:
            raise after

    async def wipe(self, handle: str) -> None:
        """Leave the machine empty, and there."""
        if self.wipe_errors:
            raise self.wipe_errors.pop(0)
        key = self._key_of(handle)
        self.wipes.append(key)
        self.become(key, condition=MachineCondition.RUNNING, exit=None, ended_at=None)

    async def assign(self, handle: str, intent: MachineIntent, token: str) -> None:
        """Give the machine its next program, once a fence."""
        if self.assign_errors:
            raise self.assign_errors.pop(0)
        key = self._key_of(handle)
        assert key == intent.key
        assert token == intent.token
        if self.intents[key].fence != intent.fence:
            assert intent.fence == self.intents[key].fence + 1
            assert key in self.wipes, "a machine was assigned unwiped"
            self.intents[key] = intent
        self.assigns.append((key, intent.fence))

    def _key_of(self, handle: str) -> str:
        for key, one in self.machines.items():
            if one.handle == handle:
                return key
        raise Invalid(f"no machine {handle!r}")

    # what tests do to it

    def become(self, key: str, **changes: object) -> None:
        """Change what the supplier says of a machine."""
        self.machines[key] = replace(self.machines[key], **changes)  # type: ignore[arg-type]  # names checked by replace

    def announce(self, handle: str, deadline: datetime) -> None:
        """Announce the reclaim of a machine, once."""
        self.announced.setdefault(handle, Notice(handle=handle, deadline=deadline))

    def vanish(self, key: str) -> None:
        """Lose a machine: nothing is listed any more."""
        self.deleted[key] = self.machines.pop(key)
