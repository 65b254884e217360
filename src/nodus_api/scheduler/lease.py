"""Who leads: one loop at a time, any number of standbys (SC-601 to SC-604).

A leader holds an advisory lock on a connection of its own and the current token. When that
connection drops, or another token is the current one, it steps down: its work is cancelled
before anything else runs, and whatever it still had under way is refused by the fence.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from nodus_api.clock import Clock
from nodus_api.outages import Outage
from nodus_api.storage.errors import FencedOff, StorageError
from nodus_api.storage.leader_store import LeaderLine, LeaderStore, Reign
from nodus_api.tasks import end, spawn

log = logging.getLogger(__name__)

TRY_EVERY_SECONDS = 2.0
BEAT_EVERY_SECONDS = 1.0


class Leadership:
    """Campaigns for the lead and runs `reign` while it is held.

    `reign` gets the new leader's token and what else it must know; it is cancelled when
    the lead is lost, and awaited before the next campaign.
    """

    def __init__(
        self,
        store: LeaderStore,
        clock: Clock,
        *,
        holder: str,
        reign: Callable[[Reign], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._reign = reign
        self._wake = wake
        self._outage = Outage(
            log, begins="the lead is lost or out of reach", over="the lead is held again"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by, lead, and stand by again, until `stop` is set."""
        stopping = spawn("stop of the scheduler", stop.wait())
        try:
            while not stop.is_set():
                campaign = spawn("campaign for the lead", self._campaign())
                await asyncio.wait({campaign, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not campaign.done():
                    await end(campaign)
                elif await self._wait_again(campaign, stopping):
                    continue
        finally:
            await end(stopping)

    async def _wait_again(
        self, campaign: "asyncio.Task[None]", stopping: "asyncio.Task[bool]"
    ) -> bool:
        """Say why a campaign ended, and wait for the next; True if it is time for it."""
        error = campaign.exception()
        if isinstance(error, StorageError):
            self._outage.failed(error)
        elif error is not None:
            log.error("the lead ended by an error", exc_info=error)
        pause = spawn("pause between campaigns", self._clock.sleep(TRY_EVERY_SECONDS))
        await asyncio.wait({pause, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await end(pause)
        return True

    async def _campaign(self) -> None:
        """Try for the lock each 2 s; lead once it is held, until something ends it."""
        async with self._store.line() as line:
            while not await line.try_lock():
                await self._clock.sleep(TRY_EVERY_SECONDS)
            await self._lead(line)

    async def _lead(self, line: LeaderLine) -> None:
        lost = asyncio.Event()
        await line.listen(self._wake, lost.set)
        reign = await self._store.take_over(self._holder)
        if reign.epoch_began is not None:
            log.warning(
                "the database is another server than before, or was promoted: a new epoch of"
                " revisions begins, and whoever saw commits that were lost lists again",
                extra={"rev": reign.epoch_began},
            )
        log.info(
            "this scheduler leads",
            extra={"token": reign.token, "seconds_without_leader": reign.away.total_seconds()},
        )
        parts = {
            spawn("leader's passes", self._run_reign(reign)),
            spawn("leader's heartbeat", self._beat(line, reign.token)),
            spawn("leader's line", self._watch_line(lost)),
        }
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _end_all(parts)

    async def _run_reign(self, reign: Reign) -> None:
        await self._reign(reign)

    async def _beat(self, line: LeaderLine, token: int) -> None:
        """Write the sign of life each second, and see that the line is alive."""
        while True:
            await line.check()
            await self._store.beat(token)
            self._outage.passed()
            await self._clock.sleep(BEAT_EVERY_SECONDS)

    async def _watch_line(self, lost: asyncio.Event) -> None:
        await lost.wait()
        raise FencedOff("the connection that holds the leader's lock ended")


async def _end_all(tasks: Collection["asyncio.Task[None]"]) -> None:
    """Cancel tasks and wait for all of them, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
