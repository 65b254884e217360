"""The rows that the loop moves, as frozen values: what a decision takes and returns.

A decision gets an `AttemptRecord` and returns another; `AttemptStore` writes what
differs between the two. Nothing here knows SQL.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from nodus_api.kernel.attempt import Attempt, AttemptView, Cursor
from nodus_api.kernel.funding import Account, Hold
from nodus_api.kernel.vocabulary import (
    LeaseRole,
    MachineState,
    Market,
    OwnerKind,
    Reason,
    SlotState,
    Trigger,
    WorkloadState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What was submitted. `spec` is the checked manifest, with every default filled in."""

    uid: UUID
    project: str
    organization: str
    kind: OwnerKind
    name: str
    spec: Mapping[str, Any]
    state: WorkloadState = WorkloadState.ACTIVE
    outcome: str | None = None
    created: datetime
    ended: datetime | None = None
    archived_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One position of a workload, with the counters of SC-120 and SC-121."""

    workload: UUID
    slot: str
    wanted: bool = True
    current_epoch: int = 0
    last_seq: int = 0
    retries_used: int = 0
    replacements: int = 0
    backoff_k: int = 0
    nodus_failures: int = 0
    lost_in_a_row: int = 0
    lost_candidates: tuple[Mapping[str, Any], ...] = ()
    not_before: datetime | None = None
    state: SlotState = SlotState.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One unit of capacity, from the intent to the proof that it is gone (SC-608).

    `no` is None until the row is written.
    """

    no: int | None = None
    key: str
    organization: str
    offer: int
    offering: str
    region_class: str = ""
    """Of the offering; read with the machine, never written."""
    market: Market
    state: MachineState = MachineState.REQUESTED
    handle: str | None = None
    address: str | None = None
    requested: datetime
    granted: datetime | None = None
    billing_start: datetime | None = None
    registered: datetime | None = None
    releasing: datetime | None = None
    gone: datetime | None = None
    gone_seen: datetime | None = None
    tries: int = 0
    next_try: datetime | None = None
    warm_until: datetime | None = None
    """Until when it is kept for another Attempt, once its own has ended (SC-343)."""
    image_family: str | None = None
    """What image it has pulled, "" for none; set with `warm_until`."""
    increment: timedelta = timedelta(seconds=1)
    minimum: timedelta = timedelta(0)
    """Billing increment and minimum of the offer (SC-507); read with the machine, never written."""
    billed_unheld_since: datetime | None = None
    """When it began to cost Nodus, as a look at its release showed that it exists (SC-523); of one
    that was granted it is `billing_start`. Kept in the ledger of supplier costs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a machine died of (SC-012)."""

    trigger: Trigger
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An Attempt's hold on a machine; open while `released` is None (SC-608)."""

    fence: int = 1
    role: LeaseRole = LeaseRole.FIRST
    held: datetime
    released: datetime | None = None
    rate_usd_per_hour: Decimal
    won: bool = False
    token_sha256: bytes
    last_report: int = 0
    orders: tuple[Mapping[str, Any], ...] = ()
    pull_seconds: int | None = None
    """How long this machine pulled the image, once it has registered."""
    lost: datetime | None = None
    """When the machine lost the race for the start, or died in it (SC-342)."""
    lost_cause: Loss | None = None
    """What it died of; None of one that another machine has beaten."""
    assigned: datetime | None = None
    """When a warm machine took the Attempt's program; None of one that was made for it."""
    wiped: datetime | None = None
    """When the machine was wiped for its next Attempt, which ends the lease (SC-344)."""
    latest: bool = True
    """Whether no later Attempt has had the machine; read with it, never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """A machine together with the lease by which an Attempt holds it."""

    machine: Machine
    lease: Lease

    @property
    def open(self) -> bool:
        """Whether the Attempt still holds the machine."""
        return self.lease.released is None

    @property
    def over_at(self) -> datetime | None:
        """When the Attempt was proven rid of the machine: wiped for another, or gone (SC-344)."""
        return self.lease.wiped or self.machine.gone

    @property
    def idle(self) -> bool:
        """Whether the machine is warm, and nobody's (SC-343)."""
        warm = self.machine.state is MachineState.REGISTERED and self.lease.wiped is not None
        return warm and self.lease.latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What only the loop needs of an Attempt (`attempt_work`); no reader sees it."""

    next_try: datetime | None = None
    limit_at: datetime | None = None
    suspect_since: datetime | None = None
    watermark: datetime | None = None
    accrued: datetime | None = None
    warned: datetime | None = None
    drill: str | None = None
    drill_at: datetime | None = None
    hedge_at: datetime | None = None
    """When a second machine may be asked for, if none runs the program by then (SC-340)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A checkpoint that is committed in this transaction (SC-142).

    `committed` is the moment of what it saved, in whole seconds; `after` is the slot's last seq as
    it was loaded, the guard of the statement.
    """

    seq: int
    after: int
    size: int
    uri: str
    sha256: bytes
    cursor: Cursor | None
    committed: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A rank's checkpoint that waits until every rank of its gang has one (SC-142).

    `at` is the moment of what it saved; `machine` is the number of the one that reported it.
    """

    machine: int
    seq: int
    size: int
    uri: str
    sha256: bytes
    cursor: Cursor | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """What the runner on a machine said of the program's end, for people (SC-640)."""

    machine: int
    at: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """An Attempt with everything that a decision about it may need or change.

    `no` is None until the row is written. `tenancies` come in order of machine.
    """

    no: int | None = None
    view: AttemptView
    slot: Slot
    workload: Workload
    work: Work = field(default_factory=Work)
    spent_elsewhere: Decimal = Decimal(0)
    """What the workload's other Attempts were charged, where it has a limit; never written."""
    hold: Hold | None = None
    """The money that is set aside for it (SC-620); None before its first T2."""
    account: Account | None = field(default=None, compare=False)
    """Its organization's money when it was loaded; what became of it since is the batch's."""
    tenancies: tuple[Tenancy, ...] = ()
    commits: tuple[Commit, ...] = ()
    """The checkpoints to write; none in a record that was loaded."""
    proposal: Proposal | None = None
    """The rank's checkpoint that waits for the others of its gang."""
    last_words: LastWords | None = None
    """To be written with the end; none in a record that was loaded."""
    unheard: bool = field(default=False, compare=False)
    """Whether reports of its machines' runners wait to be applied; never written."""
    unready: tuple[str, ...] = ()
    """Keys of machines that left a race because they did not become ready; not loaded."""
    restore_lost: bool = False
    """Whether the checkpoint that the Attempt was to go on from is gone (SC-141); not loaded."""

    @property
    def attempt(self) -> Attempt:
        """The record that `advance` moves."""
        return self.view.attempt

    @property
    def held(self) -> tuple[Tenancy, ...]:
        """The machines that the Attempt holds now."""
        return tuple(tenancy for tenancy in self.tenancies if tenancy.open)

    @property
    def kept(self) -> tuple[Tenancy, ...]:
        """The machines that the Attempt holds and that nobody has released."""
        leaving = (MachineState.RELEASING, MachineState.GONE)
        return tuple(one for one in self.held if one.machine.state not in leaving)

    def moved(self, attempt: Attempt) -> "AttemptRecord":
        """Return the record with its Attempt replaced."""
        return replace(self, view=replace(self.view, attempt=attempt))

    def with_tenancy(self, tenancy: Tenancy) -> "AttemptRecord":
        """Return the record with the tenancy of the same machine key replaced, or added."""
        key = tenancy.machine.key
        kept = [tenancy if one.machine.key == key else one for one in self.tenancies]
        if all(one.machine.key != key for one in self.tenancies):
            kept.append(tenancy)
        return replace(self, tenancies=tuple(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """What a warm machine cost while nobody had it: Nodus's own (SC-344)."""

    machine: int
    start: datetime
    end: datetime
    rate_usd_per_hour: Decimal
    usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing asked for, waiting to be applied (SC-801)."""

    no: int
    key: str
    project: str
    verb: str
    kind: str | None
    target: str
    body: Mapping[str, Any]
    asked: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A runner's report as it was accepted (SC-641); `event_at` is receipt minus age (SC-615)."""

    machine: int
    fence: int
    n: int
    kind: str
    event_at: datetime
    received: datetime
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A placement decision, kept for `nodus explain` (SC-325, SC-333, SC-334).

    `counters` is what `kernel.explaining.Told` writes: beside the counts, what was told of each
    rejected class, since its numbers change later (SC-009b).
    """

    attempt: int
    at: datetime
    request: Mapping[str, Any]
    snapshot_id: str
    result_hash: bytes
    top: tuple[Mapping[str, Any], ...]
    counters: Mapping[str, Any]
