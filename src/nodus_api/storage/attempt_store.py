"""Attempts as the loop reads and writes them: a batch is one fenced transaction.

A batch locks its Attempts in rising `no`, loads them whole, takes the records that a
decision returned, writes what differs, publishes the finished documents last, and wakes
the readers after the commit.

Decision 3. Decisions return records and the store writes the difference. Context: every
step of the loop may move any of ten tables. Choice: one place compares and writes, so no
step can forget a row, its guard or `publish`. Cost: a batch loads rows that a step may
not need (up to nine statements a batch, whatever its size).
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.attempt import AttemptView, Owner, Rejection
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import attempt_rows as rows
from nodus_api.storage import due, reads, statements
from nodus_api.storage import tables as t
from nodus_api.storage.batch import Batch, Render, flush
from nodus_api.storage.bulk import Row
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.fund_store import account_of, hold_of
from nodus_api.storage.gang_store import GangEpoch, gangs_of
from nodus_api.storage.proposal_store import proposals_of
from nodus_api.storage.records import AttemptRecord, Proposal
from nodus_api.storage.wakeups import FEED, notify
from nodus_api.storage.work_rows import slot_of, tenancy_of, work_of, workload_of


class AttemptStore:
    """The door to Attempts for the one loop that leads with `token`."""

    def __init__(self, database: Database, render: Render) -> None:
        self._database = database
        self._render = render

    @asynccontextmanager
    async def batch(self, token: int, nos: Sequence[int] = ()) -> AsyncIterator["Batch"]:
        """Open a fenced transaction over those Attempts; written and published at the end.

        A rank brings the whole of its gang epoch, so that a decision sees all of it (SC-130).
        An Attempt that is gone is missing from the batch. Raises FencedOff when another
        loop leads, StorageConflict when a guard refused a row; either way nothing stands.
        """
        async with self._database.transaction() as connection:
            now = await fence(connection, token)
            batch = Batch(connection=connection, now=now)
            if nos:
                locked = (
                    (await connection.execute(statements.lock_attempts(), {"nos": list(nos)}))
                    .scalars()
                    .all()
                )
                batch.loaded = await load(connection, locked)
                batch.records = dict(batch.loaded)
                batch.accounts = {
                    one.account.organization: one.account
                    for one in batch.loaded.values()
                    if one.account is not None
                }
            yield batch
            published = await flush(batch, self._render)
        if published:
            await self.wake_readers()

    async def wake_readers(self) -> None:
        """Tell the feed's readers that something was committed; a hint, no payload."""
        await notify(self._database, FEED)

    async def now(self) -> datetime:
        """Return the database's time."""
        async with self._database.single_reads() as connection:
            found = await connection.execute(sa.select(statements.database_now))
            now: datetime = found.scalar_one()
            return now

    async def until_next(self, since: datetime) -> timedelta | None:
        """Return how long until a row wants attention by its own time; None if none does.

        Moments count that have come after `since`, when it was last looked what wants it.
        """
        async with self._database.single_reads() as connection:
            found = await connection.execute(due.next_moment(), {"since": since})
            wait: timedelta | None = found.scalar()
        return wait

    async def gangs(self, nos: Sequence[int]) -> dict[int, GangEpoch]:
        """Return the gang epochs of those Attempts that belong to one."""
        async with self._database.single_reads() as connection:
            return await gangs_of(connection, nos)

    async def nos(self, query: sa.Select[Any]) -> list[int]:
        """Return the Attempts that a query of `due` finds, without locking them."""
        async with self._database.single_reads() as connection:
            return list((await connection.execute(query)).scalars())


async def fence(connection: AsyncConnection, token: int) -> datetime:
    """Begin a writing transaction of the loop; return the database's time (SC-602).

    Raises FencedOff if `token` no longer leads.
    """
    now: datetime | None = (await connection.execute(statements.fence(), {"token": token})).scalar()
    if now is None:
        raise FencedOff(token)
    return now


async def load(connection: AsyncConnection, nos: Sequence[int]) -> dict[int, AttemptRecord]:
    """Load Attempts whole, in rising `no`."""
    if not nos:
        return {}
    given = {"nos": list(nos)}

    attempts = (await connection.execute(reads.attempts_by_no(), given)).mappings().all()

    async def children(of: sa.Table, query: sa.Select[Any]) -> defaultdict[int, list[Row]]:
        found: defaultdict[int, list[Row]] = defaultdict(list)
        if any(row[f"has_{of.name}"] for row in attempts):
            for row in (await connection.execute(query, given)).mappings():
                found[row["attempt"]].append(row)
        return found

    async def rows_of(table: sa.Table) -> defaultdict[int, list[Row]]:
        return await children(table, reads.children_by_attempt(table))

    placements = await children(t.placements, reads.placements_by_attempt())
    rejections = await rows_of(t.placement_rejections)
    segments = await rows_of(t.cost_segments)
    interruptions = await rows_of(t.interruptions)
    checkpoints = await children(t.checkpoints, reads.checkpoints_by_attempt())
    tenancies = await children(t.leases, reads.tenancies_by_attempt())
    in_gangs = [row["no"] for row in attempts if row["gang"] is not None]
    proposals = await proposals_of(connection, in_gangs) if in_gangs else {}
    charged: dict[UUID, Decimal] = {}
    if any(row["limited"] for row in attempts):
        limited = await connection.execute(reads.charged_by_workload(), given)
        charged = {row.uid: row.charged for row in limited}
    return {
        row["no"]: _record(
            row,
            placement=_one(placements[row["no"]]),
            rejections=rejections[row["no"]],
            segments=segments[row["no"]],
            interruption=_one(interruptions[row["no"]]),
            checkpoints=_one(checkpoints[row["no"]]),
            tenancies=tenancies[row["no"]],
            charged=charged.get(row["workload"]),
            proposal=proposals.get(row["no"]),
        )
        for row in attempts
    }


def _record(
    row: Row,
    *,
    placement: Row | None,
    rejections: Iterable[Row],
    segments: Iterable[Row],
    interruption: Row | None,
    checkpoints: Row | None,
    tenancies: Iterable[Row],
    charged: Decimal | None,
    proposal: Proposal | None,
) -> AttemptRecord:
    attempt = rows.attempt_of(
        row,
        rows.interruption_of(interruption) if interruption else None,
        checkpoints["committed"] if checkpoints else None,
    )
    ledger = tuple(rows.segment_of(one) for one in segments)
    own = sum((one.usd for one in ledger if not one.covered), Decimal(0))
    rejected = [Rejection(offering=one["offering"], reason=one["reason"]) for one in rejections]
    return AttemptRecord(
        no=row["no"],
        view=AttemptView(
            attempt=attempt,
            owner=Owner(
                kind=OwnerKind(row["workload_kind"]),
                name=row["workload_name"],
                uid=row["workload_uid"],
            ),
            placement=rows.placement_of(placement, rejected) if placement else None,
            segments=ledger,
            checkpoints=rows.checkpoints_of(row, checkpoints),
            successor=row["successor"],
        ),
        work=work_of(row),
        spent_elsewhere=Decimal(0) if charged is None else charged - own,
        tenancies=tuple(tenancy_of(one) for one in tenancies),
        slot=slot_of(row, "slot_"),
        workload=workload_of(row, "workload_"),
        hold=hold_of(row),
        account=account_of(row),
        proposal=proposal,
        unheard=row["unheard"],
    )


def _one(found: Sequence[Row]) -> Row | None:
    return found[0] if found else None
