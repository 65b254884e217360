"""Which finished Attempts leave the API for the archive, and how (SC-806).

An Attempt may go only when nothing that is still to be decided, billed or shown depends on it:
its end would otherwise change what happens to the rest of its workload. That condition stands here
once (`_settled`); it finds the candidates, and it is asked again under their locks.
"""

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import aggregate_order_by

from nodus_api.kernel.replacement import MAX_UNSTARTED_GANGS
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.statements import bigints, database_now
from nodus_api.storage.wakeups import FEED, notify

_GOES_ON = ("Active", "Suspended")
"""Workloads that may yet start something."""
_UNDECIDED = ("Open", "Suspended", "Unfunded")
"""Slots that may get another epoch while their workload goes on."""
_UUIDS = postgresql.ARRAY(sa.Uuid)


_PARTITION = re.compile(r"attempts_archive_\d{6}")
_EXPIRED_PARTITIONS = sa.text("""
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'nodus.attempts_archive'::regclass AND c.relname ~ '^attempts_archive_[0-9]{6}$'
  AND (to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month') AT TIME ZONE 'UTC'
      <= nodus.now() - CAST(:older_than AS interval)
ORDER BY c.relname
""").bindparams(sa.bindparam("older_than", type_=sa.Interval))


class RetirementStore:
    """The door to the archive, for the one loop that leads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def deleted(self, workloads: Collection[UUID], limit: int) -> list[int]:
        """Return Attempts of Deleted workloads that may go. Key (workload, slot, epoch)."""
        given = {"workloads": sorted(workloads)}
        return await self._numbers(_deleted(limit), given)

    async def expired(self, older_than: timedelta, limit: int) -> list[int]:
        """Return Attempts that may go and ended that long ago, the oldest first."""
        return await self._numbers(_expired(limit), {"older_than": older_than})

    async def excess(self, kept: int, limit: int) -> list[int]:
        """Return Attempts that may go, beyond the newest `kept` finished ones of a project."""
        return await self._numbers(_excess(limit), {"kept": kept})

    async def deleted_workloads(self) -> list[UUID]:
        """Return the Deleted workloads that still have Attempts."""
        query = (
            sa.select(t.workloads.c.uid)
            .where(t.workloads.c.state == "Deleted")
            .where(sa.exists().where(t.attempts.c.workload == t.workloads.c.uid))
        )
        async with self._database.single_reads() as connection:
            return list((await connection.execute(query)).scalars())

    async def still_there(self, workloads: Collection[UUID]) -> set[UUID]:
        """Return those workloads that still have Attempts. Key (workload, slot, epoch)."""
        given = sa.func.unnest(_uuids("workloads")).column_valued("given")
        query = sa.select(given).where(sa.exists().where(t.attempts.c.workload == given))
        async with self._database.single_reads() as connection:
            found = await connection.execute(query, {"workloads": sorted(workloads)})
            return set(found.scalars())

    async def retire(self, token: int, nos: Sequence[int]) -> int:
        """Move those of the Attempts that may go into the archive; return how many did.

        One fenced transaction: the Attempts are locked in rising `no`, asked again, and `retire()`
        comes last. It takes each one's last document as it was published. One at a time, because
        two that make the same month's partition collide. Then, apart from it, the machines that
        nothing names any more are removed; what a crash leaves of them `tidy` finds. Raises
        FencedOff when another loop leads.
        """
        async with self._database.transaction() as connection:
            await fence(connection, token)
            given: dict[str, Any] = {"nos": list(nos)}
            await connection.execute(_alone())
            await connection.execute(_lock(), given)
            chosen = list((await connection.execute(_may_go(), given)).scalars())
            if not chosen:
                return 0
            held = {"nos": chosen}
            machines = list((await connection.execute(_machines_of(), held)).scalars())
            await connection.execute(_retire(), held)
        await notify(self._database, FEED)
        if machines:
            await self._drop_machines(token, t.machines.c.no == sa.any_(bigints("nos")), machines)
        return len(chosen)

    async def tidy(self, token: int) -> None:
        """Remove every machine that is Gone and that no lease names (storage.md section 7)."""
        await self._drop_machines(token, sa.true(), [])

    async def make_partitions(self, token: int) -> None:
        """Make the archive's partitions of this month and the next, before they are needed.

        The partition needs a short exclusive lock on the archive, which a long reader may hold up:
        it is given up after 200 ms and made at the next try, or by `retire()` itself. Never two at
        once: whoever makes one holds the transaction's advisory lock.
        """
        month = sa.func.make_interval(0, 1)
        async with self._database.transaction() as connection:
            await fence(connection, token)
            await connection.execute(_alone())
            await connection.execute(sa.text("SET LOCAL lock_timeout = '200ms'"))
            await connection.execute(sa.select(sa.func.nodus.ensure_archive(database_now)))
            await connection.execute(sa.select(sa.func.nodus.ensure_archive(database_now + month)))

    async def expired_partitions(self, older_than: timedelta) -> list[str]:
        """Return the archive's partitions whose whole month is that old, by name."""
        given = {"older_than": older_than}
        async with self._database.single_reads() as connection:
            return list((await connection.execute(_EXPIRED_PARTITIONS, given)).scalars())

    async def drop_partition(self, token: int, name: str) -> None:
        """Drop a month of the archive for good (storage.md section 7).

        Only the owner of the tables may, so it is done on a connection of its own in that role,
        in one transaction with the fence. Given up after 200 ms if a reader holds the archive.
        Raises FencedOff when another loop leads.
        """
        async with self._database.dedicated() as connection:
            await connection.execute("SET ROLE nodus_migrate")
            async with connection.transaction():
                leads = "SELECT 1 FROM nodus.leader WHERE token = $1 FOR SHARE"
                if await connection.fetchval(leads, token) is None:
                    raise FencedOff(token)
                await connection.execute("SET LOCAL lock_timeout = '200ms'")
                await connection.execute(f"DROP TABLE nodus.{_partition(name)}")

    async def forgotten(self, kept: Collection[UUID]) -> list[UUID]:
        """Return the workloads whose checkpoints nothing can ever be restored from.

        They are Deleted, which is final, and their Attempts are retired, so nothing of them runs.
        Of those, the ones among `kept`, and the ones with a checkpoint that is not `deleted` yet.
        """
        uid = t.workloads.c.uid
        known = sa.exists().where(
            t.checkpoints.c.workload == uid, t.checkpoints.c.deleted.is_(None)
        )
        query = (
            sa.select(uid)
            .where(t.workloads.c.state == "Deleted")
            .where(sa.or_(uid == sa.any_(_uuids("kept")), known))
            .where(~sa.exists().where(t.attempts.c.workload == uid))
            .order_by(uid)
        )
        async with self._database.single_reads() as connection:
            return list((await connection.execute(query, {"kept": sorted(kept)})).scalars())

    async def mark_dropped(self, token: int, workload: UUID) -> None:
        """Set `deleted` of a workload's checkpoints; the rows stay. Primary key."""
        dropped = t.checkpoints.c
        async with self._database.transaction() as connection:
            now = await fence(connection, token)
            await connection.execute(
                sa.update(t.checkpoints)
                .where(dropped.workload == workload, dropped.deleted.is_(None))
                .values(deleted=now)
            )

    async def _drop_machines(
        self, token: int, which: sa.ColumnElement[bool], machines: Sequence[int]
    ) -> None:
        unnamed = ~sa.exists().where(t.leases.c.machine == t.machines.c.no)
        async with self._database.transaction() as connection:
            await fence(connection, token)
            await connection.execute(
                sa.delete(t.machines).where(which, t.machines.c.state == "Gone", unnamed),
                {"nos": list(machines)} if machines else None,
            )

    async def _numbers(self, query: sa.Select[Any], given: dict[str, Any]) -> list[int]:
        async with self._database.single_reads() as connection:
            return list((await connection.execute(query, given)).scalars())


def _settled(one: Any) -> sa.ColumnElement[bool]:
    """Whether an Attempt has ended for good and nothing later depends on its row.

    Its machines are proven gone, or it never had one (SC-610), and so are those of the other ranks
    of its gang epoch, which say who pays for a rank that was Released (SC-520); no later epoch of
    its slot is about to start, which would complete its `recoverySeconds` (SC-016); and if its
    workload may go on:
    it is not the predecessor of an epoch to come (SC-105, SC-140), nor one of the gang epochs that
    are counted in a row (SC-132).
    """
    later, slot, workload = t.attempts.alias(), t.slots.alias(), t.workloads.alias()
    peer = t.attempts.alias()
    awaited = sa.exists().where(
        peer.c.workload == one.c.workload,
        peer.c.gang == one.c.gang,
        peer.c.gang_epoch == one.c.gang_epoch,
        ~_over(peer),
    )
    starting = sa.exists().where(
        later.c.workload == one.c.workload,
        later.c.slot == one.c.slot,
        later.c.epoch > one.c.epoch,
        later.c.finished.is_(None),
        later.c.command_started.is_(None),
    )
    recovers = (
        sa.exists()
        .where(t.interruptions.c.attempt == one.c.no)
        .where(t.interruptions.c.recovery_seconds.is_(None))
        .correlate(one)
    )
    needed = sa.exists().where(
        workload.c.uid == one.c.workload,
        workload.c.state.in_(_GOES_ON),
        slot.c.workload == one.c.workload,
        slot.c.slot == one.c.slot,
        sa.or_(
            sa.and_(
                slot.c.state.in_(_UNDECIDED),
                sa.or_(one.c.epoch == slot.c.current_epoch, recovers),
            ),
            sa.and_(
                one.c.gang.is_not(None),
                one.c.epoch > slot.c.current_epoch - MAX_UNSTARTED_GANGS,
            ),
        ),
    )
    return sa.and_(_over(one), ~awaited, ~starting, ~needed, ~_had_last(one))


def _had_last(one: Any) -> sa.ColumnElement[bool]:
    """Whether a warm machine was the Attempt's last: its lease is what the loop finds it by."""
    last, later = t.leases.alias(), t.leases.alias()
    return sa.exists().where(
        last.c.attempt == one.c.no,
        t.machines.c.no == last.c.machine,
        t.machines.c.state != "Gone",
        ~sa.exists().where(later.c.machine == last.c.machine, later.c.fence > last.c.fence),
    )


def _over(one: Any) -> sa.ColumnElement[bool]:
    """Whether an Attempt has ended and its machines are proven gone, or it never had one."""
    return sa.and_(
        one.c.finished.is_not(None),
        sa.or_(
            one.c.deletion_proven.is_not(None),
            ~sa.exists().where(t.leases.c.attempt == one.c.no),
        ),
    )


def _after_earlier(one: Any, *, within: Any = None) -> sa.ColumnElement[bool]:
    """Whether every earlier epoch of the slot may go too, and is among `within`, if given."""
    earlier = t.attempts.alias()
    stays: sa.ColumnElement[bool] = ~_settled(earlier)
    if within is not None:
        stays = sa.or_(stays, earlier.c.no != sa.all_(within))
    return ~sa.exists().where(
        earlier.c.workload == one.c.workload,
        earlier.c.slot == one.c.slot,
        earlier.c.epoch < one.c.epoch,
        stays,
    )


@cache
def _deleted(limit: int) -> sa.Select[Any]:
    one = t.attempts.alias("one")
    gone = sa.exists().where(t.workloads.c.uid == one.c.workload, t.workloads.c.state == "Deleted")
    return (
        sa.select(one.c.no)
        .where(one.c.workload == sa.any_(_uuids("workloads")), gone)
        .where(_settled(one), _after_earlier(one))
        .order_by(one.c.no)
        .limit(limit)
    )


@cache
def _expired(limit: int) -> sa.Select[Any]:
    """Select by age. Uses `attempts_expire`."""
    one = t.attempts.alias("one")
    old = one.c.finished <= database_now - sa.bindparam("older_than", type_=sa.Interval)
    return (
        sa.select(one.c.no)
        .where(old, _settled(one), _after_earlier(one))
        .order_by(one.c.finished, one.c.no)
        .limit(limit)
    )


@cache
def _excess(limit: int) -> sa.Select[Any]:
    """Select by rank; reads every finished Attempt that the API shows, so not in every pass."""
    finished = t.attempts.c
    place = (
        sa.select(
            finished.no,
            sa.func.row_number()
            .over(
                partition_by=finished.project,
                order_by=(finished.finished.desc(), finished.no.desc()),
            )
            .label("place"),
        )
        .where(finished.finished.is_not(None))
        .subquery()
    )
    one = t.attempts.alias("one")
    return (
        sa.select(one.c.no)
        .join(place, place.c.no == one.c.no)
        .where(place.c.place > sa.bindparam("kept", type_=sa.BigInteger))
        .where(_settled(one), _after_earlier(one))
        .order_by(one.c.finished, one.c.no)
        .limit(limit)
    )


@cache
def _lock() -> sa.Select[Any]:
    """Lock the Attempts :nos in rising `no`. Primary key."""
    return (
        sa.select(t.attempts.c.no)
        .where(t.attempts.c.no == sa.any_(bigints("nos")))
        .order_by(t.attempts.c.no)
        .with_for_update()
    )


@cache
def _may_go() -> sa.Select[Any]:
    """Select those of :nos that may go together. Primary key, key (workload, slot, epoch)."""
    one, nos = t.attempts.alias("one"), bigints("nos")
    return (
        sa.select(one.c.no)
        .where(one.c.no == sa.any_(nos), _settled(one), _after_earlier(one, within=nos))
        .order_by(one.c.no)
    )


@cache
def _machines_of() -> sa.Select[Any]:
    return (
        sa.select(t.leases.c.machine)
        .where(t.leases.c.attempt == sa.any_(bigints("nos")))
        .order_by(t.leases.c.machine)
    )


@cache
def _retire() -> sa.Select[Any]:
    """Archive the Attempts :nos with their published documents, last in a transaction.

    Locks the row of `feed` until the commit; logs their deletion, each with its last document.
    """
    nos, kept = bigints("nos"), t.attempt_objects.c
    given = (
        sa.func.unnest(nos).table_valued("no", with_ordinality="place").render_derived(name="given")
    )
    docs = (
        sa.select(sa.func.array_agg(aggregate_order_by(kept.doc, given.c.place)))
        .select_from(given.outerjoin(t.attempt_objects, kept.attempt == given.c.no))
        .scalar_subquery()
    )
    return sa.select(sa.func.nodus.retire(nos, docs))


def _partition(name: str) -> str:
    """Return a name that may stand in a statement; no other names a month of the archive."""
    if not _PARTITION.fullmatch(name):
        raise ValueError(f"{name!r} is no partition of the archive")
    return name


def _alone() -> sa.Select[Any]:
    return sa.select(sa.func.pg_advisory_xact_lock(ARCHIVE_LOCK))


def _uuids(name: str) -> Any:
    return sa.bindparam(name, type_=_UUIDS)


ARCHIVE_LOCK = 7237383
"""Advisory lock of whoever makes a partition of the archive."""
