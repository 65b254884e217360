"""A workload's spec: defaults, one canonical form, rules that match."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.spec import (
    HedgePolicy,
    InterruptiblePolicy,
    RestartAction,
    RestartRule,
    WorkloadSpec,
)
from nodus_api.kernel.vocabulary import OwnerKind, Profile, Reason

MINIMUM = {
    "template": {"image": "python:3.12", "command": ["python", "train.py"]},
    "resources": {"accelerators": ["h100"], "count": 1},
}

WHOLE: dict[str, Any] = {
    "template": {
        "image": "python:3.12",
        "command": ["python", "train.py"],
        "env": {"A": "1", "B": "2"},
        "workingDir": "/data",
    },
    "resources": {
        "accelerators": ["h100", "h200"],
        "count": 8,
        "acceleratorMemoryGiB": "80",
        "vcpus": "7.5",
        "memoryGiB": "64",
        "diskGiB": "100",
        "arch": "amd64",
    },
    "placement": {
        "profile": "Speed",
        "regions": ["eu", "us"],
        "interruptible": "Require",
        "hedge": "Auto",
        "offerings": ["h100-sxm-80g-x8-eu"],
    },
    "checkpoint": {"restartable": True, "intervalSeconds": 600, "costSeconds": 5},
    "restart": {
        "maxRetries": 2,
        "maxReplacements": 7,
        "rules": [{"exitCodes": [42], "reasons": ["OutOfMemory"], "action": "FailJob"}],
    },
    "limits": {
        "maxCostUSD": "100",
        "maxRateUSDPerHour": "30.5",
        "maxDurationSeconds": 7200,
        "startDeadlineSeconds": 60,
    },
    "estimate": {"hours": "2.5"},
    "stopGraceSeconds": 5,
    "autoResume": True,
    "completions": 4,
    "parallelism": 4,
    "gang": {"name": "ranks"},
}


def test_everything_but_the_minimum_has_a_default() -> None:  # SC-805
    assert WorkloadSpec.from_json(OwnerKind.JOB, MINIMUM).to_json() == {
        "template": {"image": "python:3.12", "command": ["python", "train.py"], "env": {}},
        "resources": {"accelerators": ["h100"], "count": 1},
        "placement": {
            "profile": "Balanced",
            "regions": [],
            "interruptible": "Never",
            "hedge": "Never",
            "offerings": [],
        },
        "checkpoint": {"restartable": False, "intervalSeconds": "auto", "costSeconds": 30},
        "restart": {"maxRetries": 0, "maxReplacements": 50, "rules": []},
        "limits": {"startDeadlineSeconds": 3600},
        "estimate": {},
        "stopGraceSeconds": 30,
        "autoResume": False,
        "completions": 1,
        "parallelism": 1,
        "gang": False,
    }


def test_an_absent_block_of_resources_is_one_vcpu() -> None:  # SC-805
    absent = WorkloadSpec.from_json(OwnerKind.JOB, {}).resources
    empty = WorkloadSpec.from_json(OwnerKind.JOB, {"resources": {}}).resources

    assert (absent.accelerators, absent.count, absent.vcpus) == ((), 0, Decimal(1))
    assert (empty.accelerators, empty.count, empty.vcpus) == ((), 0, None)


def test_accelerators_without_a_count_are_one() -> None:
    spec = {"resources": {"accelerators": ["h100"]}}

    assert WorkloadSpec.from_json(OwnerKind.JOB, spec).resources.count == 1


def test_parallelism_is_completions_unless_written() -> None:  # SC-805
    assert WorkloadSpec.from_json(OwnerKind.JOB, {"completions": 4}).parallelism == 4
    narrow = WorkloadSpec.from_json(OwnerKind.JOB, {"completions": 4, "parallelism": 2})
    assert narrow.parallelism == 2


@pytest.mark.parametrize(
    ("restartable", "policy"),
    [(True, InterruptiblePolicy.ALLOW), (False, InterruptiblePolicy.NEVER)],
)
def test_only_restartable_work_goes_to_spot_by_itself(  # SC-301
    restartable: bool, policy: InterruptiblePolicy
) -> None:
    spec = WorkloadSpec.from_json(OwnerKind.JOB, {"checkpoint": {"restartable": restartable}})

    assert spec.placement.interruptible is policy


def test_every_field_is_read() -> None:
    spec = WorkloadSpec.from_json(OwnerKind.JOB, WHOLE)

    assert spec.template.env == {"A": "1", "B": "2"}
    assert spec.resources.vcpus == Decimal("7.5")
    assert spec.placement.profile is Profile.SPEED
    assert spec.placement.hedge is HedgePolicy.AUTO
    assert spec.checkpoint.interval_seconds == 600
    assert spec.restart.rules[0].action is RestartAction.FAIL_JOB
    assert spec.limits.max_cost_usd == 100
    assert spec.estimate_hours == Decimal("2.5")
    assert spec.gang == "ranks"
    assert spec.to_json() == WHOLE


def test_what_means_the_same_is_written_the_same() -> None:  # SC-802
    one = {"limits": {"maxCostUSD": 5}, "gang": True, "resources": {"vcpus": Decimal("1E+1")}}
    other = {
        "limits": {"maxCostUSD": "5.00"},
        "gang": {"name": "workers"},
        "resources": {"vcpus": "10.0"},
        "completions": 1,
    }

    first = WorkloadSpec.from_json(OwnerKind.JOB, one)
    second = WorkloadSpec.from_json(OwnerKind.JOB, other)

    assert first == second
    assert first.to_json() == second.to_json()
    assert first.to_json()["resources"]["vcpus"] == "10"


@pytest.mark.parametrize("kind", OwnerKind)
@given(workers=st.integers(0, 9), idle=st.sampled_from([None, 60]), gang=st.booleans())
def test_what_is_written_is_read_back(
    kind: OwnerKind, workers: int, idle: int | None, gang: bool
) -> None:
    written = {"workers": workers, "gang": gang, "completions": 3}
    if idle is not None:
        written["idleTimeoutSeconds"] = idle
    canonical = WorkloadSpec.from_json(kind, written).to_json()

    again = WorkloadSpec.from_json(kind, canonical)

    assert again.to_json() == canonical


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (OwnerKind.JOB, {"completions", "parallelism", "gang"}),
        (OwnerKind.FUNCTION, {"workers"}),
        (OwnerKind.AGENT, {"workers"}),
        (OwnerKind.SANDBOX, {"idleTimeoutSeconds"}),
        (OwnerKind.BUILD, {"idleTimeoutSeconds"}),
    ],
)
def test_a_kind_writes_its_own_fields(kind: OwnerKind, own: set[str]) -> None:  # SC-101
    fields = set(WorkloadSpec.from_json(kind, {"idleTimeoutSeconds": 60}).to_json())

    assert fields & {"completions", "parallelism", "gang", "workers", "idleTimeoutSeconds"} == own


@pytest.mark.parametrize(
    ("reason", "exit_code", "matches"),
    [
        (Reason.CUSTOMER_EXIT, 42, True),
        (Reason.CUSTOMER_EXIT, 1, False),
        (Reason.OUT_OF_MEMORY, 137, True),
        (Reason.START_FAILED, None, False),
    ],
)
def test_a_rule_matches_by_exit_code_or_reason(  # SC-120
    reason: Reason, exit_code: int | None, matches: bool
) -> None:
    rule = RestartRule(
        action=RestartAction.IGNORE, exit_codes=(42,), reasons=(Reason.OUT_OF_MEMORY,)
    )

    assert rule.matches(reason=reason, exit_code=exit_code) is matches
