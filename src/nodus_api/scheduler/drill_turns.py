"""Drills by a schedule: so many an hour a project, drawn by its seed (SC-630).

A turn is a command like an operator's: it is refused, made and answered in the same way, and
stays in `commands` for whoever wants to know.
"""

import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from nodus_api.kernel.drills import USUAL_NOTICE, Loss, drawn, next_drill, stages_of
from nodus_api.scheduler.context import LoopContext
from nodus_api.storage.drill_store import DrillSchedule

log = logging.getLogger(__name__)

_TURNS_MISSED = 1000
"""After so many turns that nobody took, the schedule begins anew."""


async def take_turns(loop: LoopContext) -> None:
    """Ask for a drill in each project whose turn has come, if there is one to be drilled."""
    for project in await loop.agenda.projects("drill turns"):
        await loop.item("drill turns", project, partial(_take_turn, loop, project))


async def _take_turn(loop: LoopContext, project: str) -> None:
    async with loop.drills.turn(loop.reign.token, project) as turn:
        if turn is None:
            return
        schedule, at = turn.schedule, turn.schedule.next_at
        if at is not None and at <= turn.now:
            loss = Loss(schedule.trigger)
            name = drawn(schedule.seed, at, await turn.candidates(stages_of(loss)))
            if name is not None:
                key = f"drill/{project}/{at.isoformat()}"
                await turn.ask(name, _body(loss), key)
                log.info("a scheduled drill is asked for", extra={"attempt": name})
        if at is None or at <= turn.now:
            await turn.put_off(_after(schedule, turn.now))


def _after(schedule: DrillSchedule, now: datetime) -> datetime:
    """Return the first turn that lies ahead: turns that nobody took are not made up for."""
    at = schedule.next_at
    if at is not None:
        for _ in range(_TURNS_MISSED):
            at = next_drill(schedule.seed, at, schedule.per_hour)
            if at > now:
                return at
    return next_drill(schedule.seed, now, schedule.per_hour)


def _body(loss: Loss) -> dict[str, Any]:
    notice = {"noticeSeconds": USUAL_NOTICE // timedelta(seconds=1)}
    return {"trigger": loss.value} | (notice if loss is Loss.PREEMPTION else {})
