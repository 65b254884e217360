"""Many placements at one moment: who comes first, and what is left for the next (SC-371).

Projects take turns, so that one cannot fill a batch; within a project the oldest comes
first (P-30), a gang before singles of its age. What is placed is taken from the
snapshot and from the project's quota before the next decision.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import Decision, PlacementRequest, Ranked, place

LARGEST_BATCH = 500
"""Placements in one pass of the loop (SC-606)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One slot, or one whole gang, that waits for a placement.

    `id` tells those of one age apart: an Attempt's or a gang's.
    """

    id: str
    project: str
    queued: datetime
    request: PlacementRequest


def in_turn(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Return what waits in the order of placement; the same for any order of the input."""
    projects: dict[str, deque[Waiting]] = {}
    for one in sorted(waiting, key=_oldest_first):
        projects.setdefault(one.project, deque()).append(one)
    turns: list[Waiting] = []
    while projects:
        turns += [queue.popleft() for queue in projects.values()]
        projects = {name: queue for name, queue in projects.items() if queue}
    return turns


def place_batch(
    waiting: Iterable[Waiting],
    snapshot: CatalogSnapshot,
    now: datetime,
    *,
    most: int = LARGEST_BATCH,
) -> Iterator[tuple[Waiting, Decision]]:
    """Decide for at most `most` of what waits, in turn; decisions see the earlier ones."""
    used: dict[str, dict[str, int]] = {}
    for one in in_turn(waiting)[:most]:
        taken = used.setdefault(one.project, {})
        request = replace(one.request, quota_left=_left(one.request.quota_left, taken))
        decision = place(request, snapshot, now)
        if decision.chosen is not None:
            snapshot = snapshot.after_taking(decision.chosen.candidate.key, request.gang_size)
            _use(taken, request, decision.chosen)
        yield one, decision


def _oldest_first(one: Waiting) -> tuple[datetime, bool, str]:
    return (one.queued, one.request.gang_size <= 1, one.id)


def _left(quota: Mapping[str, int], taken: Mapping[str, int]) -> dict[str, int]:
    return {name: count - taken.get(name, 0) for name, count in quota.items()}


def _use(taken: dict[str, int], request: PlacementRequest, chosen: Ranked) -> None:
    offering = chosen.candidate.offering
    if offering.accelerator is not None:
        count = offering.count * request.gang_size
        taken[offering.accelerator] = taken.get(offering.accelerator, 0) + count
