"""Which fields an Attempt that is over must and must not have (SC-017), by its own story."""

from typing import Any

Document = dict[str, Any]

PLACED = {
    "offering",
    "regionClass",
    "interruptible",
    "rateUSDPerHour",
    "hedged",
    "warmReuse",
}
ALWAYS_PLACED = {"candidates", "profile", "explain"}
PHASES = {"Succeeded": "Succeeded", "Failed": "Failed", "Lost": "Failed", "Stopped": "Cancelled"}
CANCELLED = {"Stopped", "Suspended", "Unfunded", "MaxCostReached", "Released"}


def check(attempt: Document) -> None:
    """Fail where an ended Attempt has a field too many, one too few, or an empty one."""
    status, spec = attempt["status"], attempt["spec"]
    timings = status["timings"]
    stage, reason = status["progress"]["stage"], status.get("reason")
    assert status["phase"] == PHASES[stage]  # SC-002
    assert (reason is None) == (stage == "Succeeded")  # SC-003
    assert (reason in CANCELLED) == (stage == "Stopped")  # P-02
    assert set(spec) <= {"epoch", "slot", "gang", "restoreFrom"}
    assert {"queuedTime", "finishedTime"} <= set(timings)
    assert "annotations" not in attempt["metadata"]  # SC-009a
    started, granted = "commandStartedTime" in timings, "billingStartTime" in timings
    placed = "acquiredTime" in timings
    placement = status.get("placement")
    if placed:
        assert placement is not None
        assert set(placement) == PLACED | ALWAYS_PLACED
        assert set(placement["explain"]) == {"fallbacks", "profile", "rejected", "scores"}
    elif placement is not None:
        assert set(placement) == ALWAYS_PLACED
        assert set(placement["explain"]) == {"profile", "rejected"}
    assert ("predicted" in status) == placed
    assert set(status["actual"]) == {"costUSD", "hours", "segments"}
    assert ("deletionProvenTime" in timings) == placed
    assert ("checkpoints" in status) == started
    assert ("teardownSeconds" in timings) == ("deletionProvenTime" in timings)
    if started:
        assert granted
        assert "registeredTime" in timings
        assert ("lastSeq" in status["checkpoints"]) == (status["checkpoints"]["count"] > 0)
    if "exitCode" in status or "signal" in status:
        assert started
    if "signal" in status:
        assert status["exitCode"] == 128 + status["signal"]  # SC-009
    assert ("supersededBy" in status) <= (stage != "Succeeded")
    _nothing_empty(attempt)
    _in_order(timings)


def _in_order(timings: dict[str, str]) -> None:
    """SC-006: milestones in order, where they are set."""
    names = ("queued", "acquired", "billingStart", "registered", "commandStarted", "finished")
    moments = [timings[f"{name}Time"] for name in names if f"{name}Time" in timings]
    moments += [timings["deletionProvenTime"]] if "deletionProvenTime" in timings else []
    assert moments == sorted(moments)


def _nothing_empty(value: object) -> None:
    """Absent means absent: never null, never an empty text (LW-219)."""
    assert value is not None
    assert value != ""
    if isinstance(value, dict):
        for inner in value.values():
            _nothing_empty(inner)
    if isinstance(value, list):
        for inner in value:
            _nothing_empty(inner)
