"""Holds the cache against the database every few minutes, at one revision (G11).

A copy that is followed change by change stays wrong for ever if it is once: after a fault of the
memory, or of this program. So it is compared as a whole, and loaded anew if it differs.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol

from nodus_api.clock import Clock
from nodus_api.storage.errors import StorageError
from nodus_api.watchcache.cacher import AttemptCache
from nodus_api.watchcache.digest import digests_of
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    ReadTimedOut,
    StateNotReached,
    StateTooOld,
)

OK, MISMATCH, SKIPPED = "ok", "mismatch", "skipped"
_NAMED = 5
_NOTHING_TO_COMPARE = (
    StorageError,
    FeedUnavailable,
    CacheWarming,
    ReadTimedOut,
    StateNotReached,
    StateTooOld,
)

log = logging.getLogger(__name__)


class Stored(Protocol):
    """The objects in one view of the database; `storage.feed_digest` has it."""

    head: int

    async def projects(self) -> Mapping[str, tuple[int, int]]:
        """Return count and sum of each project that has objects."""
        ...


class ConsistencyCheck:
    """The checks of one replica, and how they went: `results` by `ok`, `mismatch`, `skipped`."""

    def __init__(
        self,
        cache: AttemptCache,
        stored: Callable[[], AbstractAsyncContextManager[Stored]],
        *,
        clock: Clock,
        chance: Callable[[], float],
        every: timedelta,
    ) -> None:
        """`stored` opens a view; `chance` gives uniform numbers in [0, 1)."""
        self._cache = cache
        self._stored = stored
        self._clock = clock
        self._chance = chance
        self._every = every
        self.results = {OK: 0, MISMATCH: 0, SKIPPED: 0}

    async def run(self) -> None:
        """Check on and on; replicas that begin together do not ask together."""
        while True:
            await self._clock.sleep(self._every.total_seconds() * (0.75 + self._chance() / 4))
            await self.check()

    async def check(self) -> str:
        """Compare once and return how it went; a mismatch ends all watches and loads anew.

        Skipped while there is nothing to compare: before the load, or with the database away.
        """
        try:
            result = await self._compared()
        except _NOTHING_TO_COMPARE as error:
            log.debug("the watch cache could not be compared", extra={"cause": str(error)})
            result = SKIPPED
        self.results[result] += 1
        return result

    async def _compared(self) -> str:
        load = self._cache.loads
        async with self._stored() as view:
            rev = view.head
            pieces = await self._cache.pieces_at(rev)  # at once, while there is little to undo
            stored = dict(await view.projects())
        held = await digests_of(pieces, self._clock)
        if held == stored:
            return OK
        if load != self._cache.loads:
            return SKIPPED  # what was compared is gone
        wrong = sorted(
            project
            for project in held.keys() | stored.keys()
            if held.get(project) != stored.get(project)
        )
        log.error(
            "the watch cache differs from the database, loading anew",
            extra={
                "rev": rev,
                "held": sum(count for count, _ in held.values()),
                "stored": sum(count for count, _ in stored.values()),
                "differing": len(wrong),
                "projects": wrong[:_NAMED],
            },
        )
        self._cache.doubt()
        return MISMATCH
