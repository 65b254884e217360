"""What runners say, applied to their Attempts: in order of n, each once (SC-641, SC-606 step 7).

The final report may come by the network or be read from the machine (SC-644); both are
an `Ending` here, and take the same way.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodus_api.kernel import events
from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.gang import all_registered
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.moments import clamped
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage, Trigger
from nodus_api.scheduler.checkpointing import proposed
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.deliveries import note_starts
from nodus_api.scheduler.drilling import as_drilled
from nodus_api.scheduler.ganging import save_together
from nodus_api.scheduler.lasting import program_began, session_used
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.racing import lose_machine, win, winners_start, with_winner_shown
from nodus_api.scheduler.report_bodies import kept_text
from nodus_api.scheduler.settling import ranks_with
from nodus_api.scheduler.told_times import possible
from nodus_api.storage.batch import Batch
from nodus_api.storage.records import AttemptRecord, LastWords, Report, Tenancy
from nodus_api.storage.report_store import waiting_reports
from nodus_api.suppliers.supplier import ExitRecord

log = logging.getLogger(__name__)

_START_FAULTS = {
    "ImagePullFailed": Reason.IMAGE_PULL_FAILED,
    "StartFailed": Reason.START_FAILED,
    "RestoreFailed": Reason.RESTORE_FAILED,
    "CheckpointUnavailable": Reason.CHECKPOINT_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a program ended. `started` is None if it never did; `stopped`: after a stop signal.

    `restored` is the bytes of the checkpoint that it went on from.
    """

    at: datetime
    exit_code: int | None
    signal: int | None = None
    oom: bool = False
    started: datetime | None = None
    stopped: bool = False
    restored: int | None = None
    error: str | None = None
    message: str = ""

    @classmethod
    def reported(cls, report: Report) -> "Ending":
        """Read the report `exited`; its ages count back from its receipt (SC-615)."""
        body = report.body
        start_age = body.get("startAgeMs")
        return cls(
            at=report.event_at,
            exit_code=body.get("exitCode"),
            signal=body.get("signal"),
            oom=bool(body.get("oom", False)),
            started=None if start_age is None else report.received - _ms(start_age),
            stopped=body.get("stopAgeMs") is not None,
            restored=body.get("restoreBytes"),
            error=body.get("error"),
            message=body.get("message", ""),
        )

    @classmethod
    def recorded(cls, record: ExitRecord, now: datetime, metrics: LoopMetrics) -> "Ending":
        """Read what the supplier found on the machine; its clock may be off (SC-615)."""
        at = possible(metrics, record.at, of="exit", now=now)
        started = record.started_age
        return cls(
            at=at - timedelta(seconds=record.exit_age),
            exit_code=record.exit_code,
            signal=record.signal,
            oom=record.oom,
            started=None if started is None else at - timedelta(seconds=started),
            stopped=record.stop_age is not None,
            restored=record.restored_bytes,
            error=record.error,
            message=kept_text(record.message),
        )


async def apply_reports(loop: LoopContext) -> bool:
    """Apply every report that waits; return whether there was one."""
    nos = await loop.agenda.attempts("reports")

    async def work(batch: Batch) -> None:
        waiting = await waiting_reports(batch.connection, list(batch.records))
        holders = _holders(batch)
        for report in _as_they_happened(waiting):
            for no in holders.get(report.machine, ()):
                record = batch.records[no]
                batch.put(_apply(loop, record, report, batch.now))
                if report.kind == "checkpoint":
                    save_together(batch, record)
            batch.reported.add(report.machine)
        for record in list(batch.records.values()):
            batch.put(replace(record, unheard=False))
        for record in list(batch.records.values()):
            before, ranks = batch.loaded[record.no or 0], ranks_with(batch, record)
            batch.put(_start_granted(record, before, waiting, ranks, batch.now))
        await note_starts(loop, batch)

    await loop.in_batches("reports", nos, work)
    return bool(nos)


def _as_they_happened(waiting: Mapping[int, Sequence[Report]]) -> list[Report]:
    """Put reports in order: of one machine by n, of several by the moment that they tell of.

    What ranks saved before one of them ended is so heard before the end (SC-142), whichever
    reports one pass happens to find; of one moment the end comes last.
    """
    placed: list[tuple[datetime, bool, int, int, Report]] = []
    for machine, reports in waiting.items():
        at, over = reports[0].event_at, False
        for place, one in enumerate(reports):
            at, over = max(at, one.event_at), over or one.kind == "exited"
            placed.append((at, over, machine, place, one))
    return [one for *_, one in sorted(placed, key=lambda entry: entry[:4])]


def _holders(batch: Batch) -> Mapping[int, Sequence[int]]:
    """Return the Attempts of the batch that have, or had, each machine."""
    holders: dict[int, list[int]] = {}
    for no, record in batch.records.items():
        for tenancy in record.tenancies:
            holders.setdefault(tenancy.machine.no or 0, []).append(no)
    return holders


def _apply(
    loop: LoopContext, record: AttemptRecord, report: Report, now: datetime
) -> AttemptRecord:
    """Apply one report, or drop it: a replay, or one that its Attempt has outlived."""
    tenancy = next(one for one in record.tenancies if one.machine.no == report.machine)
    lease = tenancy.lease
    if not tenancy.open or report.fence != lease.fence or report.n <= lease.last_report:
        return record
    heard = replace(tenancy, lease=replace(tenancy.lease, last_report=report.n))
    record = record.with_tenancy(heard)
    if not record.attempt.live or heard not in record.kept:
        return record  # what a machine says that has lost its race is no sign of the Attempt
    try:
        return _hear(loop, record, heard, report, now)
    except IllegalTransition as error:
        loop.metrics.dropped.labels(event=report.kind).inc()
        log.warning(
            "a runner's report contradicts its attempt and is dropped",
            extra={"attempt": record.attempt.name, "kind": report.kind, "cause": str(error)},
        )
        return record


def _hear(
    loop: LoopContext, record: AttemptRecord, tenancy: Tenancy, report: Report, now: datetime
) -> AttemptRecord:
    at = min(report.event_at, now)
    match report.kind:
        case "registered":
            return _registered(loop, record, tenancy, report, now)
        case "canStart":
            return record  # answered once all that came with it is heard: `_start_granted`
        case "started" if tenancy.lease.won:
            restored = report.body.get("restoreBytes")
            return started(loop, record, tenancy, at, restore_bytes=restored)
        case "started":
            raise IllegalTransition(record.attempt.stage, events.CommandStarted(at=at))
        case "heartbeat":
            return _heartbeat(loop, record, report, at)
        case "checkpoint":
            return session_used(proposed(record, tenancy, report, at), at)
        case "notice":
            return record  # a supplier's notice comes by the supplier
        case "exited":
            return ended(loop, record, tenancy, Ending.reported(report), now)
        case _:
            return _move(loop, record, events.Heartbeat(at=at))


def _heartbeat(
    loop: LoopContext, record: AttemptRecord, report: Report, at: datetime
) -> AttemptRecord:
    """Take a sign of life; `activeAgeMs` tells when the program last said something."""
    alive = _move(loop, record, events.Heartbeat(at=at))
    age = report.body.get("activeAgeMs")
    return alive if age is None else session_used(alive, min(report.received - _ms(age), at))


def _registered(
    loop: LoopContext, record: AttemptRecord, tenancy: Tenancy, report: Report, now: datetime
) -> AttemptRecord:
    """T9, or T12 if the machine failed its checks."""
    at = min(report.event_at, now)
    failed = report.body.get("checks", {}).get("failed")
    if failed:
        lost = events.CapacityLost(
            at=at, trigger=Trigger.READINESS_FAILED, reason=Reason.READINESS_FAILED
        )
        return _lose(loop, record, tenancy, as_drilled(record, lost, now), now)
    pull_ms = report.body.get("pullMs")
    pull = None if pull_ms is None else int(pull_ms) // 1000
    event = events.Registered(at=at, pull_seconds=pull)
    if tenancy.machine.state is MachineState.GRANTED:
        machine = replace(tenancy.machine, state=MachineState.REGISTERED, registered=at)
        lease = replace(tenancy.lease, pull_seconds=pull)
        record = record.with_tenancy(replace(tenancy, machine=machine, lease=lease))
    return _move(loop, record, event)


def _start_granted(
    record: AttemptRecord,
    before: AttemptRecord,
    waiting: Mapping[int, Sequence[Report]],
    ranks: Sequence[Attempt],
    now: datetime,
) -> AttemptRecord:
    """Grant a start that was asked for, unless a later report made it void.

    So nothing heard in one transaction can build on a grant that nobody was told of yet. Of a gang
    (`ranks`, the Attempt's own among them) none starts before all are registered (SC-133).
    """
    if not all_registered(ranks):
        return record  # it asks again
    heard = {one.machine.no: one.lease.last_report for one in before.tenancies}
    asked: list[tuple[datetime, int, Tenancy]] = []
    for tenancy in record.kept:
        number, last = tenancy.machine.no or 0, tenancy.lease.last_report
        new = range(heard.get(number, last) + 1, last + 1)
        asked += [
            (one.event_at, number, tenancy)
            for one in waiting.get(number, ())
            if one.kind == "canStart" and one.n in new
        ]
    for _, _, tenancy in sorted(asked, key=lambda one: one[:2]):
        record = _may_start(record, tenancy, now)
    return record


def _may_start(record: AttemptRecord, tenancy: Tenancy, now: datetime) -> AttemptRecord:
    """The start CAS: the first machine that asks wins, and none while a stop is ordered (SC-341).

    The statement that writes it, `win_start`, looks again.
    """
    attempt = record.attempt
    wanted = attempt.stage is Stage.STARTING and attempt.drain is None
    taken = any(one.lease.won for one in record.tenancies)
    if not wanted or taken or tenancy.machine.state is not MachineState.REGISTERED:
        return record
    return win(record, tenancy, now)


def started(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    at: datetime,
    *,
    restore_bytes: int | None = None,
) -> AttemptRecord:
    """T10; the limit is now the program's own (limits.maxDurationSeconds, idleTimeoutSeconds)."""
    event = events.CommandStarted(at=at, restore_bytes=restore_bytes)
    record = _move(loop, record, winners_start(record, tenancy, event))
    record = with_winner_shown(record, tenancy)
    record = program_began(record)
    return replace(record, work=replace(record.work, hedge_at=None))


def ended(
    loop: LoopContext, record: AttemptRecord, tenancy: Tenancy, ending: Ending, now: datetime
) -> AttemptRecord:
    """T11, T13, T14, T15 or T17; T10 before it if only the ending tells of the start (SC-644)."""
    moved = _ended(loop, record, tenancy, ending, now)
    if not ending.message or moved.attempt.live:
        return moved
    words = LastWords(machine=tenancy.machine.no or 0, at=now, message=ending.message)
    return replace(moved, last_words=words)


def _ended(
    loop: LoopContext, record: AttemptRecord, tenancy: Tenancy, ending: Ending, now: datetime
) -> AttemptRecord:
    at = min(ending.at, now)
    attempt = record.attempt
    if attempt.stage is Stage.STARTING and ending.started is not None and tenancy.lease.won:
        since = min(ending.started, at)
        record = started(loop, record, tenancy, since, restore_bytes=ending.restored)
        attempt = record.attempt
    if attempt.stage is Stage.STARTING:
        return _never_started(loop, record, tenancy, ending, at, now)
    if ending.exit_code is None and ending.signal is None:  # no end of a program that ran
        return _move(loop, record, events.RunFault(at=at, reason=Reason.INTERNAL_ERROR))
    return _move(
        loop,
        record,
        events.Exited(
            at=at,
            exit_code=ending.exit_code or 0,
            signal=ending.signal,
            oom=ending.oom,
            stopped=ending.stopped,
        ),
    )


def _never_started(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    ending: Ending,
    at: datetime,
    now: datetime,
) -> AttemptRecord:
    """The runner ended before the program: a stop it obeyed, or a start that failed.

    A stop that nobody here ordered came from whoever has the machine: that is its loss (T12).
    """
    if record.attempt.drain is not None and ending.error is None:
        return _move(loop, record, events.StopCompleted(at=at))
    if ending.stopped and ending.error is None:
        lost = events.CapacityLost(
            at=at, trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.NODE_LOST
        )
        return _lose(loop, record, tenancy, as_drilled(record, lost, now), now)
    reason = _START_FAULTS.get(ending.error or "", Reason.INTERNAL_ERROR)
    return _move(loop, record, events.StartFault(at=at, reason=reason))


def _lose(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    lost: events.CapacityLost,
    now: datetime,
) -> AttemptRecord:
    """T12 or T15; of two machines that race, only this one is lost (SC-342)."""
    after = lose_machine(record, tenancy, lost, now)
    if not after.attempt.live and clamped(record.attempt, lost):
        loop.metrics.clamped.labels(event=type(lost).__name__).inc()
    return after


def _move(loop: LoopContext, record: AttemptRecord, event: events.Event) -> AttemptRecord:
    if clamped(record.attempt, event):
        loop.metrics.clamped.labels(event=type(event).__name__).inc()
    return record.moved(advance(record.attempt, event))


def _ms(value: Any) -> timedelta:
    return timedelta(milliseconds=float(value))
