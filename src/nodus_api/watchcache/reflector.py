"""Loads the cache from one snapshot of the database and follows the log, row by row.

Every row must be the next one, or the marker of an epoch that begins where the cache stands;
anything else is a fault: reload, and end all watches (storage.md sections 1, 6 and 8).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from nodus_api.clock import Clock, give_way
from nodus_api.storage.errors import StorageError
from nodus_api.tasks import Crashes, end, spawn
from nodus_api.watchcache.contents import Contents, FeedFault
from nodus_api.watchcache.history import Window
from nodus_api.watchcache.source import Change, ChangeFeed, Wakeups

PIECE = 1000
POLL_SECONDS = 0.25
RETRY_SECONDS = (0.1, 3.0)

log = logging.getLogger(__name__)


class Doubted(FeedFault):
    """What is held was found to be wrong, by another than the log."""


class Sink(Protocol):
    """Who is told of what the reflector did; the calls are made within one loop step."""

    def loaded(self, contents: Contents) -> None:
        """A load is complete and takes the place of what was there."""
        ...

    def moved(self, touched: Sequence[str], markers: Sequence[tuple[int, int]]) -> None:
        """Commits were applied; `markers` are (prev_last, first_rev) of epochs that began."""
        ...

    def faulted(self) -> None:
        """What is held is not the history that counts; a load follows."""
        ...


@dataclass(slots=True)
class FeedHealth:
    """How the following goes, for metrics and health checks; times are monotonic seconds."""

    connected: bool = False
    refused: bool = False  # the last try to reach Postgres failed
    cut_off_since: float | None = None
    equal_since: float | None = None  # when the position was last known to be the head
    head: int = 0
    reloads: int = 0
    faults: int = 0
    received: int = 0


class Reflector:
    """The one task of a process that reads the log."""

    def __init__(
        self,
        feed: ChangeFeed,
        sink: Sink,
        *,
        clock: Clock,
        chance: Callable[[], float],
        window: Window,
    ) -> None:
        self._feed = feed
        self._sink = sink
        self._clock = clock
        self._chance = chance
        self._window = window
        self._contents: Contents | None = None
        self._read_to = 0
        self._held: list[Change] = []  # read, and not applied: the end of their commit is not seen
        self._kicked = asyncio.Event()
        self._doubted = False
        self._tries = 0
        self.health = FeedHealth()
        self.crashes = Crashes(clock)

    def kick(self) -> None:
        """Read now: somebody knows of a newer revision."""
        self._kicked.set()

    def doubt(self) -> None:
        """Load anew: somebody found that what is held is wrong, and has said so."""
        self._doubted = True
        self.kick()

    async def run(self) -> None:
        """Load and follow until cancelled; every failure is logged and tried again."""
        while True:
            try:
                await self._session()
            except FeedFault as fault:
                self._fault(fault)
                await self._pause()
            except StorageError as error:
                await self._retry(error)
            except Exception:
                log.exception("the watch cache crashed and starts again")
                self.crashes.note()
                self._contents = None
                await self._pause()

    # -- one session with the database ---------------------------------------------------------

    async def _session(self) -> None:
        contents = self._contents or await self._load()
        async with self._feed.listen() as wakeups:
            await self._check_state(contents)
            await self._follow(contents, wakeups)

    async def _load(self) -> Contents:
        contents = Contents(self._window)
        contents.continue_key = await self._feed.continue_key()
        async with self._feed.snapshot(self._window.stubs) as snapshot:
            async for objects in snapshot.objects():
                contents.add(objects)
                await give_way()
            backfill = [row async for rows in snapshot.backfill() for row in rows]
            contents.loaded(snapshot.state, backfill, self._clock.monotonic())
        self._contents = contents
        self._read_to = contents.position
        self._held.clear()
        self.health.reloads += 1
        self._is_connected(contents, contents.position)
        self._sink.loaded(contents)
        if contents.broken:
            log.error(
                "the change log has a gap; watches can begin after it alone",
                extra={"rev": contents.history.floor},
            )
        log.info(
            "watch cache loaded",
            extra={"attempts": len(contents), "rev": contents.position},
        )
        return contents

    async def _follow(self, contents: Contents, wakeups: Wakeups) -> None:
        """Read whenever woken, and four times a second, until the wake-ups stop to come."""
        waking: asyncio.Task[bool] | None = None
        try:
            while True:
                await self._catch_up(contents)
                waking = waking or spawn("watchcache-wakeup", wakeups.wait(POLL_SECONDS))
                if await self._kicked_or(waking):
                    continue
                woken = waking.result()
                waking = None
                contents.history.trim(self._clock.monotonic())
                if not woken:
                    await self._check_state(contents)
                if not wakeups.alive:
                    return
        finally:
            if waking is not None:
                with suppress(StorageError):
                    await end(waking)

    async def _kicked_or(self, waking: "asyncio.Task[bool]") -> bool:
        kick = spawn("watchcache-kick", self._kicked.wait())
        try:
            await asyncio.wait((kick, waking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            kick.cancel()
        self._kicked.clear()
        return not waking.done()

    async def _check_state(self, contents: Contents) -> None:
        state = await self._feed.state()
        contents.took_state(state)
        self._is_connected(contents, state.head)

    # -- reading -------------------------------------------------------------------------------

    async def _catch_up(self, contents: Contents) -> None:
        while True:
            if self._doubted:
                raise Doubted
            rows = await self._feed.read(self._read_to, limit=PIECE)
            if any(row.kind == "E" for row in rows):
                await self._check_state(contents)
            for row in rows:
                contents.continues(row, self._read_to)
                self._read_to = row.rev
            self._held.extend(rows)
            full = len(rows) >= PIECE
            self.health.received += len(rows)
            self._apply(contents, self._whole_commits(ended=not full))
            self._is_connected(contents, self._read_to)
            if not full:
                return
            await give_way()

    def _whole_commits(self, *, ended: bool) -> list[Change]:
        """Take the rows whose commits are complete out of what is held (H-07)."""
        cut = len(self._held)
        if not ended:
            last = self._held[-1].tx
            while cut and self._held[cut - 1].tx == last:
                cut -= 1
        ready, self._held = self._held[:cut], self._held[cut:]
        return ready

    def _apply(self, contents: Contents, rows: Sequence[Change]) -> None:
        if not rows:
            return
        touched: dict[str, None] = {}
        markers = []
        for row in rows:
            project = contents.apply(row)
            if project is not None:
                touched[project] = None
            elif (prev_last := contents.epochs.prev_last(row.rev)) is not None:
                markers.append((prev_last, row.rev))
        now = self._clock.monotonic()
        contents.history.mark(now, contents.position)
        contents.history.trim(now)
        self._sink.moved(tuple(touched), markers)

    # -- failure -------------------------------------------------------------------------------

    def _is_connected(self, contents: Contents, head: int) -> None:
        self._tries = 0
        health = self.health
        if health.cut_off_since is not None:
            log.info("the change log is followed again", extra={"rev": contents.position})
        health.connected = True
        health.refused = False
        health.cut_off_since = None
        health.head = max(head, contents.position)
        if head <= contents.position:
            health.equal_since = self._clock.monotonic()

    def _fault(self, fault: FeedFault) -> None:
        self._contents = None
        self._doubted = False
        if not isinstance(fault, Doubted):
            self.health.faults += 1
            log.error(
                "the change log does not continue what is held, loading anew",
                extra={"cause": str(fault), "rev": self._read_to},
            )
        self._sink.faulted()

    async def _retry(self, error: StorageError) -> None:
        self.health.connected = False
        self.health.refused = True
        if self.health.cut_off_since is None:
            self.health.cut_off_since = self._clock.monotonic()
            log.warning("the change log cannot be read", extra={"cause": str(error)})
        await self._pause()

    async def _pause(self) -> None:
        """Wait before the next try: doubling from 0.1 s to 3 s, half of it by chance."""
        least, most = RETRY_SECONDS
        seconds = min(least * 2**self._tries, most)
        self._tries = min(self._tries + 1, 16)
        await self._clock.sleep(seconds * (0.5 + self._chance() / 2))
