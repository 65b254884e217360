"""What /livez and /readyz check (AS-104, AS-105)."""

from collections.abc import Callable, Mapping

from nodus_api.apiserver.access_cache import AccessCache
from nodus_api.apiserver.drain import Drain
from nodus_api.clock import Clock
from nodus_api.metav1.healthz import CheckResult
from nodus_api.watchcache import AttemptCache

Check = Callable[[], str | None]
"""Returns None when all is well, else what is wrong (told on the check's own path only)."""

LAG_SECONDS = 5.0
GRACE_SECONDS = 30.0
TICK_SECONDS = 0.5


class LoopLag:
    """How late the event loop comes to what is due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = 0.0

    async def run(self) -> None:
        """Measure twice a second until cancelled."""
        while True:
            due = self._clock.monotonic() + TICK_SECONDS
            await self._clock.sleep(TICK_SECONDS)
            self.seconds = max(0.0, self._clock.monotonic() - due)


class HealthChecks:
    """The checks by name; none of livez looks at Postgres, so its outage restarts nobody."""

    def __init__(
        self,
        *,
        cache: AttemptCache,
        access: AccessCache,
        drain: Drain,
        lag: LoopLag,
        clock: Clock,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
    ) -> None:
        """`live` are further checks of livez and readyz, `ready` of readyz alone."""
        self._cache = cache
        self._access = access
        self._drain = drain
        self._lag = lag
        self._clock = clock
        self._live: dict[str, Check] = {
            "ping": lambda: None,
            "event-loop": self._event_loop,
            "feed-worker": self._feed_worker,
            **live,
        }
        self._ready: dict[str, Check] = {
            **self._live,
            "database": self._database,
            "watch-cache-sync": self._watch_cache_sync,
            "feed-lag": self._feed_lag,
            "authentication-config": self._authentication,
            **ready,
            "shutdown": self._shutdown,
        }

    def results(self, endpoint: str) -> list[CheckResult]:
        """Return the outcome of every check of `livez`, `readyz` or `healthz`."""
        checks = self._ready if endpoint == "readyz" else self._live
        return [CheckResult(name=name, failure=check()) for name, check in checks.items()]

    def result(self, endpoint: str, name: str) -> CheckResult | None:
        """Return the outcome of one check, None if there is none of that name."""
        found = (self._ready if endpoint == "readyz" else self._live).get(name)
        return None if found is None else CheckResult(name=name, failure=found())

    def _event_loop(self) -> str | None:
        lag = self._lag.seconds
        return f"the event loop is {lag:.1f} s late" if lag >= LAG_SECONDS else None

    def _feed_worker(self) -> str | None:
        often = self._cache.crashes.often()
        return "the watch cache crashed three times within a minute" if often else None

    def _database(self) -> str | None:
        since = self._cache.health.cut_off_since
        # a failover takes seconds: only a longer outage counts, or the whole API is dropped for it
        if since is None or self._clock.monotonic() - since < GRACE_SECONDS:
            return None
        return "the database has been out of reach for more than 30 s"

    def _watch_cache_sync(self) -> str | None:
        return None if self._cache.ready else "the watch cache is not loaded yet"

    def _feed_lag(self) -> str | None:
        equal = self._cache.health.equal_since
        if equal is None or self._clock.monotonic() - equal < GRACE_SECONDS:
            return None
        return "the watch cache has been behind the change log for more than 30 s"

    def _authentication(self) -> str | None:
        loaded = self._access.view is not None
        return None if loaded else "tokens and members are not loaded yet"

    def _shutdown(self) -> str | None:
        return "process is shutting down" if self._drain.draining else None
