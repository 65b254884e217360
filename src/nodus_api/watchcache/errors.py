"""Why the cache cannot answer; the HTTP side turns each into its Status."""


class CacheWarming(Exception):
    """Nothing is loaded yet, or what is loaded is being replaced, while Postgres answers."""


class HeldTooMuch(Exception):
    """Lists that are being sent hold more than the budget of superseded documents allows.

    A list without a limit would hold still more: to be repeated later, or asked for in pages.
    """


class FeedUnavailable(Exception):
    """Postgres cannot be reached and the answer needs it."""

    def __init__(self, *, cached: bool = True) -> None:
        """`cached` says whether the same could be asked of the cache, by resourceVersion 0."""
        super().__init__()
        self.cached = cached


class LeaderSilent(Exception):
    """The database may be one that was replaced: nobody leads there, and that is required."""


class ReadTimedOut(Exception):
    """A read of the database met its time limit: to be repeated (LW-198)."""

    def __init__(self, verb: str) -> None:
        """`verb` is the request's, `list` or `get`."""
        super().__init__(verb)
        self.verb = verb


class StateNotReached(Exception):
    """The cache did not reach the revision in time (LW-103)."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(requested, current)
        self.requested = requested
        self.current = current


class StateTooOld(Exception):
    """The revision has left the history, or never was part of it (LW-104, LW-114, LW-123)."""

    def __init__(self, requested: int, oldest: int) -> None:
        """`oldest` is the revision of the first change that is kept."""
        super().__init__(requested, oldest)
        self.requested = requested
        self.oldest = oldest
