"""The record of an Attempt, and all that the wire shows of one.

`Attempt` is what `advance` moves. `AttemptView` is what the projection renders:
the Attempt with its owner, placement, ledger and checkpoints.

All times are aware UTC datetimes in whole seconds (SC-005).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from nodus_api.kernel.vocabulary import (
    Market,
    OwnerKind,
    Phase,
    Profile,
    Reason,
    Segment,
    Stage,
    Trigger,
    WaitingFor,
    phase_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A member's place in its gang (SC-130)."""

    id: str
    epoch: int
    rank: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A restartable Job's progress, in units of the program (SC-141)."""

    completed: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """The committed checkpoint an Attempt starts from (SC-141)."""

    seq: int
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """What ended an Attempt early (SC-003, SC-015, SC-016)."""

    time: datetime
    trigger: Trigger
    lost_seconds: int
    recovery_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A stop that was ordered and has not ended yet (SC-013).

    `trigger` and `reason` are the outcome of the drain; the first cause keeps them.
    """

    trigger: Trigger | None
    reason: Reason
    signalled: datetime | None = None
    deadline: datetime | None = None
    barred: Reason | None = None
    """Why money came to its end meanwhile, under another cause: nothing replaces it then."""

    @property
    def undelivered_notice(self) -> bool:
        """Whether it is a notice whose stop order was never delivered, so that it may be void.

        Not that of a gang's rank which is Released with the trigger of a noticed peer (SC-134).
        """
        noticed = self.trigger is Trigger.PREEMPTION_NOTICE and self.reason is Reason.PREEMPTED
        return noticed and self.signalled is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One incarnation of a container, at one epoch of one slot."""

    uid: UUID
    project: str
    name: str
    workload: UUID
    slot: str
    epoch: int
    queued: datetime
    gang: Gang | None = None
    resumes: bool = False
    restore: RestorePoint | None = None
    restore_bytes: int | None = None
    stage: Stage = Stage.PENDING
    reason: Reason | None = None
    exit_code: int | None = None
    signal: int | None = None
    waiting_for: WaitingFor | None = None
    waiting_message: str | None = None
    acquired: datetime | None = None
    billing_start: datetime | None = None
    registered: datetime | None = None
    command_started: datetime | None = None
    finished: datetime | None = None
    deletion_proven: datetime | None = None
    pull_seconds: int | None = None
    superseded_by: int | None = None
    interruption: Interruption | None = None
    drain: Drain | None = None
    start_deadline: datetime | None = None
    last_heartbeat: datetime | None = None
    last_committed: datetime | None = None
    """Event time of the Attempt's last committed checkpoint, in whole seconds (SC-016)."""

    @property
    def phase(self) -> Phase:
        """What a customer sees of the stage (SC-002)."""
        return phase_of(self.stage)

    @property
    def live(self) -> bool:
        """Whether the Attempt has not ended."""
        return not self.stage.terminal

    @property
    def boot_seconds(self) -> int | None:
        """From acquisition to the program's start (SC-007); None if it never started."""
        return _seconds(self.acquired, self.command_started)

    @property
    def restore_seconds(self) -> int | None:
        """`boot_seconds` of an Attempt that resumes, else None (SC-007)."""
        return self.boot_seconds if self.resumes else None

    @property
    def teardown_seconds(self) -> int | None:
        """From the stop to the proven deletion (SC-007)."""
        return _seconds(self.finished, self.deletion_proven)

    @property
    def lost_seconds(self) -> int:
        """Program time after the last committed checkpoint; 0 if live or never started (SC-016)."""
        if self.finished is None or self.command_started is None:
            return 0
        kept = max(self.command_started, self.last_committed or self.command_started)
        return (self.finished - kept) // timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The workload an Attempt belongs to."""

    kind: OwnerKind
    name: str
    uid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One offering class ruled out, with the code of SC-310."""

    offering: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the placement expects (SC-350): hours and USD to 6 decimals, interruptions per hour."""

    hours: Decimal
    cost_usd: Decimal
    interruption_rate: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The winner of a placement. `scores` are decimals with 4 digits by name (SC-320)."""

    offering: str
    region_class: str
    market: Market
    rate_usd_per_hour: Decimal
    scores: Mapping[str, Decimal]
    fallbacks: tuple[str, ...]
    predicted: Prediction
    hedged: bool = False
    warm_reuse: bool = False

    @property
    def interruptible(self) -> bool:
        """Whether the capacity can be reclaimed."""
        return self.market is Market.SPOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A placement decision as it is published; without a choice while queued (SC-330)."""

    profile: Profile
    candidates: int
    rejected: tuple[Rejection, ...]
    choice: Choice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSegment:
    """One row of the ledger (SC-523): charged, or covered by Nodus.

    `machine` tells the machines of a hedged Attempt apart; `seq` counts from 0 a machine.
    """

    machine: int
    seq: int
    segment: Segment
    start: datetime
    end: datetime
    covered: bool
    rate_usd_per_hour: Decimal
    usd: Decimal

    @property
    def seconds(self) -> int:
        """The row's length in whole seconds."""
        return (self.end - self.start) // timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """`status.checkpoints`: commits during this Attempt (SC-142)."""

    count: int
    last_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """All that the wire shows of one Attempt; `storage` loads it, the projection renders it."""

    attempt: Attempt
    owner: Owner
    placement: Placement | None = None
    segments: tuple[CostSegment, ...] = ()
    checkpoints: Checkpoints | None = None
    successor: str | None = None
    """The name of the next Attempt in the slot."""


def _seconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else (end - start) // timedelta(seconds=1)
