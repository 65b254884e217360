"""From what is wanted to Attempts: T1 and T19, stops of what is no longer wanted, and ends.

All of it is derived from rows (SC-605): a slot that is Open and empty gets its next epoch,
first or replacement alike; a live Attempt whose workload or slot is closed is stopped.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID, uuid5

from nodus_api.kernel import events
from nodus_api.kernel.attempt import AttemptView, Owner, RestorePoint
from nodus_api.kernel.desired import SlotView, gang_of, slots_to_release, slots_to_start
from nodus_api.kernel.gang import restore_together
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.replacement import resumption, workload_end
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import (
    Reason,
    SlotState,
    Trigger,
    WaitingFor,
    WorkloadState,
)
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.stopping import STOP_ORDER, end_unstarted, stop, with_stop_order
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord, Slot, Work, Workload
from nodus_api.storage.workload_store import OccupiedSlot, occupied_slots, restore_points

__all__ = [
    "STOP_ORDER",
    "end_unstarted",
    "end_workloads",
    "fill_slots",
    "stop",
    "stop_unwanted",
    "with_stop_order",
]


async def fill_slots(loop: LoopContext) -> bool:
    """Give every Open and empty slot its next Attempt, as far as parallelism allows (T1)."""
    filled = False
    for uid in await loop.agenda.workloads("fill"):
        filled |= bool(await loop.item("fill", uid, partial(_fill, loop, uid)))
    return filled


async def _fill(loop: LoopContext, uid: UUID) -> bool:
    """Fill one workload's slots, at most one batch; the rest comes in the next pass.

    All ranks of a gang epoch are made in one transaction (SC-130).
    """
    found = await loop.workloads.read(uid)
    if found is None:
        return False
    workload, slots = found
    spec = WorkloadSpec.from_json(workload.kind, workload.spec)
    names = slots_to_start(spec, _views(slots.values()))
    if spec.gang is None:  # a gang is never split
        names = names[: loop.pace.batch]
    before = [slots[name].latest for name in names if name in slots]
    locked = [no for no in before if no is not None]
    if not names:
        return False
    async with loop.attempts.batch(loop.reign.token, locked) as batch:
        now_slots = await occupied_slots(batch.connection, uid)
        restores = await restore_points(batch.connection, uid)
        if spec.gang is not None:
            if set(slots_to_start(spec, _views(now_slots.values()))) != set(names):
                return False
            restores = restore_together(restores, names)
        for name in names:
            standing = now_slots.get(name) or OccupiedSlot(slot=Slot(workload=uid, slot=name))
            if standing.live or standing.slot.state is not SlotState.OPEN:
                continue
            predecessor = batch.records.get(standing.latest or 0)
            successor = _next_epoch(
                workload, spec, standing.slot, predecessor, batch.now, restores.get(name)
            )
            batch.put(successor)
            if predecessor is not None:
                batch.put(_superseded(predecessor, successor, batch.now))
    return True


def _next_epoch(
    workload: Workload,
    spec: WorkloadSpec,
    slot: Slot,
    predecessor: AttemptRecord | None,
    now: datetime,
    latest: RestorePoint | None,
) -> AttemptRecord:
    """T1: the slot's next Attempt, and the slot at its epoch."""
    epoch = slot.current_epoch + 1
    start = resumption(predecessor.attempt if predecessor else None, latest, spec=spec)
    later = slot.not_before if slot.not_before and slot.not_before > now else None
    gang = gang_of(spec, workload=workload.uid, slot=slot.slot, epoch=epoch)
    attempt = queue(
        uid=uuid5(workload.uid, f"{slot.slot}/{epoch}"),
        project=workload.project,
        name=attempt_name(workload.name, slot.slot, epoch, workload.uid),
        workload=workload.uid,
        slot=slot.slot,
        epoch=epoch,
        at=now,
        gang=gang,
        resumes=start.resumes,
        restore=start.restore,
    )
    if later is not None:
        attempt = advance(
            attempt,
            events.Waits(at=now, waiting_for=WaitingFor.BACKOFF, message=_backoff(epoch, later)),
        )
    owner = Owner(kind=workload.kind, name=workload.name, uid=workload.uid)
    return AttemptRecord(
        view=AttemptView(attempt=attempt, owner=owner),
        slot=replace(slot, current_epoch=epoch),
        workload=workload,
        work=Work(next_try=later),
    )


def _backoff(epoch: int, later: datetime) -> str:
    return f"try {epoch} waits for its backoff, next try at {later:%Y-%m-%dT%H:%M:%SZ}"


def _superseded(
    predecessor: AttemptRecord, successor: AttemptRecord, now: datetime
) -> AttemptRecord:
    epoch, name = successor.attempt.epoch, successor.attempt.name
    moved = predecessor.moved(advance(predecessor.attempt, events.Superseded(at=now, epoch=epoch)))
    return replace(moved, slot=successor.slot, view=replace(moved.view, successor=name))


async def stop_unwanted(loop: LoopContext) -> None:
    """Stop live Attempts that workload, slot or parallelism no longer want (T16, T17)."""
    unwanted = await loop.agenda.attempts("stop")
    excess = await _excess(loop)

    async def work(batch: Batch) -> None:
        for no, record in list(batch.records.items()):
            cause = _cause(record) or ((None, Reason.RELEASED) if no in excess else None)
            if cause is not None and record.attempt.live and record.attempt.drain is None:
                batch.put(stop(record, *cause, now=batch.now))

    await loop.in_batches("stop", sorted({*unwanted, *excess}), work)


async def _excess(loop: LoopContext) -> set[int]:
    """Return live Attempts above the parallelism of their workload, the highest slots first."""
    excess: set[int] = set()
    for uid in await loop.agenda.workloads("crowded"):
        found = await loop.workloads.read(uid)
        if found is not None:
            workload, slots = found
            spec = WorkloadSpec.from_json(workload.kind, workload.spec)
            names = slots_to_release(spec, _views(slots.values()))
            excess |= {slots[name].latest or 0 for name in names}
    return excess


def _cause(record: AttemptRecord) -> tuple[Trigger | None, Reason] | None:
    """Return why an Attempt must stop; None if it is still wanted."""
    match record.workload.state:
        case WorkloadState.SUSPENDED:
            return Trigger.USER, Reason.SUSPENDED
        case WorkloadState.STOPPED | WorkloadState.DELETED:
            return Trigger.USER, Reason.STOPPED
        case WorkloadState.SUCCEEDED | WorkloadState.FAILED:
            return None, Reason.RELEASED
        case WorkloadState.ACTIVE:
            pass
    if record.slot.state is not SlotState.OPEN or not record.slot.wanted:
        return None, Reason.RELEASED
    return None


async def end_workloads(loop: LoopContext) -> bool:
    """End workloads whose slots are all decided (SC-101, SC-802)."""
    ended = False
    for uid in await loop.agenda.workloads("end"):
        ended |= bool(await loop.item("end", uid, partial(_end, loop, uid)))
    return ended


async def _end(loop: LoopContext, uid: UUID) -> bool:
    async with loop.workloads.edit(loop.reign.token, uid) as edit:
        workload = edit.workload
        if workload is None or workload.state is not WorkloadState.ACTIVE:
            return False
        spec = WorkloadSpec.from_json(workload.kind, workload.spec)
        state = workload_end(spec, [one.slot.state for one in edit.slots.values()])
        if state is None:
            return False
        await edit.put(replace(workload, state=state, ended=edit.now))
        return True


def _views(slots: Iterable[OccupiedSlot]) -> list[SlotView]:
    return [SlotView(slot=one.slot.slot, state=one.slot.state, live=one.live) for one in slots]
