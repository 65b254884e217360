"""What to do about an end, so that it can be done as it is said: the owner named, its state known.

Pure. The pages of the reasons say it in general (`attempts.reasons`).
"""

from nodus_api.attempts.reasons import AGAIN, REASONS
from nodus_api.cli.released import Release
from nodus_api.kernel.vocabulary import Reason, SlotState, WorkloadState
from nodus_api.storage.lives import Life

_REPLACED = frozenset(
    {
        *(Reason.PREEMPTED, Reason.NODE_LOST, Reason.READINESS_FAILED, Reason.STARTUP_TIMEOUT),
        *(Reason.CHECKPOINT_UNAVAILABLE, Reason.INTERNAL_ERROR),
    }
)
"""Ends after which the slot is normally tried again (SC-120)."""

_FOR_GOOD = frozenset({SlotState.FAILED, SlotState.STOPPED})


def awaited(life: Life) -> bool:
    """Whether a next Attempt takes the slot of one that has ended (SC-120)."""
    status = life.document["status"]
    released = status.get("reason") == Reason.RELEASED and "gang" not in life.document["spec"]
    return (
        "supersededBy" not in status
        and not released  # its slot may be open, and yet have no worker (SC-802)
        and life.slot_state == SlotState.OPEN
        and life.workload_state == WorkloadState.ACTIVE
    )


def remedy_of(life: Life, release: Release | None) -> str:
    """Return what to do about an Attempt that ended with a reason."""
    metadata = life.document["metadata"]
    owner, project = metadata["ownerReferences"][0], metadata["namespace"]
    what = f"{owner['kind'].lower()}/{owner['name']}"
    flag = "" if project == "default" else f" -n {project}"
    text = _general(life, release)
    if life.workload_state == WorkloadState.DELETED:
        text = text.replace(AGAIN, "submit it again: its name is free")
    return text.replace("OWNER", f"{what}{flag}")


def _general(life: Life, release: Release | None) -> str:
    reason = Reason(life.document["status"]["reason"])
    state, slot = life.workload_state, life.slot_state
    if successor := life.document["status"].get("supersededBy"):
        return f"Nothing: {successor} took its slot."
    if release is not None and release.remedy is not None:
        return release.remedy
    if reason is Reason.RELEASED:
        return REASONS[reason].remedy
    if awaited(life):
        return "Nothing: its slot is open, and the next Attempt takes it."
    goes_on = reason in _REPLACED or reason in (Reason.SUSPENDED, Reason.UNFUNDED)
    if goes_on and state in (WorkloadState.STOPPED, WorkloadState.DELETED):
        return REASONS[Reason.STOPPED].remedy  # nothing is left to go on (SC-806)
    if reason in _REPLACED and slot == SlotState.SUSPENDED:
        return REASONS[Reason.SUSPENDED].remedy
    if reason in _REPLACED and (slot in _FOR_GOOD or life.archived):
        return f"Its slot is not tried again; to run it once more, {AGAIN}."
    return REASONS[reason].remedy
