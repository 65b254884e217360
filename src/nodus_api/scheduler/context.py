"""What every step of a pass works with, and the batch in which it writes."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nodus_api.clock import Clock
from nodus_api.kernel.vocabulary import Stage
from nodus_api.scheduler.errands import Errands
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.settling import settle
from nodus_api.storage.attempt_store import AttemptStore
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.errors import FencedOff, StorageUnavailable
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.machine_store import MachineStore
from nodus_api.storage.records import AttemptRecord
from nodus_api.storage.workload_store import WorkloadStore
from nodus_api.suppliers.supplier import (
    DeletionObservation,
    MachineView,
    Supplier,
    SupplierOffer,
)

log = logging.getLogger(__name__)

Work = Callable[[Batch], Awaitable[None]]


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


class Calls:
    """The supplier calls of one reign, by kind."""

    def __init__(self, pace: Pace, wake: Callable[[], None]) -> None:
        def errands(kind: str, at_once: int = pace.supplier_calls) -> Errands[Any, Any]:
            return Errands(kind, at_once=at_once, timeout=pace.supplier_timeout, done=wake)

        self.creates: Errands[int, MachineView] = errands("create")
        self.finds: Errands[int, MachineView | None] = errands("find")
        self.deletes: Errands[int, DeletionObservation] = errands("delete")
        self.signals: Errands[int, None] = errands("signal")
        self.observations: Errands[str, Mapping[str, MachineView]] = errands("observe", 1)
        self.offers: Errands[str, Sequence[SupplierOffer]] = errands("offers", 1)
        self.lists: Errands[str, Sequence[MachineView]] = errands("list", 1)
        self.orphans: Errands[str, DeletionObservation] = errands("delete of an orphan")

    def all(self) -> tuple[Errands[Any, Any], ...]:
        """Return every kind."""
        return (
            self.creates,
            self.finds,
            self.deletes,
            self.signals,
            self.observations,
            self.offers,
            self.lists,
            self.orphans,
        )

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing waits to be taken up."""
        return all(errands.idle for errands in self.all())

    async def settled(self) -> None:
        """Wait until everything under way came back."""
        for errands in self.all():
            await errands.settled()

    async def close(self) -> None:
        """Cancel what is under way."""
        for errands in self.all():
            await errands.close()


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
    calls: Calls
    pace: Pace = field(default_factory=Pace)
    offers_known: bool = False
    """Whether this reign has heard what the supplier offers; nothing is placed before."""
    offers_due: float = 0.0
    """When (monotonic) the supplier is asked for its offers again."""
    sweep_due: float = 0.0
    """When (monotonic) the supplier is asked for all its machines again."""
    setbacks: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    """Items that failed: how often in a row, and when (monotonic) they are tried again."""

    async def in_batches(
        self, step: str, nos: Sequence[int], work: Work, *, then: Callable[[], None] | None = None
    ) -> None:
        """Do a step's work on Attempts, up to 100 a transaction, each settled and published.

        `then` is done with each batch once it is committed, and only if it was.

        An error in one item never ends the step: the batch is repeated one by one, the
        item that fails again is logged, counted, and left alone for 1 s to 5 min
        (SC-606). Errors of leadership and of the connection pass through.
        """
        ready = [no for no in nos if self._is_ready(step, no)]
        for start in range(0, len(ready), self.pace.batch):
            chunk = ready[start : start + self.pace.batch]
            try:
                await self._batch(chunk, work, then)
            except (FencedOff, StorageUnavailable):
                raise
            except Exception:
                if len(chunk) > 1:
                    log.warning(
                        "a batch failed and is repeated one by one",
                        extra={"step": step, "attempts": len(chunk)},
                        exc_info=True,
                    )
                await self._one_by_one(step, chunk, work, then)

    async def _one_by_one(
        self, step: str, nos: Sequence[int], work: Work, then: Callable[[], None] | None
    ) -> None:
        for no in nos:
            try:
                await self._batch([no], work, then)
            except (FencedOff, StorageUnavailable):
                raise
            except Exception:
                log.exception(
                    "an attempt could not be moved and is tried again later",
                    extra={"step": step, "attempt": no, "retry_seconds": self._set_back(step, no)},
                )
            else:
                self.setbacks.pop((step, no), None)

    async def _batch(self, nos: Sequence[int], work: Work, then: Callable[[], None] | None) -> None:
        async with self.attempts.batch(self.reign.token, nos) as batch:
            await work(batch)
            settle(batch)
        self._tell(batch)
        if then is not None:
            then()

    def _tell(self, batch: Batch) -> None:
        """Say which Attempts entered another stage, now that it is committed."""
        for no, record in batch.records.items():
            before, after = batch.loaded[no].attempt.stage, record.attempt.stage
            if after is not before:
                self.metrics.transitions.labels(stage=after.value).inc()
                log.info("attempt advanced", extra=_advanced(record, before))

    def failed_call(self, call: str, error: Exception) -> None:
        """Count a supplier call that failed."""
        self.metrics.supplier_errors.labels(call=call, error=type(error).__name__).inc()

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


def _advanced(record: AttemptRecord, before: Stage) -> dict[str, object]:
    attempt = record.attempt
    return {
        "attempt": attempt.name,
        "epoch": attempt.epoch,
        "from": before.value,
        "to": attempt.stage.value,
        "reason": attempt.reason.value if attempt.reason else "",
    }
