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
from functools import partial

from nodus_api.kernel import events
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import MachineState, Market, Reason, Stage
from nodus_api.scheduler.catalog import Catalog
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.deliveries import alert_of_closed, note_deliveries
from nodus_api.scheduler.granting import granted, seen
from nodus_api.scheduler.handing_back import without_machine
from nodus_api.scheduler.intents import intent_of
from nodus_api.scheduler.setbacks import LONGEST_OF_CALLS
from nodus_api.scheduler.stopping import end_unstarted
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import Failure
from nodus_api.storage.checkpoint_store import restore_sources
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

_FIND = "find of a machine"
"""The name of vain looks among the setbacks: each is repeated after 1 s to 60 s (SC-617)."""

LOOKS_APART = timedelta(seconds=30)
ASK_AGAIN = timedelta(seconds=2)

_FAILURES: Mapping[type[Exception], Failure] = {
    NoCapacity: Failure.NO_CAPACITY,
    Quota: Failure.QUOTA,
    Auth: Failure.AUTH,
}

_NO_ANSWER = LookupError("no answer yet")

Found = MachineView | None | Exception
"""What the supplier said of an intent: the machine, that there is none, or an error."""


async def request_machines(loop: LoopContext) -> bool:
    """Take up what the supplier answered, then create or look for what is intended.

    Returns whether there were answers: one may have sent an Attempt back to be placed.
    """
    creates, finds = loop.calls.creates.returned(), loop.calls.finds.returned()
    answered = [*creates, *finds]
    if not answered and not await loop.agenda.any("request"):
        return False
    sightings = await loop.machines.requested(loop.pace.batch, answered=answered)
    at = loop.clock.monotonic()
    rests = _note_vain_finds(loop, finds, at)
    await _apply(loop, sightings, creates)
    again = [one for one in sightings if _missing(one, finds) and one.details["tries"] == 1]
    looked = {no: answer for no, answer in finds.items() if no not in {one.no for one in again}}
    await _apply(loop, sightings, looked, rests)
    waiting = [one for one in sightings if one.no not in creates.keys() | finds.keys()]
    fresh = [one for one in waiting if one.details["tries"] == 0]
    ready = [one for one in (*again, *fresh) if not _busy(loop, one.no)]
    await _create(loop, ready[: loop.calls.creates.grant(len(ready))])
    for one in waiting:
        rested = not _busy(loop, one.no) and loop.setbacks.over((_FIND, one.no), at)
        if one.details["tries"] > 0 and rested:
            loop.calls.finds.send(one.no, partial(loop.supplier.find, one.key))
    return bool(creates or finds)


def _note_vain_finds(loop: LoopContext, finds: Mapping[int, Found], at: float) -> dict[int, float]:
    """Look less and less often for a machine whose runner reports and that does not show itself.

    Its reports ask for a look at once in every pass (SC-606 step 7). Return the seconds until the
    next look at each.
    """
    rests = {}
    for no, answer in finds.items():
        if isinstance(answer, MachineView):
            loop.setbacks.passed((_FIND, no))
        else:
            rests[no] = loop.setbacks.failed((_FIND, no), at, longest=LONGEST_OF_CALLS)
    return rests


def _missing(sighting: Sighting, finds: Mapping[int, Found]) -> bool:
    return sighting.no in finds and finds[sighting.no] is None


def _busy(loop: LoopContext, number: int) -> bool:
    return loop.calls.creates.busy(number) or loop.calls.finds.busy(number)


async def _create(loop: LoopContext, sightings: Sequence[Sighting]) -> None:
    """Raise the tries, commit, and only then call create (SC-609).

    There is a token for each call: without one, a try would be counted that is none (SC-616).
    """
    if not sightings:
        return
    intents: dict[int, MachineIntent] = {}
    addresses = await loop.machines.offer_addresses([one.details["offer"] for one in sightings])
    machines = {one.no for one in sightings}

    async def raise_tries(batch: Batch) -> None:
        intents.clear()
        stored = await restore_sources(batch.connection, list(batch.records))
        for record in list(batch.records.values()):
            for tenancy in record.held:
                machine = tenancy.machine
                if machine.no not in machines or machine.state is not MachineState.REQUESTED:
                    continue
                record = _tried(record, tenancy, batch.now + ASK_AGAIN)
                intents[machine.no] = intent_of(
                    record,
                    tenancy,
                    addresses[machine.offer],
                    loop.reign,
                    stored.get(record.no or 0),
                )
            batch.put(record)

    def create() -> None:
        for number, intent in intents.items():
            loop.calls.creates.send(number, partial(loop.supplier.create, intent), paid=True)

    await loop.in_batches("intend", _attempts(sightings), raise_tries, then=create)


def _tried(record: AttemptRecord, tenancy: Tenancy, again: datetime) -> AttemptRecord:
    machine = replace(tenancy.machine, tries=tenancy.machine.tries + 1, next_try=again)
    return record.with_tenancy(replace(tenancy, machine=machine))


async def _apply(
    loop: LoopContext,
    sightings: Sequence[Sighting],
    answers: Mapping[int, Found],
    rests: Mapping[int, float] | None = None,
) -> None:
    """Write what the supplier answered, each answer to a machine that is still Requested.

    They answer creates, or with `rests` finds: the seconds until the next look after a vain one.
    """
    answered = [one for one in sightings if one.no in answers]
    if not answered:
        return
    catalog = loop.view.last or await loop.view.look(await loop.agenda.now())
    closed: set[int] = set()

    async def work(batch: Batch) -> None:
        refused: dict[int, dict[Market, Failure | None]] = {}
        for record in list(batch.records.values()):
            for tenancy in record.held:
                machine = tenancy.machine
                answer = answers.get(machine.no or 0, _NO_ANSWER)
                if answer is _NO_ANSWER or machine.state is not MachineState.REQUESTED:
                    continue
                rest = None if rests is None else rests.get(machine.no or 0, 0.0)
                record = _answered(loop, catalog, record, tenancy, answer, batch.now, rest)
                if rest is None and isinstance(answer, NoCapacity | Quota | Auth):
                    whys = refused.setdefault(machine.offer, {})
                    if whys.get(machine.market) is not Failure.AUTH:
                        whys[machine.market] = _FAILURES[type(answer)]
            batch.put(record)
        closed.clear()
        closed.update(await note_deliveries(loop, batch, refused))

    def alert() -> None:
        alert_of_closed(loop, closed)

    await loop.in_batches("acquire", _attempts(answered), work, then=alert)


def _answered(
    loop: LoopContext,
    catalog: Catalog,
    record: AttemptRecord,
    tenancy: Tenancy,
    answer: Found,
    now: datetime,
    rest: float | None,
) -> AttemptRecord:
    """Move one Attempt by what the supplier said of its machine.

    `rest` is the seconds until the next look; None if this answers a create. What refuses a create
    proves that it made nothing; of a find it proves nothing (SC-609).
    """
    creating = rest is None
    if isinstance(answer, Exception):
        loop.failed_call("create" if creating else "find", answer)
    match answer:
        case MachineView() if seen(answer):
            machine = tenancy.machine
            boot = timedelta(seconds=catalog.known(machine.offering, machine.market).boot_p95)
            return granted(loop.metrics, record, tenancy, answer, now, boot_p95=boot)
        case MachineView():
            return _pending(record, tenancy, answer, now)
        case None:
            return _absent(loop, record, tenancy, now)
        case NoCapacity() | Quota() | Auth() if creating:
            log.info(
                "a supplier gave no machine",
                extra={"attempt": record.attempt.name, "error": type(answer).__name__},
            )
            return _not_acquired(record, tenancy, now, str(answer))
        case Invalid() if creating:
            log.error(
                "a supplier refused an intent as wrong",
                extra={"attempt": record.attempt.name, "reason_text": str(answer)},
            )
            return _invalid(record, tenancy, now)
        case RateLimited(after=after):  # a refusal is no attempt: create may be called again
            tries = tenancy.machine.tries - 1 if creating else tenancy.machine.tries
            return _again(record, tenancy, now + after, tries=tries)
        case _ if rest is None:  # Ambiguous, or any error that proves nothing
            log.warning(
                "it is not known whether a machine was made",
                extra={"attempt": record.attempt.name, "reason_text": str(answer)},
            )
            return _again(record, tenancy, now + ASK_AGAIN, tries=2)
        case _:
            return _again(record, tenancy, now + timedelta(seconds=rest))


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
    return without_machine(record, now, message)


def _invalid(record: AttemptRecord, tenancy: Tenancy, now: datetime) -> AttemptRecord:
    gone = replace(tenancy.machine, state=MachineState.GONE, gone=now, next_try=None)
    closed = Tenancy(machine=gone, lease=replace(tenancy.lease, released=now))
    fault = events.StartFault(at=now, reason=Reason.INTERNAL_ERROR)
    record = record.with_tenancy(closed)
    if record.attempt.stage is not Stage.ACQUIRING:
        return record
    return record.moved(advance(record.attempt, fault))


def _attempts(sightings: Sequence[Sighting]) -> list[int]:
    return sorted({one.attempt for one in sightings})
