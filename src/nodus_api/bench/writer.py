"""Attempts written and published as the scheduler writes them, without its loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.attempts.projection import RenderedAttempt, render
from nodus_api.kernel.attempt import Attempt, AttemptView, Owner, Placement, Rejection
from nodus_api.kernel.lifecycle import queue
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.vocabulary import OwnerKind, Profile, WaitingFor
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_rows import identity_row, placement_row, state_row
from nodus_api.storage.bulk import as_json
from nodus_api.storage.engine import Database
from nodus_api.storage.statements import (
    advance_attempts,
    insert_attempts,
    insert_rejections,
    publish,
    write_placements,
)
from nodus_api.storage.wakeups import FEED, notify

_NAMESPACE = UUID("6f0d4c8e-1e57-5f43-9f0a-3b1c2d4e5f60")
_MOST_PUBLISHED = 1000  # attempts in one commit (storage.md section 1)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Attempts as they are to be, and their documents in the same order."""

    views: Mapping[int, AttemptView]
    documents: Sequence[RenderedAttempt]


@dataclass(slots=True)
class Writer:
    """One writing client of the log."""

    database: Database
    owner: str
    """The name of its Jobs, one in each project."""
    project: str = "default"
    _views: dict[int, AttemptView] = field(default_factory=dict)
    _changes: int = 0

    async def fill(self, count: int, *, now: datetime, projects: int = 1) -> Sequence[int]:
        """Add `count` queued Attempts, a Job in each of so many projects; return their numbers.

        Their documents have about the size of a live Attempt's, 1.9 KB. The first project is
        `self.project`, the others are numbered after it.
        """
        share, more = divmod(count, projects)
        for number in range(projects):
            project = self.project if number == 0 else f"{self.project}-{number}"
            await self._fill(project, share + (number < more), now)
        return sorted(self._views)

    async def _fill(self, project: str, count: int, now: datetime) -> None:
        owner = Owner(
            kind=OwnerKind.JOB, name=self.owner, uid=uuid5(_NAMESPACE, f"{project}/{self.owner}")
        )
        attempts = [_queued(project, owner, slot, now) for slot in range(count)]
        async with self.database.transaction() as connection:
            made = postgresql.insert(t.projects).values(name=project).on_conflict_do_nothing()
            await connection.execute(made)
            await connection.execute(
                sa.insert(t.workloads).values(
                    uid=owner.uid,
                    project=project,
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

    async def change(self, nos: Sequence[int]) -> int:
        """Change Attempts and publish them, in one transaction; return the last revision.

        By the statements of the scheduler's batches, at most 1,000 at once.
        """
        return await self.write(self.render(nos))

    def render(self, nos: Sequence[int]) -> Rendered:
        """Make the next change of each of these Attempts, with its document."""
        views = {}
        for no in nos:
            self._changes += 1
            message = f"change {self._changes}"  # an equal document takes no revision (LW-216)
            view = self._views[no]
            views[no] = replace(view, attempt=replace(view.attempt, waiting_message=message))
        return Rendered(views, [render(view) for view in views.values()])

    async def write(self, change: Rendered) -> int:
        """Write and publish what was rendered; return the last revision."""
        given = [
            {"no": no, "epoch": 1, "expected": view.attempt.stage} | state_row(view.attempt)
            for no, view in change.views.items()
        ]
        async with self.database.transaction() as connection:
            await connection.execute(advance_attempts(), as_json(given))
            rev = await _publish(connection, change)
        self._views |= change.views
        return rev

    def documents(self, nos: Sequence[int]) -> list[bytes]:
        """Return the documents of Attempts as they stand."""
        return [render(self._views[no]).doc for no in nos]

    async def wake(self) -> None:
        """Tell the readers, in a small transaction after the commit, as the scheduler does."""
        await notify(self.database, FEED)

    async def _add(self, owner: Owner, attempts: Sequence[Attempt]) -> None:
        async with self.database.transaction() as connection:
            given = [identity_row(one) | state_row(one) for one in attempts]
            added = await connection.execute(insert_attempts(), as_json(given))
            numbers = {uid: no for no, uid in added}
            views = {
                numbers[one.uid]: AttemptView(attempt=one, owner=owner, placement=_PLACEMENT)
                for one in attempts
            }
            placed = [{"attempt": no} | placement_row(_PLACEMENT) for no in views]
            await connection.execute(write_placements(), as_json(placed))
            rejected = [
                {"attempt": no, "ord": place, "offering": one.offering, "reason": one.reason}
                for no in views
                for place, one in enumerate(_PLACEMENT.rejected)
            ]
            await connection.execute(insert_rejections(), as_json(rejected))
            await _publish(connection, Rendered(views, [render(one) for one in views.values()]))
        self._views |= views


async def _publish(connection: AsyncConnection, change: Rendered) -> int:
    given = {
        "nos": list(change.views),
        "docs": [one.doc for one in change.documents],
        "sels": [one.sel for one in change.documents],
    }
    return int((await connection.execute(publish(), given)).scalar_one())


_PLACEMENT = Placement(
    profile=Profile.BALANCED,
    candidates=24,
    rejected=tuple(
        Rejection(offering=f"example-class-{number}", reason="InsufficientMemory")
        for number in range(20)
    ),
)


def _queued(project: str, owner: Owner, slot: int, now: datetime) -> Attempt:
    return queue(
        uid=uuid5(owner.uid, f"{slot}/1"),
        project=project,
        name=attempt_name(owner.name, str(slot), 1, owner.uid),
        workload=owner.uid,
        slot=str(slot),
        epoch=1,
        at=now,
        waiting_for=WaitingFor.LOOP,
    )
