"""States of before: from a pin, from the history in memory, or from the log (storage.md section 6).

The log reaches further back than the history (an hour, against five minutes): what a list at an old
revision needs of it is the first change of each Attempt since, which tells what it was before.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter

from nodus_api.clock import Clock
from nodus_api.storage.errors import StorageError, StorageTimeout
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.documents import DocumentGone, Documents
from nodus_api.watchcache.entry import Entry, body_of
from nodus_api.watchcache.epochs import Standing
from nodus_api.watchcache.errors import CacheWarming, FeedUnavailable, ReadTimedOut, StateTooOld
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.holds import Holds
from nodus_api.watchcache.pins import Pins
from nodus_api.watchcache.snapshot import ScopeSnapshot
from nodus_api.watchcache.source import ChangeFeed
from nodus_api.watchcache.undo import Turns, first_since, undone

FARTHEST = 262_144
"""So many changes back the log is asked; counted within epochs."""

_AT_ONCE = 2
_FETCHED_AT_ONCE = 1000
_TAKEN_AT_ONCE = 256


class Past:
    """Finds states of before, with the documents that they need."""

    def __init__(
        self,
        feed: ChangeFeed,
        documents: Documents,
        pins: Pins,
        holds: Holds,
        clock: Clock,
        loaded: Callable[[], Contents],
    ) -> None:
        """`loaded` gives what the cache holds now; pins are kept here for later pages."""
        self._feed = feed
        self._documents = documents
        self._pins = pins
        self._holds = holds
        self._clock = clock
        self._loaded = loaded
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def reached(self, rev: int) -> int:
        """Return the revision that the cache must have to tell the state at `rev`.

        Raises StateTooOld for one that does not count, or that nobody knows yet.
        """
        contents = self._loaded()
        if contents.epochs.standing(rev) is not Standing.VALID:
            raise _too_old(rev, contents)
        return contents.epochs.moved_up(rev)

    def kept(self, project: str | None, rev: int) -> ScopeSnapshot | None:
        """Return the scope at `rev` if it is kept for a later page, though the cache may lag."""
        return self._pins.at(project, self.reached(rev))

    async def state_at(self, project: str | None, rev: int) -> ScopeSnapshot:
        """Return the scope as it stood at `rev`, which the cache has; bodies may be missing."""
        reached = self.reached(rev)
        contents = self._loaded()
        kept = self._pins.find(project, reached)
        if kept is not None:
            return kept
        now = contents.snapshot(project)
        if reached >= contents.history.floor:
            events = contents.history.of(project).after(reached)
        else:
            events = await self._first_events(contents, project, rev)
        if not events:
            found = ScopeSnapshot(reached, now.parts)
            if reached < contents.history.floor:
                # whoever keeps it for later pages cannot tell what followed, save from here on
                following = contents.history.of(project).first_after(now.rev)
                until = following.rev if following is not None else None
                self._pins.keep(project, found, until=until)
            return found
        found = await undone(now, events, reached, self._clock)
        if self._loaded() is not contents:  # what it was undone from is of another history
            raise CacheWarming
        self._pins.keep(project, found, until=events[0].rev)
        await self._count(events, reached)
        return found

    async def _count(self, events: Sequence[Event], rev: int) -> None:
        """Count the documents that an undone state has of before, and drop pins for them."""
        turns = Turns(self._clock)
        events = await first_since(events, rev, turns)
        for at in range(0, len(events), _TAKEN_AT_ONCE):
            for event in events[at : at + _TAKEN_AT_ONCE]:
                self._holds.superseded(event)
            await turns.give()
        self._pins.bound()

    async def with_bodies(
        self, project: str | None, rev: int, entries: Sequence[Entry]
    ) -> list[Entry]:
        """Return the entries of the state at `rev`, with the bodies fetched that they lack."""
        if all(map(body_of, entries)):
            return list(entries)
        missing = [entry for entry in entries if entry.body is None]
        bodies: dict[int, bytes] = {}
        for at in range(0, len(missing), _FETCHED_AT_ONCE):
            bodies.update(await self._fetch(project, rev, missing[at : at + _FETCHED_AT_ONCE]))
        return [
            entry
            if entry.body is not None
            else Entry(
                project=entry.project,
                name=entry.name,
                uid=entry.uid,
                rev=entry.rev,
                selection=entry.selection,
                body=bodies[entry.rev],
            )
            for entry in entries
        ]

    async def _first_events(
        self, contents: Contents, project: str | None, rev: int
    ) -> Sequence[Event]:
        """Ask the log for the first change of each Attempt between `rev` and the position."""
        reached, position = contents.epochs.moved_up(rev), contents.position
        if (
            reached < contents.oldest_in_log - 1
            or contents.epochs.distance(reached, position) > FARTHEST
        ):
            raise _too_old(rev, contents)
        try:
            async with self._slots:
                oldest, rows = await self._feed.first_changes(reached, position, project)
        except StorageTimeout as error:
            raise ReadTimedOut("list") from error  # no other verb reads old states
        except StorageError as error:
            raise FeedUnavailable from error
        if reached < oldest - 1:
            raise _too_old(rev, contents)
        turns = Turns(self._clock)
        found: list[Event] = []
        ordered = sorted(rows, key=attrgetter("rev"))
        for at in range(0, len(ordered), _TAKEN_AT_ONCE):
            found.extend(map(contents.event_of, ordered[at : at + _TAKEN_AT_ONCE]))
            await turns.give()
        if self._loaded() is not contents:  # what was read may belong to another history
            raise CacheWarming
        return found

    async def _fetch(
        self, project: str | None, rev: int, entries: Sequence[Entry]
    ) -> dict[int, bytes]:
        """Return documents by revision: their own log rows, else the ones kept by later changes."""
        try:
            found = await self._documents.at([entry.rev for entry in entries])
            lost = {entry.rev for entry in entries if entry.rev not in found}
            if lost:
                followers = await self._followers(project, rev, lost)
                before = await self._documents.before(followers)
                found.update(
                    (event.prev_rev, before[event.rev])
                    for event in followers
                    if event.prev_rev is not None
                )
        except StorageError as error:
            raise FeedUnavailable from error
        except DocumentGone:
            raise _too_old(rev, self._loaded()) from None
        if any(entry.rev not in found for entry in entries):
            raise _too_old(rev, self._loaded())
        return found

    async def _followers(self, project: str | None, rev: int, lost: set[int]) -> Sequence[Event]:
        contents = self._loaded()
        if rev >= contents.history.floor:
            events = contents.history.of(project).after(rev)
        else:
            events = await self._first_events(contents, project, rev)
        return [event for event in events if event.prev_rev in lost]


def _too_old(rev: int, contents: Contents) -> StateTooOld:
    return StateTooOld(rev, contents.history.floor + 1)
