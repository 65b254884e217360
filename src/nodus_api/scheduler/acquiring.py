"""Intents become machines: create, find, and what to do when it is not known which (SC-606 step 5).

How a Requested row is read after any crash (SC-608, SC-609): `tries` 0 means that create
was never called. 1: it was called once, and what it answered may be lost; find, and if
nothing is there, create once more with the same key. 2: no further create; find until the
machine shows itself, or two looks at least 30 s apart have not seen it. An Ambiguous answer
uses up the second create, since trying again at once would only repeat the doubt.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodus_api.kernel import events
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage
from nodus_api.scheduler.catalog import failed_to_deliver
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.desiring import end_unstarted
from nodus_api.scheduler.granting import granted, seen
from nodus_api.scheduler.intents import intent_of
from nodus_api.scheduler.settling import released
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import OfferStats, write_stats
from nodus_api.storage.machine_store import Sighting
from nodus_api.storage.records import AttemptRecord, Tenancy
from nodus_api.suppliers.supplier import (
    Auth,
    Invalid,
    MachineIntent,
    MachineView,
    NoCapacity,
    Quota,
    RateLimited,
)

log = logging.getLogger(__name__)

LOOKS_APART = timedelta(seconds=30)
ASK_AGAIN = timedelta(seconds=2)
LOOK_AGAIN = timedelta(seconds=10)

Found = MachineView | None | Exception
"""What the supplier said of an intent: the machine, that there is none, or an error."""


async def request_machines(loop: LoopContext) -> bool:
    """Create or look for the machines that are intended; return whether any was."""
    sightings = await loop.machines.requested(loop.pace.batch)
    fresh = [one for one in sightings if one.details["tries"] == 0]
    known = [one for one in sightings if one.details["tries"] > 0]
    await _create(loop, fresh)
    await _find(loop, known)
    return bool(sightings)


async def _find(loop: LoopContext, sightings: Sequence[Sighting]) -> None:
    """Look for machines whose create was called; make the missing ones once more."""
    answers = await loop.ask([loop.supplier.find(one.key) for one in sightings])
    absent = [
        one
        for one, answer in zip(sightings, answers, strict=True)
        if answer is None and one.details["tries"] == 1
    ]
    again = {one.no for one in absent}
    known = {
        one.no: answer
        for one, answer in zip(sightings, answers, strict=True)
        if one.no not in again
    }
    await _apply(loop, [one for one in sightings if one.no not in again], known, creating=False)
    await _create(loop, absent)


async def _create(loop: LoopContext, sightings: Sequence[Sighting]) -> None:
    """Raise the tries, commit, and only then call create (SC-609)."""
    if not sightings:
        return
    intents: dict[int, MachineIntent] = {}
    addresses = await loop.machines.offer_addresses([one.details["offer"] for one in sightings])
    machines = {one.no for one in sightings}

    async def raise_tries(batch: Batch) -> None:
        for record in list(batch.records.values()):
            for tenancy in record.held:
                machine = tenancy.machine
                if machine.no not in machines or machine.state is not MachineState.REQUESTED:
                    continue
                record = _tried(record, tenancy, batch.now + loop.pace.supplier_timeout)
                if record.attempt.live:
                    address = addresses[machine.offer]
                    intents[machine.no] = intent_of(record, tenancy, address, loop.reign)
            batch.put(record)

    await loop.in_batches("intend", _attempts(sightings), raise_tries)
    wanted = [one for one in sightings if one.no in intents]
    answers = await loop.ask([loop.supplier.create(intents[one.no]) for one in wanted])
    known = {one.no: answer for one, answer in zip(wanted, answers, strict=True)}
    await _apply(loop, wanted, known, creating=True)


def _tried(record: AttemptRecord, tenancy: Tenancy, again: datetime) -> AttemptRecord:
    machine = replace(tenancy.machine, tries=tenancy.machine.tries + 1, next_try=again)
    return record.with_tenancy(replace(tenancy, machine=machine))


async def _apply(
    loop: LoopContext,
    sightings: Sequence[Sighting],
    answers: Mapping[int, Found],
    *,
    creating: bool,
) -> None:
    """Write what the supplier answered, each answer to a machine that is still Requested."""

    async def work(batch: Batch) -> None:
        failed: dict[int, list[OfferStats]] = {}
        for record in list(batch.records.values()):
            for tenancy in record.held:
                number = tenancy.machine.no or 0
                if number in answers and tenancy.machine.state is MachineState.REQUESTED:
                    record = _answered(loop, record, tenancy, answers[number], batch.now, creating)
                    if isinstance(answers[number], NoCapacity | Quota | Auth):
                        failed.setdefault(tenancy.machine.offer, []).append(
                            await _backoff(loop, tenancy, batch.now)
                        )
            batch.put(record)
        await write_stats(batch.connection, failed)

    await loop.in_batches("acquire", _attempts(sightings), work)


def _answered(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    answer: Found,
    now: datetime,
    creating: bool,
) -> AttemptRecord:
    """Move one Attempt by what the supplier said of its machine."""
    if isinstance(answer, Exception):
        loop.metrics.supplier_errors.labels(
            call="create" if creating else "find", error=type(answer).__name__
        ).inc()
    match answer:
        case MachineView() if seen(answer):
            return granted(record, tenancy, answer, now)
        case MachineView():
            return _pending(record, tenancy, answer, now)
        case None:
            return _absent(loop, record, tenancy, now)
        case NoCapacity() | Quota() | Auth():
            log.info(
                "a supplier gave no machine",
                extra={"attempt": record.attempt.name, "error": type(answer).__name__},
            )
            return _not_acquired(record, tenancy, now, str(answer))
        case Invalid():
            log.error(
                "a supplier refused an intent as wrong",
                extra={"attempt": record.attempt.name, "reason_text": str(answer)},
            )
            return _invalid(record, tenancy, now)
        case RateLimited(after=after):  # a refusal is no attempt: create may be called again
            tries = tenancy.machine.tries - 1 if creating else tenancy.machine.tries
            return _again(record, tenancy, now + after, tries=tries)
        case _ if creating:  # Ambiguous, or any error that proves nothing
            log.warning(
                "it is not known whether a machine was made",
                extra={"attempt": record.attempt.name, "reason_text": str(answer)},
            )
            return _again(record, tenancy, now + ASK_AGAIN, tries=2)
        case _:
            return _again(record, tenancy, now + LOOK_AGAIN)


def _again(
    record: AttemptRecord, tenancy: Tenancy, at: datetime, *, tries: int | None = None
) -> AttemptRecord:
    machine = replace(tenancy.machine, next_try=at)
    if tries is not None:
        machine = replace(machine, tries=tries)
    return record.with_tenancy(replace(tenancy, machine=machine))


def _pending(
    record: AttemptRecord, tenancy: Tenancy, view: MachineView, now: datetime
) -> AttemptRecord:
    """Keep the handle of a machine that exists and does not run yet (SC-608)."""
    machine = replace(tenancy.machine, handle=view.handle, gone_seen=None, next_try=now + ASK_AGAIN)
    return record.with_tenancy(replace(tenancy, machine=machine))


def _absent(
    loop: LoopContext, record: AttemptRecord, tenancy: Tenancy, now: datetime
) -> AttemptRecord:
    """Note a look that found nothing; two of them, far enough apart, prove absence (SC-609)."""
    machine = tenancy.machine
    first = machine.gone_seen
    if first is None:
        delay = loop.supplier.caps.visibility_delay
        looked = replace(machine, gone_seen=now + delay, next_try=now + delay + LOOKS_APART)
        return record.with_tenancy(replace(tenancy, machine=looked))
    if now - first < LOOKS_APART:
        return _again(record, tenancy, first + LOOKS_APART)
    return _not_acquired(record, tenancy, now, "the machine asked for never appeared")


def _not_acquired(
    record: AttemptRecord, tenancy: Tenancy, now: datetime, message: str
) -> AttemptRecord:
    """T6, or the end of a drain that waited for this proof (SC-006a)."""
    gone = replace(tenancy.machine, state=MachineState.GONE, gone=now, next_try=None)
    closed = Tenancy(machine=gone, lease=replace(tenancy.lease, released=now))
    record = record.with_tenancy(closed)
    if record.attempt.stage is not Stage.ACQUIRING:
        return record
    if record.attempt.drain is not None:
        return end_unstarted(record, now)
    return back_to_placing(record, now, message)


def give_up(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """T6 because the time for acquiring is over: the deletion of what may exist is queued."""
    for tenancy in record.held:
        leaving = released(tenancy, now)
        record = record.with_tenancy(
            Tenancy(machine=leaving.machine, lease=replace(leaving.lease, released=now))
        )
    return back_to_placing(record, now, "no machine was granted in time")


def back_to_placing(record: AttemptRecord, now: datetime, message: str) -> AttemptRecord:
    """T6: the placement is void, its candidates and reasons stay shown (SC-017)."""
    moved = record.moved(advance(record.attempt, events.AcquireFailed(at=now, message=message)))
    placement = moved.view.placement
    shown = replace(placement, choice=None) if placement else None
    work = replace(moved.work, next_try=None, limit_at=None)
    return replace(moved, view=replace(moved.view, placement=shown), work=work)


def _invalid(record: AttemptRecord, tenancy: Tenancy, now: datetime) -> AttemptRecord:
    gone = replace(tenancy.machine, state=MachineState.GONE, gone=now, next_try=None)
    closed = Tenancy(machine=gone, lease=replace(tenancy.lease, released=now))
    fault = events.StartFault(at=now, reason=Reason.INTERNAL_ERROR)
    record = record.with_tenancy(closed)
    if record.attempt.stage is not Stage.ACQUIRING:
        return record
    return record.moved(advance(record.attempt, fault))


async def _backoff(loop: LoopContext, tenancy: Tenancy, now: datetime) -> OfferStats:
    """Return the statistics of an offer that did not deliver (SC-360)."""
    machine = tenancy.machine
    _, offers = await loop.catalog.load()
    known: Any = next((one for one in offers if one.no == machine.offer), None)
    stats = known.stats.get(machine.market) if known else None
    jitter = (int(machine.key[:4], 16) % 401 - 200) / 1000
    return failed_to_deliver(
        stats or OfferStats(market=machine.market, updated=now), now, jitter=jitter
    )


def _attempts(sightings: Sequence[Sighting]) -> list[int]:
    return sorted({one.attempt for one in sightings})
