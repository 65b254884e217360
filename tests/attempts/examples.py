"""Attempts in every phase, as kernel views: what the projection and the table are tested on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from nodus_api.kernel.attempt import (
    Attempt,
    AttemptView,
    Checkpoints,
    Choice,
    CostSegment,
    Cursor,
    Gang,
    Interruption,
    Owner,
    Placement,
    Prediction,
    Rejection,
    RestorePoint,
)
from nodus_api.kernel.vocabulary import (
    Market,
    OwnerKind,
    Profile,
    Reason,
    Segment,
    Stage,
    Trigger,
    WaitingFor,
)

NOW = datetime(2026, 3, 1, 13, 0, 0, tzinfo=UTC)
QUEUED = datetime(2026, 3, 1, 10, 0, 55, tzinfo=UTC)
STARTED = datetime(2026, 3, 1, 10, 2, 40, tzinfo=UTC)
FINISHED = datetime(2026, 3, 1, 12, 2, 40, tzinfo=UTC)
OWNER = Owner(kind=OwnerKind.JOB, name="train", uid=UUID("7d5c9a3e-2f1b-4c8d-9e0a-1b2c3d4e5f60"))


def second(text: str) -> datetime:
    """A time of the examples' day."""
    return datetime.fromisoformat(f"2026-03-01T{text}+00:00")


def segment(
    kind: Segment, start: datetime, seconds: int, usd: str, *, covered: bool = False, seq: int = 0
) -> CostSegment:
    """One row of the ledger of machine 1."""
    return CostSegment(
        machine=1,
        seq=seq,
        segment=kind,
        start=start,
        end=start + timedelta(seconds=seconds),
        covered=covered,
        rate_usd_per_hour=Decimal("1.25"),
        usd=Decimal(usd),
    )


CHOICE = Choice(
    offering="h100-sxm-80g-x1-eu",
    region_class="eu",
    market=Market.SPOT,
    rate_usd_per_hour=Decimal("1.250000"),
    scores={
        "health": Decimal("0.9"),
        "fit": Decimal("1"),
        "timeToResult": Decimal("0.70505"),
        "costToComplete": Decimal("0.88124"),
        "recoveryValue": Decimal("0"),
    },
    fallbacks=("h100-sxm-80g-x1-us", "a100-sxm-80g-x1-eu"),
    predicted=Prediction(
        hours=Decimal("6.7174"),
        cost_usd=Decimal("8.39675"),
        interruption_rate=Decimal("0.05"),
    ),
)
PLACEMENT = Placement(
    profile=Profile.BALANCED,
    candidates=5,
    rejected=(Rejection(offering="b200-sxm-192g-x1-us", reason="InsufficientCapacity"),),
    choice=CHOICE,
)
PENDING = Attempt(
    uid=UUID("0b7c41a2-58de-4f6f-8a4e-6f2f9b1d7c01"),
    project="example",
    name="train-0-e1-k7f3q",
    workload=OWNER.uid,
    slot="0",
    epoch=1,
    queued=QUEUED,
)
WAITING = replace(
    PENDING,
    stage=Stage.PLACING,
    waiting_for=WaitingFor.CAPACITY,
    waiting_message="5 classes tried: h100-sxm-80g-x1-us has no capacity (asked for 1, 0 free)",
)
ACQUIRING = replace(PENDING, stage=Stage.ACQUIRING, acquired=second("10:01:05"))
STARTING = replace(ACQUIRING, stage=Stage.STARTING, billing_start=second("10:01:20"))
RUNNING = replace(
    STARTING,
    stage=Stage.RUNNING,
    registered=second("10:02:20"),
    command_started=STARTED,
    pull_seconds=40,
)
SUCCEEDED = replace(RUNNING, stage=Stage.SUCCEEDED, finished=FINISHED, exit_code=0)
LOST = replace(
    RUNNING,
    stage=Stage.LOST,
    reason=Reason.PREEMPTED,
    finished=FINISHED,
    deletion_proven=FINISHED + timedelta(seconds=60),
    superseded_by=2,
    interruption=Interruption(
        time=FINISHED,
        trigger=Trigger.PREEMPTION_NOTICE,
        lost_seconds=25,
        recovery_seconds=420,
    ),
)
KILLED = replace(
    RUNNING,
    stage=Stage.FAILED,
    reason=Reason.CUSTOMER_EXIT,
    finished=FINISHED,
    exit_code=137,
    signal=9,
)
STOPPED = replace(
    PENDING,
    stage=Stage.STOPPED,
    reason=Reason.STOPPED,
    finished=second("10:00:59"),
    interruption=Interruption(time=second("10:00:59"), trigger=Trigger.USER, lost_seconds=0),
)
RESUMED = replace(
    RUNNING,
    uid=UUID("0b7c41a2-58de-4f6f-8a4e-6f2f9b1d7c02"),
    name="train-0-e2-k7f3q",
    epoch=2,
    resumes=True,
    restore=RestorePoint(seq=4, cursor=Cursor(completed=400, total=600)),
    restore_bytes=9_007_199_254_740_993,
)
MEMBER = replace(
    RUNNING,
    uid=UUID("0b7c41a2-58de-4f6f-8a4e-6f2f9b1d7c03"),
    name="train-3-e1-k7f3q",
    slot="3",
    gang=Gang(id="7d5c9a3e-workers", epoch=1, rank=0, size=4),
)
BOOT = segment(Segment.BOOT, second("10:01:20"), 80, "0.027778")
RAN = segment(Segment.RUNNING, STARTED, 7200, "2.500000", seq=1)
TEARDOWN = segment(Segment.TEARDOWN, FINISHED, 60, "0.020833", covered=True, seq=2)


def view(
    attempt: Attempt,
    *segments: CostSegment,
    placement: Placement | None = PLACEMENT,
    checkpoints: Checkpoints | None = None,
    successor: str | None = None,
) -> AttemptView:
    """An Attempt of the Job `train`, placed unless said otherwise."""
    return AttemptView(
        attempt=attempt,
        owner=OWNER,
        segments=segments,
        placement=placement,
        checkpoints=checkpoints,
        successor=successor,
    )


EXAMPLES = {
    "queued": view(PENDING, placement=None),
    "waiting": view(WAITING, placement=replace(PLACEMENT, choice=None)),
    "acquiring": view(ACQUIRING),
    "starting": view(STARTING, BOOT),
    "running": view(RUNNING, BOOT, RAN, checkpoints=Checkpoints(count=2, last_seq=2)),
    "running-resumed": view(
        RESUMED, segment(Segment.RESTORE, second("10:01:20"), 80, "0.027778"), RAN
    ),
    "running-gang": view(MEMBER, BOOT, RAN),
    "succeeded": view(SUCCEEDED, BOOT, RAN, checkpoints=Checkpoints(count=4, last_seq=4)),
    "failed-lost": view(
        LOST,
        BOOT,
        RAN,
        TEARDOWN,
        checkpoints=Checkpoints(count=4, last_seq=4),
        successor="train-0-e2-k7f3q",
    ),
    "failed-signal": view(KILLED, BOOT, RAN, checkpoints=Checkpoints(count=0)),
    "cancelled": view(STOPPED, placement=None),
}
