"""Why an Attempt was Released, as far as the record shows it (SC-010, SC-132 to SC-135, SC-802).

Pure. Where two things could have been the cause, or none is on record, nothing is said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodus_api.kernel.gang import END_WINDOW
from nodus_api.kernel.vocabulary import Fault, Reason, Trigger, WorkloadState, fault_of
from nodus_api.metav1.times import parse_time
from nodus_api.storage.circumstances import Circumstances

_TICK = timedelta(seconds=1)
"""Milestones are floored to it (SC-005), what commands did is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The cause as a clause without a full stop; whose fault, if one may be named; what to do.

    OWNER in what to do is to be named.
    """

    cause: str
    fault: str | None = None
    remedy: str | None = None


def release_of(
    document: Mapping[str, Any], around: Circumstances, slot_state: str | None = None
) -> Release | None:
    """Return why an Attempt that is Released was; None where the record does not tell."""
    metadata, status = document["metadata"], document["status"]
    owner = metadata["ownerReferences"][0]
    what = f"{owner['kind'].lower()}/{owner['name']}"
    end = parse_time(status["timings"]["finishedTime"])
    goes_on = "supersededBy" in status or "interruption" in status or slot_state == "Open"
    causes = [
        *_by_scale(what, document, around, end),
        *_by_gang(document, around, end, goes_on=goes_on),
    ]
    if not causes:
        causes = list(_by_decision(what, around, end))
    elif "gang" not in document["spec"] and list(_by_decision(what, around, end)):
        return None  # a drain takes a while: the Job may have been decided before, or during it
    return causes[0] if len(causes) == 1 else None


def _by_scale(
    what: str, document: Mapping[str, Any], around: Circumstances, end: datetime
) -> Iterator[Release]:
    queued = parse_time(document["status"]["timings"]["queuedTime"])
    lowered = [
        str(now.count)
        for before, now in zip(around.counts, around.counts[1:], strict=False)
        if now.count < before.count and queued <= now.at < end + _TICK
    ]
    if lowered:
        yield Release(
            cause=f"{what} was scaled down to {', then to '.join(lowered)}, which releases the"
            " highest slots first",
            fault=Fault.USER.value,
            remedy="Nothing, if that was wanted."
            + (
                " `nodus scale OWNER N` with a larger N lets it run again."
                if around.state in (WorkloadState.ACTIVE, WorkloadState.SUSPENDED)
                else ""
            ),
        )


def _by_decision(what: str, around: Circumstances, end: datetime) -> Iterator[Release]:
    decided = around.state in (WorkloadState.SUCCEEDED, WorkloadState.FAILED)
    if decided and around.ended is not None and around.ended < end + _TICK:
        yield Release(
            cause=f"{what} had {str(around.state).lower()} by then, and nothing of it had to run on"
        )


def _by_gang(
    document: Mapping[str, Any], around: Circumstances, end: datetime, *, goes_on: bool
) -> Iterator[Release]:
    """Yield what other ranks of its gang epoch gave cause for."""
    if "gang" not in document["spec"]:
        return
    peers = sorted(around.peers, key=lambda one: int(one["spec"]["gang"]["rank"]))
    failed = [one for one in peers if one["status"]["phase"] == "Failed"]
    before = [one for one in failed if _finished(one, end + _TICK) <= end]
    first = min(before, key=lambda one: _finished(one, end), default=None)
    late = [
        one
        for one in peers
        if one["spec"]["gang"]["rank"] == 0
        and one["status"]["phase"] == "Succeeded"
        and _finished(one, end) + END_WINDOW <= end + _TICK
    ]
    if first is not None:
        yield _after(first, goes_on=goes_on)
    if late:
        window = END_WINDOW // _TICK
        yield Release(
            cause=f"rank 0 of its gang had exited with 0, and this rank still ran {window} s later"
        )
    whole = len(peers) == document["spec"]["gang"]["size"]
    started = any("commandStartedTime" in one["status"]["timings"] for one in peers)
    if whole and not started and not failed:
        yield Release(cause="not every rank of its gang got a machine, so no rank of it started")


def _after(peer: Mapping[str, Any], *, goes_on: bool) -> Release:
    """Return the release that follows a rank's failure (SC-134)."""
    status = peer["status"]
    reason, project = Reason(status["reason"]), peer["metadata"]["namespace"]
    flag = "" if project == "default" else f" -n {project}"
    drilled = status.get("interruption", {}).get("trigger") == Trigger.DRILL
    ended = "was lost in a drill" if drilled else f"ended as {reason}"
    follows = "so all of the gang was stopped to start again" if goes_on else "so the gang is over"
    return Release(
        cause=f"rank {peer['spec']['gang']['rank']} of its gang ({peer['metadata']['name']})"
        f" {ended}, {follows}",
        fault=(Fault.NODUS if drilled else fault_of(reason)).value,
        remedy="Nothing: the gang starts again as a whole."
        if goes_on
        else f"`nodus explain {peer['metadata']['name']}{flag}` says more of that rank.",
    )


def _finished(document: Mapping[str, Any], otherwise: datetime) -> datetime:
    timings = document["status"]["timings"]
    return parse_time(timings["finishedTime"]) if "finishedTime" in timings else otherwise
