"""Documents that the cache no longer holds, fetched from the log."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from nodus_api.watchcache.entry import at_revision, finished
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.source import ChangeFeed

_AT_ONCE = 1000
_FETCHES = 4
_KEPT_BYTES = 64 * 1024 * 1024


class DocumentGone(Exception):
    """The log no longer has a document that history needs."""


class Documents:
    """Fetches documents of stubs, 1,000 at a time and at most 4 fetches at once, and keeps some."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._slots = asyncio.Semaphore(_FETCHES)
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._kept_bytes = 0

    async def at(self, revs: Iterable[int]) -> dict[int, bytes]:
        """Return finished documents by the revision of their row, of those that the log has."""
        missing = list(dict.fromkeys(revs))
        found: dict[int, bytes] = {}
        while missing := self._not_kept(missing, found):
            some, missing = missing[:_AT_ONCE], missing[_AT_ONCE:]
            async with self._slots:
                # who waited for a slot may want what those before fetched: a herd asks alike
                some = self._not_kept(some, found)
                got = await self._feed.documents(some) if some else {}
            for rev, doc in got.items():
                found[rev] = finished(doc, rev)
                self._keep(rev, found[rev])
        return found

    def _not_kept(self, revs: Iterable[int], found: dict[int, bytes]) -> list[int]:
        """Put what is kept of `revs` into `found`; return the rest."""
        left = []
        for rev in revs:
            body = self._kept.get(rev)
            if body is None:
                left.append(rev)
            else:
                found[rev] = body
        return left

    async def before(self, events: Sequence[Event]) -> dict[int, bytes]:
        """Return the document before each event, with its own revision, by the event's revision.

        Raises DocumentGone when the log has lost one.
        """
        rows = {event.rev: event.prev_rev for event in events if event.prev_rev is not None}
        found: dict[int, bytes] = {}
        deleted = {event.rev for event in events if event.kind == "D"}
        by_row = await self.at([rev if rev in deleted else prev for rev, prev in rows.items()])
        for rev, prev in rows.items():
            body = by_row.get(rev if rev in deleted else prev)
            if body is None:
                async with self._slots:
                    doc = await self._feed.previous(rev)
                if doc is None:
                    raise DocumentGone(rev)
                body = finished(doc, prev)
            found[rev] = at_revision(body, prev)
        return found

    def _keep(self, rev: int, body: bytes) -> None:
        self._kept_bytes += len(body) - len(self._kept.pop(rev, b""))  # fetched twice at once
        self._kept[rev] = body
        while self._kept_bytes > _KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)
