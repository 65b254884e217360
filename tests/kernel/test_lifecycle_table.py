"""Every pair of stage and event: those of SC-004 move, all others are refused."""

from collections.abc import Callable

import pytest
from tests.kernel.checks import broken_checks
from tests.kernel.lives import (
    acquiring,
    at,
    drained,
    failed,
    lost,
    pending,
    placing,
    running,
    starting,
    stopped,
    succeeded,
)

from nodus_api.kernel import events as kernel_events
from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.events import (
    AcquireFailed,
    CapacityGranted,
    CapacityLost,
    CheckpointCommitted,
    Claimed,
    CommandStarted,
    DeletionProven,
    Event,
    Exited,
    Heartbeat,
    NoOffering,
    NoticeCleared,
    Placed,
    Recovered,
    Registered,
    RunFault,
    StartDeadlinePassed,
    StartFault,
    StopCompleted,
    StopRequested,
    StopSignalled,
    Superseded,
    Unplaceable,
    Waits,
)
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import (
    Reason,
    Stage,
    Trigger,
    WaitingFor,
)

STATES: dict[str, Callable[[], Attempt]] = {
    "Pending": pending,
    "Placing": placing,
    "Acquiring": acquiring,
    "Acquiring, draining": lambda: drained(acquiring()),
    "Starting": starting,
    "Starting, draining": lambda: drained(starting()),
    "Running": running,
    "Running, draining": lambda: drained(running()),
    "Succeeded": succeeded,
    "Failed": failed,
    "Lost": lost,
    "Stopped": stopped,
}
EVENTS: dict[str, Event] = {
    "Claimed": Claimed(at=at(600)),
    "Waits": Waits(at=at(600), waiting_for=WaitingFor.FUNDS, message="needs 1.00 USD, 0 free"),
    "Placed": Placed(at=at(600)),
    "NoOffering": NoOffering(at=at(600), waiting_for=WaitingFor.CAPACITY, message="5 tried"),
    "Unplaceable": Unplaceable(at=at(600)),
    "AcquireFailed": AcquireFailed(at=at(600)),
    "CapacityGranted": CapacityGranted(at=at(600)),
    "StartDeadlinePassed": StartDeadlinePassed(at=at(600)),
    "Registered": Registered(at=at(600)),
    "CommandStarted": CommandStarted(at=at(600)),
    "StartFault": StartFault(at=at(600), reason=Reason.IMAGE_PULL_FAILED),
    "CapacityLost": CapacityLost(
        at=at(600), trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.NODE_LOST
    ),
    "Exited 0": Exited(at=at(600), exit_code=0),
    "Exited 3": Exited(at=at(600), exit_code=3),
    "Exited 143, stopped": Exited(at=at(600), exit_code=143, signal=15, stopped=True),
    "RunFault": RunFault(at=at(600), reason=Reason.DEADLINE_EXCEEDED),
    "StopRequested": StopRequested(at=at(600), trigger=Trigger.USER, reason=Reason.STOPPED),
    "Notice": StopRequested(
        at=at(600), trigger=Trigger.PREEMPTION_NOTICE, reason=Reason.PREEMPTED, deadline=at(720)
    ),
    "StopSignalled": StopSignalled(at=at(600)),
    "NoticeCleared": NoticeCleared(at=at(600)),
    "StopCompleted": StopCompleted(at=at(600)),
    "Heartbeat": Heartbeat(at=at(600)),
    "CheckpointCommitted": CheckpointCommitted(at=at(600)),
    "DeletionProven": DeletionProven(at=at(600)),
    "Superseded": Superseded(at=at(600), epoch=2),
    "Recovered": Recovered(at=at(600)),
}
MOVES: dict[tuple[str, str], Stage] = {
    ("Pending", "Claimed"): Stage.PLACING,
    ("Pending", "Waits"): Stage.PENDING,
    ("Pending", "StartDeadlinePassed"): Stage.FAILED,
    ("Pending", "StopRequested"): Stage.STOPPED,
    ("Placing", "Waits"): Stage.PLACING,
    ("Placing", "Placed"): Stage.ACQUIRING,
    ("Placing", "NoOffering"): Stage.PENDING,
    ("Placing", "Unplaceable"): Stage.FAILED,
    ("Placing", "StartDeadlinePassed"): Stage.FAILED,
    ("Placing", "StopRequested"): Stage.STOPPED,
    ("Acquiring", "AcquireFailed"): Stage.PLACING,
    ("Acquiring", "CapacityGranted"): Stage.STARTING,
    ("Acquiring", "StartDeadlinePassed"): Stage.ACQUIRING,
    ("Acquiring", "StartFault"): Stage.FAILED,
    ("Acquiring", "StopRequested"): Stage.ACQUIRING,
    ("Acquiring, draining", "CapacityGranted"): Stage.STARTING,
    ("Acquiring, draining", "StartDeadlinePassed"): Stage.ACQUIRING,
    ("Acquiring, draining", "StartFault"): Stage.STOPPED,
    ("Acquiring, draining", "StopRequested"): Stage.ACQUIRING,
    ("Acquiring, draining", "StopSignalled"): Stage.ACQUIRING,
    ("Acquiring, draining", "StopCompleted"): Stage.STOPPED,
    ("Starting", "Registered"): Stage.STARTING,
    ("Starting", "CommandStarted"): Stage.RUNNING,
    ("Starting", "StartFault"): Stage.FAILED,
    ("Starting", "CapacityLost"): Stage.LOST,
    ("Starting", "StopRequested"): Stage.STARTING,
    ("Starting", "Notice"): Stage.STARTING,
    ("Starting", "Heartbeat"): Stage.STARTING,
    ("Starting, draining", "Registered"): Stage.STARTING,
    ("Starting, draining", "CommandStarted"): Stage.RUNNING,
    ("Starting, draining", "StartFault"): Stage.FAILED,
    ("Starting, draining", "CapacityLost"): Stage.STOPPED,
    ("Starting, draining", "StopRequested"): Stage.STARTING,
    ("Starting, draining", "Notice"): Stage.STARTING,
    ("Starting, draining", "StopSignalled"): Stage.STARTING,
    ("Starting, draining", "StopCompleted"): Stage.STOPPED,
    ("Starting, draining", "Heartbeat"): Stage.STARTING,
    ("Running", "CapacityLost"): Stage.LOST,
    ("Running", "Exited 0"): Stage.SUCCEEDED,
    ("Running", "Exited 3"): Stage.FAILED,
    ("Running", "Exited 143, stopped"): Stage.LOST,
    ("Running", "RunFault"): Stage.FAILED,
    ("Running", "StopRequested"): Stage.RUNNING,
    ("Running", "Notice"): Stage.RUNNING,
    ("Running", "Heartbeat"): Stage.RUNNING,
    ("Running", "CheckpointCommitted"): Stage.RUNNING,
    ("Running, draining", "CapacityLost"): Stage.STOPPED,
    ("Running, draining", "Exited 0"): Stage.SUCCEEDED,
    ("Running, draining", "Exited 3"): Stage.FAILED,
    ("Running, draining", "Exited 143, stopped"): Stage.STOPPED,
    ("Running, draining", "StopRequested"): Stage.RUNNING,
    ("Running, draining", "Notice"): Stage.RUNNING,
    ("Running, draining", "StopSignalled"): Stage.RUNNING,
    ("Running, draining", "StopCompleted"): Stage.STOPPED,
    ("Running, draining", "Heartbeat"): Stage.RUNNING,
    ("Running, draining", "CheckpointCommitted"): Stage.RUNNING,
    ("Succeeded", "DeletionProven"): Stage.SUCCEEDED,
    ("Succeeded", "Superseded"): Stage.SUCCEEDED,
    ("Failed", "DeletionProven"): Stage.FAILED,
    ("Failed", "Superseded"): Stage.FAILED,
    ("Lost", "DeletionProven"): Stage.LOST,
    ("Lost", "Superseded"): Stage.LOST,
    ("Lost", "Recovered"): Stage.LOST,
    ("Stopped", "DeletionProven"): Stage.STOPPED,
    ("Stopped", "Superseded"): Stage.STOPPED,
    ("Stopped", "Recovered"): Stage.STOPPED,
}


def test_the_table_names_every_event() -> None:
    named = {type(event) for event in EVENTS.values()}

    everything = {
        kind
        for kind in vars(kernel_events).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
    }
    assert named == everything


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_a_listed_event_moves_and_any_other_is_refused(state: str, event: str) -> None:  # SC-004
    attempt = STATES[state]()
    expected = MOVES.get((state, event))

    if expected is None:
        with pytest.raises(IllegalTransition) as refused:
            advance(attempt, EVENTS[event])
        assert (refused.value.stage, refused.value.event) == (attempt.stage, EVENTS[event])
        assert type(EVENTS[event]).__name__ in str(refused.value)
    else:
        moved = advance(attempt, EVENTS[event])
        assert moved.stage is expected
        assert broken_checks(moved) == []
