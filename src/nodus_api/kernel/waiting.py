"""Why a queued Attempt waits, in one plain sentence with the number that missed (SC-009b).

The sentences state facts of the decision only; no countdown, since every change of
the text is a watch event. `nodus explain` prints the same ones, one a rejected class.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

from nodus_api.kernel.offering import Candidate
from nodus_api.kernel.rejection import (
    UNHEALTHY_BELOW,
    Demand,
    RejectionCode,
    Sifted,
    over_project_quota,
)
from nodus_api.kernel.vocabulary import WaitingFor

_WAITS = {
    RejectionCode.INSUFFICIENT_CAPACITY: WaitingFor.CAPACITY,
    RejectionCode.GANG_TOO_LARGE: WaitingFor.GANG,
    RejectionCode.BACKING_OFF: WaitingFor.BACKOFF,
    RejectionCode.QUOTA_EXCEEDED: WaitingFor.QUOTA,
}
"""What the nearest miss lacks, nearest first."""

_SIZES = {
    RejectionCode.ACCELERATOR_MEMORY_TOO_SMALL: ("accelerator_memory_gib", "GiB per accelerator"),
    RejectionCode.CPU_TOO_SMALL: ("vcpus", "vCPUs"),
    RejectionCode.MEMORY_TOO_SMALL: ("memory_gib", "GiB of memory"),
    RejectionCode.DISK_TOO_SMALL: ("disk_gib", "GiB of disk"),
}


def waiting_for(counters: Mapping[str, int]) -> WaitingFor:
    """Return what the nearest miss waits for (SC-009a)."""
    return next(
        (wait for code, wait in _WAITS.items() if counters.get(code.value)), WaitingFor.CAPACITY
    )


def waiting_message(demand: Demand, sifted: Sequence[Sifted], next_try: datetime | None) -> str:
    """Return the sentence of a decision that chose nothing.

    `sifted` are the buckets of the families asked for, of which nothing is feasible; `next_try` is
    the end of the first backoff, if something backs off.
    """
    codes = {code for one in sifted for code in one.ruled_out}
    if not codes:
        return _nothing_offered(demand)
    code = max(codes, key=lambda one: one.number)
    nearest = (candidate for one in sifted for candidate in one.failing(code))
    candidate = min(nearest, key=partial(_nearest, code))
    if code in _SIZES:
        attribute, unit = _SIZES[code]
        asked = _plain(getattr(demand.resources, attribute))
        return f"needs {asked} {unit}, the largest allowed class has {_size(candidate, attribute)}"
    sentence = explain(demand, candidate, code)
    if code.permanent:
        return sentence
    tried = sum(one.bucket.classes for one in sifted)
    words = f"{tried} {'class' if tried == 1 else 'classes'} tried: {sentence}"
    return words if next_try is None else f"{words}, next try at {_rfc3339(next_try)}"


def explain(demand: Demand, candidate: Candidate, code: RejectionCode) -> str:
    """Return the sentence of one candidate that fails a filter."""
    name = candidate.offering.name
    if code in _SIZES:
        attribute, unit = _SIZES[code]
        asked = _plain(getattr(demand.resources, attribute))
        return f"{name} has {_size(candidate, attribute)} {unit} (asked for {asked})"
    return f"{name} {_SENTENCES[code](demand, candidate)}"


def _nearest(code: RejectionCode, candidate: Candidate) -> tuple[Decimal, Decimal, str]:
    """Order those that fail one filter: the largest in what they lack, then the cheapest."""
    attribute = _SIZES[code][0] if code in _SIZES else "count"
    size = Decimal(getattr(candidate.offering, attribute) or 0)
    return (-size, candidate.rate, candidate.offering.name)


def _nothing_offered(demand: Demand) -> str:
    if not demand.resources.accelerators:
        return "the catalog has no class without accelerators"
    names = " or ".join(demand.resources.accelerators)
    return f"the catalog has no class with {demand.resources.count} x {names}"


def _has(candidate: Candidate) -> str:
    offering = candidate.offering
    return f"{offering.count} x {offering.accelerator}" if offering.accelerator else "none"


def _quota(demand: Demand, candidate: Candidate) -> str:
    if over_project_quota(demand, candidate):
        left = demand.quota_left[candidate.offering.accelerator or ""]
        return f"is over the quota ({left} left)"
    return "is out of supplier quota"


def _capacity(demand: Demand, candidate: Candidate) -> str:
    refused = candidate.key in demand.failed  # then the snapshot does not count (SC-332)
    free = 0 if refused else demand.snapshot.available(candidate) or 0
    return f"has no capacity (asked for {demand.machines}, {free} free)"


def _gang(demand: Demand, candidate: Candidate) -> str:
    room = demand.snapshot.largest_available(candidate)
    return f"has too little capacity (gang of {demand.gang_size}: {room} placed at most)"


_SENTENCES: dict[RejectionCode, Callable[[Demand, Candidate], str]] = {
    RejectionCode.ACCELERATOR_MISMATCH: lambda _, one: f"has other accelerators ({_has(one)})",
    RejectionCode.ACCELERATOR_COUNT_MISMATCH: lambda demand, one: (
        f"has {_has(one)} (asked for {demand.resources.count})"
    ),
    RejectionCode.ARCHITECTURE_MISMATCH: lambda demand, one: (
        f"is {one.offering.arch} (asked for {demand.resources.arch})"
    ),
    RejectionCode.GANG_UNSUPPORTED: lambda demand, _: (
        f"has no interconnect for a gang (gang of {demand.gang_size})"
    ),
    RejectionCode.REGION_NOT_ALLOWED: lambda demand, one: (
        f"is in {one.offering.region_class} (allowed: {', '.join(demand.policy.regions)})"
    ),
    RejectionCode.NOT_ENTITLED: lambda *_: "is not open to this project",
    RejectionCode.INTERRUPTIBLE_NOT_ALLOWED: lambda *_: (
        "is spot, and placement.interruptible is Never"
    ),
    RejectionCode.INTERRUPTIBLE_REQUIRED: lambda *_: (
        "is on-demand, and placement.interruptible is Require"
    ),
    RejectionCode.NOT_IN_ALLOW_LIST: lambda *_: "is not in placement.offerings",
    RejectionCode.RATE_ABOVE_LIMIT: lambda demand, one: (
        f"costs {_plain(one.rate)} USD per hour (limit {_plain(demand.max_rate_usd_per_hour)})"
    ),
    RejectionCode.COST_ABOVE_LIMIT: lambda demand, _: (
        f"is predicted to cost more than the {_plain(demand.remaining_cost_usd)} USD left"
    ),
    RejectionCode.DISABLED: lambda _, one: (
        "is closed until its credentials are renewed"
        if one.offering.enabled
        else "is closed by an operator"
    ),
    RejectionCode.QUOTA_EXCEEDED: _quota,
    RejectionCode.RECENTLY_LOST: lambda *_: "was lost in the last 15 minutes",
    RejectionCode.BACKING_OFF: lambda *_: "failed to deliver and backs off",
    RejectionCode.UNHEALTHY: lambda _, one: (
        f"delivers too seldom (health {one.stats.health:.2f}, at least {UNHEALTHY_BELOW})"
    ),
    RejectionCode.GANG_TOO_LARGE: _gang,
    RejectionCode.INSUFFICIENT_CAPACITY: _capacity,
}
"""What a class is or has that a filter does not let pass; those of sizes are made of _SIZES."""


def _size(candidate: Candidate, attribute: str) -> str:
    return _plain(getattr(candidate.offering, attribute))


def _plain(value: Decimal | None) -> str:
    if value is None:
        return "none"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
