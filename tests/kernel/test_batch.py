"""Many placements at one moment: turns, and what earlier ones take."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.catalogs import NOW, a_class, a_cpu_class, a_request, on_demand

from nodus_api.kernel.batch import Turn, Waiting, in_turn, place_batch
from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import Outcome, PlacementRequest

CPU = PlacementRequest()


def waits(id_: str, project: str = "p", age: int = 0, **request: Any) -> Waiting:
    return Waiting(
        id=id_,
        project=project,
        queued=NOW - timedelta(seconds=age),
        request=a_request(**request),
    )


def turn_of(one: Waiting) -> Turn:
    gang = one.request.gang_size > 1
    return Turn(project=one.project, queued=one.queued, gang=gang, id=one.id)


def test_projects_take_turns() -> None:  # SC-371
    queue = [waits(f"big-{n}", "big", 99 - n) for n in range(3)] + [waits("small", "small")]

    assert [one.id for one in in_turn(queue, turn_of)] == ["big-0", "small", "big-1", "big-2"]


def test_a_gang_comes_before_singles_of_its_age() -> None:  # SC-371
    queue = [waits("a"), waits("b", gang_size=4), waits("c", age=1)]

    assert [one.id for one in in_turn(queue, turn_of)] == ["c", "b", "a"]


@given(
    queue=st.lists(
        st.builds(
            Waiting,
            id=st.uuids().map(str),
            project=st.sampled_from(["a", "b", "c"]),
            queued=st.integers(0, 9).map(lambda age: NOW - timedelta(seconds=age)),
            request=st.just(CPU),
        ),
        unique_by=lambda one: one.id,
    ),
    chance=st.randoms(use_true_random=True),
)
def test_the_older_of_a_project_comes_first(
    queue: list[Waiting], chance: random.Random
) -> None:  # P-30
    shuffled = list(queue)
    chance.shuffle(shuffled)

    turns = in_turn(queue, turn_of)

    assert turns == in_turn(shuffled, turn_of)
    for project in ("a", "b", "c"):
        ages = [one.queued for one in turns if one.project == project]
        assert ages == sorted(ages)
    if turns:  # no project is served twice before another that waits was served
        seen = Counter(one.project for one in turns[: len({one.project for one in queue})])
        assert max(seen.values()) == 1


def test_what_is_placed_is_not_placed_again() -> None:  # SC-371
    snapshot = CatalogSnapshot.of([on_demand(a_cpu_class(), available=2)])
    queue = [Waiting(id=str(n), project="p", queued=NOW, request=CPU) for n in range(4)]

    outcomes = [decision.outcome for _, decision in place_batch(queue, snapshot, NOW)]

    assert outcomes == [Outcome.PLACED, Outcome.PLACED, Outcome.WAITING, Outcome.WAITING]


def test_a_gang_takes_all_its_machines_and_its_quota() -> None:  # SC-371
    snapshot = CatalogSnapshot.of([on_demand(a_class(), available=9)])
    quota = {"h100": 5}
    queue = [
        waits("gang", gang_size=4, age=9, quota_left=quota),
        waits("one", age=8, quota_left=quota),
        waits("two", age=7, quota_left=quota),
        waits("other", "other", quota_left=quota),
        waits("last", "last", quota_left={"h100": 1}),
    ]

    placed = {one.id: decision for one, decision in place_batch(queue, snapshot, NOW)}

    assert {id_: decision.outcome for id_, decision in placed.items()} == {
        "gang": Outcome.PLACED,
        "other": Outcome.PLACED,
        "last": Outcome.PLACED,
        "one": Outcome.PLACED,
        "two": Outcome.WAITING,
    }
    assert placed["two"].counters == {"QuotaExceeded": 1}


def test_a_batch_ends_at_its_size() -> None:  # SC-606
    snapshot = CatalogSnapshot.of([on_demand(a_cpu_class())])
    queue = [Waiting(id=str(n), project="p", queued=NOW, request=CPU) for n in range(4)]

    assert [one.id for one, _ in place_batch(queue, snapshot, NOW, most=2)] == ["0", "1"]
