"""What every step of a pass works with, and the batch in which it writes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from nodus_api.clock import Clock
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.settling import settle
from nodus_api.storage.attempt_store import AttemptStore
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.errors import FencedOff, StorageUnavailable
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.machine_store import MachineStore
from nodus_api.storage.workload_store import WorkloadStore
from nodus_api.suppliers.supplier import Ambiguous, Supplier

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often and how much at once; the defaults are the specification's."""

    full_pass: timedelta = timedelta(seconds=5)
    batch: int = 100
    """Attempts a transaction (SC-606)."""
    placed_at_once: int = 500
    supplier_calls: int = 8
    supplier_timeout: timedelta = timedelta(seconds=30)
    accrual: timedelta = timedelta(seconds=60)
    offers: timedelta = timedelta(seconds=10)
    sweep: timedelta = timedelta(minutes=5)


@dataclass(slots=True, kw_only=True)
class LoopContext:
    """One leader's stores, supplier and token. Nothing here is needed after a restart."""

    reign: Reign
    attempts: AttemptStore
    workloads: WorkloadStore
    machines: MachineStore
    catalog: CatalogStore
    supplier: Supplier
    clock: Clock
    metrics: LoopMetrics
    pace: Pace = field(default_factory=Pace)
    offers_due: float = 0.0
    """When (monotonic) the supplier is asked for its offers again."""
    setbacks: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    """Items that failed: how often in a row, and when (monotonic) they are tried again."""

    async def in_batches(
        self, step: str, nos: Sequence[int], work: Callable[[Batch], Awaitable[None]]
    ) -> None:
        """Do a step's work on Attempts, up to 100 a transaction, each settled and published.

        An error in one item never ends the step: the batch is repeated one by one, the
        item that fails again is logged, counted, and left alone for 1 s to 5 min
        (SC-606). Errors of leadership and of the connection pass through.
        """
        ready = [no for no in nos if self._is_ready(step, no)]
        for start in range(0, len(ready), self.pace.batch):
            chunk = ready[start : start + self.pace.batch]
            try:
                await self._batch(chunk, work)
            except (FencedOff, StorageUnavailable):
                raise
            except Exception:
                if len(chunk) > 1:
                    log.warning(
                        "a batch failed and is repeated one by one",
                        extra={"step": step, "attempts": len(chunk)},
                        exc_info=True,
                    )
                await self._one_by_one(step, chunk, work)

    async def _one_by_one(
        self, step: str, nos: Sequence[int], work: Callable[[Batch], Awaitable[None]]
    ) -> None:
        for no in nos:
            try:
                await self._batch([no], work)
            except (FencedOff, StorageUnavailable):
                raise
            except Exception:
                log.exception(
                    "an attempt could not be moved and is tried again later",
                    extra={"step": step, "attempt": no, "retry_seconds": self._set_back(step, no)},
                )
            else:
                self.setbacks.pop((step, no), None)

    async def _batch(self, nos: Sequence[int], work: Callable[[Batch], Awaitable[None]]) -> None:
        async with self.attempts.batch(self.reign.token, nos) as batch:
            await work(batch)
            settle(batch)

    def _is_ready(self, step: str, no: int) -> bool:
        _, again = self.setbacks.get((step, no), (0, 0.0))
        return again <= self.clock.monotonic()

    def _set_back(self, step: str, no: int) -> float:
        """Count an item that failed; return the wait: 1 s, 2 s, 4 s … 5 min."""
        times, _ = self.setbacks.get((step, no), (0, 0.0))
        wait = min(2.0**times, 300.0)
        self.setbacks[step, no] = (times + 1, self.clock.monotonic() + wait)
        self.metrics.failed_items.labels(step=step).inc()
        return wait

    async def ask(self, calls: Sequence[Awaitable[T]]) -> list[T | Exception]:
        """Await supplier calls, a few at a time, no transaction open (SC-607).

        Each answers or becomes its error; one that takes longer than 30 s is Ambiguous.
        """
        turns = asyncio.Semaphore(self.pace.supplier_calls)
        seconds = self.pace.supplier_timeout.total_seconds()

        async def one(call: Awaitable[T]) -> T:
            async with turns:
                try:
                    return await asyncio.wait_for(call, seconds)
                except TimeoutError as error:
                    raise Ambiguous(f"no answer within {seconds:.0f} s") from error

        answers = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
        return [_answer_or_error(answer) for answer in answers]


def _answer_or_error(answer: T | BaseException) -> T | Exception:
    if isinstance(answer, BaseException) and not isinstance(answer, Exception):
        raise answer
    return answer
