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
POLL_ALONE_SECONDS = 0.025  # where no notification comes (storage.md section 3.3)
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

    clock: Clock
    connected: bool = False
    refused: bool = False  # the last try to reach Postgres failed
    cut_off_since: float | None = None
    equal_since: float | None = None  # when the position was last known to be the head
    head: int = 0
    reloads: int = 0
    faults: int = 0
    received: int = 0

    @property
    def seconds_since_equal(self) -> float:
        """How long ago the position was last known to be the head; 0 before the first load."""
        if self.equal_since is None:
            return 0.0
        return self.clock.monotonic() - self.equal_since


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
        self._began = 0.0
        self._cut_off_by: type[StorageError] | None = None
        self.health = FeedHealth(clock)
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
            self._began = self._clock.monotonic()
            try:
                await self._session()
                await self._pause()  # notifications ended: others may be losing theirs as well
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
        contents = self._contents
        if contents is None:
            contents = await self._load()
        else:
            await self._check_state(contents)
        async with self._feed.listen() as wakeups:
            await self._follow(contents, wakeups)

    async def _load(self) -> Contents:
        contents = Contents(self._window)
        contents.continue_key = await self._feed.continue_key()
        async with self._feed.snapshot(self._window.stubs) as snapshot:
            async for objects in snapshot.objects():
                contents.add(objects)
                await give_way()
            contents.ordered(snapshot.state)
            async for rows in snapshot.backfill():
                contents.fill(rows)
                await give_way()
            contents.loaded(self._clock.monotonic())
        self._contents = contents
        self._read_to = contents.position
        self._held.clear()
        self.health.reloads += 1
        self.health.head = contents.position
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
        """Read whenever woken, and four times a second, until the wake-ups stop to come.

        Without notifications 40 times a second. After a quarter of a second in which nothing woke
        it, it asks for the state instead: where the head has not moved, there is nothing to read.
        """
        idle = 0.0
        level = False
        waking: asyncio.Task[bool] | None = None
        try:
            while True:
                if not level:
                    await self._catch_up(contents)
                level = False
                poll = POLL_SECONDS if wakeups.listening else POLL_ALONE_SECONDS
                waking = waking or spawn("watchcache-wakeup", wakeups.wait(poll))
                if await self._kicked_or(waking):
                    continue
                woken = waking.result()
                waking = None
                contents.history.trim(self._clock.monotonic())
                idle = 0.0 if woken else idle + poll
                if idle > POLL_SECONDS - POLL_ALONE_SECONDS / 2:
                    idle = 0.0
                    level = await self._is_level(contents)
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

    async def _check_state(self, contents: Contents) -> int:
        """Check what is held against the log's head, edge and epochs; return the head."""
        state = await self._feed.state()
        contents.took_state(state)
        self.health.head = max(self.health.head, state.head)  # rows alone tell that all is well
        return state.head

    async def _is_level(self, contents: Contents) -> bool:
        """Check the state; return whether everything up to the head was read."""
        if await self._check_state(contents) != self._read_to:
            return False
        self._is_connected(contents, self._read_to)
        return True

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
        """Note an answer; `head` is the newest revision read, applied or not."""
        self._tries = 0
        health = self.health
        if health.cut_off_since is not None:
            log.info("the change log is followed again", extra={"rev": contents.position})
        self._cut_off_by = None
        health.connected = True
        health.refused = False
        health.cut_off_since = None
        health.head = max(head, contents.position, health.head)
        if health.head <= contents.position:
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
        if type(error) is not self._cut_off_by:  # out of reach, then refused: two facts
            self._cut_off_by = type(error)
            log.warning("the change log cannot be read", extra={"cause": str(error)})
        await self._pause()

    async def _pause(self) -> None:
        """Wait before the next try: doubling from 0.1 s to 3 s, half of it by chance.

        What the last try took counts: one that waited for a silent server is followed by the next.
        """
        least, most = RETRY_SECONDS
        seconds = min(least * 2**self._tries, most)
        self._tries = min(self._tries + 1, 16)
        taken = self._clock.monotonic() - self._began
        await self._clock.sleep(max(seconds - taken, least) * (0.5 + self._chance() / 2))
