"""What becomes of a slot when its Attempt has ended (SC-120 to SC-122, SC-132, SC-140).

`decide` is asked once for each ended Attempt, and once for a gang: for its first
failed rank, with the counters of rank 0's slot. The answer is written whole, in the
transaction that ends the Attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256

from nodus_api.kernel.attempt import Attempt, RestorePoint
from nodus_api.kernel.gang import unstarted_in_a_row
from nodus_api.kernel.money import ZERO
from nodus_api.kernel.spec import (
    SCALED_KINDS,
    InterruptiblePolicy,
    RestartAction,
    WorkloadSpec,
)
from nodus_api.kernel.vocabulary import (
    Fault,
    OwnerKind,
    Reason,
    SlotState,
    Stage,
    Trigger,
    WorkloadState,
    fault_of,
)

MAX_NODUS_FAILURES = 3
MAX_UNSTARTED_GANGS = 10
LOST_IN_A_ROW = 5
LOSS_WINDOW = timedelta(minutes=10)
MAX_DELAY = timedelta(seconds=600)
BASE_DELAY = timedelta(seconds=10)

_NEVER_AUTOMATIC = frozenset(
    {Reason.NO_CAPACITY, Reason.UNPLACEABLE, Reason.DEADLINE_EXCEEDED, Reason.RESTORE_FAILED}
)
_RETRIED_KINDS = frozenset({OwnerKind.JOB}) | SCALED_KINDS


class Counter(StrEnum):
    """Which of a slot's counters a replacement raises (SC-120)."""

    RETRIES = "retries_used"
    REPLACEMENTS = "replacements"
    NODUS_FAILURES = "nodus_failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounters:
    """A slot's memory of how its Attempts ended."""

    retries_used: int = 0
    replacements: int = 0
    backoff_k: int = 0
    """Failures in a row without a new checkpoint (SC-121)."""
    nodus_failures: int = 0
    """Ends by Nodus's fault in a row (SC-120 rule 4)."""
    lost_in_a_row: int = 0
    """Losses in a row that came too soon for a checkpoint (SC-122)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The standing decision on a slot; Open means the next epoch, from `not_before` on.

    `workload` and `outcome` are set if the workload itself ends, or waits to be resumed.
    """

    slot: SlotState
    counters: SlotCounters
    counted: Counter | None = None
    not_before: datetime | None = None
    workload: WorkloadState | None = None
    outcome: Reason | None = None

    @property
    def replaces(self) -> bool:
        """Whether the slot gets its next epoch."""
        return self.slot is SlotState.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """How a successor starts: whether it resumes (SC-140), and from what (SC-141)."""

    resumes: bool = False
    restore: RestorePoint | None = None


def decide(
    attempt: Attempt,
    *,
    spec: WorkloadSpec,
    workload: WorkloadState,
    counters: SlotCounters,
    now: datetime,
    budget_left: Decimal | None = None,
    minimum_start_usd: Decimal = ZERO,
    previous_loss: datetime | None = None,
    checkpoint_interval: timedelta = timedelta(0),
    barred: Reason | None = None,
) -> Replacement:
    """Return what follows an ended Attempt (SC-120).

    `budget_left` is what maxCostUSD leaves, None without a limit; `minimum_start_usd`
    is the least a start costs (rule 2). `previous_loss` is when the slot lost its last
    Attempt before this one; `checkpoint_interval` is the one in force (SC-144). `barred` is
    the stop of Funding that came while another cause drained it (SC-013).
    """
    if workload is not WorkloadState.ACTIVE:  # rule 1
        return Replacement(slot=_closed(attempt, workload), counters=counters)
    after = _after_end(attempt, spec, counters)
    if after.replaces and barred is not None:
        return _after_stop(barred, spec, counters)
    if not after.replaces or attempt.reason is Reason.RELEASED:
        return after
    if budget_left is not None and budget_left < minimum_start_usd:  # rule 2
        return _failed(counters, Reason.MAX_COST_REACHED)
    if attempt.stage not in (Stage.LOST, Stage.FAILED):
        return after
    if _drilled(attempt):  # counted nowhere, and not delayed
        return replace(after, not_before=now)
    lost = attempt.stage is Stage.LOST
    k = 0 if attempt.last_committed is not None else counters.backoff_k
    wait = timedelta(0)
    if not (lost and _first_loss(attempt, previous_loss)):
        wait = jittered(backoff(k), attempt, epoch=attempt.epoch + 1)
    early = lost and _too_soon(attempt, checkpoint_interval)
    return replace(
        after,
        counters=replace(
            after.counters,
            backoff_k=k + 1,
            lost_in_a_row=counters.lost_in_a_row + 1 if early else 0,
        ),
        not_before=now + wait,
    )


def decide_unstarted_gang(
    rank_0: Sequence[Attempt],
    *,
    workload: WorkloadState,
    counters: SlotCounters,
    now: datetime,
) -> Replacement:
    """Return what follows a gang epoch whose acquisition failed after a grant (SC-132).

    `rank_0` are the Attempts of rank 0's slot, oldest first, the ended one last.
    """
    last = rank_0[-1]
    if workload is not WorkloadState.ACTIVE:
        return Replacement(slot=_closed(last, workload), counters=counters)
    in_a_row = unstarted_in_a_row(rank_0)
    if in_a_row >= MAX_UNSTARTED_GANGS:
        return _failed(counters, Reason.NO_CAPACITY)
    wait = jittered(backoff(max(0, in_a_row - 1)), last, epoch=last.epoch + 1)
    return Replacement(slot=SlotState.OPEN, counters=counters, not_before=now + wait)


def backoff(k: int) -> timedelta:
    """Return min(10·2^k, 600) seconds (SC-121)."""
    return min(BASE_DELAY * (1 << min(k, 6)), MAX_DELAY)


def jittered(wait: timedelta, attempt: Attempt, *, epoch: int) -> timedelta:
    """Return `wait` ± 20 %, by a hash of the slot and the epoch that waits (SC-121).

    The same slot and epoch wait the same time, so that a decision can be replayed.
    """
    text = f"{attempt.workload}/{attempt.slot}/{epoch}".encode()
    share = int.from_bytes(sha256(text).digest()[:4]) % 401  # 0 to 400 thousandths
    return wait * (800 + share) / 1000


def needs_on_demand(counters: SlotCounters, policy: InterruptiblePolicy) -> bool:
    """Whether the next placement avoids spot, since spot made no progress (SC-122).

    A spec that requires interruptible capacity keeps it.
    """
    return counters.lost_in_a_row >= LOST_IN_A_ROW and policy is not InterruptiblePolicy.REQUIRE


def resumption(
    predecessor: Attempt | None, latest: RestorePoint | None, *, spec: WorkloadSpec
) -> Resumption:
    """Return how a slot's next Attempt starts (SC-140, SC-141).

    `latest` is the slot's highest committed checkpoint that is not deleted, over all
    epochs. Its cursor is handed on for restartable Jobs alone.
    """
    lost = predecessor is not None and predecessor.stage is Stage.LOST
    if latest is None:
        return Resumption(resumes=lost)
    if spec.kind is not OwnerKind.JOB or not spec.checkpoint.restartable:
        latest = replace(latest, cursor=None)
    return Resumption(resumes=True, restore=latest)


def workload_end(spec: WorkloadSpec, slots: Sequence[SlotState]) -> WorkloadState | None:
    """Return how a workload ends once all its wanted slots are decided; None if it goes on."""
    if spec.kind in SCALED_KINDS or not slots:
        return None
    states = frozenset(slots)
    if states & {SlotState.OPEN, SlotState.SUSPENDED, SlotState.UNFUNDED}:
        return None
    if SlotState.FAILED in states:
        return WorkloadState.FAILED
    return WorkloadState.STOPPED if SlotState.STOPPED in states else WorkloadState.SUCCEEDED


def _closed(attempt: Attempt, workload: WorkloadState) -> SlotState:
    """Return the slot's state under a workload that wants no more of it (rule 1)."""
    if attempt.stage is Stage.SUCCEEDED:
        return SlotState.SUCCEEDED
    if workload is WorkloadState.SUSPENDED:
        return SlotState.SUSPENDED
    return SlotState.FAILED if attempt.stage is Stage.FAILED else SlotState.STOPPED


def _after_end(attempt: Attempt, spec: WorkloadSpec, counters: SlotCounters) -> Replacement:
    """Return what the end alone decides, before budget and delay."""
    if attempt.reason is None:
        return _after_success(spec, counters)
    if attempt.stage is Stage.STOPPED:
        return _after_stop(attempt.reason, spec, counters)
    return _after_failure(attempt, attempt.reason, spec, counters)


def _after_success(spec: WorkloadSpec, counters: SlotCounters) -> Replacement:
    """A worker is started again while it is wanted; the rest is done (SC-101)."""
    slot = SlotState.OPEN if spec.kind in SCALED_KINDS else SlotState.SUCCEEDED
    calm = replace(counters, backoff_k=0, nodus_failures=0, lost_in_a_row=0)
    return Replacement(slot=slot, counters=calm)


def _after_stop(reason: Reason, spec: WorkloadSpec, counters: SlotCounters) -> Replacement:
    """Return what follows an end as Stopped under a workload that is still Active."""
    match reason:
        case Reason.UNFUNDED if spec.auto_resume:
            return Replacement(slot=SlotState.UNFUNDED, counters=counters)
        case Reason.UNFUNDED | Reason.MAX_COST_REACHED:
            return _failed(counters, reason)
        case Reason.SUSPENDED:  # resumed before the drain was over
            return Replacement(slot=SlotState.OPEN, counters=counters)
        case Reason.RELEASED if spec.kind in _RETRIED_KINDS:  # scale may want it again
            return Replacement(slot=SlotState.OPEN, counters=counters)
        case Reason.RELEASED if spec.kind is OwnerKind.WORKSPACE:
            return _until_opened(counters, reason)
        case _:
            return Replacement(slot=SlotState.STOPPED, counters=counters)


def _after_failure(
    attempt: Attempt, reason: Reason, spec: WorkloadSpec, counters: SlotCounters
) -> Replacement:
    """Return rules 3 to 6."""
    if _drilled(attempt):
        return Replacement(slot=SlotState.OPEN, counters=counters)
    if reason in _NEVER_AUTOMATIC:  # rule 6
        return _give_up(spec, counters, reason)
    match fault_of(reason):
        case Fault.SUPPLIER:  # rule 3
            if counters.replacements >= spec.restart.max_replacements:
                return _give_up(spec, counters, reason)
            return _again(counters, Counter.REPLACEMENTS)
        case Fault.NODUS:  # rule 4
            if counters.nodus_failures >= MAX_NODUS_FAILURES:
                return _failed(counters, Reason.INTERNAL_ERROR)
            return _again(counters, Counter.NODUS_FAILURES)
        case _:  # rule 5
            return _after_customer_fault(attempt, reason, spec, counters)


def _after_customer_fault(
    attempt: Attempt, reason: Reason, spec: WorkloadSpec, counters: SlotCounters
) -> Replacement:
    """Return rule 5: the first rule that matches, else the kind's own way (SC-101)."""
    for rule in spec.restart.rules:
        if rule.matches(reason=reason, exit_code=attempt.exit_code):
            return _ruled(rule.action, reason, spec, counters)
    if spec.kind in SCALED_KINDS:
        return _again(counters, None)
    if spec.kind is OwnerKind.JOB:
        return _ruled(RestartAction.RETRY, reason, spec, counters)
    return _give_up(spec, counters, reason)


def _ruled(
    action: RestartAction, reason: Reason, spec: WorkloadSpec, counters: SlotCounters
) -> Replacement:
    match action:
        case RestartAction.IGNORE:
            return _again(counters, None)
        case RestartAction.RETRY if counters.retries_used < spec.restart.max_retries:
            return _again(counters, Counter.RETRIES)
        case RestartAction.RETRY:
            return _give_up(spec, counters, reason)
        case RestartAction.FAIL_SLOT:
            return Replacement(slot=SlotState.FAILED, counters=counters)
        case _:  # FailJob
            return _failed(counters, reason)


def _again(counters: SlotCounters, counted: Counter | None) -> Replacement:
    """Return Open, with one counter raised; faults of Nodus count in a row alone."""
    if counted is not Counter.NODUS_FAILURES:
        counters = replace(counters, nodus_failures=0)
    if counted is not None:
        counters = replace(counters, **{counted.value: getattr(counters, counted.value) + 1})
    return Replacement(slot=SlotState.OPEN, counters=counters, counted=counted)


def _give_up(spec: WorkloadSpec, counters: SlotCounters, reason: Reason) -> Replacement:
    """Return the end of automatic tries: a worker fails alone, a Workspace waits to be opened."""
    if spec.kind is OwnerKind.WORKSPACE:
        return _until_opened(counters, reason)
    if spec.kind in SCALED_KINDS:
        return Replacement(slot=SlotState.FAILED, counters=counters)
    return _failed(counters, reason)


def _failed(counters: SlotCounters, outcome: Reason) -> Replacement:
    return Replacement(
        slot=SlotState.FAILED, counters=counters, workload=WorkloadState.FAILED, outcome=outcome
    )


def _until_opened(counters: SlotCounters, outcome: Reason) -> Replacement:
    return Replacement(
        slot=SlotState.SUSPENDED,
        counters=counters,
        workload=WorkloadState.SUSPENDED,
        outcome=outcome,
    )


def _drilled(attempt: Attempt) -> bool:
    return attempt.interruption is not None and attempt.interruption.trigger is Trigger.DRILL


def _first_loss(attempt: Attempt, previous: datetime | None) -> bool:
    ended = attempt.finished or attempt.queued
    return previous is None or ended - previous >= LOSS_WINDOW


def _too_soon(attempt: Attempt, interval: timedelta) -> bool:
    """Whether a loss left no checkpoint and came before two intervals had run (SC-122)."""
    if attempt.last_committed is not None:
        return False
    if attempt.command_started is None or attempt.finished is None:
        return True
    return attempt.finished - attempt.command_started < 2 * interval
