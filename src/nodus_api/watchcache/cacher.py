"""The face of the watch cache: get, list and watch."""

from collections.abc import Callable

from nodus_api.clock import Clock


class AttemptCache:
    """All Attempts of an installation in memory, as their bytes."""

    def __init__(self, feed: object, *, clock: Clock, chance: Callable[[], float]) -> None:
        """`feed` is a storage Feed; `chance` gives uniform numbers in [0, 1)."""
        raise NotImplementedError

    async def run(self) -> None:
        """Load and follow until cancelled."""
        raise NotImplementedError
