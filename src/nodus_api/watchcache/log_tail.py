"""Changes that the history let go already, for a watch whose initial events took so long (LW-134).

The history is kept for minutes, the log for an hour. Whoever resumes gets no more than the history
(LW-123), but a start that outlasts it must not be told to start again: it would outlast it again.
"""

import asyncio

from nodus_api.watchcache.contents import Contents, FeedFault
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.source import ChangeFeed

_ROWS = 256
_AT_ONCE = 2


class LogTail:
    """Reads the log a piece at a time; two pieces at once are read for all watches together."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def after(
        self, contents: Contents, position: int, scope: str | None
    ) -> tuple[list[Event], int]:
        """Return the scope's next events, maybe none, and the position that they lead to.

        It is above `position`, and not above that of `contents`. Raises FeedFault where the log
        does not continue from `position` any more, and the errors of storage.
        """
        async with self._slots:
            rows = await self._feed.read(position, limit=_ROWS)
        events = []
        reached = position
        for row in rows:
            if row.rev > contents.position:
                break
            contents.continues(row, reached)
            reached = row.rev
            if row.uid is not None and scope in (None, row.project):
                events.append(contents.event_of(row))
        if reached == position:
            raise FeedFault("the log ends below the history")
        return events, reached
