"""Attempts written and published as the scheduler writes them, without its loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.attempts.projection import render
from nodus_api.kernel.attempt import Attempt, AttemptView, Owner
from nodus_api.kernel.lifecycle import queue
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.vocabulary import OwnerKind, WaitingFor
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.storage.statements import notify, publish

_NAMESPACE = UUID("6f0d4c8e-1e57-5f43-9f0a-3b1c2d4e5f60")
_MOST_PUBLISHED = 1000  # attempts in one commit (storage.md section 1)


@dataclass(slots=True)
class Writer:
    """One writing client of the log."""

    database: Database
    project: str = "default"
    _views: dict[int, AttemptView] = field(default_factory=dict)
    _changes: int = 0

    async def fill(self, count: int, *, now: datetime) -> Sequence[int]:
        """Add one Job of `count` queued Attempts; return their numbers."""
        owner = Owner(kind=OwnerKind.JOB, name="bench", uid=uuid5(_NAMESPACE, "bench"))
        attempts = [self._attempt(owner, slot, now) for slot in range(count)]
        async with self.database.transaction() as connection:
            await connection.execute(
                sa.insert(t.workloads).values(
                    uid=owner.uid,
                    project=self.project,
                    kind=owner.kind.value,
                    name=owner.name,
                    spec={},
                    created=now,
                )
            )
            await connection.execute(
                sa.insert(t.slots),
                [{"workload": owner.uid, "slot": one.slot, "current_epoch": 1} for one in attempts],
            )
        for start in range(0, count, _MOST_PUBLISHED):
            await self._add(owner, attempts[start : start + _MOST_PUBLISHED])
        return sorted(self._views)

    async def change(self, no: int) -> int:
        """Change one Attempt and publish it, in one transaction; return the revision."""
        view = self._views[no]
        self._changes += 1
        message = f"change {self._changes}"  # an equal document would take no revision (LW-216)
        attempt = replace(view.attempt, waiting_message=message)
        self._views[no] = replace(view, attempt=attempt)
        async with self.database.transaction() as connection:
            await connection.execute(
                sa.update(t.attempts).where(t.attempts.c.no == no).values(waiting_message=message)
            )
            return await self._publish(connection, {no: self._views[no]})

    async def wake(self) -> None:
        """Tell the readers, in a small transaction after the commit, as the scheduler does."""
        async with self.database.transaction() as connection:
            await connection.execute(notify("nodus_feed"))

    async def _add(self, owner: Owner, attempts: Sequence[Attempt]) -> None:
        async with self.database.transaction() as connection:
            added = await connection.execute(
                sa.insert(t.attempts).returning(t.attempts.c.no, sort_by_parameter_order=True),
                [_row(one) for one in attempts],
            )
            views = {
                no: AttemptView(attempt=attempt, owner=owner)
                for no, attempt in zip(added.scalars(), attempts, strict=True)
            }
            await self._publish(connection, views)
        self._views |= views

    async def _publish(self, connection: AsyncConnection, views: Mapping[int, AttemptView]) -> int:
        finished = [render(view) for view in views.values()]
        given = {
            "nos": list(views),
            "docs": [one.doc for one in finished],
            "sels": [one.sel for one in finished],
        }
        published = await connection.execute(publish(), given)
        return int(published.scalar_one())

    def _attempt(self, owner: Owner, slot: int, now: datetime) -> Attempt:
        return queue(
            uid=uuid5(_NAMESPACE, f"{owner.name}-{slot}"),
            project=self.project,
            name=attempt_name(owner.name, str(slot), 1, owner.uid),
            workload=owner.uid,
            slot=str(slot),
            epoch=1,
            at=now,
            waiting_for=WaitingFor.LOOP,
        )


def _row(attempt: Attempt) -> dict[str, object]:
    return {
        "uid": attempt.uid,
        "project": attempt.project,
        "name": attempt.name,
        "workload": attempt.workload,
        "slot": attempt.slot,
        "epoch": attempt.epoch,
        "stage": attempt.stage.value,
        "waiting_for": attempt.waiting_for,
        "waiting_message": attempt.waiting_message,
        "queued": attempt.queued,
    }
