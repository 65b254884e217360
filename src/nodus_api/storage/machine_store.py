"""Machines as the supplier steps look at them: which ones, by what handle, for whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from nodus_api.storage import due, warm_due
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.engine import Database
from nodus_api.storage.records import Machine
from nodus_api.storage.statements import bigints, database_now
from nodus_api.storage.work_rows import machine_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A machine that a step is about to ask the supplier about, and the Attempt it serves."""

    no: int
    key: str
    handle: str | None
    state: str
    attempt: int
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """Why nobody uses a machine (SC-611)."""

    cause: str
    left_by: int | None = None
    """The Attempt that had it last, where its row does not know that it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Races:
    """The live Attempts, and those in which two machines race for the start."""

    live: int
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleMachine:
    """A warm machine, the fence and rate of its last lease, and since when it is idle.

    `boot_p50` is how long such machines take to start a program, None while too few are known.
    """

    machine: Machine
    fence: int
    rate_usd_per_hour: Decimal
    since: datetime
    boot_p50: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferAddress:
    """Where an offer's machines are made; never shown to customers (SC-203)."""

    no: int
    instance_type: str
    region: str
    zone: str


class MachineStore:
    """The door to machines; they are written with their Attempts, in a batch."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def requested(self, limit: int, *, answered: Sequence[int] = ()) -> list[Sighting]:
        """Return intents that want a supplier call now, and those whose call was answered."""
        return await self._sightings(due.requested(limit), {"answered": list(answered)})

    async def observable(self) -> list[Sighting]:
        """Return the machines in use."""
        return await self._sightings(due.observable())

    async def warm(self, limit: int, *, answered: Sequence[int]) -> list[Sighting]:
        """Return machines to wipe, assign or let go now, and those whose call was answered."""
        return await self._sightings(warm_due.warm(limit), {"answered": list(answered)})

    async def idle(self) -> list[IdleMachine]:
        """Return the warm machines that nobody has, those first that are kept the shortest."""
        async with self._database.single_reads() as connection:
            rows = (await connection.execute(warm_due.idle())).mappings().all()
            if not rows:
                return []
            boots = (await connection.execute(warm_due.warm_boots())).mappings().all()
        known = {(one["offering"], one["market"]): one for one in boots}
        return [_idle_machine(row, known.get((row["offering"], row["market"]))) for row in rows]

    async def restarting(self) -> frozenset[UUID]:
        """Return the workloads of gangs that will have a machine that is not wiped yet (SC-134)."""
        async with self._database.single_reads() as connection:
            return frozenset((await connection.execute(warm_due.restarting())).scalars())

    async def races(self) -> Races:
        """Return how many Attempts live, and how many of them are hedged now (SC-340)."""
        async with self._database.single_reads() as connection:
            row = (await connection.execute(due.races())).mappings().one()
        return Races(live=row["live"], in_flight=row["in_flight"])

    async def signallable(self, limit: int) -> list[Sighting]:
        """Return machines whose Attempt drains and to which the order may not have come."""
        return await self._sightings(due.signallable(limit))

    async def drilled(self) -> list[Sighting]:
        """Return the machines of live Attempts for which a drill was asked."""
        return await self._sightings(due.drilled())

    async def releasing(self, limit: int, *, answered: Sequence[int] = ()) -> list[Sighting]:
        """Return machines to delete, or to prove gone, now, and those whose call was answered."""
        return await self._sightings(due.releasing(limit), {"answered": list(answered)})

    async def offer_addresses(self, numbers: list[int]) -> dict[int, OfferAddress]:
        """Return the private addresses of offers. Primary key."""
        async with self._database.single_reads() as connection:
            found = (await connection.execute(_addresses(), {"nos": numbers})).mappings().all()
        return {row["no"]: OfferAddress(**row) for row in found}

    async def unused(self, keys: Sequence[str], left_behind: timedelta) -> dict[str, Unused]:
        """Return why nobody uses a machine, by key; what is used is not in the answer (SC-611).

        Unique keys (key) and (machine, fence).
        """
        machines = t.machines.c
        late = sa.and_(
            machines.state != "Releasing",
            sa.func.coalesce(t.attempts.c.finished < database_now - left_behind, False),
            sa.or_(machines.warm_until.is_(None), machines.warm_until <= database_now),
        )
        query = (
            sa.select(
                machines.key,
                machines.state,
                sa.func.bool_and(late).label("late"),
                sa.func.max(t.leases.c.attempt).label("last"),
            )
            .outerjoin(t.leases, t.leases.c.machine == machines.no)
            .outerjoin(t.attempts, t.attempts.c.no == t.leases.c.attempt)
            .where(machines.key == sa.any_(sa.literal(list(keys), postgresql.ARRAY(sa.Text))))
            .group_by(machines.key, machines.state)
        )
        async with self._database.single_reads() as connection:
            rows = {row.key: row for row in await connection.execute(query)}
        unused = {key: Unused(cause="no row") for key in keys if key not in rows}
        for key, row in rows.items():
            if row.state == "Gone":
                unused[key] = Unused(cause="its row is Gone")
            elif row.late:
                unused[key] = Unused(cause="its Attempt ended long ago", left_by=row.last)
        return unused

    async def record_orphan(
        self, token: int, *, supplier: str, handle: str, cause: str, gone: bool
    ) -> None:
        """Note a machine that nobody uses, once while it is not gone (SC-611)."""
        orphans = t.orphans.c
        known = sa.and_(
            orphans.supplier == supplier, orphans.handle == handle, orphans.gone.is_(None)
        )
        async with self._database.transaction() as connection:
            now: datetime = await fence(connection, token)
            found = (await connection.execute(sa.select(orphans.no).where(known))).scalar()
            if found is None:
                row = {"supplier": supplier, "handle": handle, "cause": cause, "found": now}
                await connection.execute(
                    sa.insert(t.orphans).values(row | {"gone": now if gone else None})
                )
            elif gone:
                await connection.execute(
                    sa.update(t.orphans).where(orphans.no == found).values(gone=database_now)
                )

    async def open_orphans(self, supplier: str) -> list[str]:
        """Return the handles of orphans that are not known to be gone (SC-611)."""
        orphans = t.orphans.c
        query = sa.select(orphans.handle).where(
            orphans.supplier == supplier, orphans.gone.is_(None)
        )
        async with self._database.single_reads() as connection:
            return list((await connection.execute(query)).scalars())

    async def _sightings(
        self, query: sa.Select[Any], given: Mapping[str, Any] | None = None
    ) -> list[Sighting]:
        async with self._database.single_reads() as connection:
            rows = (await connection.execute(query, given)).mappings().all()
        return [
            Sighting(
                no=row["no"],
                key=row["key"],
                handle=row["handle"],
                state=row["state"],
                attempt=row["attempt"],
                details=row,
            )
            for row in rows
        ]


FEWEST_BOOTS = 5
"""So many warm starts of a class are needed before their median says more than the prior."""


def _idle_machine(row: sa.RowMapping, boots: sa.RowMapping | None) -> IdleMachine:
    known = boots is not None and boots["starts"] >= FEWEST_BOOTS
    return IdleMachine(
        machine=machine_of(row),
        fence=row["fence"],
        rate_usd_per_hour=row["rate"],
        since=row["wiped"],
        boot_p50=boots["p50"] if boots is not None and known else None,
    )


@cache
def _addresses() -> sa.Select[Any]:
    offers = t.supplier_offers.c
    return sa.select(offers.no, offers.instance_type, offers.region, offers.zone).where(
        offers.no == sa.any_(bigints("nos"))
    )
