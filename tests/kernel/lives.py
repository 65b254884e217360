"""Attempts at every point of a life, for the kernel's tests; times are seconds from `T0`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from nodus_api.kernel.attempt import Attempt, Gang
from nodus_api.kernel.events import (
    CapacityGranted,
    CapacityLost,
    Claimed,
    CommandStarted,
    Event,
    Exited,
    Placed,
    Registered,
    StopRequested,
)
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.vocabulary import Reason, Trigger

T0 = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
UID = UUID("00000000-0000-4000-8000-00000000000a")
WORKLOAD = UUID("00000000-0000-4000-8000-00000000000b")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def pending(*, epoch: int = 1, slot: str = "0", gang: Gang | None = None) -> Attempt:
    return queue(
        uid=UID,
        project="default",
        name=f"train-{slot}-e{epoch}-k7f3q",
        workload=WORKLOAD,
        slot=slot,
        epoch=epoch,
        at=at(0),
        gang=gang,
    )


def after(attempt: Attempt, *events: Event) -> Attempt:
    for event in events:
        attempt = advance(attempt, event)
    return attempt


def placing() -> Attempt:
    return after(pending(), Claimed(at=at(1), start_deadline=at(3601)))


def acquiring() -> Attempt:
    return after(placing(), Placed(at=at(10)))


def starting() -> Attempt:
    return after(acquiring(), CapacityGranted(at=at(25), billing_start=at(20)))


def registered() -> Attempt:
    return after(starting(), Registered(at=at(60), pull_seconds=30))


def running() -> Attempt:
    return after(registered(), CommandStarted(at=at(100)))


def drained(attempt: Attempt, *, trigger: Trigger = Trigger.USER) -> Attempt:
    reason = Reason.STOPPED if trigger is Trigger.USER else Reason.PREEMPTED
    return after(
        attempt,
        StopRequested(at=at(200), trigger=trigger, reason=reason, deadline=at(230)),
    )


def succeeded() -> Attempt:
    return after(running(), Exited(at=at(500), exit_code=0))


def failed() -> Attempt:
    return after(running(), Exited(at=at(500), exit_code=3))


def lost() -> Attempt:
    return after(
        running(),
        CapacityLost(at=at(500), trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.PREEMPTED),
    )


def stopped() -> Attempt:
    return after(pending(), StopRequested(at=at(5), trigger=Trigger.USER, reason=Reason.STOPPED))


def member(attempt: Attempt, rank: int, *, size: int = 4, epoch: int = 1) -> Attempt:
    return replace(
        attempt, slot=str(rank), gang=Gang(id="0000-workers", epoch=epoch, rank=rank, size=size)
    )
