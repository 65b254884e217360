"""The protocol that every supplier of machines speaks (SC-701).

The scheduler knows this module and no supplier. Answers are values; errors are
the exceptions below. All methods can be cancelled and finish within 30 seconds.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, runtime_checkable
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRate:
    """How many calls of each kind a supplier takes: so many at once, then so many a second.

    Both are at least 1.
    """

    per_second: float = 500.0
    burst: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplierCaps:
    """What a supplier can do, and how long it takes to show what it did."""

    sync_delete: bool = False
    visibility_delay: timedelta = timedelta(0)
    notices: bool = False
    warm: bool = False
    inject: bool = False
    increment: timedelta = timedelta(seconds=1)
    rate: CallRate = CallRate()
    """For each kind of call by itself (SC-616)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedClass:
    """The public class behind an offer (SC-202)."""

    name: str
    accelerator: str | None
    form: str | None
    count: int
    accelerator_memory_gib: Decimal | None
    vcpus: Decimal
    memory_gib: Decimal
    disk_gib: Decimal
    arch: str
    region_class: str
    gang_capable: bool
    rate_on_demand: Decimal
    rate_spot: Decimal | None
    speed: Decimal
    reference_rate: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplierOffer:
    """One private row behind a class (SC-203); never shown to customers."""

    offered_class: OfferedClass
    instance_type: str
    region: str
    zone: str = ""
    cost_on_demand: Decimal
    cost_spot: Decimal | None = None
    increment: timedelta = timedelta(seconds=1)
    minimum: timedelta = timedelta(0)
    available: int | None = None
    """Machines that could be started now; None when unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the runner runs: argv, environment and limits."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    working_directory: str | None = None
    stop_grace: timedelta = timedelta(seconds=30)
    memory_bytes: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """The checkpoint to go on from (SC-141); both cursor fields are set or neither.

    `uri` is as its runner reported it, `sha256` in hex; both are empty if nothing is known of it.
    """

    seq: int
    completed: int | None = None
    total: int | None = None
    uri: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSeat:
    """A rank's place in its gang (SC-130).

    Where the ranks meet is the supplier's to say, since its machines share a network that
    it alone knows: the same for every rank of one `id` and `epoch`, and on rank 0's machine
    (SC-143).
    """

    id: str
    rank: int
    size: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """What a program is told of itself, as NODUS_ variables (SC-143, SC-144)."""

    project: str
    workload: UUID
    attempt_name: str
    slot: str
    restore: RestorePoint | None = None
    gang: GangSeat | None = None
    checkpoint_interval: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIntent:
    """A machine that is wanted; `key` makes create idempotent (SC-608).

    `token` is the runner's (SC-125); it goes to the machine and nowhere else.
    """

    key: str
    installation: UUID
    attempt_uid: UUID
    epoch: int
    fence: int
    offering: str
    instance_type: str
    region: str
    zone: str
    spot: bool
    token: str = field(repr=False)
    program: Program
    incarnation: Incarnation
    tags: Mapping[str, str] = field(default_factory=dict)


class MachineCondition(StrEnum):
    """What a supplier says of a machine.

    GONE: it ended, as asked or with its program (`MachineView.exit`). FAILED: it ended with no
    exit known, which is evidence of a loss (SC-711). Neither proves a deletion, as
    `prove_deleted` does.
    """

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """The runner's final report, read without the network (SC-644).

    Ages are seconds before `at`, the moment the record was written.
    `started_age` is None if the program never started; `stop_age` None if it was not stopped;
    `restored_bytes` None if it went on from no checkpoint.
    `error` is set, with no exit code, if the program could not be started.
    """

    at: datetime
    exit_code: int | None
    signal: int | None
    oom: bool = False
    started_age: float | None = None
    exit_age: float = 0.0
    stop_age: float | None = None
    restored_bytes: int | None = None
    message: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One machine as the supplier sees it now; `ended_at` is None if it does not know when."""

    handle: str
    key: str
    condition: MachineCondition
    billing_start: datetime | None = None
    ended_at: datetime | None = None
    reclaimed: bool = False
    exit: ExitRecord | None = None
    address: str | None = None
    installation: UUID | None = None


class Verdict(StrEnum):
    """Whether a machine is proven gone; Unknown is never Gone (SC-610)."""

    GONE = "Gone"
    PRESENT = "Present"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionObservation:
    """One look at a machine that should be gone; `at` is set when it is.

    `billing_start` is set by a look that finds a machine by its key alone: nobody knew of it.
    """

    verdict: Verdict
    at: datetime | None = None
    billing_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A reclaim that was announced."""

    handle: str
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order to a machine's runner: `stop` with a grace, `checkpointNow` or `die` (SC-641)."""

    kind: str
    grace: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjection:
    """A fault to make on purpose (SC-630)."""

    kind: str
    notice: timedelta | None = None


class SupplierError(Exception):
    """A supplier refused or failed (SC-617)."""


class NoCapacity(SupplierError):
    """No machine of this offer is free."""


class Quota(SupplierError):
    """The account's quota is used up."""


class RateLimited(SupplierError):
    """Too many calls; try again after `after`."""

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message)
        self.after = after


class Auth(SupplierError):
    """The credentials were refused."""


class Invalid(SupplierError):
    """The request itself is wrong: our bug."""


class Ambiguous(SupplierError):
    """It is not known whether the call took effect; look with `find` (SC-609)."""


@runtime_checkable
class Supplier(Protocol):
    """Where machines come from."""

    name: str
    caps: SupplierCaps

    async def offers(self) -> Sequence[SupplierOffer]:
        """Return what can be rented now."""
        ...

    async def create(self, intent: MachineIntent) -> MachineView:
        """Create the machine of `intent.key`, or return it if it exists.

        Raises NoCapacity, Quota, RateLimited, Auth, Invalid or Ambiguous.
        """
        ...

    async def find(self, key: str) -> MachineView | None:
        """Return the machine of a key, or None if there is none."""
        ...

    async def observe(self, handles: Sequence[str]) -> Mapping[str, MachineView]:
        """Return the machines that exist, by handle; a missing handle was not seen."""
        ...

    def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        """Yield every machine tagged with this installation."""
        ...

    async def signal(self, handle: str, order: Order) -> None:
        """Pass an order on, best effort; the runner's channel is the main one."""
        ...

    async def delete(self, handle: str) -> None:
        """Delete; idempotent, and succeeds on unknown handles."""
        ...

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        """Look once whether the machine is gone."""
        ...

    async def kept_checkpoints(self) -> Sequence[UUID]:
        """Return the workloads of which checkpoints are kept here, committed or not (SC-126)."""
        ...

    async def drop_checkpoints(self, workload: UUID) -> None:
        """Remove every checkpoint of a workload, of which nothing runs any more; idempotent."""
        ...

    def notices(self) -> AsyncIterator[Notice]:
        """Yield the reclaims that are announced and not done; a repeat yields them again."""
        ...

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        """Make a fault on purpose, so that a drill takes the path of a real loss (SC-630).

        `fault.kind` is preemption, node-loss, heartbeat or readiness. The same fault of one
        machine is made once, however often it is asked for. Raises Invalid if the machine is
        not there, or cannot have this fault.
        """
        ...

    async def wipe(self, handle: str) -> None:
        """Wipe a machine for its next tenant; done when it returns (SC-343)."""
        ...

    async def assign(self, handle: str, intent: MachineIntent, token: str) -> None:
        """Give a wiped machine its next program; idempotent on the fence."""
        ...
