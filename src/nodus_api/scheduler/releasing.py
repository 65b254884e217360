"""Machines leave: deletion, its proof, T18, and the sweep for what nobody uses (SC-610, SC-611)."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from nodus_api.kernel.deadlines import RELEASE_ALERT
from nodus_api.kernel.events import DeletionProven
from nodus_api.kernel.moments import clamped
from nodus_api.kernel.vocabulary import MachineState
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.keeping import idle_until_gone
from nodus_api.scheduler.offers import capacity_came_back
from nodus_api.scheduler.setbacks import retry_wait
from nodus_api.scheduler.settling import released
from nodus_api.scheduler.stopping import end_unstarted
from nodus_api.scheduler.told_times import possible
from nodus_api.storage.batch import Batch
from nodus_api.storage.machine_store import Sighting, Unused
from nodus_api.storage.records import AttemptRecord, IdleTime, Tenancy
from nodus_api.suppliers.supplier import (
    DeletionObservation,
    MachineCondition,
    MachineView,
    Verdict,
)

log = logging.getLogger(__name__)

LOOKS_APART = timedelta(seconds=5)
"""Between the two looks that prove a deletion, where it is not synchronous (SC-610)."""
LONGEST_WAIT = timedelta(minutes=5)
ABSENCE_APART = timedelta(seconds=30)
"""Between the two looks that prove that a machine without a handle never was (SC-609)."""

LEFT_BEHIND = timedelta(minutes=10)
"""After its Attempt's end, a machine that nobody released is an orphan (SC-611)."""

_OWNED, _AGAIN = "owned", "again"
"""The two looks of a sweep: at all machines, and at those that no row seems to want."""


async def release(loop: LoopContext) -> bool:
    """Delete what is to leave and prove it gone; return whether anything became Gone."""
    looks = loop.calls.deletes.returned()
    if not looks and not await loop.agenda.any("release"):
        return False
    sightings = await loop.machines.releasing(loop.pace.batch, answered=list(looks))
    gone: set[int] = set()

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            for tenancy in record.tenancies:
                look = looks.get(tenancy.machine.no or 0)
                leaving = tenancy.machine.state is MachineState.RELEASING
                if look is not None and leaving and tenancy.lease.latest:
                    record = _after_look(loop, record, tenancy, look, batch.now)
                    batch.idled += _idle_to_the_end(record, tenancy)
            if record.attempt.live:
                record = end_unstarted(record, batch.now)
            gone.update(_gone(record) - _gone(batch.loaded[record.no or 0]))
            batch.put(record)

    answered = {one.attempt for one in sightings if one.no in looks}
    await loop.in_batches("release", sorted(answered), work)
    for one in sightings:
        if one.no not in looks:
            loop.calls.deletes.send(one.no, partial(_look, loop, one))
    if gone:
        await capacity_came_back(loop)
    return bool(gone)


async def _look(loop: LoopContext, sighting: Sighting) -> DeletionObservation:
    """Delete (idempotent) and look once whether the machine is gone."""
    handle = sighting.handle
    if handle is None:
        view = await loop.supplier.find(sighting.key)
        if view is None:
            return DeletionObservation(verdict=Verdict.GONE)
        await loop.supplier.delete(view.handle)  # it was there: the proof begins after this
        return DeletionObservation(verdict=Verdict.PRESENT, billing_start=view.billing_start)
    return await _delete(loop, handle)


def _after_look(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    look: DeletionObservation | Exception,
    now: datetime,
) -> AttemptRecord:
    machine = tenancy.machine
    if isinstance(look, Exception):
        loop.failed_call("delete", look)
        log.warning(
            "a machine could not be deleted and is tried again",
            extra={"attempt": record.attempt.name, "cause": str(look)},
        )
    if not isinstance(look, Exception) and look.billing_start is not None:
        since = possible(
            loop.metrics, look.billing_start, of="billing", now=now, since=machine.requested
        )
        tenancy = replace(tenancy, machine=replace(machine, billed_unheld_since=since))
    if isinstance(look, Exception) or look.verdict is not Verdict.GONE:
        return record.with_tenancy(_later(tenancy, now))
    at = possible(loop.metrics, look.at or now, of="deletion", now=now)
    if clamped(record.attempt, DeletionProven(at=at)):
        loop.metrics.clamped.labels(event=DeletionProven.__name__).inc()
    first = machine.gone_seen or at
    apart = LOOKS_APART
    if machine.handle is None:
        apart = ABSENCE_APART + loop.supplier.caps.visibility_delay
    at_once = loop.supplier.caps.sync_delete and machine.handle is not None
    if not at_once and (machine.gone_seen is None or now - first < apart):
        waiting = replace(machine, gone_seen=first, next_try=max(now, first + apart))
        return record.with_tenancy(replace(tenancy, machine=waiting))
    gone = replace(machine, state=MachineState.GONE, gone=first, next_try=None)
    lease = tenancy.lease if not tenancy.open else replace(tenancy.lease, released=now)
    return record.with_tenancy(Tenancy(machine=gone, lease=lease))


def _later(tenancy: Tenancy, now: datetime) -> Tenancy:
    """Try again after 1 s, 2 s, 4 s … 5 min, less a jitter, for ever (SC-610, SC-617)."""
    machine = tenancy.machine
    wait = timedelta(
        seconds=retry_wait(machine.tries + 1, machine.key, longest=LONGEST_WAIT.total_seconds())
    )
    if machine.releasing is not None and now - machine.releasing > RELEASE_ALERT:
        log.error("a machine is not gone 15 minutes after its release", extra={"key": machine.key})
    moved = replace(machine, tries=machine.tries + 1, next_try=now + wait, gone_seen=None)
    return replace(tenancy, machine=moved)


def _idle_to_the_end(record: AttemptRecord, tenancy: Tenancy) -> list[IdleTime]:
    """Return what a warm machine has cost idle, if it is gone now (SC-344)."""
    now = next(one for one in record.tenancies if one.machine.key == tenancy.machine.key)
    idle = idle_until_gone(now)
    return [] if idle is None else [idle]


def _gone(record: AttemptRecord) -> set[int]:
    return {
        one.machine.no or 0 for one in record.tenancies if one.machine.state is MachineState.GONE
    }


async def sweep_orphans(loop: LoopContext) -> None:
    """Delete machines of this installation that no row wants (SC-611).

    A machine without a row, or whose row is Gone: its intent was committed before it was
    made, so nothing that is still wanted can look like this. And one whose Attempt ended
    long ago and that nobody has released, which is released now: after it was noted, else a
    leader that dies between leaves no note, and before it is deleted, else it leaves a row
    that no list tells of any more.
    """
    for handle, look in loop.calls.orphans.returned().items():
        if not isinstance(look, Exception) and look.verdict is Verdict.GONE:
            await _note_orphan(loop, handle, "deleted", gone=True)
    for call, answer in loop.calls.lists.returned().items():
        if isinstance(answer, Exception):
            loop.failed_call("list", answer)
            continue
        unused = await loop.machines.unused([view.key for view in answer], LEFT_BEHIND)
        found = [view for view in answer if view.key in unused]
        if call == _OWNED:
            if found:  # a machine may have gone, and its row with it, since it was listed
                loop.calls.lists.send(_AGAIN, partial(_still_there, loop, found))
            await _look_for_open(loop, {view.handle for view in answer})
            continue
        for view in found:
            loop.metrics.orphans.inc()
            log.warning("a machine without a use is deleted", extra={"handle": view.handle})
            await _note_orphan(loop, view.handle, unused[view.key].cause, gone=False)
        await _release_left(loop, unused)
        for view in found:
            loop.calls.orphans.send(view.handle, partial(_delete, loop, view.handle))
    now = loop.clock.monotonic()
    if now >= loop.sweep_due and loop.calls.lists.send(_OWNED, partial(_owned, loop)):
        loop.sweep_due = now + loop.pace.sweep.total_seconds()


async def _look_for_open(loop: LoopContext, listed: Collection[str]) -> None:
    """Look at noted orphans that are not listed: they went while nobody was there to hear of it."""
    for handle in await loop.machines.open_orphans(loop.supplier.name):
        if handle not in listed:
            loop.calls.orphans.send(handle, partial(loop.supplier.prove_deleted, handle))


async def _release_left(loop: LoopContext, unused: Mapping[str, Unused]) -> None:
    """Release what nobody has released, so that its row comes to Gone like any other (P-09)."""
    left = {key: one.left_by for key, one in unused.items() if one.left_by is not None}

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            for tenancy in record.tenancies:
                left_by = left.get(tenancy.machine.key)
                if left_by == record.no and tenancy.lease.latest and not record.attempt.live:
                    record = record.with_tenancy(released(tenancy, batch.now))
            batch.put(record)

    await loop.in_batches("sweep", sorted(set(left.values())), work)


async def _owned(loop: LoopContext) -> list[MachineView]:
    """List the machines tagged with this installation; others are never touched.

    What ended by itself may still hold room at its supplier: it counts until it is proven gone.
    """
    installation = loop.reign.installation
    return [
        view
        async for view in loop.supplier.list_owned(installation)
        if view.installation == installation and await _remains(loop, view)
    ]


async def _still_there(loop: LoopContext, views: Sequence[MachineView]) -> list[MachineView]:
    looks = [(view, await loop.supplier.prove_deleted(view.handle)) for view in views]
    return [view for view, look in looks if look.verdict is not Verdict.GONE]


async def _remains(loop: LoopContext, view: MachineView) -> bool:
    if view.condition is not MachineCondition.GONE:
        return True
    look = await loop.supplier.prove_deleted(view.handle)
    return look.verdict is Verdict.PRESENT


async def _note_orphan(loop: LoopContext, handle: str, cause: str, *, gone: bool) -> None:
    await loop.machines.record_orphan(
        loop.reign.token, supplier=loop.supplier.name, handle=handle, cause=cause, gone=gone
    )


async def _delete(loop: LoopContext, handle: str) -> DeletionObservation:
    await loop.supplier.delete(handle)
    return await loop.supplier.prove_deleted(handle)
