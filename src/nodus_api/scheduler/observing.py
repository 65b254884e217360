"""What the supplier says of machines in use: endings, losses, and word that they live (step 6, 8).

Evidence waits until the machine's queued reports are applied: what the runner said first
decides (SC-014).
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from nodus_api.kernel import events
from nodus_api.kernel.attempt import Attempt
from nodus_api.kernel.errors import IllegalTransition
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import MachineState, Market, Reason, Stage, Trigger
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.deliveries import note_starts
from nodus_api.scheduler.drilling import as_drilled
from nodus_api.scheduler.hearing import Ending, ended
from nodus_api.scheduler.told_times import possible
from nodus_api.storage.batch import Batch
from nodus_api.storage.machine_store import Sighting
from nodus_api.storage.records import AttemptRecord, Tenancy
from nodus_api.storage.report_store import waiting_reports
from nodus_api.suppliers.supplier import MachineCondition, MachineView

log = logging.getLogger(__name__)

MISSED_LISTS = 3
"""So many looks without a granted machine are evidence of its loss (SC-612)."""

SEEN_EVERY = timedelta(seconds=30)
"""How often a machine that runs is written as seen, before its runner speaks (SC-508)."""

_ENDED = (MachineCondition.GONE, MachineCondition.FAILED)
_IN_USE = (MachineState.GRANTED, MachineState.REGISTERED)


class Watch:
    """What the last looks have shown. Lost with the process, and rebuilt by the next looks."""

    def __init__(self) -> None:
        self.asked = False
        """Whether the supplier was asked in this reign, and answered or failed to."""
        self.running: dict[int, datetime] = {}
        """Machines that the supplier vouched for, and when."""
        self._missed: dict[int, int] = {}

    def look(
        self, sightings: list[Sighting], views: Mapping[str, MachineView], now: datetime
    ) -> None:
        """Count what one answer, taken up at `now`, shows and what it lacks.

        An answer that shows none of several machines is an outage and counts for nothing.
        """
        shown = [(one.no, views.get(one.handle or "")) for one in sightings]
        alive = {no: now for no, view in shown if view and view.condition not in _ENDED}
        numbers = {one.no for one in sightings}
        self.running = {no: at for no, at in self.running.items() if no in numbers} | alive
        missing = [no for no, view in shown if view is None]
        if not 1 < len(shown) == len(missing):
            self._missed = {no: self._missed.get(no, 0) + 1 for no in missing}

    def lost(self, number: int) -> bool:
        """Whether a machine was missing often enough to be evidence."""
        return self._missed.get(number, 0) >= MISSED_LISTS


async def observe_machines(loop: LoopContext, watch: Watch, *, look: bool) -> None:
    """Apply what the last look at the machines in use has shown; with `look`, look again."""
    answers = loop.calls.observations.returned()
    sightings = await loop.machines.observable() if answers or look else []
    for answer in answers.values():
        watch.asked = True
        if isinstance(answer, Exception):
            loop.failed_call("observe", answer)
            log.warning("the supplier could not be asked", extra={"cause": str(answer)})
        else:
            await _apply(loop, watch, sightings, answer)
    handles = [one.handle for one in sightings if one.handle is not None]
    if look and handles:
        loop.calls.observations.send("in use", partial(loop.supplier.observe, handles))


async def _apply(
    loop: LoopContext, watch: Watch, sightings: list[Sighting], views: Mapping[str, MachineView]
) -> None:
    watch.look(sightings, views, await loop.agenda.now())

    async def work(batch: Batch) -> None:
        waiting = await waiting_reports(batch.connection, list(batch.records))
        for record in list(batch.records.values()):
            for tenancy in record.held:
                number = tenancy.machine.no or 0
                view = views.get(tenancy.machine.handle or "")
                if tenancy.machine.state in _IN_USE and number not in waiting:
                    record = _observed(loop, watch, record, tenancy, view, batch.now)
            batch.put(record)
        await note_starts(loop, batch)

    telling = [one for one in sightings if _tells(one, views, watch)]
    await loop.in_batches("observe", sorted({one.attempt for one in telling}), work)


def _tells(sighting: Sighting, views: Mapping[str, MachineView], watch: Watch) -> bool:
    """Whether what was seen may move a row; of a registered machine that runs, nothing does."""
    view = views.get(sighting.handle or "")
    if view is None:
        return watch.lost(sighting.no)
    return view.condition in _ENDED or sighting.state != MachineState.REGISTERED


def _observed(
    loop: LoopContext,
    watch: Watch,
    record: AttemptRecord,
    tenancy: Tenancy,
    view: MachineView | None,
    now: datetime,
) -> AttemptRecord:
    if not record.attempt.live:
        return record
    number = tenancy.machine.no or 0
    if view is None:
        return _lost(loop, record, tenancy, None, now) if watch.lost(number) else record
    if view.condition not in _ENDED:
        return _seen(record, now)
    try:
        if view.exit is not None:
            ending = Ending.recorded(view.exit, now, loop.metrics)
            return ended(loop, record, tenancy, ending, now)
    except IllegalTransition:
        loop.metrics.dropped.labels(event="exit").inc()
    return _lost(loop, record, tenancy, view, now)


def _seen(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """Raise the watermark of a machine whose runner has not spoken yet (SC-508)."""
    last = record.work.watermark
    if record.attempt.registered is not None or (last is not None and now - last < SEEN_EVERY):
        return record
    return replace(record, work=replace(record.work, watermark=now))


def _last_sign(attempt: Attempt) -> datetime | None:
    """Return the last instant at which a program's machine is known to have worked (SC-008).

    That is its end where the supplier does not know it, since we may look long after. Before the
    program nothing worked, and nothing is charged.
    """
    return attempt.last_heartbeat if attempt.stage is Stage.RUNNING else None


def _lost(
    loop: LoopContext,
    record: AttemptRecord,
    tenancy: Tenancy,
    view: MachineView | None,
    now: datetime,
) -> AttemptRecord:
    """T12 or T15 by the supplier's evidence, at its own time within what is known (SC-015)."""
    last = _last_sign(record.attempt)
    at = last or now
    if view is not None and view.ended_at is not None:
        at = possible(loop.metrics, view.ended_at, of="loss", now=now, since=last)
    reclaimed = view is not None and view.reclaimed and tenancy.machine.market is Market.SPOT
    event = events.CapacityLost(
        at=at,
        trigger=Trigger.PROVIDER_EVIDENCE,
        reason=Reason.PREEMPTED if reclaimed else Reason.NODE_LOST,
    )
    if record.attempt.stage not in (Stage.STARTING, Stage.RUNNING):
        return record
    event = as_drilled(record, event, now)
    log.warning(
        "a machine is lost",
        extra={"attempt": record.attempt.name, "reason_text": event.reason.value},
    )
    return record.moved(advance(record.attempt, event))
