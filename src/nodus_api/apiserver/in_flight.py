"""How many requests run at once, in all and for each user (AS-084, AS-085, AS-087)."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodus_api.apiserver import paths
from nodus_api.apiserver.identity import User
from nodus_api.apiserver.options import ServerOptions
from nodus_api.apiserver.request import RequestInfo
from nodus_api.metav1.errors import TooManyRequests

HEALTH_PATHS = (*paths.HEALTH, "/apis/nodus.dev/v1")
"""What tells whether a replica is fit, the aggregator's probe too (LW-034)."""

RETRY_WATCH_SECONDS = 5


class InFlight:
    """Counts of what runs; over a limit a request is answered by 429."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self.requests = 0
        self.health = 0
        self.watches = 0
        self._lists: dict[str, int] = {}
        self._watches: dict[str, int] = {}

    @contextmanager
    def slot(self, user: User, info: RequestInfo) -> Iterator[None]:
        """Hold a slot for as long as the request runs. Raises TooManyRequests."""
        if info.verb == "watch":
            with self._watch(user):
                yield
        elif info.path in HEALTH_PATHS:
            if self.health >= self._options.max_health_in_flight:
                raise TooManyRequests
            self.health += 1
            try:
                yield
            finally:
                self.health -= 1
        else:
            with self._request(user, lists=info.verb == "list"):
                yield

    @contextmanager
    def _request(self, user: User, *, lists: bool) -> Iterator[None]:
        if self.requests >= self._options.max_requests_in_flight:
            raise TooManyRequests
        if lists and self._lists.get(user.name, 0) >= self._options.max_lists_per_user:
            raise TooManyRequests
        self.requests += 1
        if lists:
            _count(self._lists, user.name, 1)
        try:
            yield
        finally:
            self.requests -= 1
            if lists:
                _count(self._lists, user.name, -1)

    @contextmanager
    def _watch(self, user: User) -> Iterator[None]:
        mine = self._watches.get(user.name, 0)
        if self.watches >= self._options.max_watches or mine >= self._options.max_watches_per_user:
            raise TooManyRequests(retry_after=RETRY_WATCH_SECONDS)
        self.watches += 1
        _count(self._watches, user.name, 1)
        try:
            yield
        finally:
            self.watches -= 1
            _count(self._watches, user.name, -1)


def _count(table: dict[str, int], name: str, change: int) -> None:
    left = table.get(name, 0) + change
    if left:
        table[name] = left
    else:
        table.pop(name, None)
