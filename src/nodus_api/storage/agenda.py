"""What there is to do, for every step of a pass by one read (SC-605).

Most steps of most passes find nothing to do, and asking for each apart was most of what a pass
said to the database. What was read holds until anything is written by way of the same `Database`,
so that a step finds what an earlier one of its pass has left to it. Like each query of `due` it is
a hint: whoever acts on it locks, reads again and decides.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import asyncpg

from nodus_api.storage import due, warm_due, work_due
from nodus_api.storage import tables as t
from nodus_api.storage.drill_store import due_schedules
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import StorageFault, StorageRefused, StorageTimeout
from nodus_api.storage.spending_store import spenders
from nodus_api.storage.statements import database_now

log = logging.getLogger(__name__)

_DRIVER: Any = asyncpg.dialect

WHOLE = 3
"""Reads of the whole a pass: one that goes on writing asks for each entry apart from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is found at once, and how old it must be."""

    batch: int
    """Workloads and machines a step."""
    at_once: int
    """Attempts a step."""
    silence: timedelta
    """Of a runner, before its machine is looked into (SC-614)."""
    grace: timedelta
    """Beyond the deadline of a drain."""
    accrual: timedelta
    """Between two bills of an Attempt (SC-508)."""


class Agenda:
    """What there is to do now. To be begun anew by each pass."""

    def __init__(self, database: Database, bounds: Bounds) -> None:
        self._database = database
        self._bounds = bounds
        self._read_at = 0
        self._found: sa.RowMapping | None = None
        self._reads = 0
        self._refused = False
        self._began: datetime | None = None

    def begin(self) -> None:
        """Forget what was read: a pass begins."""
        self._found = self._began = None
        self._reads = 0
        self._refused = False

    async def began(self) -> datetime:
        """Return the database's time when the agenda was first read in this pass."""
        if self._began is None:
            now = await self.now()
            self._began = self._began or now
        return self._began

    async def now(self) -> datetime:
        """Return the database's time when the agenda was read."""
        now: datetime = await self._entry("now")
        return now

    async def any(self, entry: str) -> bool:
        """Return whether there is something to do."""
        return bool(await self._entry(entry))

    async def attempts(self, entry: str) -> list[int]:
        """Return the numbers of the Attempts to be moved, in the order of its query."""
        found: list[int] = await self._entry(entry)
        return found

    async def workloads(self, entry: str) -> list[UUID]:
        """Return the workloads to be looked at, in the order of its query."""
        found: list[UUID] = await self._entry(entry)
        return found

    async def projects(self, entry: str) -> list[str]:
        """Return the projects to be looked at, in the order of its query."""
        found: list[str] = await self._entry(entry)
        return found

    async def _entry(self, name: str) -> Any:
        if self._refused:
            return await self._alone(name)
        if self._found is None or self._database.written != self._read_at:
            if self._reads == WHOLE:
                return await self._alone(name)
            at = self._database.written  # before the read: what is written meanwhile may be missing
            try:
                self._found = await self._read(_whole(self._bounds))
            except StorageFault as error:
                # what one query may not or cannot read must not keep the other steps from theirs
                if not isinstance(error, (StorageRefused, StorageTimeout)):  # whose step tells it
                    log.warning("each step asks for itself what there is to do", exc_info=True)
                self._refused = True
                self._began = self._began or await self._alone("now")
                return await self._alone(name)
            self._read_at = at
            self._reads += 1
            self._began = self._began or self._found["now"]
        return self._found[name]

    async def _alone(self, name: str) -> Any:
        return (await self._read(_one(self._bounds, name)))[name]

    async def _read(self, query: sa.TextClause) -> sa.RowMapping:
        async with self._database.single_reads() as connection:
            return (await connection.execute(query)).mappings().one()


@cache
def _whole(bounds: Bounds) -> sa.TextClause:
    return _spelt(sa.select(*(column.label(name) for name, column in _entries(bounds).items())))


@cache
def _one(bounds: Bounds, name: str) -> sa.TextClause:
    return _spelt(sa.select(_entries(bounds)[name].label(name)))


def _spelt(query: sa.Select[Any]) -> sa.TextClause:
    """Return a query as text, its values in it.

    Without parameters a server plans it once a session; with them each time, which takes several
    times as long as the reading.
    """
    values: dict[str, Any] = {"literal_binds": True}
    return sa.text(str(query.compile(dialect=_DRIVER(), compile_kwargs=values)))


@cache
def _entries(bounds: Bounds) -> Mapping[str, sa.ColumnElement[Any]]:
    batch, at_once = bounds.batch, bounds.at_once
    overdue = due.overdue(at_once, silence=bounds.silence, grace=bounds.grace)
    waiting = sa.select(t.commands.c.no).where(t.commands.c.applied.is_(None))
    return {
        "now": database_now,
        "drill turns": _list(due_schedules(), sa.Text),
        "intake": sa.exists(waiting),
        "stop": _list(due.to_stop(at_once), sa.BigInteger),
        "crowded": _list(work_due.crowded(batch), sa.Uuid),
        "limits": sa.exists(spenders()),
        "drill": sa.exists(due.drilled()),
        "funds": sa.or_(sa.exists(due.waiting_for_funds(1)), sa.exists(work_due.unfunded(1))),
        "unfunded": _list(work_due.unfunded(batch), sa.Uuid),
        "fill": _list(work_due.unfilled(batch), sa.Uuid),
        "place": _list(due.placeable(at_once), sa.BigInteger),
        "hedge": _list(due.hedgeable(at_once), sa.BigInteger),
        "warm": sa.exists(warm_due.warmable()),
        "request": sa.exists(due.requestable()),
        "signal": sa.exists(due.signallable(batch)),
        "reports": _list(due.reported(), sa.BigInteger),
        "deadlines": _list(overdue, sa.BigInteger),
        "end": _list(work_due.decided(batch), sa.Uuid),
        "release": sa.exists(due.releasable()),
        "accrue": _list(due.accruable(at_once, every=bounds.accrual), sa.BigInteger),
    }


def _list(query: sa.Select[Any], kind: Any) -> sa.ColumnElement[Any]:
    """Return the column of a query as a list, in its order."""
    return sa.func.array(query.scalar_subquery(), type_=postgresql.ARRAY(kind))
