"""A bill only grows along a life: SC-508, SC-509, P-13."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.lives import T0, at, registered, running, starting

from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.billing import (
    CHARGED,
    Actual,
    charge,
    clock_of,
    cover_of,
    proof_of_life,
)
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.events import (
    CapacityLost,
    CheckpointCommitted,
    CommandStarted,
    DeletionProven,
    Event,
    Exited,
    Heartbeat,
    Registered,
    RunFault,
    StartFault,
    StopCompleted,
    StopRequested,
)
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import Reason, Trigger

RATE = Decimal("3.60")


spans = st.integers(0, 40).map(lambda seconds: timedelta(seconds=seconds))
EVENTS = (
    Registered(at=T0),
    CommandStarted(at=T0),
    Heartbeat(at=T0),
    CheckpointCommitted(at=T0),
    StartFault(at=T0, reason=Reason.IMAGE_PULL_FAILED),
    CapacityLost(at=T0, trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.NODE_LOST),
    StopRequested(at=T0, trigger=Trigger.USER, reason=Reason.STOPPED),
    StopCompleted(at=T0),
    Exited(at=T0, exit_code=0),
    Exited(at=T0, exit_code=143, stopped=True),
    RunFault(at=T0, reason=Reason.DEADLINE_EXCEEDED),
    RunFault(at=T0, reason=Reason.INTERNAL_ERROR),
    DeletionProven(at=T0),
)
Step = tuple[timedelta, timedelta, bool, int]
steps = st.tuples(spans, spans, st.booleans(), st.integers(0, 999))
"""How much later, how old the event is, whether the supplier is asked instead, which event."""

starts = st.sampled_from([starting(), registered(), running()])


def heard(event: Event, now: datetime, age: timedelta) -> Event:
    """The event as the loop would pass it on; a deletion is proven by a look now."""
    return replace(event, at=now if isinstance(event, DeletionProven) else now - age)


def possible(attempt: Attempt) -> list[Event]:
    """The events that may come next."""
    return [event for event in EVENTS if not refused(attempt, event)]


def refused(attempt: Attempt, event: Event) -> bool:
    try:
        advance(attempt, event)
    except IllegalTransition:
        return True
    return False


def bill(attempt: Attempt, observed: datetime | None) -> Actual:
    clock = clock_of(
        attempt,
        machine=1,
        rate_usd_per_hour=RATE,
        increment=timedelta(seconds=60),
        minimum=timedelta(seconds=300),
    )
    if clock is None:
        return Actual()
    watermark = proof_of_life(attempt, observed)
    return charge(clock, cover=cover_of(attempt), watermark=watermark).totals


@given(attempt=starts, walk=st.lists(steps, max_size=25))
def test_a_bill_falls_only_when_an_end_is_covered(attempt: Attempt, walk: list[Step]) -> None:
    now, observed = at(100), None
    for later, age, looks, choice in walk:
        before, cost = attempt, bill(attempt, observed).cost_usd
        now += later
        if looks and attempt.live and attempt.registered is None:
            observed = now  # the supplier is asked, before the runner speaks
        elif events := possible(attempt):
            attempt = advance(attempt, heard(events[choice % len(events)], now, age))
        after = bill(attempt, observed).cost_usd

        if before.live and not attempt.live and cover_of(attempt) != CHARGED:
            continue  # SC-509: the one write that may lower it
        assert after >= cost
