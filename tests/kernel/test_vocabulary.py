"""The words of the domain: SC-001, SC-002, SC-010, SC-012, SC-101."""

import pytest

from nodus_api.kernel.vocabulary import (
    TERMINAL_STAGES,
    Fault,
    OwnerKind,
    Phase,
    Reason,
    Segment,
    Stage,
    Trigger,
    fault_of,
    phase_of,
    stage_of,
)

PHASES = {
    "Pending": "Queued",
    "Placing": "Queued",
    "Acquiring": "Provisioning",
    "Starting": "Provisioning",
    "Running": "Running",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
    "Lost": "Failed",
    "Stopped": "Cancelled",
}
REASONS = {
    "Preempted": ("Lost", "supplier"),
    "NodeLost": ("Lost", "supplier"),
    "ReadinessFailed": ("Lost", "supplier"),
    "StartupTimeout": ("Lost", "supplier"),
    "Unplaceable": ("Failed", "customer"),
    "NoCapacity": ("Failed", "supplier"),
    "CustomerExit": ("Failed", "customer"),
    "OutOfMemory": ("Failed", "customer"),
    "DeadlineExceeded": ("Failed", "customer"),
    "ImagePullFailed": ("Failed", "customer"),
    "StartFailed": ("Failed", "customer"),
    "RestoreFailed": ("Failed", "customer"),
    "CheckpointUnavailable": ("Failed", "nodus"),
    "InternalError": ("Failed", "nodus"),
    "Stopped": ("Stopped", "user"),
    "Suspended": ("Stopped", "user"),
    "Unfunded": ("Stopped", "customer"),
    "MaxCostReached": ("Stopped", "customer"),
    "Released": ("Stopped", "nodus"),
}


def test_the_stages_and_their_phases() -> None:  # SC-001, SC-002
    assert {stage.value: phase_of(stage).value for stage in Stage} == PHASES
    assert {phase.value for phase in Phase} == set(PHASES.values())


@pytest.mark.parametrize("stage", list(Stage))
def test_the_last_four_stages_are_terminal(stage: Stage) -> None:
    assert stage.terminal == (stage.value in {"Succeeded", "Failed", "Lost", "Stopped"})
    assert stage.terminal == (stage in TERMINAL_STAGES)


def test_the_reasons_their_stages_and_faults() -> None:  # SC-010
    assert {r.value: (stage_of(r).value, fault_of(r).value) for r in Reason} == REASONS
    assert {fault.value for fault in Fault} == {"supplier", "customer", "nodus", "user"}


def test_the_reasons_for_cancelled_are_the_five_of_the_reference() -> None:  # SC-011
    cancelled = {r.value for r in Reason if phase_of(stage_of(r)) is Phase.CANCELLED}

    assert cancelled == {"Stopped", "Suspended", "Unfunded", "MaxCostReached", "Released"}


def test_the_triggers_of_the_reference() -> None:  # SC-012
    assert [trigger.value for trigger in Trigger] == [
        "PreemptionNotice",
        "ProviderEvidence",
        "HeartbeatLoss",
        "ReadinessFailed",
        "StartupTimeout",
        "Drill",
        "Funding",
        "User",
    ]


def test_covered_segments_are_listed_in_the_references_order() -> None:  # SC-521
    assert [segment.value for segment in Segment] == ["Boot", "Running", "Restore", "Teardown"]


@pytest.mark.parametrize("kind", list(OwnerKind))
def test_an_owner_label_is_the_kind_in_lower_case(kind: OwnerKind) -> None:  # SC-101
    assert kind.label == f"nodus.dev/{kind.name.lower()}"
