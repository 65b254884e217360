"""The watches that run: ended when the server drains, or when a right is gone (AS-054, AS-095)."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from nodus_api.apiserver.identity import User
from nodus_api.apiserver.request import Request, RequestInfo
from nodus_api.apiserver.streaming import WatchSource
from nodus_api.clock import Clock

STEP_SECONDS = 0.05
LEAST_PER_SECOND = 200
_GONE = "the right or the credential is gone"

Allowed = Callable[[User, RequestInfo], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    user: User
    info: RequestInfo
    source: WatchSource


class RunningWatches:
    """All watches of this replica, those that began first in front."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.allowed: Allowed = lambda _user, _info: True
        """Whether a user may still watch what a request asked for."""
        self._numbers = itertools.count()
        self._running: dict[int, _Running] = {}
        self._draining = False

    def __len__(self) -> int:
        """Return how many watches run."""
        return len(self._running)

    def opened(self, request: Request, source: WatchSource) -> Callable[[], None]:
        """Register a watch; return what takes it out."""
        if request.user is None:
            raise AssertionError("a watch is authenticated before it begins")
        number = next(self._numbers)
        self._running[number] = _Running(user=request.user, info=request.info, source=source)
        if self._draining:
            source.end("the server stops")
        elif not self.allowed(request.user, request.info):  # it went while the watch began
            source.end(_GONE)

        def closed() -> None:
            self._running.pop(number, None)

        return closed

    def judge(self) -> None:
        """End the watches that are no longer allowed."""
        for running in list(self._running.values()):
            if not self.allowed(running.user, running.info):
                running.source.end(_GONE)

    async def drain(self, seconds: float) -> None:
        """End every watch cleanly, spread over so many seconds but at least 200 a second."""
        self._draining = True
        left = [running.source for running in self._running.values()]
        steps = max(1, int(seconds / STEP_SECONDS))
        share = max(-(-len(left) // steps), int(LEAST_PER_SECOND * STEP_SECONDS))
        for at in range(0, len(left), share):
            for source in left[at : at + share]:
                source.end("the server stops")
            if at + share < len(left):
                await self._clock.sleep(STEP_SECONDS)
