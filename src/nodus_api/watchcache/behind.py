"""Newest states around a cache that lags: read from the database itself (storage.md section 6).

The last resort of a consistent read whose cache did not get to the head in time. Versions that the
cache holds already are taken from it, so a pinned state costs no more than what it lacks.
"""

import asyncio
from collections.abc import Callable

from nodus_api.storage.errors import StorageError, StorageTimeout
from nodus_api.storage.migrated import again_if_migrated
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.entry import Entry
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    ReadTimedOut,
    StateNotReached,
)
from nodus_api.watchcache.snapshot import ScopeSnapshot, SortedEntries
from nodus_api.watchcache.source import ChangeFeed

_AT_ONCE = 2


class Behind:
    """Reads a scope, or one Attempt of it, in a transaction that sees one moment."""

    def __init__(self, feed: ChangeFeed, loaded: Callable[[], Contents]) -> None:
        """`loaded` gives what the cache holds now."""
        self._feed = feed
        self._loaded = loaded
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def state(self, project: str | None, late: StateNotReached) -> ScopeSnapshot:
        """Return the scope as it stands, at the head of the log.

        `late` says which revision the cache did not reach; it is raised where too many such reads
        run already (LW-103). Raises ReadTimedOut, FeedUnavailable and CacheWarming, too.
        """
        rev, entries = await self._read(project, None, late)
        by_project: dict[str, list[Entry]] = {}
        for entry in entries:
            by_project.setdefault(entry.project, []).append(entry)
        parts = ((name, SortedEntries.of(by_project[name])) for name in sorted(by_project))
        return ScopeSnapshot(rev, tuple(parts))

    async def entry(self, project: str, name: str, late: StateNotReached) -> Entry | None:
        """Return one Attempt as it stands, None if there is none; raises as `state` does."""
        _, entries = await self._read(project, name, late)
        return entries[0] if entries else None

    async def _read(
        self, project: str | None, name: str | None, late: StateNotReached
    ) -> tuple[int, list[Entry]]:
        if self._slots.locked():
            raise late
        contents = self._loaded()
        try:
            async with self._slots:
                head, found = await self._standing(project, name, contents)
        except StorageTimeout as error:
            raise ReadTimedOut("list" if name is None else "get") from error
        except StorageError as error:
            raise FeedUnavailable from error
        if head < late.requested:
            raise CacheWarming  # that head was lost in a failover since
        return head, found

    @again_if_migrated
    async def _standing(
        self, project: str | None, name: str | None, contents: Contents
    ) -> tuple[int, list[Entry]]:
        """Return the head and what stands there; a second try begins anew, in a new snapshot."""
        found: list[Entry] = []
        async with self._feed.standing() as snapshot:
            async for objects in snapshot.objects(project, name):
                found.extend(map(contents.entry_of, objects))
        return snapshot.state.head, found
