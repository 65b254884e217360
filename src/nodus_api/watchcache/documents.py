"""Documents that the cache no longer holds, fetched from the log."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from nodus_api.tasks import end, spawn
from nodus_api.watchcache.entry import at_revision, finished
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.source import ChangeFeed

_AT_ONCE = 1000
_FETCHES = 4
_KEPT_BYTES = 64 * 1024 * 1024


class DocumentGone(Exception):
    """The log no longer has a document that history needs."""


class Documents:
    """Fetches documents of stubs, 1,000 at a time and at most 4 fetches at once, and keeps some.

    What is on its way already is not asked for again: whoever needs it waits for the same fetch.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._slots = asyncio.Semaphore(_FETCHES)
        self._coming: dict[int, asyncio.Task[dict[int, bytes]]] = {}
        self._kept: OrderedDict[int, bytes] = OrderedDict()  # the last used at the end
        self._kept_bytes = 0

    async def at(self, revs: Iterable[int]) -> dict[int, bytes]:
        """Return finished documents by the revision of their row, of those that the log has."""
        wanted = dict.fromkeys(revs)
        found: dict[int, bytes] = {}
        fetches: dict[asyncio.Task[dict[int, bytes]], None] = {}
        unasked = []
        for rev in wanted:
            if (body := self._kept.get(rev)) is not None:
                self._kept.move_to_end(rev)
                found[rev] = body
            elif (fetch := self._coming.get(rev)) is not None:
                fetches[fetch] = None
            else:
                unasked.append(rev)
        for start in range(0, len(unasked), _AT_ONCE):
            fetches[self._ask(unasked[start : start + _AT_ONCE])] = None
        for fetch in fetches:
            # one who is cancelled must not take the documents from the others
            got = await asyncio.shield(fetch)
            found.update((rev, body) for rev, body in got.items() if rev in wanted)
        return found

    def _ask(self, revs: Sequence[int]) -> asyncio.Task[dict[int, bytes]]:
        fetch = spawn("watchcache-documents", self._fetch(revs))
        fetch.add_done_callback(_seen)
        self._coming.update(dict.fromkeys(revs, fetch))
        return fetch

    async def _fetch(self, revs: Sequence[int]) -> dict[int, bytes]:
        try:
            async with self._slots:
                got = await self._feed.documents(revs)
            bodies = {rev: finished(doc, rev) for rev, doc in got.items()}
            for rev, body in bodies.items():
                self._keep(rev, body)
            return bodies
        finally:
            for rev in revs:
                self._coming.pop(rev, None)

    async def close(self) -> None:
        """End the fetches that are under way."""
        for fetch in list(dict.fromkeys(self._coming.values())):
            await end(fetch)

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


def _seen(fetch: "asyncio.Task[dict[int, bytes]]") -> None:
    """Take note of a failure even if all who waited are gone."""
    if not fetch.cancelled():
        fetch.exception()
