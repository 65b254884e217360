"""Reports on their way: at once, late, out of order, or twice (SC-732)."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from nodus_api.suppliers.simulated.faults import FaultKind
from nodus_api.suppliers.simulated.programs import name_of
from nodus_api.suppliers.simulated.reports import Answer, Desk, Letter, Outgoing
from nodus_api.tasks import spawn

if TYPE_CHECKING:
    from datetime import datetime

    from nodus_api.suppliers.simulated.fleet import Fleet

_LATEST = timedelta(minutes=5)
_OVERTAKEN = (timedelta(seconds=1), timedelta(seconds=15))
AT_ONCE = 4
"""Reports that are delivered side by side; what a fleet does with the answers keeps their order."""


@dataclass(slots=True, eq=False)
class Mail:
    """What runners have sent and nobody has delivered yet."""

    fleet: "Fleet"
    delivered: int = 0
    _out: deque[Outgoing] = field(default_factory=deque)

    @property
    def waiting(self) -> bool:
        """Whether anything is to be delivered now."""
        return bool(self._out)

    def post(self, letter: Letter, at: "datetime") -> None:
        """Send a report: most leave at once, and their sender repeats them until answered."""
        fleet, sender = self.fleet, letter.sender
        name = name_of(sender.intent)
        occasion, names = f"{name}/{letter.n}", (name, sender.intent.key)
        chance = fleet.chance.of(occasion)
        sender.expect(at)
        if fleet.hits(FaultKind.REPORT_LATE, occasion, names=names):
            late = at + chance.between("late", timedelta(0), _LATEST)
            fleet.timetable.put(late, lambda _: self._out.append(Outgoing(letter, heard=False)))
        elif letter.kind == "heartbeat" and fleet.hits(
            FaultKind.REPORT_REORDERED, occasion, names=names
        ):
            late = at + chance.between("overtaken", *_OVERTAKEN)
            fleet.timetable.put(late, lambda _: self._out.append(Outgoing(letter, heard=False)))
            sender.gave_up(letter, at)
        else:
            self._out.append(Outgoing(letter))

    async def deliver(self, desk: Desk) -> int:
        """Bring everything that is out to the desk, and each answer to its runner.

        Returns how many reports there were. What the desk raises is raised.
        """
        delivered = 0
        while self._out:
            some = [self._out.popleft() for _ in range(min(AT_ONCE, len(self._out)))]
            tasks = [spawn("report of a simulated runner", self._bring(desk, one)) for one in some]
            await asyncio.gather(*tasks)
            now = self.fleet.clock.now()
            for one, task in zip(some, tasks, strict=True):
                if one.heard:
                    one.letter.sender.hear(one.letter, task.result(), now)
            delivered += len(some)
        self.delivered += delivered
        return delivered

    async def _bring(self, desk: Desk, one: Outgoing) -> Answer:
        token = one.letter.sender.intent.token
        return await desk.report(token, one.letter.content(self.fleet.clock.now()))
