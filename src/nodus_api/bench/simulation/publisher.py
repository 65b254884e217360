"""Publishes simulated lives in the order of their times, up to 100 Attempts a transaction."""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from nodus_api.attempts.projection import render
from nodus_api.bench.simulation import fleet as fleets
from nodus_api.bench.simulation.lives import MEAN_LIFE, Life, draw, due, step
from nodus_api.clock import Clock
from nodus_api.kernel import events
from nodus_api.kernel.attempt import AttemptView, Owner
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.replacement import resumption, workload_end
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind, SlotState, WorkloadState
from nodus_api.scheduler.settling import settle
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import AttemptStore
from nodus_api.storage.batch import Batch
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.engine import Database
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.records import AttemptRecord, Slot, Workload
from nodus_api.storage.retirement import RetirementStore
from nodus_api.storage.workload_store import WorkloadStore, restore_points

BATCH = 100
_NAMESPACE = UUID("0d3d5a9e-43c7-5b0b-9a3e-5c1f7f6f2a11")
_SLOTS = 20
_SECOND = timedelta(seconds=1)
_MOST_LIVE = 25_000
_LOOK_EVERY = 50
"""Batches between two looks at the log's partitions and at what is to be retired."""


class SeedUsed(Exception):
    """The database holds what this seed makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be made, and when. The same plan and chance make the same lives."""

    attempts: int
    """So many slots; replacements come on top."""
    projects: int = 1
    seed: int = 1
    rate: float | None = None
    """Changes a second; None is as fast as it goes."""
    speed: float | None = None
    """Simulated seconds a second; None is as fast as it goes."""
    live: int | None = None
    """About so many Attempts live at once; None is a quarter of all, 100 to 25,000."""
    keep_finished: int | None = None
    """Retire what is finished beyond so many a project; None leaves it to a scheduler."""

    @property
    def interval(self) -> timedelta:
        """The simulated time between two Jobs."""
        live = self.live or min(max(self.attempts // 4, 100), _MOST_LIVE)
        return MEAN_LIFE * _SLOTS / live

    @property
    def span(self) -> timedelta:
        """About how much time is simulated, from the first queue to the last proof."""
        return self.interval * (self.attempts // _SLOTS) + 10 * MEAN_LIFE


@dataclass(slots=True)
class Done:
    """How far it is."""

    attempts: int = 0
    changes: int = 0
    commits: int = 0
    ended: int = 0
    failures: int = 0
    """Transactions that failed, or whose outcome is not known, and were done again."""


@dataclass(slots=True, eq=False)
class _Job:
    """A workload that was submitted, and how many of its slots are not decided."""

    workload: Workload
    spec: WorkloadSpec
    kind: int
    """Its place in `fleet.SPECS`."""
    slots: dict[str, SlotState]


@dataclass(slots=True, eq=False)
class _Run:
    """One Attempt in the schedule."""

    job: _Job
    slot: str
    epoch: int
    life: Life
    no: int | None = None
    before: int | None = None
    """The number of the epoch before, if there was one."""
    decided: bool = False
    """Whether its end has been told to its slot."""

    @property
    def uid(self) -> UUID:
        return uuid5(self.job.workload.uid, f"{self.slot}/{self.epoch}")


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Writes as the one leader; `chance` gives uniform numbers in [0, 1)."""

    database: Database
    plan: Plan
    clock: Clock
    chance: Callable[[], float]
    start: datetime
    """The simulated time of the first Attempt, in whole seconds."""
    tell: Callable[[Done], None] | None = None
    """Is told after each batch how far it is."""
    done: Done = field(default_factory=Done)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)
    _due: list[tuple[datetime, int, _Run]] = field(default_factory=list)
    _slots_left: int = -1
    _jobs: int = 0
    _next_job: datetime | None = None
    _doubtful: bool = False
    """Whether the last transaction may have been committed without a word."""
    _began: float | None = None
    _hurry: bool = False

    async def publish(self, reign: Reign) -> None:
        """Go on until every life has ended; may be called again in a later reign.

        Raises SeedUsed, FencedOff, StorageUnavailable.
        """
        store = AttemptStore(self.database, render)
        fleet = await fleets.stock(
            CatalogStore(self.database, fleets.SUPPLIER), reign.token, await store.now()
        )
        if self._began is None:
            await self._make_projects()
            self._slots_left = 0 if self._hurry else self.plan.attempts
            self._began = self.clock.monotonic()
        for turn in itertools.count():
            if turn % _LOOK_EVERY == 0:
                await self._keep_house(reign)
            await self._submit_due(reign)
            taken = self._take()
            if not taken:
                break
            await self._pace(taken[-1][0])
            await self._move(store, reign, fleet, taken)
            if self.tell is not None:
                self.tell(self.done)
        await fleets.close(
            CatalogStore(self.database, fleets.SUPPLIER), reign.token, await store.now()
        )

    def end_soon(self) -> None:
        """Begin nothing new, and let what lives end as fast as it goes."""
        self._slots_left = 0
        self._hurry = True

    # -- when ----------------------------------------------------------------------------------

    def _take(self) -> list[tuple[datetime, int, _Run]]:
        """Take the next Attempts; one is moved once a transaction."""
        taken: list[tuple[datetime, int, _Run]] = []
        while self._due and len(taken) < BATCH:
            if self._due[0][0] > self._next_job_at() and self._slots_left > 0:
                break
            taken.append(heapq.heappop(self._due))
        return taken

    async def _pace(self, at: datetime) -> None:
        """Wait until so many changes, or that simulated moment, are due."""
        assert self._began is not None  # noqa: S101 - set before the first batch
        if self._hurry:
            return
        waits = [0.0]
        if self.plan.rate is not None:
            waits.append(self.done.changes / self.plan.rate)
        if self.plan.speed is not None:
            waits.append((at - self.start).total_seconds() / self.plan.speed)
        wait = self._began + max(waits) - self.clock.monotonic()
        if wait > 0:
            await self.clock.sleep(wait)

    def _next_job_at(self) -> datetime:
        return self._next_job or self.start

    def _put(self, at: datetime, run: _Run) -> None:
        heapq.heappush(self._due, (at, next(self._order), run))

    # -- workloads -----------------------------------------------------------------------------

    async def _submit_due(self, reign: Reign) -> None:
        while self._slots_left > 0 and (not self._due or self._due[0][0] >= self._next_job_at()):
            await self._submit(reign, min(_SLOTS, self._slots_left))

    async def _submit(self, reign: Reign, slots: int) -> None:
        """Add one Job with all its slots, at its own simulated time."""
        number, at = self._jobs, self._next_job_at()
        kind = number % len(fleets.SPECS)
        spec = replace(fleets.SPECS[kind], completions=slots, parallelism=slots)
        name = f"sim-{self.plan.seed}-{number + 1}"
        workload = Workload(
            uid=uuid5(_NAMESPACE, name),
            project=self._project(number),
            organization="default",
            kind=OwnerKind.JOB,
            name=name,
            spec=spec.to_json(),
            created=at,
        )
        store = WorkloadStore(self.database)
        names = [str(slot) for slot in range(slots)]
        async with store.edit(reign.token, workload.uid) as edit:
            if edit.workload is not None and not self._doubtful:
                raise SeedUsed
            doubted, self._doubtful = self._doubtful, True
            await edit.put(workload)
            await edit.put_slots([Slot(workload=workload.uid, slot=slot) for slot in names])
        self._doubtful = doubted
        job = _Job(workload, spec, kind, dict.fromkeys(names, SlotState.OPEN))
        for slot in names:
            self._put(at, _Run(job, slot, 1, draw(self.chance)))
        self._jobs += 1
        self._slots_left -= slots
        self._next_job = _whole(at + self.plan.interval)

    def _project(self, number: int) -> str:
        return f"simulated-{number % self.plan.projects + 1}"

    async def _make_projects(self) -> None:
        names = [{"name": self._project(number)} for number in range(self.plan.projects)]
        insert = postgresql.insert(t.projects).on_conflict_do_nothing()
        async with self.database.transaction() as connection:
            await connection.execute(insert, names)

    async def _end(self, reign: Reign, job: _Job, at: datetime) -> None:
        """End a Job whose slots are all decided (SC-101)."""
        state = workload_end(job.spec, list(job.slots.values()))
        if state is None:
            return
        async with WorkloadStore(self.database).edit(reign.token, job.workload.uid) as edit:
            if edit.workload is not None and edit.workload.state is WorkloadState.ACTIVE:
                await edit.put(replace(edit.workload, state=state, ended=at))

    # -- Attempts ------------------------------------------------------------------------------

    async def _move(
        self,
        store: AttemptStore,
        reign: Reign,
        fleet: fleets.Fleet,
        taken: Sequence[tuple[datetime, int, _Run]],
    ) -> None:
        runs = [run for _, _, run in taken]
        try:
            if self._doubtful:
                await self._learn([run for run in runs if run.no is None])
            self._doubtful = True
            held = [no for run in runs for no in (run.no or run.before,) if no is not None]
            async with store.batch(reign.token, held) as batch:
                batch.now = taken[-1][0]
                for at, _, run in taken:
                    await self._advance(batch, reign, fleet, run, at)
                settle(batch)
                moved, new = dict(batch.records), len(batch.added)
            await self._learn([run for run in runs if run.no is None])
        except BaseException:
            for one in taken:
                heapq.heappush(self._due, one)
            self.done.failures += 1
            raise
        self._doubtful = False
        self.done.commits += 1
        self.done.attempts += new
        self.done.changes += new + sum(moved[no] != batch.loaded[no] for no in sorted(moved))
        for at, _, run in taken:
            await self._plan_next(reign, run, moved.get(run.no or 0), at, batch.now)

    async def _advance(
        self, batch: Batch, reign: Reign, fleet: fleets.Fleet, run: _Run, at: datetime
    ) -> None:
        if run.no is None:
            await self._queue(batch, run, at)
            return
        record = batch.records[run.no]
        placement = fleet.placements[run.job.kind]
        batch.put(step(record, run.life, reign=reign, fleet=fleet, placement=placement))

    async def _queue(self, batch: Batch, run: _Run, at: datetime) -> None:
        """T1: the slot's next Attempt; the one before it is superseded (T19)."""
        workload = run.job.workload
        slot = Slot(workload=workload.uid, slot=run.slot)
        before = batch.records[run.before] if run.before is not None else None
        latest = None
        if before is not None:
            slot = before.slot
            latest = (await restore_points(batch.connection, workload.uid)).get(run.slot)
        start = resumption(before.attempt if before else None, latest, spec=run.job.spec)
        attempt = queue(
            uid=run.uid,
            project=workload.project,
            name=attempt_name(workload.name, run.slot, run.epoch, workload.uid),
            workload=workload.uid,
            slot=run.slot,
            epoch=run.epoch,
            at=at,
            resumes=start.resumes,
            restore=start.restore,
        )
        slot = replace(slot, current_epoch=run.epoch)
        owner = Owner(kind=workload.kind, name=workload.name, uid=workload.uid)
        batch.put(
            AttemptRecord(
                view=AttemptView(attempt=attempt, owner=owner), slot=slot, workload=workload
            )
        )
        if before is not None:
            replaced = advance(before.attempt, events.Superseded(at=at, epoch=run.epoch))
            view = replace(before.view, attempt=replaced, successor=attempt.name)
            batch.put(replace(before, view=view, slot=slot))

    async def _learn(self, runs: Sequence[_Run]) -> None:
        """Ask for the numbers of Attempts that were added, or may have been."""
        by_uid = {run.uid: run for run in runs}
        if not by_uid:
            return
        query = sa.select(t.attempts.c.no, t.attempts.c.uid).where(t.attempts.c.uid.in_(by_uid))
        async with self.database.single_reads() as connection:
            for no, uid in await connection.execute(query):
                by_uid[uid].no = no

    async def _plan_next(
        self, reign: Reign, run: _Run, record: AttemptRecord | None, at: datetime, now: datetime
    ) -> None:
        """Put what follows an Attempt's move into the schedule."""
        if record is None:  # just queued
            self._put(at + run.life.wait, run)
            return
        following = due(record.attempt, run.life)
        if following is not None:
            self._put(max(following, now), run)
        if record.attempt.live or run.decided:
            return
        run.decided = True
        if record.slot.state is SlotState.OPEN and record.workload.state is WorkloadState.ACTIVE:
            later = max(now + _SECOND, _whole(record.slot.not_before or now) + _SECOND)
            life = draw(self.chance)
            self._put(later, _Run(run.job, run.slot, run.epoch + 1, life, before=run.no))
            return
        run.job.slots[run.slot] = record.slot.state
        self.done.ended += 1
        await self._end(reign, run.job, now)

    # -- the leader's other duties -------------------------------------------------------------

    async def _keep_house(self, reign: Reign) -> None:
        """Retire what is too much."""
        if self.plan.keep_finished is None:
            return
        store = RetirementStore(self.database)
        while found := await store.excess(self.plan.keep_finished, BATCH):
            if not await store.retire(reign.token, found):
                return


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=0)
