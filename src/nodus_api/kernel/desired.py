"""The slots and gangs that a spec wants (SC-101, SC-130, SC-802).

Pure: the loop passes the slots as they stand and acts on the answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from nodus_api.kernel.attempt import Gang
from nodus_api.kernel.spec import SCALED_KINDS, SINGLE_SLOTS, WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind, SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """A slot as it stands: its decision, and whether an Attempt lives in it."""

    slot: str
    state: SlotState = SlotState.OPEN
    live: bool = False


def wanted_slots(spec: WorkloadSpec) -> tuple[str, ...]:
    """Return the names of all slots that the spec wants, lowest first (SC-101)."""
    if spec.kind in SINGLE_SLOTS:
        return (SINGLE_SLOTS[spec.kind],)
    size = spec.workers if spec.kind in SCALED_KINDS else spec.completions
    return tuple(str(index) for index in range(size))


def slots_to_start(spec: WorkloadSpec, slots: Iterable[SlotView]) -> tuple[str, ...]:
    """Return the slots that get an Attempt now: T1, lowest Open index first (SC-802).

    Live Attempts never exceed the parallelism. A gang starts whole or not at all
    (SC-130). A wanted slot that has no row yet counts as Open.
    """
    known = {view.slot: view for view in slots}
    views = [known.get(name, SlotView(slot=name)) for name in wanted_slots(spec)]
    free = [view.slot for view in views if view.state is SlotState.OPEN and not view.live]
    if spec.gang is not None:
        return tuple(free) if len(free) == len(views) else ()
    running = sum(view.live for view in known.values())
    return tuple(free[: max(0, parallelism_of(spec) - running)])


def slots_to_release(spec: WorkloadSpec, slots: Iterable[SlotView]) -> tuple[str, ...]:
    """Return the live slots that are no longer wanted, highest first (SC-802).

    Those are the slots that the spec does not name, then as many of the highest as
    exceed the parallelism.
    """
    wanted = {name: place for place, name in enumerate(wanted_slots(spec))}
    live = [view.slot for view in slots if view.live]
    unwanted = sorted((name for name in live if name not in wanted), key=_highest_first)
    kept = sorted((name for name in live if name in wanted), key=wanted.__getitem__)
    excess = kept[parallelism_of(spec) :]
    return tuple(unwanted + excess[::-1])


def parallelism_of(spec: WorkloadSpec) -> int:
    """Return how many Attempts of the workload may live at once."""
    return spec.parallelism if spec.kind is OwnerKind.JOB else len(wanted_slots(spec))


def gang_of(spec: WorkloadSpec, *, workload: UUID, slot: str, epoch: int) -> Gang | None:
    """Return the slot's place in its gang at a gang epoch, or None without a gang (SC-130)."""
    if spec.gang is None:
        return None
    return Gang(
        id=f"{str(workload)[:8]}-{spec.gang}", epoch=epoch, rank=int(slot), size=spec.completions
    )


def _highest_first(slot: str) -> tuple[int, str]:
    return (-int(slot) if slot.isdigit() else 0, slot)
