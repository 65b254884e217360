"""The scheduler: passes over the rows, each step committing on its own (SC-605, SC-606)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from nodus_api.attempts import render
from nodus_api.clock import Clock
from nodus_api.kernel import deadlines
from nodus_api.kernel.placement import Decide, place
from nodus_api.outages import Outage
from nodus_api.scheduler.accruing import accrue
from nodus_api.scheduler.acquiring import request_machines
from nodus_api.scheduler.context import LoopContext, Pace, Retention
from nodus_api.scheduler.desiring import end_workloads, fill_slots, stop_unwanted
from nodus_api.scheduler.drill_turns import take_turns
from nodus_api.scheduler.drilling import make_faults
from nodus_api.scheduler.errands import Calls
from nodus_api.scheduler.forgetting import forget_checkpoints
from nodus_api.scheduler.funds import use_returned_funds
from nodus_api.scheduler.hearing import apply_reports
from nodus_api.scheduler.hedging import hedge_late
from nodus_api.scheduler.intake import take_commands
from nodus_api.scheduler.lease import Leadership
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.noticing import take_notices
from nodus_api.scheduler.observing import Watch, observe_machines
from nodus_api.scheduler.offers import sync_offers
from nodus_api.scheduler.placing import place_queued
from nodus_api.scheduler.releasing import release, sweep_orphans
from nodus_api.scheduler.retiring import retire_finished
from nodus_api.scheduler.spending import stop_at_limits
from nodus_api.scheduler.timing import apply_deadlines, pass_orders_on
from nodus_api.scheduler.upkeep import Upkeep
from nodus_api.scheduler.warming import keep_warm
from nodus_api.storage.agenda import Agenda, Bounds
from nodus_api.storage.allowance_store import AllowanceStore
from nodus_api.storage.attempt_store import AttemptStore
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.drill_store import DrillStore
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff, StorageRefused, StorageUnavailable
from nodus_api.storage.fund_store import FundStore
from nodus_api.storage.leader_store import LeaderStore, Reign
from nodus_api.storage.machine_store import MachineStore
from nodus_api.storage.retirement import RetirementStore
from nodus_api.storage.upkeep import UpkeepStore
from nodus_api.storage.workload_store import WorkloadStore
from nodus_api.suppliers.supplier import Supplier
from nodus_api.tasks import end, spawn

log = logging.getLogger(__name__)

SHORTEST_WAIT = 0.05

Step = Callable[[], Awaitable[object]]


class Scheduler:
    """One scheduler process's loop: leads, or stands by until it can.

    `holder` names the process in table `leader`; `decide` chooses where things run. Everything
    it needs to go on after a crash is in the rows.
    """

    def __init__(
        self,
        database: Database,
        supplier: Supplier,
        clock: Clock,
        *,
        holder: str = "nodus",
        pace: Pace | None = None,
        retention: Retention | None = None,
        metrics: LoopMetrics | None = None,
        decide: Decide = place,
    ) -> None:
        self._database = database
        self._supplier = supplier
        self._clock = clock
        self._holder = holder
        self._pace = pace or Pace()
        self._retention = retention or Retention()
        self.metrics = metrics or LoopMetrics()
        self._decide = decide
        self._wake = asyncio.Event()
        self.leading = False

    async def run(self, stop: asyncio.Event) -> None:
        """Lead or stand by until `stop` is set; what a pass has begun is cancelled then."""
        leadership = Leadership(
            LeaderStore(self._database),
            self._clock,
            holder=self._holder,
            reign=self._rule,
            wake=self._wake.set,
        )
        await leadership.run(stop)

    async def wake(self) -> None:
        """Begin the leader's next pass at once: ours if we lead, else by a notification."""
        if self.leading:
            self._wake.set()
        else:
            await LeaderStore(self._database).wake_loop()

    def passes(self, reign: Reign) -> "Passes":
        """Return the passes of one reign."""
        return Passes(
            LoopContext(
                reign=reign,
                agenda=Agenda(self._database, self._bounds()),
                attempts=AttemptStore(self._database, render),
                workloads=WorkloadStore(self._database),
                machines=MachineStore(self._database),
                retirement=RetirementStore(self._database),
                catalog=CatalogStore(self._database, self._supplier.name),
                drills=DrillStore(self._database),
                funds=FundStore(self._database),
                allowances=AllowanceStore(self._database),
                supplier=self._supplier,
                clock=self._clock,
                metrics=self.metrics,
                calls=Calls(
                    at_once=self._pace.supplier_calls,
                    timeout=self._pace.supplier_timeout,
                    done=self._wake.set,
                    rate=self._supplier.caps.rate,
                    clock=self._clock,
                ),
                pace=self._pace,
                retention=self._retention,
                decide=self._decide,
            )
        )

    def _bounds(self) -> Bounds:
        return Bounds(
            batch=self._pace.batch,
            at_once=self._pace.placed_at_once,
            silence=deadlines.SUSPECT_AFTER,
            grace=deadlines.DRAIN_OVERTIME,
            accrual=self._pace.accrual,
        )

    def upkeep(self, reign: Reign) -> Upkeep:
        """Return the upkeep of the log of one reign."""
        return Upkeep(
            UpkeepStore(self._database),
            self._clock,
            self.metrics,
            token=reign.token,
            retention=self._retention.log,
        )

    async def _rule(self, reign: Reign) -> None:
        """Make passes for as long as the lead is held: woken, due, or each 5 s in full."""
        passes = self.passes(reign)
        upkeep = spawn("upkeep of the log", self.upkeep(reign).run())
        self.leading = True
        self.metrics.leader.set(1)
        full_at = self._clock.monotonic()
        try:
            while True:
                self._wake.clear()
                full = self._clock.monotonic() >= full_at
                if full:
                    full_at = self._clock.monotonic() + self._pace.full_pass.total_seconds()
                again = await passes.once(full=full)
                if not again:
                    await self._wait(await passes.until_next(), full_at)
        finally:
            self.leading = False
            self.metrics.leader.set(0)
            await end(upkeep)
            await passes.loop.calls.close()

    async def _wait(self, due_seconds: float | None, full_at: float) -> None:
        """Wait until a wake-up, until a row's own time, or until the next full pass."""
        seconds = full_at - self._clock.monotonic()
        if due_seconds is not None:
            seconds = min(seconds, due_seconds)
        if seconds <= 0 or self._wake.is_set():
            return
        woken = spawn("wake-up of the loop", self._wake.wait())
        pause = spawn("pause of the loop", self._clock.sleep(max(seconds, SHORTEST_WAIT)))
        try:
            await asyncio.wait({woken, pause}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(woken)
            await end(pause)


@dataclass(slots=True)
class Passes:
    """The passes of one reign over the rows."""

    loop: LoopContext
    watch: Watch = field(default_factory=Watch)
    outage: Outage = field(
        default_factory=lambda: Outage(
            log, begins="the database refuses what a step does", over="the database refuses nothing"
        )
    )
    refused: bool = False
    """Whether the database refused something to this pass."""

    async def once(self, *, full: bool = True) -> bool:
        """Make one pass; return whether it left work for an earlier step of the next.

        An error of one step never ends the pass; losing the lead or the database does. What the
        database refuses to everybody, with a full disk say, is told once while it lasts.
        Only a full pass observes machines and brings the bills up to date.
        """
        loop = self.loop
        again = self.refused = False
        loop.agenda.begin()
        for name, step in self._steps(full=full):
            with loop.metrics.step_seconds.labels(step=name).time():
                answer = await self._step(name, step)
            again |= answer is True and name in _LEAVES_WORK
        loop.metrics.passes.inc()
        if full and not self.refused:
            self.outage.passed()
        return again

    async def step(self, name: str) -> object:
        """Make one step of a pass alone."""
        self.loop.agenda.begin()
        return await dict(self._steps(full=True))[name]()

    async def until_next(self) -> float | None:
        """Return the seconds until a row's own time comes, or a token for a call that lacked one.

        None if nothing waits for either.
        """
        wait = await self.loop.attempts.until_next(await self.loop.agenda.began())
        token = self.loop.calls.token_in()
        waits = [] if wait is None else [wait.total_seconds()]
        return min(waits if token is None else [*waits, token], default=None)

    def _steps(self, *, full: bool) -> Sequence[tuple[str, Step]]:
        loop = self.loop
        steps: list[tuple[str, Step, bool]] = [
            ("drill turns", lambda: take_turns(loop), full),
            ("intake", lambda: take_commands(loop), True),
            ("stop", lambda: stop_unwanted(loop), True),
            ("limits", lambda: stop_at_limits(loop), True),  # before a notice (SC-014)
            ("drill", lambda: make_faults(loop), True),
            ("notices", lambda: take_notices(loop, look=full), True),
            ("funds", lambda: use_returned_funds(loop, look=full), True),
            ("fill", lambda: fill_slots(loop), True),
            ("offers", lambda: sync_offers(loop), True),
            ("place", lambda: place_queued(loop), True),
            ("hedge", lambda: hedge_late(loop), True),
            ("warm", lambda: keep_warm(loop), True),
            ("request", lambda: request_machines(loop), True),
            ("signal", lambda: pass_orders_on(loop), True),
            ("reports", lambda: apply_reports(loop), True),
            ("observe", lambda: observe_machines(loop, self.watch, look=full), True),
            ("deadlines", self._deadlines, True),
            ("end", lambda: end_workloads(loop), True),
            ("replace", lambda: fill_slots(loop), True),
            ("release", lambda: release(loop), True),
            ("retire", lambda: retire_finished(loop), True),
            ("accrue", lambda: accrue(loop), full),
            ("sweep", lambda: sweep_orphans(loop), True),
            ("forget", lambda: forget_checkpoints(loop), True),
        ]
        return [(name, step) for name, step, wanted in steps if wanted]

    async def _deadlines(self) -> None:
        await apply_deadlines(self.loop, self.watch.running, asked=self.watch.asked)

    async def _step(self, name: str, step: Step) -> object:
        try:
            return await step()
        except (FencedOff, StorageUnavailable):
            raise
        except StorageRefused as error:
            self.refused = True
            self.loop.metrics.failed_steps.labels(step=name).inc()
            self.outage.failed(error, step=name)
            return None
        except Exception:
            self.loop.metrics.failed_steps.labels(step=name).inc()
            log.exception("a step of the pass failed", extra={"step": name})
            return None


_LEAVES_WORK = frozenset({"warm", "request", "end", "replace", "release", "retire"})
"""Steps whose work is taken up by an earlier step of the next pass, or goes on in it."""
