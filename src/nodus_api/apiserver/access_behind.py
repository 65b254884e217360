"""The access tables around a cache that lags: read from the database itself (storage.md section 6).

What `watchcache.behind` is to Attempts. It lags where head and snapshot can be read, yet the cache
does not come to it: no connection is left to listen on, say.
"""

import asyncio
from collections import deque

from nodus_api.apiserver.access import AccessSource
from nodus_api.apiserver.access_view import AccessView
from nodus_api.watchcache.errors import CacheWarming, FeedUnavailable, StateNotReached

_AT_ONCE = 2
_KEPT = 4


class AccessBehind:
    """Reads all of the access tables at once, and keeps the last views for pages."""

    def __init__(self, source: AccessSource) -> None:
        self._source = source
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._kept: deque[AccessView] = deque(maxlen=_KEPT)

    async def view(self, late: StateNotReached) -> AccessView:
        """Return a view as the tables stand.

        `late` says which revision the cache did not reach; it is raised where too many such reads
        run already (LW-103). Raises FeedUnavailable and CacheWarming, too.
        """
        if self._slots.locked():
            raise late
        try:
            async with self._slots:
                view = AccessView(await self._source.load())
        except Exception as error:  # the source's errors are not known here
            raise FeedUnavailable from error
        if view.rev < late.requested:
            raise CacheWarming  # that head was lost in a failover since
        self._kept.append(view)
        return view

    def kept(self, rev: int) -> AccessView | None:
        """Return the view of that very revision, if it was read here and is still held."""
        return next((view for view in self._kept if view.rev == rev), None)
