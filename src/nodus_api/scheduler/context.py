"""What every step of a pass works with, and the batch in which it writes."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TypeVar
from uuid import UUID

from nodus_api.clock import Clock
from nodus_api.kernel.placement import Decide, place
from nodus_api.kernel.vocabulary import Stage
from nodus_api.scheduler.calibrating import calibrate
from nodus_api.scheduler.catalog import CatalogView
from nodus_api.scheduler.errands import Calls
from nodus_api.scheduler.ganging import chunks, move_together
from nodus_api.scheduler.learning import learn
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.setbacks import Item, Setbacks
from nodus_api.scheduler.settling import settle
from nodus_api.storage.agenda import Agenda
from nodus_api.storage.allowance_store import AllowanceStore
from nodus_api.storage.attempt_store import AttemptStore
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.drill_store import DrillStore
from nodus_api.storage.errors import FencedOff, StorageRefused, StorageUnavailable
from nodus_api.storage.fund_store import FundStore
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.machine_store import MachineStore
from nodus_api.storage.records import AttemptRecord
from nodus_api.storage.retirement import RetirementStore
from nodus_api.storage.workload_store import WorkloadStore
from nodus_api.suppliers.supplier import Supplier

log = logging.getLogger(__name__)

T = TypeVar("T")

Work = Callable[[Batch], Awaitable[None]]

PASSED_THROUGH = (FencedOff, StorageRefused, StorageUnavailable)
"""What no item is to blame for: trying one by one would fail as often, and say as much."""


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
    retention: timedelta = timedelta(seconds=60)
    """Between two looks for what is too old or too many to be shown (SC-806)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long, and how many a project, finished Attempts stay in the API (SC-806).

    `archive` is how long the archive keeps them after their end, to the month; `log` how long
    a change stays in the log, to the partition.
    """

    finished: timedelta = timedelta(hours=24)
    count: int = 2000
    archive: timedelta = timedelta(days=90)
    log: timedelta = timedelta(hours=1)


@dataclass(slots=True, kw_only=True)
class LoopContext:
    """One leader's stores, supplier and token. Nothing here is needed after a restart."""

    reign: Reign
    agenda: Agenda
    attempts: AttemptStore
    workloads: WorkloadStore
    machines: MachineStore
    catalog: CatalogStore
    drills: DrillStore
    funds: FundStore
    allowances: AllowanceStore
    supplier: Supplier
    clock: Clock
    metrics: LoopMetrics
    calls: Calls
    retirement: RetirementStore
    pace: Pace = field(default_factory=Pace)
    retention: Retention = field(default_factory=Retention)
    decide: Decide = place
    offers_known: bool = False
    """Whether this reign has heard what the supplier offers; nothing is placed before."""
    offers_due: float = 0.0
    """When (monotonic) the supplier is asked for its offers again."""
    sweep_due: float = 0.0
    """When (monotonic) the supplier is asked for all its machines again."""
    retention_due: float = 0.0
    """When (monotonic) finished Attempts are looked through again; at once in a new reign."""
    deleted: set[UUID] = field(default_factory=set)
    """Deleted workloads that may still have Attempts; a new reign finds them in the rows."""
    kept_due: float = 0.0
    """When (monotonic) the supplier is asked again which checkpoints it keeps."""
    balances: dict[str, Decimal | None] = field(default_factory=dict)
    """What organizations had when those who wait for Funds were last looked at."""
    notices_due: bool = False
    """Whether the supplier is asked for its notices before the next full pass."""
    setbacks: Setbacks = field(default_factory=Setbacks)
    view: CatalogView = field(init=False)
    """What placement sees of `catalog`."""

    def __post_init__(self) -> None:
        """Open the view of the catalog."""
        self.view = CatalogView(self.catalog)

    async def in_batches(
        self, step: str, nos: Sequence[int], work: Work, *, then: Callable[[], None] | None = None
    ) -> None:
        """Do a step's work on Attempts, up to 100 a transaction, each settled and published.

        A batch holds all ranks of a gang or none of them (SC-130).

        `then` is done with each batch once it is committed, and only if it was.

        An error in one item never ends the step: the batch is repeated one by one, the
        item that fails again is logged, counted, and left alone for 1 s to 5 min
        (SC-606). Errors of leadership and of the database as a whole pass through.
        """
        now = self.clock.monotonic()
        ready = [no for no in nos if self.setbacks.over((step, no), now)]
        gangs = await self.attempts.gangs(ready) if len(ready) > 1 else {}
        for chunk in chunks(ready, gangs, self.pace.batch):
            try:
                await self._batch(chunk, work, then)
            except PASSED_THROUGH:
                raise
            except Exception:
                log.warning(
                    "a batch failed and is repeated one by one",
                    extra={"step": step, "attempts": len(chunk)},
                    exc_info=len(chunk) > 1,
                )
                for no in chunk:
                    await self.item(step, no, partial(self._batch, [no], work, then))

    async def item(self, step: str, key: Item, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do a step's work on one item; None if it failed, or failed lately and rests.

        Errors of leadership and of the database as a whole pass through.
        """
        now = self.clock.monotonic()
        if not self.setbacks.over((step, key), now):
            return None
        try:
            answer = await work()
        except PASSED_THROUGH:
            raise
        except Exception:
            wait = self.setbacks.failed((step, key), now)
            self.metrics.failed_items.labels(step=step).inc()
            log.exception(
                "an item could not be moved and is tried again later",
                extra={"step": step, "item": str(key), "retry_seconds": wait},
            )
            return None
        self.setbacks.passed((step, key))
        return answer

    async def _batch(self, nos: Sequence[int], work: Work, then: Callable[[], None] | None) -> None:
        async with self.attempts.batch(self.reign.token, nos) as batch:
            await work(batch)
            await move_together(batch)
            settle(batch, warm=self.supplier.caps.warm)
            known_better = await learn(batch)
            await calibrate(batch)
        self.catalog.touched.update(known_better)
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


def _advanced(record: AttemptRecord, before: Stage) -> dict[str, object]:
    attempt = record.attempt
    return {
        "attempt": attempt.name,
        "epoch": attempt.epoch,
        "from": before.value,
        "to": attempt.stage.value,
        "reason": attempt.reason.value if attempt.reason else "",
    }
