"""One client's watch: a position in the history, never a queue of its own."""

import asyncio
import heapq
import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodus_api.clock import Clock
from nodus_api.storage.errors import StorageError
from nodus_api.watchcache.contents import Contents, FeedFault
from nodus_api.watchcache.documents import DocumentGone, Documents
from nodus_api.watchcache.entry import Entry, at_revision
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.log_tail import LogTail
from nodus_api.watchcache.undo import Turns

AT_ONCE = 256
"""Events taken in one step."""

TICK_SECONDS = 0.25

CROWD_EVENTS = 1000
CROWD_BYTES = 1024 * 1024
"""More than so much waits for a client that is in the way of others (AS-093)."""


class WatchOver(Exception):
    """The stream must end cleanly: history was lost, the server stops, or a right is gone."""


class Wakeable(Protocol):
    """Something that looks again when woken."""

    def wake(self) -> None:
        """Look again."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one watcher: ADDED, MODIFIED or DELETED, and the object's finished bytes."""

    type: str
    rev: int
    body: bytes


class Watcher:
    """Takes the events of a scope that a filter chooses, from a position on."""

    def __init__(
        self,
        watchers: "Watchers",
        contents: Contents,
        documents: Documents,
        tail: LogTail,
        *,
        scope: str | None,
        chosen: Filter,
        position: int,
        initial: list[Entry] | None,
    ) -> None:
        """Everything up to `position` is known to the client, or stands in `initial`."""
        self.scope = scope
        self.position = position
        self.initial = initial
        self.over: str | None = None
        self._watchers = watchers
        self._contents = contents
        self._documents = documents
        self._tail = tail
        self._starting = initial is not None  # until it has caught up once
        self._chosen = chosen
        self._caught_up = False
        self._skipped = False
        self._woken: asyncio.Future[None] | None = None
        self._signalled = False

    @property
    def process_position(self) -> int:
        """How far the process has come: a bookmark for whoever has taken everything."""
        return self._contents.position

    def initial_pieces(self) -> Iterator[list[tuple[int, bytes]]] | None:
        """Give the initial objects with their revisions, rising, some at a time.

        None where none were asked for. They are let go as they are given.
        """
        if self.initial is None:
            return None
        return self._pieces(self.initial)

    def _pieces(self, entries: list[Entry]) -> Iterator[list[tuple[int, bytes]]]:
        self.initial = None
        entries.reverse()  # so that the first stand at the end, where they are cheap to let go
        while entries:
            piece = entries[: -AT_ONCE - 1 : -1]
            del entries[-AT_ONCE:]
            yield [(entry.rev, entry.body) for entry in piece if entry.body is not None]

    def wake(self) -> None:
        """Let the stream look again."""
        self._signalled = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def end(self, why: str) -> None:
        """Let the stream end cleanly after the event it stands at."""
        if self.over is None:
            self.over = why
        self.wake()

    def skip(self, why: str) -> None:
        """End the stream where it stands: its position is of no history, and must not move on.

        A bookmark of the marker would let the client keep what it saw of the lost history.
        """
        self._skipped = True
        self.end(why)

    def close(self) -> None:
        """Take the watcher out; called once by the stream that owns it."""
        self._watchers.remove(self)

    def wake_at(self, due: float) -> None:
        """Wake at a moment of the monotonic clock, to a quarter of a second."""
        self._watchers.wake_at(due, self)

    async def wait(self) -> None:
        """Wait until something may be there to take, a time is due, or the watch is over."""
        if not self._signalled:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        self._woken = None
        self._signalled = False

    async def crowded(self, unsent: int) -> bool:
        """Return whether more than 1,000 events or 1 MiB wait for the client (AS-093).

        `unsent` bytes of them were taken already.
        """
        events, size, position = 0, unsent, self.position
        turns = self._watchers.turns()
        while size <= CROWD_BYTES:
            waiting = self._contents.history.of(self.scope).after(position, AT_ONCE)
            if not waiting:
                return False
            for event in waiting:
                if self._type_of(event) is not None:
                    events += 1
                    size += len(event.body or event.prev_body or b"")
                await turns.give()
            if events > CROWD_EVENTS:
                return True
            position = waiting[-1].rev
        return True

    async def take(self) -> list[Delivery]:
        """Return the next events, in order, and move on; empty when nothing is left.

        Empty, too, once the watch is over: a walk past much that is not chosen ends with it.
        Raises WatchOver when the history between was lost.
        """
        turns = self._watchers.turns()
        while True:
            if self._skipped:
                raise WatchOver("an epoch skipped the revision")
            if self.position < self._contents.history.of(self.scope).dropped:
                events, position = await self._outlasted()
            else:
                events = self._next()
                if not events:
                    return []
                position = events[-1].rev
            deliveries = await self._deliveries(events, turns)
            self.position = position
            if deliveries or self.over is not None:
                return deliveries

    async def _outlasted(self) -> tuple[Sequence[Event], int]:
        """Go on from the log, where the initial events outlasted the history (LW-134)."""
        if not self._starting:
            raise WatchOver("the watch left the history")
        try:
            return await self._tail.after(self._contents, self.position, self.scope)
        except (FeedFault, StorageError) as error:
            raise WatchOver("the watch left the history, and the log") from error

    def _next(self) -> Sequence[Event]:
        events = self._contents.history.of(self.scope).after(self.position, AT_ONCE)
        if not events:
            self._starting = False
            self._caught_up = True
            self.position = max(self.position, self._contents.position)
        elif self._caught_up and _is_stub(events[0]):
            raise WatchOver("the watch left the documents of the history")
        return events

    async def _deliveries(self, events: Sequence[Event], turns: Turns) -> list[Delivery]:
        # what the events hold now is copied before the first wait, in which they may become stubs
        bodies = [(event.body, event.prev_body) for event in events]
        typed: list[tuple[str, Event]] = []
        held: dict[int, bytes | None] = {}
        for event, (body, prev_body) in zip(events, bodies, strict=True):
            kind = self._type_of(event)
            if kind is not None:
                typed.append((kind, event))
                held[event.rev] = prev_body if kind == "DELETED" else body
            await turns.give()
        missing = [(kind, event) for kind, event in typed if held[event.rev] is None]
        later = [event.rev for kind, event in missing if kind != "DELETED"]
        before = [event for kind, event in missing if kind == "DELETED"]
        try:
            if later:
                held.update(await self._documents.at(later))
            if before:
                held.update(await self._documents.before(before))
        except (DocumentGone, StorageError) as error:
            raise WatchOver("a document of the history cannot be fetched") from error
        deliveries = []
        for kind, event in typed:
            found = held[event.rev]
            if found is None:
                raise WatchOver("a document of the history is gone")
            if kind == "DELETED":
                found = at_revision(found, event.rev)
            deliveries.append(Delivery(kind, event.rev, found))
        return deliveries

    def _type_of(self, event: Event) -> str | None:
        """Say what the change is to this watcher (LW-132)."""
        chosen = self._chosen
        was = event.prev_rev is not None and chosen.matches(
            event.project, event.name, event.uid, event.prev_selection
        )
        now = event.kind != "D" and (
            was
            if event.selection is event.prev_selection and event.prev_rev is not None
            else chosen.matches(event.project, event.name, event.uid, event.selection)
        )
        if now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else None


class Watchers:
    """All watchers of a process: woken by scope, by time, and ended together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_scope: dict[str | None, dict[Watcher, None]] = {}
        self._all: dict[Watcher, None] = {}
        self._order = itertools.count()
        self._due: list[tuple[float, int, weakref.ref[Wakeable]]] = []

    def __len__(self) -> int:
        """Return how many watches run."""
        return len(self._all)

    def all(self) -> list[Watcher]:
        """Return the watchers, those that began first in front."""
        return list(self._all)

    def add(self, watcher: Watcher) -> None:
        """Let a watcher be woken by changes of its scope."""
        self._all[watcher] = None
        self._by_scope.setdefault(watcher.scope, {})[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher; a second time does nothing."""
        if watcher not in self._all:
            return
        del self._all[watcher]
        group = self._by_scope[watcher.scope]
        del group[watcher]
        if not group:
            del self._by_scope[watcher.scope]

    def turns(self) -> Turns:
        """Return what gives the loop to others in a long step of a watcher."""
        return Turns(self._clock)

    def wake(self, projects: Sequence[str]) -> None:
        """Wake the watchers of these projects, and those of all projects."""
        for scope in (*projects, None):
            for watcher in self._by_scope.get(scope, ()):
                watcher.wake()

    def end_all(self, why: str) -> None:
        """End every watch cleanly."""
        for watcher in self.all():
            watcher.end(why)

    def end_between(self, low: int, high: int) -> None:
        """End the watches that wait at a revision that an epoch skipped (storage.md section 8)."""
        for watcher in self.all():
            if low < watcher.position < high:
                watcher.skip("an epoch skipped the revision")

    def wake_at(self, due: float, watcher: Wakeable) -> None:
        """Wake a watcher, of this cache or another, at a moment of the monotonic clock."""
        # a weak reference: a client that left must not hold what its watcher held until then
        heapq.heappush(self._due, (due, next(self._order), weakref.ref(watcher)))

    async def run(self) -> None:
        """Wake whoever is due, four times a second, until cancelled."""
        while True:
            await self._clock.sleep(TICK_SECONDS)
            now = self._clock.monotonic()
            while self._due and self._due[0][0] <= now:
                watcher = heapq.heappop(self._due)[2]()
                if watcher is not None:
                    watcher.wake()


def _is_stub(event: Event) -> bool:
    return (event.prev_body if event.kind == "D" else event.body) is None
