"""Machines leave: deletion, its proof, T18, and the sweep for what nobody uses (SC-610, SC-611)."""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from nodus_api.kernel import events
from nodus_api.kernel.deadlines import RELEASE_ALERT
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import MachineState, WaitingFor
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.desiring import end_unstarted
from nodus_api.scheduler.settling import billed
from nodus_api.storage import due
from nodus_api.storage.batch import Batch
from nodus_api.storage.machine_store import Sighting
from nodus_api.storage.records import AttemptRecord, Tenancy
from nodus_api.suppliers.supplier import DeletionObservation, MachineCondition, Verdict

log = logging.getLogger(__name__)

LOOKS_APART = timedelta(seconds=5)
"""Between the two looks that prove a deletion, where it is not synchronous (SC-610)."""
LONGEST_WAIT = timedelta(minutes=5)
ABSENCE_APART = timedelta(seconds=30)
"""Between the two looks that prove that a machine without a handle never was (SC-609)."""


async def release(loop: LoopContext) -> bool:
    """Delete what is to leave and prove it gone; return whether anything became Gone."""
    sightings = await loop.machines.releasing(loop.pace.batch)
    looks = await loop.ask([_look(loop, one) for one in sightings])
    seen = {one.no: look for one, look in zip(sightings, looks, strict=True)}
    gone: list[int] = []

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            for tenancy in record.tenancies:
                look = seen.get(tenancy.machine.no or 0)
                if look is None or tenancy.machine.state is not MachineState.RELEASING:
                    continue
                record = _after_look(loop, record, tenancy, look, batch.now)
            record = _prove(record, batch.now)
            gone.extend(_gone(record) - _gone(batch.loaded[record.no or 0]))
            batch.put(record)

    await loop.in_batches("release", sorted({one.attempt for one in sightings}), work)
    if gone:
        await _hasten(loop)
    return bool(gone)


async def _hasten(loop: LoopContext) -> None:
    """Capacity came back: let those who wait for it try again at once."""
    loop.offers_due = loop.clock.monotonic()

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            if record.attempt.waiting_for is WaitingFor.CAPACITY:
                batch.put(replace(record, work=replace(record.work, next_try=None)))

    nos = await loop.attempts.nos(due.waiting_for_capacity(loop.pace.batch))
    await loop.in_batches("hasten", nos, work)


async def _look(loop: LoopContext, sighting: Sighting) -> DeletionObservation:
    """Delete (idempotent) and look once whether the machine is gone."""
    handle = sighting.handle
    if handle is None:
        view = await loop.supplier.find(sighting.key)
        if view is None:
            return DeletionObservation(verdict=Verdict.GONE)
        handle = view.handle
    await loop.supplier.delete(handle)
    return await loop.supplier.prove_deleted(handle)


def _after_look(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    look: DeletionObservation | Exception,
    now: datetime,
) -> AttemptRecord:
    machine = tenancy.machine
    if isinstance(look, Exception):
        loop.metrics.supplier_errors.labels(call="delete", error=type(look).__name__).inc()
        log.warning(
            "a machine could not be deleted and is tried again",
            extra={"attempt": record.attempt.name, "cause": str(look)},
        )
    if isinstance(look, Exception) or look.verdict is not Verdict.GONE:
        return record.with_tenancy(_later(tenancy, now))
    at = min(look.at or now, now)
    first = machine.gone_seen or at
    apart = ABSENCE_APART if machine.handle is None else LOOKS_APART
    at_once = loop.supplier.caps.sync_delete and machine.handle is not None
    if not at_once and (machine.gone_seen is None or now - first < apart):
        waiting = replace(machine, gone_seen=first, next_try=max(now, first + apart))
        return record.with_tenancy(replace(tenancy, machine=waiting))
    gone = replace(machine, state=MachineState.GONE, gone=first, next_try=None)
    lease = tenancy.lease if not tenancy.open else replace(tenancy.lease, released=now)
    return record.with_tenancy(Tenancy(machine=gone, lease=lease))


def _later(tenancy: Tenancy, now: datetime) -> Tenancy:
    """Try again after 1 s, 2 s, 4 s … 5 min, for ever (SC-610)."""
    machine = tenancy.machine
    wait = min(timedelta(seconds=1) * (1 << min(machine.tries, 9)), LONGEST_WAIT)
    if machine.releasing is not None and now - machine.releasing > RELEASE_ALERT:
        log.error("a machine is not gone 15 minutes after its release", extra={"key": machine.key})
    moved = replace(machine, tries=machine.tries + 1, next_try=now + wait, gone_seen=None)
    return replace(tenancy, machine=moved)


def _prove(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """T18 once every machine of an ended Attempt is gone; the billed one's time counts (SC-342)."""
    attempt = record.attempt
    if attempt.live:
        return end_unstarted(record, now)
    all_gone = all(one.machine.state is MachineState.GONE for one in record.tenancies)
    if not record.tenancies or not all_gone or attempt.deletion_proven is not None:
        return record
    payer = billed(record)
    times = [one.machine.gone for one in ([payer] if payer else record.tenancies)]
    at = max((time for time in times if time is not None), default=now)
    return record.moved(advance(attempt, events.DeletionProven(at=at)))


def _gone(record: AttemptRecord) -> set[int]:
    return {
        one.machine.no or 0 for one in record.tenancies if one.machine.state is MachineState.GONE
    }


async def sweep_orphans(loop: LoopContext) -> int:
    """Delete machines of this installation that no row wants; return how many (SC-611).

    A machine without a row, or whose row is Gone: its intent was committed before it was
    made, so nothing that is still wanted can look like this.
    """
    found = [
        view
        async for view in loop.supplier.list_owned(loop.reign.installation)
        if view.condition is not MachineCondition.GONE
        and view.installation == loop.reign.installation
    ]
    states = await loop.machines.states([view.key for view in found])
    orphans = [view for view in found if states.get(view.key, "Gone") == "Gone"]
    for view in orphans:
        loop.metrics.orphans.inc()
        cause = "its row is Gone" if view.key in states else "no row"
        log.warning("a machine without a use is deleted", extra={"handle": view.handle})
        await loop.machines.record_orphan(
            loop.reign.token,
            supplier=loop.supplier.name,
            handle=view.handle,
            cause=cause,
            gone=False,
        )
        await loop.supplier.delete(view.handle)
        look = await loop.supplier.prove_deleted(view.handle)
        if look.verdict is Verdict.GONE:
            await loop.machines.record_orphan(
                loop.reign.token,
                supplier=loop.supplier.name,
                handle=view.handle,
                cause=cause,
                gone=True,
            )
    return len(orphans)
