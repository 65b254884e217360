"""What ended an Attempt, in sentences: what happened, whose fault it was, who pays, what is lost.

Pure; made of the published status and of the ledger's sums.
"""

import signal
from collections.abc import Mapping
from typing import Any

from nodus_api.attempts.reasons import REASONS
from nodus_api.cli.released import Release
from nodus_api.kernel.vocabulary import Reason, Trigger, fault_of

_EVIDENCE = {
    Trigger.PREEMPTION_NOTICE: "the supplier gave notice",
    Trigger.PROVIDER_EVIDENCE: "the supplier says that the machine is gone",
    Trigger.HEARTBEAT_LOSS: "its heartbeats stopped",
    Trigger.READINESS_FAILED: "its readiness checks failed",
    Trigger.STARTUP_TIMEOUT: "it did not come up in time",
    Trigger.DRILL: "a drill was ordered",
    Trigger.FUNDING: "the money ended",
    Trigger.USER: "a user asked for it",
}
"""What each trigger means (SC-012)."""

_DRILLED = {
    Reason.PREEMPTED: "as if the owner of interruptible capacity had taken it back",
    Reason.NODE_LOST: "as if the machine had died or stopped answering",
    Reason.READINESS_FAILED: "as if the machine had failed its checks before the program started",
}
"""What the drills simulate (SC-630): nothing of it is so."""

_FAULTS = {
    "supplier": "The fault is the supplier's.",
    "customer": "The fault is the workload's own.",
    "nodus": "The fault is Nodus's own.",
    "user": "It was wanted.",
}


_NUMBERED = frozenset({Reason.UNPLACEABLE, Reason.NO_CAPACITY})
"""Ends that the last decision explains better than the code does."""


def ended(
    status: Mapping[str, Any],
    cost: Mapping[str, Any] | None,
    missed: str | None = None,
    *,
    release: Release | None = None,
    said: str | None = None,
) -> dict[str, Any] | None:
    """Return how an Attempt ended, with one sentence; None while it lives.

    `missed` is the sentence of a last decision that chose nothing, `release` why one that is
    Released was, if that is known, `said` what its runner said of the end.
    """
    if status["phase"] not in ("Succeeded", "Failed", "Cancelled"):
        return None
    end: dict[str, Any] = {"time": status["timings"]["finishedTime"]}
    for name in ("reason", "exitCode", "signal"):
        if name in status:
            end[name] = status[name]
    interruption = status.get("interruption")
    if interruption is not None:
        end["trigger"] = interruption["trigger"]
        end["lostSeconds"] = interruption["lostSeconds"]
        if "recoverySeconds" in interruption:
            end["recoverySeconds"] = interruption["recoverySeconds"]
    fault = _fault(end, release)
    if fault is not None:
        end["fault"] = fault
    if said:
        end["message"] = said
    end["sentence"] = _sentence(end, missed, release)
    if cost is not None:
        end["bill"] = _bill(cost)
    return end


def fault_sentence(fault: str) -> str:
    """Return whose fault an end was, as a sentence."""
    return _FAULTS[fault]


def _fault(end: Mapping[str, Any], release: Release | None) -> str | None:
    """Return the fault of SC-010; a drill is Nodus's own doing (SC-012).

    Who pays for what was Released follows from its cause (SC-520): so does whose fault it was,
    and where the cause is not known, none is named.
    """
    if "reason" not in end:
        return None
    if end.get("trigger") == Trigger.DRILL:
        return "nodus"
    if end["reason"] == Reason.RELEASED:
        return None if release is None else release.fault
    return fault_of(Reason(end["reason"])).value


def _sentence(end: Mapping[str, Any], missed: str | None, release: Release | None) -> str:
    if "reason" not in end:
        also = f"; its runner says: {end['message']}" if "message" in end else ""
        return f"The program exited with 0{also}."
    reason = end["reason"]
    drilled = end.get("trigger") == Trigger.DRILL and reason in _DRILLED
    words = f"{reason}: {_happened(end, drilled=drilled) if release is None else release.cause}"
    if missed and reason in _NUMBERED:
        words += f": {missed}"
    if "trigger" in end and not drilled:
        peers = reason == Reason.RELEASED and release is None  # SC-003: a peer's trigger
        whose = "another rank of its gang: " if peers else ""
        words += f" ({whose}{_EVIDENCE[Trigger(end['trigger'])]}; {end['trigger']})"
    if reason != Reason.CUSTOMER_EXIT and "exitCode" in end:
        words += f"; {_exit(end)}"
    if "message" in end and reason != Reason.START_FAILED:
        words += f"; its runner says: {end['message']}"
    return f"{words}."


def _happened(end: Mapping[str, Any], *, drilled: bool) -> str:
    if drilled:
        return f"in a drill, {_DRILLED[Reason(end['reason'])]} ({end['trigger']})"
    if end["reason"] == Reason.CUSTOMER_EXIT and "exitCode" in end:
        return _exit(end)
    if end["reason"] == Reason.START_FAILED and "message" in end:
        return f"the program could not be started: {end['message']}"
    when = REASONS[end["reason"]].when.rstrip(".")
    return f"{when[:1].lower()}{when[1:]}"


def _exit(end: Mapping[str, Any]) -> str:
    if "signal" in end:
        number = int(end["signal"])
        known = {one.value: one.name for one in signal.Signals}
        named = f"signal {number} ({known[number]})" if number in known else f"signal {number}"
        return f"the program died by {named}, exit code {end['exitCode']}"
    return f"the program exited with {end['exitCode']}"


def _bill(cost: Mapping[str, Any]) -> str:
    """Return who pays what (SC-520)."""
    project = _paid("The project pays", cost["chargedUSD"], cost["charged"])
    if not cost["covered"]:
        return f"{project}."
    return f"{project}; {_paid('Nodus pays', cost['coveredUSD'], cost['covered'])}."


def _paid(who: str, total: str, segments: Mapping[str, str]) -> str:
    if not segments:
        return f"{who} nothing"
    if len(segments) == 1:
        return f"{who} {total} USD ({next(iter(segments))})"
    parts = ", ".join(f"{name} {usd}" for name, usd in segments.items())
    return f"{who} {total} USD ({parts})"
