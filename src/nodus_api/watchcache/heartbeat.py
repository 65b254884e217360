"""Whether this database still has a leader: a deposed primary has none (storage.md section 8).

A primary that was replaced and still runs answers whoever asks it, with a history that no longer
counts. What gives it away is that no leader writes its heartbeat there any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from nodus_api.clock import Clock
from nodus_api.storage.errors import StorageError
from nodus_api.watchcache.errors import LeaderSilent

SILENT_SECONDS = 15.0
LOOK_SECONDS = 5.0
AGAIN_SECONDS = 1.0
"""Between two looks while it is silent: its return is seen soon."""

log = logging.getLogger(__name__)


class Heartbeat:
    """The age of the leader's heartbeat: by the database's clock when read, then by our own.

    `age` asks the database. With `required` consistent reads are refused while the leader is
    silent, and until it was heard of first; without it a stopped scheduler takes nothing away
    (AS-105).
    """

    def __init__(
        self, age: Callable[[], Awaitable[timedelta]], clock: Clock, *, required: bool
    ) -> None:
        self._ask = age
        self._clock = clock
        self._required = required
        self._read: tuple[float, float] | None = None  # the age, and when it was asked for
        self._told = False

    async def run(self) -> None:
        """Read it each 5 s, and each second while it is silent, until cancelled.

        A database that is away is told of by whoever follows the log.
        """
        while True:
            asked = self._clock.monotonic()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    self._read = (await self._ask()).total_seconds(), asked
            except (StorageError, TimeoutError):
                pass
            else:
                self._tell(self._read[0])
            left = SILENT_SECONDS - (SILENT_SECONDS if self.seconds is None else self.seconds)
            await self._clock.sleep(min(LOOK_SECONDS, max(AGAIN_SECONDS, left)))

    @property
    def seconds(self) -> float | None:
        """Its age, None before it was read first."""
        if self._read is None:
            return None
        age, asked = self._read
        return max(age, 0.0) + self._clock.monotonic() - asked

    @property
    def silent(self) -> bool:
        """Whether it is older than 15 s."""
        return self.seconds is not None and self.seconds > SILENT_SECONDS

    def check(self) -> None:
        """Raise LeaderSilent where a consistent read must not be answered."""
        if self._required and (self.silent or self._read is None):
            raise LeaderSilent

    def _tell(self, age: float) -> None:
        """Say it once, and once that it is over."""
        silent = age > SILENT_SECONDS
        if silent and not self._told:
            log.warning(
                "the scheduler's heartbeat in this database is old: no scheduler leads, or this"
                " primary was replaced",
                extra={"seconds": round(age), "consistent_reads_refused": self._required},
            )
        elif self._told and not silent:
            log.info("the scheduler's heartbeat is fresh again")
        self._told = silent
