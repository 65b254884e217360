"""The recount itself: it passes a right bill and sees each kind of a wrong one."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from nodus_api.cli.demo.recount import problems, unfinished

RIGHT: dict[str, Any] = {
    "metadata": {"name": "train-0-e1-abcde", "ownerReferences": [{"uid": "owner"}]},
    "spec": {"slot": "0", "epoch": 1},
    "status": {
        "phase": "Succeeded",
        "placement": {"rateUSDPerHour": "0.06"},
        "timings": {
            "queuedTime": "2026-01-01T00:00:00Z",
            "acquiredTime": "2026-01-01T00:00:00Z",
            "billingStartTime": "2026-01-01T00:00:01Z",
            "registeredTime": "2026-01-01T00:00:02Z",
            "commandStartedTime": "2026-01-01T00:00:02Z",
            "finishedTime": "2026-01-01T00:00:08Z",
            "deletionProvenTime": "2026-01-01T00:00:09Z",
        },
        "actual": {
            "costUSD": "0.000133",
            "hours": "0.002222",
            "segments": {
                "bootUSD": "0.000017",
                "runningUSD": "0.000100",
                "restoreUSD": "0.000000",
                "teardownUSD": "0.000016",
            },
        },
    },
}


def test_a_right_bill_has_no_problem() -> None:  # SC-505
    assert problems([RIGHT]) == []
    assert unfinished([RIGHT]) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda s: s["actual"].update(costUSD="0.000134"), "costUSD says 0.000134"),
        (lambda s: s["actual"]["segments"].update(bootUSD="0.000018"), "bootUSD is 0.000018"),
        (lambda s: s["actual"].update(hours="0.002223"), "hours is 0.002223"),
        (lambda s: s["timings"].update(registeredTime="2026-01-01T00:00:03Z"), "out of order"),
        (lambda s: s.update(phase="Running"), "finishedTime disagree"),
    ],
)
def test_a_wrong_one_is_seen(spoil: Callable[[Any], None], said: str) -> None:
    wrong = copy.deepcopy(RIGHT)
    spoil(wrong["status"])
    assert any(said in one for one in problems([wrong]))


def test_epochs_follow_one_another() -> None:  # P-04
    later = copy.deepcopy(RIGHT)
    later["metadata"]["name"], later["spec"]["epoch"] = "train-0-e3-abcde", 3
    said = problems([RIGHT, later])
    assert len(said) == 2
    assert "an epoch is missing" in said[0]
    assert "is not superseded by" in said[1]
