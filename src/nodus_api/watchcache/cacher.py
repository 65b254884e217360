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
from nodus_api.watchcache.entry import Entry, body_of
from nodus_api.watchcache.epochs import Standing
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    HeldTooMuch,
    StateNotReached,
    StateTooOld,
)
from nodus_api.watchcache.filters import EVERYTHING, Filter
from nodus_api.watchcache.freshness import Head, Reached
from nodus_api.watchcache.history import Window
from nodus_api.watchcache.holds import Held, Holds, Running
from nodus_api.watchcache.index import Choice
from nodus_api.watchcache.log_tail import LogTail
from nodus_api.watchcache.past import Past
from nodus_api.watchcache.pins import Pins
from nodus_api.watchcache.reflector import FeedHealth, Reflector
from nodus_api.watchcache.snapshot import ScopeSnapshot, Start
from nodus_api.watchcache.source import ChangeFeed
from nodus_api.watchcache.undo import Turns
from nodus_api.watchcache.watcher import Watcher, Watchers

LONG = 1000
"""A list of more is sent in many steps of the loop, and counts as held until its end."""

Entries = list[Entry]  # in the class below, `list` is the verb


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

    running: Running | None = None
    """What a long answer holds; `bodies` carries it along."""

    def bodies(self) -> Held[bytes]:
        """Return the documents; to be kept for as long as they are being sent."""
        return Held(filter(None, map(body_of, self.entries)), self.running)


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
        consistent: Callable[[], None] = lambda: None,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """`feed` is a storage Feed; `chance` gives uniform numbers in [0, 1).

        `consistent` raises what refuses consistent reads, beyond what the cache knows. `settled` is
        called after each whole load.
        """
        self._consistent = consistent
        self._settled = settled
        self._feed = feed
        self._clock = clock
        self._window = window or Window()
        self._contents: Contents | None = None
        self._trusted = False
        self._counted = 0  # the position up to which superseded documents are counted
        self._head = Head(feed.head)
        self._reached = Reached(clock)
        self._holds = Holds()
        self._pins = Pins(clock, self._holds)
        self._documents = Documents(feed)
        self._tail = LogTail(feed)
        self._past = Past(feed, self._documents, self._pins, self._holds, clock, self._loaded)
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
            await self._documents.close()

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
        self._counted = contents.position
        self.watchers.end_all("the cache was loaded anew")
        self._settled()
        self._reached.advance(contents.position)

    def moved(self, touched: Sequence[str], markers: Sequence[tuple[int, int]]) -> None:
        """Let go the readers that waited, and wake the watchers of the touched projects."""
        contents = self._loaded()
        for event in contents.history.of(None).after(self._counted):
            self._holds.superseded(event)
        self._counted = contents.position
        self._pins.bound()
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

        With `at` CACHED the limit is ignored, unless a continue token gave the start. Raises
        HeldTooMuch for a list without a limit while such lists hold too much.
        """
        if at == CACHED and start is None:
            limit = 0
        if at.mode is Mode.EXACT:
            await self._know_epoch(at.rev)
        whole = not limit and chosen.name is None
        if whole and self._holds.exceeded:
            raise HeldTooMuch
        running: Running | None = None
        if whole and at.mode is Mode.EXACT:
            # held before it is undone: then it is counted even where its pin is dropped at once
            running = self._holds.running(project, self._past.reached(at.rev))
        snapshot, present = await self._state(project, at)
        if whole and running is None:
            running = self._holds.running(project, snapshot.rev)
        contents = self._loaded() if present else None
        entries, more = await self._choose(contents, project, snapshot, chosen, limit, start)
        if len(entries) <= LONG:
            running = None
        if more or running is not None:
            self._keep(project, snapshot)
        remaining = snapshot.after(entries[-1]) if more and chosen.empty else None
        return Page(
            rev=at.rev if at.mode is Mode.EXACT else snapshot.rev,
            entries=await self._past.with_bodies(project, snapshot.rev, entries),
            more=more,
            remaining=remaining,
            running=running,
        )

    async def _state(self, project: str | None, at: ReadAt) -> tuple[ScopeSnapshot, bool]:
        """Return the state that is asked for, and whether it comes of what the cache holds."""
        if at.mode is Mode.EXACT:
            kept = self._past.kept(project, at.rev)
            if kept is not None:
                return kept, True
            await self._reach(self._past.reached(at.rev))
            return await self._past.state_at(project, at.rev), True
        try:
            await self._ensure(at)
        except StateNotReached as late:
            if at.mode is not Mode.LATEST:
                raise
            return await self._behind.state(project, late), False
        return self._loaded().snapshot(project), True

    async def _choose(
        self,
        contents: Contents | None,
        project: str | None,
        snapshot: ScopeSnapshot,
        chosen: Filter,
        limit: int,
        start: Start | None,
    ) -> tuple[Entries, bool]:
        """Return the chosen entries of a state; `contents` lend their index where it is theirs."""
        if chosen.name is not None:
            named = snapshot.named(chosen.name)
            return _cut([one for one in named if chosen.chooses(one)], limit, start)
        if contents is None:
            choice = Choice.unaided(chosen)
        else:
            choice = contents.index.choice(project, chosen)
            if contents.stands(project, snapshot.rev):
                gathered = choice.gathered(snapshot.size, limit)
                if gathered is not None:
                    return _cut(await self._chosen(gathered, choice), limit, start)
        most = limit or snapshot.size + 1
        found: Entries = []
        turns = Turns(self._clock)
        for piece in snapshot.pieces(start):
            for at in range(0, len(piece), choice.at_once):
                found.extend(choice.of(piece[at : at + choice.at_once]))
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
            await self._know_epoch(begin.at.rev)
            return self._watch(project, chosen, self._resumed(begin.at.rev), None)
        await self._ensure(begin.at)
        contents = self._loaded()
        if not begin.initial:
            return self._watch(project, chosen, contents.position, None)
        running = self._holds.running(project, contents.position)
        choice = contents.index.choice(project, chosen)
        gathered = choice.gathered(contents.size_of(project), 0, by_revision=True)
        every = contents.in_order_of_revision(project) if gathered is None else gathered
        entries = Held(every, running)
        watcher = self._watch(project, chosen, contents.position, entries)
        if not chosen.empty:
            try:
                watcher.initial = Held(await self._chosen(entries, choice), running)
            except BaseException:
                watcher.close()  # nobody else will: whoever asked was cancelled
                raise
        return watcher

    async def _chosen(self, entries: Entries, choice: Choice) -> Entries:
        turns = Turns(self._clock)
        found: Entries = []
        for at in range(0, len(entries), choice.at_once):
            found.extend(choice.of(entries[at : at + choice.at_once]))
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

    async def _know_epoch(self, rev: int) -> None:
        """Catch up, where the client has seen an epoch before this replica, on another one.

        What is of a later epoch even then never was part of the history that counts.
        """
        if self._loaded().epochs.standing(rev) is Standing.LATER:
            await self._reach(await self._ask_head())

    async def _ask_head(self) -> int:
        before = self.position
        self._consistent()
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


def _cut(entries: Entries, limit: int, start: Start | None) -> tuple[Entries, bool]:
    """Return the entries of a page, of all that are chosen in order, and whether more follow."""
    if start is not None:
        entries = [one for one in entries if (one.project, one.name) >= start]
    return (entries[:limit], len(entries) > limit) if limit else (entries, False)
