"""The slots and gangs that a spec wants."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.attempt import Gang
from nodus_api.kernel.desired import (
    SlotView,
    gang_of,
    parallelism_of,
    slots_to_release,
    slots_to_start,
    wanted_slots,
)
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind, SlotState

WORKLOAD = UUID("0123abcd-4567-89ab-cdef-0123456789ab")


def a_job(
    completions: int, parallelism: int | None = None, gang: str | None = None
) -> WorkloadSpec:
    return WorkloadSpec(
        kind=OwnerKind.JOB,
        completions=completions,
        parallelism=completions if parallelism is None else parallelism,
        gang=gang,
    )


@pytest.mark.parametrize(
    ("kind", "slots"),
    [
        (OwnerKind.JOB, ("0", "1", "2")),
        (OwnerKind.SANDBOX, ("0",)),
        (OwnerKind.WORKSPACE, ("0",)),
        (OwnerKind.FUNCTION, ("0", "1")),
        (OwnerKind.AGENT, ("0", "1")),
        (OwnerKind.BUILD, ("build",)),
        (OwnerKind.IMPORT, ("import",)),
    ],
)
def test_the_slots_of_each_kind(kind: OwnerKind, slots: tuple[str, ...]) -> None:  # SC-101
    spec = WorkloadSpec(kind=kind, completions=3, parallelism=3, workers=2)

    assert wanted_slots(spec) == slots
    assert slots_to_start(spec, []) == slots
    assert parallelism_of(spec) == len(slots)


def test_the_lowest_open_index_comes_first_within_the_parallelism() -> None:  # SC-802
    slots = [
        SlotView(slot="0", state=SlotState.SUCCEEDED),
        SlotView(slot="1", live=True),
        SlotView(slot="2"),
        SlotView(slot="10"),
    ]

    assert slots_to_start(a_job(12, parallelism=3), slots) == ("2", "3")


@pytest.mark.parametrize("state", [state for state in SlotState if state is not SlotState.OPEN])
def test_a_decided_slot_gets_no_attempt(state: SlotState) -> None:  # T1
    assert slots_to_start(a_job(1), [SlotView(slot="0", state=state)]) == ()


def test_a_lower_parallelism_starts_nothing_and_releases_the_highest() -> None:  # SC-802
    spec = a_job(5, parallelism=2)
    slots = [SlotView(slot=str(n), live=True) for n in (4, 0, 3)]

    assert slots_to_start(spec, slots) == ()
    assert slots_to_release(spec, slots) == ("4",)
    assert slots_to_release(a_job(5, parallelism=1), slots) == ("4", "3")


def test_workers_that_are_scaled_away_are_released_highest_first() -> None:  # SC-101
    spec = WorkloadSpec(kind=OwnerKind.FUNCTION, workers=1)
    slots = [SlotView(slot=str(n), live=True) for n in range(11)] + [SlotView(slot="11")]

    assert slots_to_release(spec, slots) == tuple(str(n) for n in range(10, 0, -1))


def test_a_slot_of_another_kind_is_released() -> None:
    spec = WorkloadSpec(kind=OwnerKind.SANDBOX)

    assert slots_to_release(spec, [SlotView(slot="build", live=True)]) == ("build",)


def test_a_gang_starts_whole_or_not_at_all() -> None:  # SC-130
    spec = a_job(3, gang="workers")

    assert slots_to_start(spec, []) == ("0", "1", "2")
    assert slots_to_start(spec, [SlotView(slot="1", live=True)]) == ()
    assert slots_to_start(spec, [SlotView(slot="1", state=SlotState.SUCCEEDED)]) == ()


def test_all_ranks_share_the_gang() -> None:  # SC-130
    spec = a_job(3, gang="ranks")

    assert gang_of(spec, workload=WORKLOAD, slot="2", epoch=4) == Gang(
        id="0123abcd-ranks", epoch=4, rank=2, size=3
    )
    assert gang_of(a_job(3), workload=WORKLOAD, slot="2", epoch=4) is None


@given(
    completions=st.integers(1, 8),
    parallelism=st.integers(1, 9),
    states=st.lists(st.tuples(st.sampled_from(SlotState), st.booleans()), max_size=8),
)
def test_live_attempts_never_exceed_the_parallelism(  # SC-802
    completions: int, parallelism: int, states: list[tuple[SlotState, bool]]
) -> None:
    spec = a_job(completions, parallelism)
    slots = [
        SlotView(slot=str(n), state=state, live=live and state is SlotState.OPEN)
        for n, (state, live) in enumerate(states[:completions])
    ]
    live = {view.slot for view in slots if view.live}

    started = slots_to_start(spec, slots)
    released = slots_to_release(spec, slots)

    assert len(live - set(released)) <= parallelism
    assert not started or len(live) + len(started) <= parallelism
    assert not live & set(started)
    assert set(released) <= live
    assert list(started) == sorted(started, key=int)
