"""Machines that are kept warm for the next Attempt: for how long, and what they are worth (SC-343).

A warm machine is there already: nothing is waited for (q = 0), and it boots in the time that warm
machines take (b = warm p50). It is scored like any other.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from nodus_api.kernel.attempt import Attempt, Drain
from nodus_api.kernel.offering import Candidate, CandidateKey, CandidateStats, CatalogSnapshot
from nodus_api.kernel.spec import Resources, WorkloadSpec
from nodus_api.kernel.vocabulary import Fault, OwnerKind, Reason, Stage, Trigger, fault_of

SURVIVOR_IDLE = timedelta(seconds=120)
"""How long a healthy rank's machine waits for the next epoch of its gang (SC-134)."""

WARM_BOOT_SECONDS = 15.0
"""The prior of a warm machine's boot, where nothing is known yet."""

_IDLE_SECONDS = {OwnerKind.SANDBOX: 300, OwnerKind.FUNCTION: 300, OwnerKind.AGENT: 300}
_RECLAIMS = (Trigger.PREEMPTION_NOTICE, Trigger.DRILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRoom:
    """The warm machines of a candidate that one Attempt may have.

    `largest` is what its best offer has together with its warm machines there, None if unknown
    (SC-131); `boot_p50` is seconds.
    """

    count: int
    largest: int | None
    boot_p50: float = WARM_BOOT_SECONDS


def idle_time(spec: WorkloadSpec) -> timedelta:
    """Return how long the machine of a finished Attempt is kept: idleSeconds, or the kind's."""
    seconds = spec.idle_seconds
    return timedelta(seconds=_IDLE_SECONDS.get(spec.kind, 0) if seconds is None else seconds)


def leaves_healthy(attempt: Attempt, drain: Drain | None) -> bool:
    """Whether an ended Attempt leaves a machine that another one may have.

    Not one that was lost or is about to be: `drain` is what stood before the end. Nor one on which
    we failed ourselves, since nobody knows why.
    """
    if attempt.reason is Reason.RELEASED:  # by a peer's loss maybe, which is the peer's trigger
        return True
    if drain is not None and drain.trigger in _RECLAIMS:
        return False
    if attempt.reason is None:
        return attempt.stage is Stage.SUCCEEDED
    return fault_of(attempt.reason) in (Fault.CUSTOMER, Fault.USER)


def with_warm(
    snapshot: CatalogSnapshot,
    warm: Mapping[CandidateKey, WarmRoom],
    resources: Resources,
    machines: int,
) -> CatalogSnapshot:
    """Return the snapshot as an Attempt sees it that asks for `resources` and may have `warm`.

    Where that is enough for all `machines`, nothing is waited for and no backoff counts; where it
    is not, it only adds to the room.
    """
    if not warm:
        return snapshot
    asked = {(accelerator, resources.count) for accelerator in resources.accelerators or (None,)}
    told = ";".join(f"{name}/{market}={warm[name, market]!r}" for name, market in sorted(warm))
    digest = hashlib.sha256(f"{snapshot.id};{machines};{told}".encode()).hexdigest()
    return snapshot.seen_as(
        {
            one.key: _warmed(one, warm[one.key], machines)
            for family in asked & snapshot.families.keys()
            for one in snapshot.families[family]
            if one.key in warm
        },
        id=digest[:16],
    )


def _warmed(candidate: Candidate, room: WarmRoom, machines: int) -> CandidateStats:
    stats = candidate.stats
    available = None if stats.available is None else stats.available + room.count
    stats = replace(stats, available=available, largest_available=room.largest)
    if room.count >= machines:
        stats = replace(
            stats,
            grant_p50=0.0,
            grant_p95=0.0,
            boot_p50=room.boot_p50,
            backoff_until=None,
            supplier_quota_used_up=False,
        )
    return stats
