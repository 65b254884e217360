"""Consistent reads: ask the log for its head, and wait until the cache has it."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

from nodus_api.clock import Clock
from nodus_api.tasks import end, spawn
from nodus_api.watchcache.errors import FeedUnavailable

WAIT_SECONDS = 3.0
"""How long a read waits for the cache to reach a revision (LW-103)."""


class Head:
    """The head of the log; one query serves all that asked before it was sent.

    A server that takes the query and says nothing, as a frozen one does, is out of reach as well:
    a query is given up after `seconds`, so nobody waits longer than for two of them.
    """

    def __init__(
        self, query: Callable[[], Awaitable[int]], *, seconds: float = WAIT_SECONDS
    ) -> None:
        """`query` asks Postgres for `max(rev)`."""
        self._query = query
        self._seconds = seconds
        self._next: asyncio.Future[int] | None = None
        self._asking: asyncio.Task[None] | None = None

    async def ask(self) -> int:
        """Return a head read after this call; what the query raises is raised to each caller.

        Raises FeedUnavailable if there is no answer in time.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self._asking is None or self._asking.done():
                self._asking = spawn("watchcache-head", self._answer())
        # a caller that is cancelled must not take the answer from the others
        return await asyncio.shield(self._next)

    async def _answer(self) -> None:
        while self._next is not None:
            waiting, self._next = self._next, None
            try:
                async with asyncio.timeout(self._seconds):
                    head = await self._query()
            except asyncio.CancelledError:
                waiting.cancel()
                raise
            except TimeoutError:
                waiting.set_exception(FeedUnavailable())
                waiting.exception()
            except Exception as error:  # noqa: BLE001  handed to the callers, who translate it
                waiting.set_exception(error)
                waiting.exception()  # seen here too, should every caller be gone
            else:
                waiting.set_result(head)

    async def close(self) -> None:
        """End a query that is under way."""
        if self._asking is not None:
            await end(self._asking)


class Reached:
    """Readers that wait for the cache's position to reach a revision."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._given_up = 0  # of those in the heap
        self._position = 0

    def __len__(self) -> int:
        """Return how many are kept, those who gave up included."""
        return len(self._waiting)

    def advance(self, position: int) -> None:
        """Let go all that waited for `position` or less."""
        self._position = position
        while self._waiting and self._waiting[0][0] <= position:
            _, _, future = heapq.heappop(self._waiting)
            if future.done():
                self._given_up -= 1
            else:
                future.set_result(True)

    async def wait(self, rev: int, seconds: float = WAIT_SECONDS) -> bool:
        """Return whether the position reached `rev` within so many seconds of the clock."""
        if rev <= self._position:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rev, next(self._order), future))
        timer = spawn("watchcache-wait", self._clock.sleep(seconds))
        try:
            await asyncio.wait((future, timer), return_when=asyncio.FIRST_COMPLETED)
            return future.done()
        finally:
            timer.cancel()
            if future.cancel():
                self._forget()

    def _forget(self) -> None:
        """Drop those who gave up once they are half: revisions far ahead are never reached."""
        self._given_up += 1
        if self._given_up * 2 > len(self._waiting):
            self._waiting = [waiting for waiting in self._waiting if not waiting[2].done()]
            heapq.heapify(self._waiting)
            self._given_up = 0
