"""A fleet in real time, beside a scheduler that runs in this process (SC-730)."""

import asyncio
import logging

from nodus_api.suppliers.simulated.fleet import Fleet
from nodus_api.suppliers.simulated.reports import Desk

log = logging.getLogger(__name__)

_BUSY, _IDLE = 0.2, 1.0
"""The longest pauses, in seconds, with machines and without: a call may bring the next event on."""
_SHORTEST = 0.01


async def drive(fleet: Fleet, desk: Desk, stop: asyncio.Event) -> None:
    """Let happen what is due and deliver what runners send, until `stop` is set."""
    log.info("simulated machines are driven", extra={"speed": fleet.model.speed})
    while not stop.is_set():
        now = fleet.catch_up()
        await fleet.mail.deliver(desk)
        following = fleet.next_event()
        pause = _BUSY if fleet.present() else _IDLE
        if following is not None:
            pause = min(pause, (following - now).total_seconds())
        await fleet.clock.sleep(max(pause, _SHORTEST))
