"""What an operator may set about one replica's HTTP side."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Limits, times and names of one replica; the defaults are those of the specification."""

    public_url: str = ""
    """Where clients reach this server, for `docs` links (LW-202); never taken from `Host`."""

    cors_allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may read this API in a browser: `https://host` each, or `*` (LW-063)."""

    standalone: bool = True
    """Serve `/api`, the projects as namespaces and the access review (LW-016, LW-017, LW-023)."""

    request_timeout: timedelta = timedelta(seconds=60)
    """Deadline of everything but a watch (AS-092)."""

    max_requests_in_flight: int = 400
    """Requests at once, watches excluded (AS-084)."""

    max_health_in_flight: int = 32
    """Health checks and availability probes at once (AS-085)."""

    max_lists_per_user: int = 20
    """Lists at once for one user name (AS-087)."""

    max_watches_per_user: int = 100
    """Watches at once for one user name (AS-087)."""

    max_watches: int = 10_000
    """Watches at once on this replica (AS-087)."""

    max_failed_logins: int = 20
    """Failed authentications a minute from one address before it gets 429 (AS-075)."""

    max_header_bytes: int = 256 * 1024
    """Request line and headers together (AS-089)."""

    max_url_bytes: int = 32 * 1024
    """Request target (AS-089)."""

    max_body_bytes: int = 64 * 1024
    """Request body (AS-091)."""

    header_timeout: timedelta = timedelta(seconds=32)
    """From accept, or the first byte of a request, to its last header (AS-090)."""

    keep_alive: timedelta = timedelta(seconds=95)
    """How long an idle connection stays open (AS-011)."""

    stuck_watch_timeout: timedelta = timedelta(seconds=30)
    """A watcher that takes no byte for so long is cut off (AS-093)."""

    stuck_watch_in_the_way_timeout: timedelta = timedelta(seconds=5)
    """The same of one that is to end (LW-144), or that much waits for (AS-093)."""

    bookmark_interval: timedelta = timedelta(seconds=60)
    """How often a watcher that asked for bookmarks gets one (LW-137)."""

    shutdown_delay: timedelta = timedelta(seconds=15)
    """From the signal until new requests are refused (AS-095); `nodus up` sets 0."""

    shutdown_watch_grace: timedelta = timedelta(seconds=10)
    """Over how long the ends of the watches are spread (AS-095); `nodus up` sets 1 s."""
