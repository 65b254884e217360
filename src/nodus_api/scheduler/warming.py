"""Warm machines between two Attempts: wiped, kept a while, assigned or let go (SC-343, SC-344).

Intent before call, as for creates: a row says to wipe or to assign, then the supplier is called,
and every call may be repeated.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from nodus_api.kernel.events import CapacityLost
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.intents import intent_of
from nodus_api.scheduler.keeping import kept_for
from nodus_api.scheduler.offers import hasten_waiting
from nodus_api.scheduler.racing import lose_machine
from nodus_api.scheduler.setbacks import LONGEST_OF_CALLS, retry_wait
from nodus_api.scheduler.settling import released
from nodus_api.storage.batch import Batch
from nodus_api.storage.checkpoint_store import restore_sources
from nodus_api.storage.machine_store import Sighting
from nodus_api.storage.records import AttemptRecord, Tenancy
from nodus_api.suppliers.supplier import Invalid, MachineIntent

log = logging.getLogger(__name__)

MOST_WIPES = 3
"""A machine that cannot be wiped is deleted after so many tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What wipes and assigns came to since the last pass, by machine; None is success."""

    wiped: Mapping[int, Exception | None]
    assigned: Mapping[int, Exception | None]


async def keep_warm(loop: LoopContext) -> bool:
    """Take up what wipes and assigns came to, let go of what nobody took, and call for the rest.

    Return whether a machine became warm, which somebody may have waited for.
    """
    answers = _Answers(wiped=loop.calls.wipes.returned(), assigned=loop.calls.assigns.returned())
    answered = [*answers.wiped, *answers.assigned]
    if not answered and not await loop.agenda.any("warm"):
        return False
    sightings = await loop.machines.warm(loop.pace.batch, answered=answered)
    intents = await _apply(loop, sightings, answers)
    for one in sightings:
        if one.handle is not None:
            _call(loop, one, one.handle, answers, intents.get(one.no))
    if answers.wiped:
        await hasten_waiting(loop)
    return bool(answers.wiped)


async def _apply(
    loop: LoopContext, sightings: Sequence[Sighting], answers: "_Answers"
) -> Mapping[int, MachineIntent]:
    """Write what was answered and what is over; return the intents of what is to be assigned."""
    offers = [one.details["offer"] for one in sightings if one.details["assigns"]]
    addresses = await loop.machines.offer_addresses(offers) if offers else {}
    intents: dict[int, MachineIntent] = {}
    wanted: dict[int, MachineIntent] = {}

    async def work(batch: Batch) -> None:
        wanted.clear()
        stored = await restore_sources(batch.connection, list(batch.records))
        for record in list(batch.records.values()):
            for tenancy in record.tenancies:
                if tenancy.lease.latest:
                    record = _moved(loop, record, tenancy, answers, batch.now)
            batch.put(record)
            for tenancy in record.kept:
                number, offer = tenancy.machine.no or 0, tenancy.machine.offer
                if _to_be_assigned(record, tenancy) and offer in addresses:
                    source = stored.get(record.no or 0)
                    intent = intent_of(record, tenancy, addresses[offer], loop.reign, source)
                    wanted[number] = intent

    moved = {one.attempt for one in sightings if _moves(one, answers)}
    await loop.in_batches("warm", sorted(moved), work, then=lambda: intents.update(wanted))
    return intents


def _call(
    loop: LoopContext,
    one: Sighting,
    handle: str,
    answers: "_Answers",
    intent: MachineIntent | None,
) -> None:
    """Send what a row asks for, unless it has just been answered."""
    if one.details["wipes"] and one.no not in answers.wiped:
        loop.calls.wipes.send(one.no, partial(loop.supplier.wipe, handle))
    if one.details["assigns"] and one.no not in answers.assigned and intent is not None:
        call = partial(loop.supplier.assign, handle, intent, intent.token)
        loop.calls.assigns.send(one.no, call)


def _moved(
    loop: LoopContext, record: AttemptRecord, tenancy: Tenancy, answers: "_Answers", now: datetime
) -> AttemptRecord:
    """Move a machine by what its call came to, or because its time is over."""
    number = tenancy.machine.no or 0
    if number in answers.wiped and _to_be_wiped(record, tenancy):
        return _after_wipe(loop, record, tenancy, answers.wiped[number], now)
    if number in answers.assigned and _to_be_assigned(record, tenancy):
        return _after_assign(loop, record, tenancy, answers.assigned[number], now)
    if tenancy.idle and _is_cold(tenancy, now):
        return record.with_tenancy(released(tenancy, now))
    return record


def _moves(one: Sighting, answers: "_Answers") -> bool:
    """Whether a row is to be written, or an intent to be read from it."""
    answered = one.no in answers.wiped or one.no in answers.assigned
    return answered or bool(one.details["assigns"]) or bool(one.details["cold"])


def _to_be_wiped(record: AttemptRecord, tenancy: Tenancy) -> bool:
    kept = tenancy.machine.state is MachineState.REGISTERED and tenancy.machine.warm_until
    return bool(kept) and tenancy.open and not record.attempt.live


def _to_be_assigned(record: AttemptRecord, tenancy: Tenancy) -> bool:
    there = tenancy.machine.state in (MachineState.GRANTED, MachineState.REGISTERED)
    waits = tenancy.lease.fence > 1 and tenancy.lease.assigned is None
    return there and waits and tenancy.open and record.attempt.live


def _is_cold(tenancy: Tenancy, now: datetime) -> bool:
    until = tenancy.machine.warm_until
    return until is not None and until <= now


def _after_wipe(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    answer: Exception | None,
    now: datetime,
) -> AttemptRecord:
    """The lease ends with the wipe, and with it the Attempt's clock (SC-344)."""
    machine = tenancy.machine
    if answer is None:
        idle = kept_for(record)
        kept = replace(machine, warm_until=now + idle, tries=0, next_try=None)
        if not idle:  # nobody wants it any more
            kept = replace(kept, warm_until=now)
        lease = replace(tenancy.lease, released=now, wiped=now)
        return record.with_tenancy(Tenancy(machine=kept, lease=lease))
    loop.failed_call("wipe", answer)
    log.warning(
        "a machine could not be wiped for its next tenant",
        extra={"attempt": record.attempt.name, "cause": str(answer)},
    )
    if isinstance(answer, Invalid) or machine.tries + 1 >= MOST_WIPES:
        return record.with_tenancy(released(tenancy, now))
    return _later(record, tenancy, now)


def _after_assign(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    answer: Exception | None,
    now: datetime,
) -> AttemptRecord:
    """The program is on the machine; or the machine is not there for it: T12."""
    if answer is None:
        machine = replace(tenancy.machine, tries=0, next_try=None)
        lease = replace(tenancy.lease, assigned=now)
        return record.with_tenancy(Tenancy(machine=machine, lease=lease))
    loop.failed_call("assign", answer)
    log.warning(
        "a warm machine could not be assigned",
        extra={"attempt": record.attempt.name, "cause": str(answer)},
    )
    if not isinstance(answer, Invalid) or record.attempt.stage is not Stage.STARTING:
        return _later(record, tenancy, now)
    lost = CapacityLost(at=now, trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.NODE_LOST)
    return lose_machine(record, tenancy, lost, now)


def _later(record: AttemptRecord, tenancy: Tenancy, now: datetime) -> AttemptRecord:
    machine = tenancy.machine
    wait = retry_wait(machine.tries + 1, machine.key, longest=LONGEST_OF_CALLS)
    again = now + timedelta(seconds=wait)
    moved = replace(machine, tries=machine.tries + 1, next_try=again)
    return record.with_tenancy(replace(tenancy, machine=moved))
