"""Attempts that live: made, moved by the kernel, published and retired, a few in each commit.

Rows are written as the scheduler writes them, and every change goes through `publish` or `retire`,
so the log is a real one. Which Attempt moves next is drawn from a seed.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.attempts.projection import render
from nodus_api.clock import Clock
from nodus_api.kernel import events as e
from nodus_api.kernel.attempt import Attempt, AttemptView, Choice, Owner, Placement, Prediction
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.vocabulary import Market, OwnerKind, Profile, Stage, WaitingFor
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_rows import identity_row, placement_row, state_row
from nodus_api.storage.engine import Database
from nodus_api.storage.statements import publish
from nodus_api.storage.wakeups import notify

ONE, OTHER = "default", "other"
_NAMESPACE = UUID("0c7b1b53-4f0e-5d0e-8f6e-6a2f4d1c9b11")
_OFFERING = "cpu-2"
_FEW, _MANY = 60, 90  # Attempts that there are at a time
_MOST_IN_A_COMMIT = 4
_PLACEMENT = Placement(
    profile=Profile.BALANCED,
    candidates=1,
    rejected=(),
    choice=Choice(
        offering=_OFFERING,
        region_class="eu",
        market=Market.ON_DEMAND,
        rate_usd_per_hour=Decimal("0.100000"),
        scores={},
        fallbacks=(),
        predicted=Prediction(
            hours=Decimal("1.000000"),
            cost_usd=Decimal("0.100000"),
            interruption_rate=Decimal("0.000000"),
        ),
    ),
)


@dataclass
class Lives:
    """The one writer of a database."""

    database: Database
    clock: Clock
    chance: random.Random
    owners: Mapping[str, Owner] = field(default_factory=dict)
    views: dict[int, AttemptView] = field(default_factory=dict)
    commits: int = 0
    _made: int = 0
    _told: int = 0

    async def begin(self) -> None:
        """Make two projects with a Job each, and the Attempts that are there at first."""
        now = self.clock.now()
        self.owners = {
            project: Owner(kind=OwnerKind.JOB, name=name, uid=uuid5(_NAMESPACE, name))
            for project, name in ((ONE, "train"), (OTHER, "serve"))
        }
        async with self.database.transaction() as connection:
            await connection.execute(sa.insert(t.projects).values(name=OTHER))
            await connection.execute(
                sa.insert(t.offering_classes).values(
                    name=_OFFERING,
                    count=0,
                    vcpus=2,
                    memory_gib=4,
                    disk_gib=20,
                    arch="amd64",
                    region_class="eu",
                    gang_capable=False,
                    rate_on_demand=Decimal("0.1"),
                    speed=1,
                    reference_rate=Decimal("0.1"),
                )
            )
            await connection.execute(
                sa.insert(t.workloads),
                [
                    {
                        "uid": owner.uid,
                        "project": project,
                        "kind": owner.kind.value,
                        "name": owner.name,
                        "spec": {},
                        "created": now,
                    }
                    for project, owner in self.owners.items()
                ],
            )
        while len(self.views) < _FEW:
            await self.add(_MOST_IN_A_COMMIT)

    async def step(self) -> None:
        """Make one commit: new Attempts, or moves of some, or the end of one that is over."""
        chosen = self.chance.sample(
            sorted(self.views), self.chance.randint(1, min(_MOST_IN_A_COMMIT, len(self.views)))
        )
        gone = [no for no in chosen if self.views[no].attempt.deletion_proven is not None]
        if len(self.views) < _FEW or (len(self.views) < _MANY and self.chance.random() < 0.2):
            await self.add(self.chance.randint(1, _MOST_IN_A_COMMIT))
        elif gone:
            await self.retire(gone)
        else:
            await self.move(chosen)

    async def add(self, count: int, project: str | None = None) -> Sequence[int]:
        """Make so many Attempts, three of four in the first project; return their numbers."""
        fresh = [self._queued(project or self._project()) for _ in range(count)]
        async with self.database.transaction() as connection:
            await connection.execute(
                sa.insert(t.slots),
                [{"workload": one.workload, "slot": one.slot, "current_epoch": 1} for one in fresh],
            )
            added = await connection.execute(
                sa.insert(t.attempts).returning(t.attempts.c.no, sort_by_parameter_order=True),
                [identity_row(one) | state_row(one) for one in fresh],
            )
            views = {
                no: AttemptView(attempt=one, owner=self.owners[one.project])
                for no, one in zip(added.scalars(), fresh, strict=True)
            }
            await self._publish(connection, views)
        await self._wake()
        return sorted(views)

    async def move(self, nos: Sequence[int]) -> int:
        """Move each Attempt one step on in its life; return the newest revision."""
        now = self.clock.now()
        before = {no: self.views[no] for no in nos}
        views = {no: self._moved(view, now) for no, view in before.items()}
        async with self.database.transaction() as connection:
            for no in sorted(views):
                await connection.execute(
                    sa.update(t.attempts)
                    .where(t.attempts.c.no == no)
                    .values(state_row(views[no].attempt))
                )
                placement = views[no].placement
                if placement is not None and before[no].placement is None:
                    row = {"attempt": no} | placement_row(placement)
                    await connection.execute(sa.insert(t.placements).values(row))
            rev = await self._publish(connection, views)
        await self._wake()
        return rev

    async def retire(self, nos: Sequence[int]) -> None:
        """Take Attempts that are over out of the API."""
        docs = [render(self.views[no]).doc for no in nos]
        retired = sa.select(
            sa.func.nodus.retire(
                sa.cast(list(nos), sa.ARRAY(sa.BigInteger)),
                sa.cast(docs, sa.ARRAY(sa.LargeBinary)),
            )
        )
        async with self.database.transaction() as connection:
            await connection.execute(retired)
        for no in nos:
            del self.views[no]
        await self._wake()

    async def go(self, no: int, stage: Stage) -> int:
        """Move one Attempt until it is at a stage; return the newest revision."""
        rev = 0
        while self.views[no].attempt.stage is not stage:
            rev = await self.move([no])
        return rev

    async def _publish(self, connection: AsyncConnection, views: Mapping[int, AttemptView]) -> int:
        finished = [render(view) for view in views.values()]
        given = {
            "nos": list(views),
            "docs": [one.doc for one in finished],
            "sels": [one.sel for one in finished],
        }
        published = await connection.execute(publish(), given)
        self.views |= views
        return int(published.scalar_one())

    async def _wake(self) -> None:
        self.commits += 1
        await notify(self.database, "nodus_feed")

    def _project(self) -> str:
        return OTHER if self.chance.random() < 0.25 else ONE

    def _queued(self, project: str) -> Attempt:
        owner = self.owners[project]
        slot = str(self._made)
        self._made += 1
        return queue(
            uid=uuid5(_NAMESPACE, f"{owner.name}-{slot}"),
            project=project,
            name=attempt_name(owner.name, slot, 1, owner.uid),
            workload=owner.uid,
            slot=slot,
            epoch=1,
            at=self.clock.now(),
        )

    def _moved(self, view: AttemptView, now: datetime) -> AttemptView:
        attempt = view.attempt
        self._told += 1
        if attempt.stage is Stage.PENDING and attempt.waiting_for is not WaitingFor.CAPACITY:
            waits = e.Waits(
                at=now, waiting_for=WaitingFor.CAPACITY, message=f"full, seen {self._told} times"
            )
            return replace(view, attempt=advance(attempt, waits))
        if attempt.stage is Stage.PENDING:
            placed = advance(advance(attempt, e.Claimed(at=now)), e.Placed(at=now))
            return replace(view, attempt=placed, placement=_PLACEMENT)
        return replace(view, attempt=advance(attempt, self._next(attempt)(now)))

    def _next(self, attempt: Attempt) -> Callable[[datetime], e.Event]:
        """Return what happens next to an Attempt that is placed."""
        match attempt.stage:
            case Stage.ACQUIRING:
                return lambda now: e.CapacityGranted(at=now)
            case Stage.STARTING if attempt.registered is None:
                return lambda now: e.Registered(at=now)
            case Stage.STARTING:
                return lambda now: e.CommandStarted(at=now)
            case Stage.RUNNING:
                code = self.chance.choice((0, 0, 1))
                return lambda now: e.Exited(at=now, exit_code=code)
            case _:
                return lambda now: e.DeletionProven(at=now)
