"""Losses made on purpose: asked for, written down, and only then made (SC-630, SC-607).

The row comes first, so that whatever becomes of the call, a loss that follows is known as the
drill's. The call names the machine of this one Attempt: repeated after a crash, it can hit no
successor, and the supplier makes the same fault of one machine once.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from nodus_api.kernel import drills
from nodus_api.kernel.drills import Drill, Loss
from nodus_api.kernel.events import CapacityLost
from nodus_api.kernel.vocabulary import Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.setbacks import LONGEST_OF_CALLS
from nodus_api.scheduler.settling import settle
from nodus_api.storage import due
from nodus_api.storage.batch import Batch
from nodus_api.storage.machine_store import Sighting
from nodus_api.storage.records import AttemptRecord, Command
from nodus_api.storage.workload_store import WorkloadEdit
from nodus_api.suppliers.supplier import FaultInjection

log = logging.getLogger(__name__)

_INJECT = "inject into a machine"
"""The name of failing injections among the setbacks: each is tried again after 1 s to 60 s."""


def drill_of(record: AttemptRecord) -> Drill | None:
    """Return the drill that was asked for an Attempt; None without one."""
    work = record.work
    if work.drill is None or work.drill_at is None:
        return None
    return Drill.of_text(work.drill, work.drill_at)


def with_drill(record: AttemptRecord, drill: Drill | None) -> AttemptRecord:
    """Return the record with another drill, or with none."""
    text, since = (None, None) if drill is None else (drill.to_text(), drill.since)
    return replace(record, work=replace(record.work, drill=text, drill_at=since))


def as_drilled(record: AttemptRecord, event: CapacityLost, now: datetime) -> CapacityLost:
    """Return a loss as the drill's that is in force, else as it is (SC-014)."""
    return drills.put_down(event, record.attempt, drill_of(record), now)


async def take_drill(loop: LoopContext, command: Command) -> str:
    """Write down the drill that a command asks for, and answer it; return the outcome."""
    nos = await loop.attempts.nos(due.named(command.project, command.target))
    async with loop.attempts.batch(loop.reign.token, nos) as batch:
        outcome, message = "NotFound", f"there is no such Attempt in project {command.project}"
        for record in [batch.records[no] for no in nos if no in batch.records]:
            # of a gang the batch holds the other ranks too, and those are not drilled
            outcome, message = "Applied", ""
            why = _refusal(loop, record, command, batch.now)
            if why is None:
                batch.put(with_drill(record, _asked(command, batch.now)))
            else:
                outcome, message = "Refused", why
        settle(batch, warm=loop.supplier.caps.warm)
        edit = WorkloadEdit(connection=batch.connection, now=batch.now, workload=None)
        await edit.answer(command, outcome, message or None)
    return outcome


def _asked(command: Command, now: datetime) -> Drill:
    """Return what a command asks for, once `_refusal` has found nothing wrong with its body."""
    seconds = command.body.get("noticeSeconds")
    notice = None if seconds is None else timedelta(seconds=seconds)
    return Drill(loss=Loss(command.body["trigger"]), since=now, notice=notice)


def _refusal(
    loop: LoopContext, record: AttemptRecord, command: Command, now: datetime
) -> str | None:
    caps = loop.supplier.caps
    wrong = _wrong(command.body.get("trigger"), command.body.get("noticeSeconds"))
    if wrong is not None:
        return wrong
    asked = _asked(command, now)
    if not caps.inject:
        return "its supplier cannot make faults on purpose: drill an Attempt of another"
    if asked.notice and not caps.notices:
        return "its supplier announces no reclaims: give --notice 0s"
    standing = drill_of(record)
    if standing is not None and standing.in_force(record.attempt, now):
        return f"a {standing.loss} drill of it is under way since {standing.since:%H:%M:%S} UTC"
    return drills.refusal(record.attempt, asked.loss)


def _wrong(trigger: object, seconds: object) -> str | None:
    """Return what no drill can be asked by, whoever wrote the command; None if nothing is wrong."""
    if trigger not in tuple(Loss):
        return f"{trigger!r} is no trigger of a drill: use one of {', '.join(Loss)}"
    if seconds is None:
        return None
    if trigger != Loss.PREEMPTION:
        return f"a {trigger} comes without a notice: leave --notice out"
    longest = drills.LONGEST_NOTICE // timedelta(seconds=1)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= longest:
        return "a notice is of 0 s to 1 h, in whole seconds: give another --notice"
    return None


async def make_faults(loop: LoopContext) -> None:
    """Note which faults the supplier has made, drop drills that are void, and call for the rest."""
    answers = loop.calls.injections.returned()
    if not await loop.agenda.any("drill"):
        return
    sightings = await loop.machines.drilled()
    now, at = await loop.agenda.now(), loop.clock.monotonic()
    made = _made(loop, answers, at)
    wanted: dict[int, tuple[str, FaultInjection]] = {}

    async def work(batch: Batch) -> None:
        for record in list(batch.records.values()):
            record = _after_calls(record, made, batch.now)
            drill = drill_of(record)
            if drill is not None and not drill.made:
                fault = FaultInjection(kind=drill.loss.value, notice=drill.notice)
                for one in record.kept:  # not a machine that lost its race (SC-342)
                    if one.machine.no is not None and one.machine.handle is not None:
                        wanted[one.machine.no] = one.machine.handle, fault
            batch.put(record)

    open_ones = {one.attempt for one in sightings if one.no in answers or _open(one, now)}
    await loop.in_batches("drill", sorted(open_ones), work)
    for no, (handle, fault) in wanted.items():
        if no not in answers and loop.setbacks.over((_INJECT, no), at):
            loop.calls.injections.send(no, partial(loop.supplier.inject, handle, fault))
    loop.notices_due |= bool(made)


def _made(loop: LoopContext, answers: Mapping[int, Exception | None], at: float) -> set[int]:
    """Return the machines that were hit; the calls that failed are tried again later."""
    made = set()
    for no, answer in answers.items():
        if isinstance(answer, Exception):
            loop.failed_call("inject", answer)
            wait = loop.setbacks.failed((_INJECT, no), at, longest=LONGEST_OF_CALLS)
            log.warning(
                "a drill's fault could not be made and is tried again",
                extra={"cause": str(answer), "retry_seconds": wait},
            )
        else:
            loop.setbacks.passed((_INJECT, no))
            made.add(no)
    return made


def _open(sighting: Sighting, now: datetime) -> bool:
    """Whether a drill's fault is yet to be made, or the drill may be void."""
    drill = Drill.of_text(sighting.details["drill"], sighting.details["drill_at"])
    return not drill.made or now >= drill.void_at


def _after_calls(record: AttemptRecord, made: set[int], now: datetime) -> AttemptRecord:
    """Mark the drill of a machine that was hit; drop one that is void, or comes after a stop."""
    drill, attempt = drill_of(record), record.attempt
    if drill is None:
        return record
    drains = attempt.drain is not None and attempt.drain.trigger is Trigger.DRILL
    if drains or any(one.machine.no in made for one in record.held):
        drill = replace(drill, made=True)  # its notice proves it, if the answer was lost
    overtaken = attempt.drain is not None and not drill.made
    if overtaken or not drill.in_force(attempt, now):
        log.info("a drill is void", extra={"attempt": attempt.name, "drill": drill.loss.value})
        return with_drill(record, None)
    return with_drill(record, drill)
