"""The face of the watch cache: get, list and watch."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from nodus_api.clock import Clock
from nodus_api.storage.errors import StorageError
from nodus_api.tasks import Crashes, end, spawn
from nodus_api.watchcache.behind import Behind
from nodus_api.watchcache.consistency import CACHED, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.documents import Documents
from nodus_api.watchcache.entry import Entry
from nodus_api.watchcache.epochs import Standing
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    StateNotReached,
    StateTooOld,
)
from nodus_api.watchcache.filters import EVERYTHING, Filter
from nodus_api.watchcache.freshness import Head, Reached
from nodus_api.watchcache.history import Window
from nodus_api.watchcache.log_tail import LogTail
from nodus_api.watchcache.past import Past
from nodus_api.watchcache.pins import Pins
from nodus_api.watchcache.reflector import FeedHealth, Reflector
from nodus_api.watchcache.snapshot import ScopeSnapshot, Start
from nodus_api.watchcache.source import ChangeFeed
from nodus_api.watchcache.undo import Turns
from nodus_api.watchcache.watcher import Watcher, Watchers

Entries = list[Entry]  # in the class below, `list` is the verb

_SELECTED_AT_ONCE = 8
"""Entries that a selector judges before the loop may go to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a list: every entry has its body."""

    rev: int
    """The state's resourceVersion; for an exact read the one asked for (LW-101)."""

    entries: list[Entry]

    more: bool
    """Whether entries are left after the last one here (LW-108)."""

    remaining: int | None
    """How many are left, where no selector hides it (LW-111)."""


class AttemptCache:
    """All Attempts of an installation in memory, as their bytes.

    Reads raise the errors of `watchcache.errors`. `None` for a project means all projects.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        *,
        clock: Clock,
        chance: Callable[[], float],
        window: Window | None = None,
    ) -> None:
        """`feed` is a storage Feed; `chance` gives uniform numbers in [0, 1)."""
        self._feed = feed
        self._clock = clock
        self._window = window or Window()
        self._contents: Contents | None = None
        self._trusted = False
        self._head = Head(feed.head)
        self._reached = Reached(clock)
        self._pins = Pins(clock)
        self._documents = Documents(feed)
        self._tail = LogTail(feed)
        self._past = Past(feed, self._documents, self._pins, clock, self._loaded)
        self._behind = Behind(feed, self._loaded)
        self._reflector = Reflector(feed, self, clock=clock, chance=chance, window=self._window)
        self.watchers = Watchers(clock)

    async def run(self) -> None:
        """Load and follow until cancelled."""
        timers = spawn("watchcache-timers", self.watchers.run())
        try:
            await self._reflector.run()
        finally:
            await end(timers)
            await self._head.close()

    # -- state --------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a load is complete."""
        return self._contents is not None

    @property
    def position(self) -> int:
        """The revision up to which every change is here."""
        return self._contents.position if self._contents is not None else 0

    @property
    def size(self) -> int:
        """How many Attempts are held."""
        return len(self._contents) if self._contents is not None else 0

    @property
    def history_size(self) -> int:
        """How many changes are held."""
        return len(self._contents.history) if self._contents is not None else 0

    @property
    def health(self) -> FeedHealth:
        """How the following of the log goes."""
        return self._reflector.health

    @property
    def crashes(self) -> Crashes:
        """The crashes of the follower."""
        return self._reflector.crashes

    @property
    def continue_key(self) -> bytes:
        """The installation's key of continue tokens. Raises as a read does before the load."""
        return self._loaded().continue_key

    @property
    def loads(self) -> int:
        """How often it was loaded."""
        return self.health.reloads

    # -- what the reflector tells --------------------------------------------

    def loaded(self, contents: Contents) -> None:
        """Put a complete load in place of what was there."""
        self._contents = contents
        self._trusted = True
        self._pins.clear()
        self.watchers.end_all("the cache was loaded anew")
        self._reached.advance(contents.position)

    def moved(self, touched: Sequence[str], markers: Sequence[tuple[int, int]]) -> None:
        """Let go the readers that waited, and wake the watchers of the touched projects."""
        contents = self._loaded()
        if touched:
            for scope in (*touched, None):
                self._pins.changed(scope, contents.history.of(scope))
        for prev_last, first_rev in markers:
            self.watchers.end_between(prev_last, first_rev)
        self._reached.advance(contents.position)
        self.watchers.wake(touched)

    def faulted(self) -> None:
        """Refuse consistent reads until the load that follows, and end the watches."""
        self._trusted = False
        self.watchers.end_all("the history held is not the one that counts")

    # -- comparing --------------------------------------------

    async def pieces_at(self, rev: int) -> AsyncIterator[Sequence[Entry]]:
        """Return all entries of the state at `rev`, to be taken a chunk at a time.

        The state is fixed when this returns. Raises as an exact list does.
        """
        await self._reach(self._past.reached(rev))
        snapshot = await self._past.state_at(None, rev)
        return self._whole(snapshot)

    async def _whole(self, snapshot: ScopeSnapshot) -> AsyncIterator[Sequence[Entry]]:
        for piece in snapshot.pieces():
            yield await self._past.with_bodies(None, snapshot.rev, piece)

    def doubt(self) -> None:
        """Load anew: what is held was found to be wrong."""
        self.faulted()
        self._reflector.doubt()

    # -- get and list --------------------------------------------

    async def get(self, project: str, name: str, at: ReadAt) -> Entry | None:
        """Return one Attempt, None if there is none of that name."""
        try:
            await self._ensure(at)
        except StateNotReached as late:
            if at.mode is not Mode.LATEST:
                raise
            return await self._behind.entry(project, name, late)
        return self._loaded().get(project, name)

    async def list(
        self,
        project: str | None,
        at: ReadAt,
        *,
        chosen: Filter = EVERYTHING,
        limit: int = 0,
        start: Start | None = None,
    ) -> Page:
        """Return the entries from `start` on, at most `limit` where it is not 0 (LW-101).

        With `at` CACHED the limit is ignored, unless a continue token gave the start.
        """
        snapshot = await self._state(project, at)
        if at == CACHED and start is None:
            limit = 0
        entries, more = await self._choose(snapshot, chosen, limit, start)
        if more:
            self._keep(project, snapshot)
        remaining = snapshot.after(entries[-1]) if more and chosen.empty else None
        return Page(
            rev=at.rev if at.mode is Mode.EXACT else snapshot.rev,
            entries=await self._past.with_bodies(project, snapshot.rev, entries),
            more=more,
            remaining=remaining,
        )

    async def _state(self, project: str | None, at: ReadAt) -> ScopeSnapshot:
        if at.mode is Mode.EXACT:
            kept = self._past.kept(project, at.rev)
            if kept is not None:
                return kept
            await self._reach(self._past.reached(at.rev))
            return await self._past.state_at(project, at.rev)
        try:
            await self._ensure(at)
        except StateNotReached as late:
            if at.mode is not Mode.LATEST:
                raise
            return await self._behind.state(project, late)
        return self._loaded().snapshot(project)

    async def _choose(
        self, snapshot: ScopeSnapshot, chosen: Filter, limit: int, start: Start | None
    ) -> tuple[Entries, bool]:
        most = limit or snapshot.size + 1
        found: Entries = []
        if chosen.name is not None:
            found = [
                entry
                for entry in snapshot.named(chosen.name)
                if chosen.chooses(entry) and (start is None or (entry.project, entry.name) >= start)
            ]
            return found[:most], len(found) > most
        turns = Turns(self._clock)
        for piece in snapshot.pieces(start):
            # a selector may have 1,000 terms, so a whole piece may be a long step
            step = len(piece) if chosen.empty else _SELECTED_AT_ONCE
            for at in range(0, len(piece), step):
                some = piece[at : at + step]
                found.extend(some if chosen.empty else filter(chosen.chooses, some))
                if len(found) > most:
                    return found[:most], True
                await turns.give()
        return found, False

    def _keep(self, project: str | None, snapshot: ScopeSnapshot) -> None:
        if self._pins.renewed(project, snapshot.rev):
            return
        if snapshot.rev > self.position:  # what follows it is not known here
            self._pins.keep(project, snapshot, until=snapshot.rev + 1)
            return
        contents = self._loaded()
        if snapshot.rev < contents.history.floor:
            return  # what followed it at once has left the history: the log is asked again
        following = contents.history.of(project).first_after(snapshot.rev)
        self._pins.keep(project, snapshot, until=following.rev if following else None)

    # -- watch --------------------------------------------

    def check_watch(self) -> None:
        """Raise what refuses a watch before its stream begins (LW-122)."""
        self._loaded()
        if not self._trusted:
            raise CacheWarming
        if self.health.refused:
            raise FeedUnavailable(cached=False)

    async def watch(
        self, project: str | None, begin: WatchFrom, *, chosen: Filter = EVERYTHING
    ) -> Watcher:
        """Return a watcher, registered; whoever asked closes it.

        With initial events `watcher.initial` holds the chosen entries in rising revision, at
        `watcher.position`.
        """
        if not begin.initial and begin.at.mode is Mode.EXACT:
            return self._watch(project, chosen, self._resumed(begin.at.rev), None)
        await self._ensure(begin.at)
        contents = self._loaded()
        if not begin.initial:
            return self._watch(project, chosen, contents.position, None)
        entries = contents.in_order_of_revision(project)
        watcher = self._watch(project, chosen, contents.position, entries)
        if not chosen.empty:
            try:
                watcher.initial = await self._chosen(entries, chosen)
            except BaseException:
                watcher.close()  # nobody else will: whoever asked was cancelled
                raise
        return watcher

    async def _chosen(self, entries: Entries, chosen: Filter) -> Entries:
        turns = Turns(self._clock)
        found = []
        for entry in entries:
            if chosen.chooses(entry):
                found.append(entry)
            await turns.give()
        return found

    def _resumed(self, rev: int) -> int:
        contents = self._loaded()
        if contents.epochs.standing(rev) is not Standing.VALID:
            raise StateTooOld(rev, contents.history.floor + 1)
        moved = contents.epochs.moved_up(rev)
        if moved < contents.history.floor:
            raise StateTooOld(rev, contents.history.floor + 1)
        return moved

    def _watch(
        self, project: str | None, chosen: Filter, position: int, initial: Entries | None
    ) -> Watcher:
        watcher = Watcher(
            self.watchers,
            self._loaded(),
            self._documents,
            self._tail,
            scope=project,
            chosen=chosen,
            position=position,
            initial=initial,
        )
        self.watchers.add(watcher)
        return watcher

    # -- freshness --------------------------------------------

    def _loaded(self) -> Contents:
        if self._contents is None:
            raise FeedUnavailable(cached=False) if self.health.refused else CacheWarming
        return self._contents

    async def _ensure(self, at: ReadAt) -> None:
        """Wait until the cache is as new as `at` asks."""
        self._loaded()
        match at.mode:
            case Mode.LATEST:
                await self._reach(await self._ask_head())
            case Mode.NOT_OLDER_THAN | Mode.EXACT:
                await self._reach(at.rev)
            case Mode.CACHED:
                pass

    async def _ask_head(self) -> int:
        before = self.position
        if not self._trusted:
            raise CacheWarming
        if self.health.refused:
            raise FeedUnavailable
        try:
            head = await self._head.ask()
        except StorageError as error:
            raise FeedUnavailable from error
        if head < before or not self._trusted:
            self._reflector.kick()  # the history held was lost in a failover: it will find out
            raise CacheWarming
        return head

    async def _reach(self, rev: int) -> None:
        if rev > self.position:
            self._reflector.kick()
            if not await self._reached.wait(rev):
                raise StateNotReached(rev, self.position)
