"""What the Attempts of one gang epoch say together (SC-132 to SC-135, SC-141).

`members` are all Attempts of one gang epoch, in any order.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from nodus_api.kernel.attempt import Attempt, RestorePoint
from nodus_api.kernel.billing import Release
from nodus_api.kernel.vocabulary import Fault, Reason, Stage, fault_of

END_WINDOW = timedelta(seconds=60)
"""How long the other ranks may still run after rank 0 exited 0 (SC-135)."""

_CAPACITY_FAULTS = frozenset({Fault.SUPPLIER, Fault.NODUS})


def all_registered(members: Sequence[Attempt]) -> bool:
    """Whether the barrier is open: no rank starts before all are registered (SC-133).

    It stays open for the slower ones when a rank that started has ended already.
    """
    return all(
        member.registered is not None and (member.live or member.command_started is not None)
        for member in members
    )


def waits_at_barrier(members: Sequence[Attempt], member: Attempt) -> bool:
    """Whether a registered rank waits for others to register (SC-133).

    Its own time to start is not over then: the rank that is missing runs out of it, and
    takes the gang along (SC-134).
    """
    ready = member.stage is Stage.STARTING and member.registered is not None
    return ready and member.drain is None and not all_registered(members)


def first_failed(members: Sequence[Attempt]) -> Attempt | None:
    """Return the rank for which the gang is decided: Lost or Failed first, then lowest (SC-120)."""
    failed = [member for member in members if member.stage in (Stage.LOST, Stage.FAILED)]
    return min(failed, key=_finish_order, default=None)


def has_succeeded(members: Sequence[Attempt]) -> bool:
    """Whether rank 0 exited 0, and every other rank did so too or was Released late (SC-135)."""
    return all(
        member.stage is Stage.SUCCEEDED or (_rank(member) > 0 and member.reason is Reason.RELEASED)
        for member in members
    )


def late_ranks(members: Sequence[Attempt], now: datetime) -> tuple[Attempt, ...]:
    """Return the ranks still live 60 s after rank 0 exited 0; they are Released (SC-135)."""
    ends = [m.finished for m in members if _rank(m) == 0 and m.stage is Stage.SUCCEEDED]
    if not any(end is not None and now - end >= END_WINDOW for end in ends):
        return ()
    return tuple(member for member in members if member.live)


def release_of(members: Sequence[Attempt]) -> Release:
    """Return why ranks of this gang epoch were Released; decides who pays (SC-520)."""
    if all(member.command_started is None for member in members):
        return Release.NEVER_STARTED
    cause = first_failed(members)
    if cause is not None and cause.reason and fault_of(cause.reason) in _CAPACITY_FAULTS:
        return Release.CAPACITY_FAULT
    return Release.NOT_NEEDED


def unstarted_in_a_row(rank_0: Sequence[Attempt]) -> int:
    """Return how many gang epochs, up to the newest, ended with no program started (SC-132).

    `rank_0` are the Attempts of rank 0's slot, oldest first: it starts with the rest
    of its gang or not at all (SC-133).
    """
    count = 0
    for attempt in reversed(rank_0):
        if attempt.command_started is not None:
            break
        count += 1
    return count


def restore_together(
    latest: Mapping[str, RestorePoint], slots: Sequence[str]
) -> dict[str, RestorePoint]:
    """Return what each rank goes on from: the same seq on every rank, or nothing (SC-141).

    `latest` is each slot's highest committed checkpoint. A gang commits and loses its
    checkpoints together, so they differ only if rows were tampered with; a mixture of
    states is never restored.
    """
    points = {slot: latest[slot] for slot in slots if slot in latest}
    seqs = {point.seq for point in points.values()}
    return points if len(points) == len(slots) and len(seqs) == 1 else {}


def _rank(attempt: Attempt) -> int:
    return attempt.gang.rank if attempt.gang else 0


def _finish_order(attempt: Attempt) -> tuple[datetime, int]:
    return attempt.finished or attempt.queued, _rank(attempt)
