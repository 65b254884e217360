"""The leader keeps the log in bounds: partitions ahead of the head, none older than is promised.

Apart from the passes, because taking a partition away waits for old readers (storage.md section 7).
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from nodus_api.clock import Clock
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.storage.errors import FencedOff, StorageContention, StorageError, StorageTimeout
from nodus_api.storage.upkeep import UpkeepStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""A partition that is missing is made within so long (fault F21)."""
RETENTION_SECONDS = 60.0
"""The edge moves so often; what came below it is dropped at the next time, a minute later."""
AGAIN_SECONDS = 1.0
_STEP = "upkeep"
_NONE = "no partition ready"


class Upkeep:
    """The upkeep of the log in one reign; nothing of it is needed after a restart.

    `retention` is how long a change stays in the log, to the partition.
    """

    def __init__(
        self,
        store: UpkeepStore,
        clock: Clock,
        metrics: LoopMetrics,
        *,
        token: int,
        retention: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._token = token
        self._retention = retention
        self._edge = 0  # promised since a minute at least: 0 says that this reign does not know yet
        self._due = clock.monotonic()
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Look each 5 s until cancelled, or until another leads."""
        try:
            while True:
                ready = await self.look()
                await self._clock.sleep(LOOK_SECONDS if ready else AGAIN_SECONDS)
        except FencedOff:
            return  # the passes and the heartbeat find it out, too

    async def look(self) -> bool:
        """Do what is due; return whether enough partitions stand ready."""
        ready = await self._careful("partitions ahead", self._make_ahead)
        if self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + RETENTION_SECONDS
            await self._careful("retention", self._retain)
        return ready

    async def _make_ahead(self) -> None:
        tables = await self._store.look()
        self._metrics.log_partitions.set(sum(one.attached for one in tables.partitions))
        self._metrics.log_partitions_ahead.set(tables.ahead)
        missing = tables.missing()
        if tables.ahead > 0:
            self._told.pop(_NONE, None)
        elif _NONE not in self._told:
            log.error("the log has no partition ready: writes fail beyond the head's")
            self._told[_NONE] = ""
        for partition in missing:
            await self._store.make(self._token, partition)
            self._metrics.log_partitions.inc()
            log.info("a partition of the log is made", extra={"partition": partition.name})
        if missing:
            self._metrics.log_partitions_ahead.set((await self._store.look()).ahead)

    async def _retain(self) -> None:
        """Move the edge, and drop what lay below it a minute ago."""
        tables = await self._store.look()
        promised = self._edge
        self._edge = await self._store.edge(self._retention, tables)
        if self._edge > tables.oldest:
            await self._store.advance(self._token, self._edge)
            log.info("the log's edge moved", extra={"oldest": self._edge})
        for partition in tables.below(promised):
            await self._store.drop(self._token, partition)
            self._metrics.log_partitions.dec()
            log.info("a partition of the log is dropped", extra={"partition": partition.name})

    async def _careful(self, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Do it; whatever it met is met again the next time. Only a lost lead ends the upkeep.

        A cause that lasts is told once.
        """
        try:
            await work()
        except FencedOff:
            raise
        except (StorageContention, StorageTimeout) as error:
            self._tell(what, "the upkeep of the log waits for another session", error)
        except StorageError as error:
            self._metrics.failed_steps.labels(step=_STEP).inc()
            self._tell(what, "the upkeep of the log failed", error)
        except Exception:
            self._metrics.failed_steps.labels(step=_STEP).inc()
            log.exception("the upkeep of the log crashed and is tried again")
        else:
            self._told.pop(what, None)
            return True
        return False

    def _tell(self, what: str, message: str, error: StorageError) -> None:
        if self._told.get(what) != str(error):
            log.warning(message, extra={"work": what, "cause": str(error)})
        self._told[what] = str(error)
