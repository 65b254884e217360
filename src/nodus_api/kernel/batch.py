"""Many placements at one moment: who comes first, and what is left for the next (SC-371).

Projects take turns, so that one cannot fill a batch; within a project the oldest comes
first (P-30), a gang before singles of its age. What is placed is taken from the
snapshot and from the project's quota before the next decision.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import Decision, PlacementRequest, Ranked, place

LARGEST_BATCH = 500
"""Placements in one pass of the loop (SC-606)."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What decides when one slot, or one whole gang, comes to be placed.

    `id` tells those of one age apart: an Attempt's, or that of a gang's first rank.
    """

    project: str
    queued: datetime
    gang: bool
    id: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One slot, or one whole gang, that waits for a placement.

    `id` tells those of one age apart: an Attempt's or a gang's.
    """

    id: str
    project: str
    queued: datetime
    request: PlacementRequest


def in_turn(waiting: Iterable[T], turn_of: Callable[[T], Turn]) -> list[T]:
    """Return what waits in the order of placement; the same for any order of the input.

    The project whose oldest has waited longest begins each round.
    """
    projects: dict[str, deque[T]] = {}
    for one in sorted(waiting, key=lambda one: _oldest_first(turn_of(one))):
        projects.setdefault(turn_of(one).project, deque()).append(one)
    turns: list[T] = []
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
    for one in in_turn(waiting, _turn)[:most]:
        taken = used.setdefault(one.project, {})
        request = replace(one.request, quota_left=_left(one.request.quota_left, taken))
        decision = place(request, snapshot, now)
        if decision.chosen is not None:
            snapshot = snapshot.after_taking(decision.chosen.candidate.key, request.gang_size)
            _use(taken, request, decision.chosen)
        yield one, decision


def _turn(one: Waiting) -> Turn:
    gang = one.request.gang_size > 1
    return Turn(project=one.project, queued=one.queued, gang=gang, id=one.id)


def _oldest_first(turn: Turn) -> tuple[datetime, bool, str | int]:
    return (turn.queued, not turn.gang, turn.id)


def _left(quota: Mapping[str, int], taken: Mapping[str, int]) -> dict[str, int]:
    return {name: count - taken.get(name, 0) for name, count in quota.items()}


def _use(taken: dict[str, int], request: PlacementRequest, chosen: Ranked) -> None:
    name, count = chosen.candidate.offering.quota_unit
    taken[name] = taken.get(name, 0) + count * request.gang_size
