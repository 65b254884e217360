"""What an Attempt must have been charged, from its own document alone (SC-501 to SC-521)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

ALL_CHARGED = (
    "Succeeded",
    "CustomerExit",
    "OutOfMemory",
    "DeadlineExceeded",
    "StartFailed",
    "Stopped",
    "Suspended",
    "MaxCostReached",
)
AFTER_A_START = ("NodeLost", "Preempted")
NODUS_FAULT = ("InternalError", "CheckpointUnavailable")
NEVER_HELD = ("Unplaceable", "NoCapacity")
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One segment of the clock: seconds, and how many of its last ones Nodus pays."""

    name: str
    seconds: int
    covered: int = 0


def parts_of(document: Mapping[str, Any]) -> list[Part]:
    """Split a proven Attempt's clock as SC-501 and SC-520 say."""
    status = document["status"]
    timings = status["timings"]
    if "billingStartTime" not in timings:
        return []
    start, end = _time(timings["billingStartTime"]), _time(timings["finishedTime"])
    begun = _time(timings["commandStartedTime"]) if "commandStartedTime" in timings else None
    gone = _time(timings["deletionProvenTime"])
    head, teardown = _seconds(start, begun or end), _seconds(end, gone)
    running = _seconds(begun, end) if begun else 0
    name = "Restore" if _resumes(document) else "Boot"
    reason, interruption = status.get("reason", status["phase"]), status.get("interruption", {})
    lost = interruption.get("lostSeconds", 0)
    if reason in NODUS_FAULT or interruption.get("trigger") == "Drill":
        covers = head, lost if "lostSeconds" in interruption else running, teardown
    elif reason == "Released":
        covers = _released(document.get("release"), head, teardown)
    elif reason in ALL_CHARGED:
        covers = 0, 0, 0
    elif reason in AFTER_A_START and begun:
        covers = 0, 0, teardown
    else:
        covers = head, running, teardown
    return [
        Part(name=name, seconds=head, covered=covers[0]),
        Part(name="Running", seconds=running, covered=covers[1]),
        Part(name="Teardown", seconds=teardown, covered=covers[2]),
    ]


def actual_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return `status.actual` as it must be: exact, in the wire's own strings."""
    placement = document["status"].get("placement", {})
    rate = Decimal(placement.get("rateUSDPerHour", "0"))
    usd = dict.fromkeys(("Boot", "Restore", "Running", "Teardown"), Decimal(0))
    covered, charged, at = [], 0, 0
    for part in parts_of(document):
        paid = part.seconds - part.covered
        usd[part.name] += _until(rate, at + paid) - _until(rate, at)
        charged += paid
        at += part.seconds
        if part.covered:
            covered.append(part.name)
    order = ("Boot", "Running", "Restore", "Teardown")
    segments: dict[str, Any] = {
        f"{name.lower()}USD": f"{usd[name]:.6f}"
        for name in ("Boot", "Restore", "Running", "Teardown")
    }
    if covered:
        segments["coveredByNodus"] = sorted(covered, key=order.index)
    hours = (Decimal(charged) / 3600).quantize(_MICRO, rounding=ROUND_HALF_UP)
    return {
        "costUSD": f"{sum(usd.values()):.6f}",
        "hours": f"{hours:.6f}",
        "segments": segments,
    }


def _released(why: str | None, head: int, teardown: int) -> tuple[int, int, int]:
    """Return what Nodus pays of a rank that was let go; its peers are told by its reader."""
    match why:
        case "gang never started":
            return head, 0, teardown
        case "a peer's fault was not the customer's":
            return 0, 0, teardown
        case _:
            return 0, 0, 0


def _resumes(document: Mapping[str, Any]) -> bool:
    """Whether it resumed (SC-140); a predecessor that was Lost is told by `document`'s reader."""
    return bool(document.get("resumes", "restoreFrom" in document["spec"]))


def _until(rate: Decimal, seconds: int) -> Decimal:
    return (rate * seconds / 3600).quantize(_MICRO, rounding=ROUND_HALF_UP)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _seconds(start: datetime, end: datetime) -> int:
    return int((end - start).total_seconds())
