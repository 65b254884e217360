"""What can be rented: classes are public, offers and their statistics are not (SC-202, SC-203)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.offering import OfferingClass
from nodus_api.kernel.vocabulary import Market
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.bulk import as_json, insert_rows, upsert_rows
from nodus_api.storage.catalog_rows import (
    CLASS_COLUMNS,
    OFFER_COLUMNS,
    OFFER_KEY,
    News,
    Offer,
    class_of,
    class_row,
    offer_of,
    offer_row,
)
from nodus_api.storage.conditions import machine_open
from nodus_api.storage.engine import Database
from nodus_api.storage.offer_stats import (
    FAILURE,
    STATS_COLUMNS,
    Failure,
    OfferStats,
    read_stats,
    stats_of,
    write_stats,
)

__all__ = [
    "CLASS_COLUMNS",
    "OFFER_COLUMNS",
    "OFFER_KEY",
    "CatalogStore",
    "Failure",
    "News",
    "Offer",
    "OfferStats",
    "class_of",
    "class_row",
    "offer_of",
    "offer_row",
    "read_stats",
    "write_stats",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Catalog:
    """Rows of classes and offers as they were given."""

    classes: Sequence[Mapping[str, Any]]
    offers: Sequence[Mapping[str, Any]]


class CatalogStore:
    """The door to the classes and offers of one supplier; one a reign."""

    def __init__(self, database: Database, supplier: str) -> None:
        self._database = database
        self._supplier = supplier
        self._written: _Catalog | None = None
        self._numbers: Sequence[int] = ()
        self._loaded: tuple[Any, ...] | None = None
        self._looked = False
        self.touched: set[int] = set()
        """Offers whose statistics this reign has written since they were last read."""

    async def sync(
        self,
        token: int,
        classes: Sequence[OfferingClass],
        offers: Sequence[Offer],
        *,
        asked: datetime,
    ) -> bool:
        """Write what the supplier offers; what it no longer lists is disabled.

        `asked` is the database's time before the supplier was asked: what was made since then may
        be missing in its answer. It opens offers that were closed, if they had rested when the
        supplier was asked; the first answer of a reign opens all, since credentials are read when
        a process starts (SC-617). Classes and offers that are as this store wrote them last are not
        written again; what room they have is. Returns whether some offer has more room than when it
        was last seen, or is new.
        """
        given = _Catalog(
            classes=[class_row(one) for one in classes],
            offers=[offer_row(self._supplier, one) for one in offers],
        )
        async with self._database.transaction() as connection:
            await fence(connection, token)
            before = await self._rooms(connection)
            numbers = self._numbers
            if given != self._written:
                numbers = await self._write_catalog(connection, given)
            seen: list[dict[str, Any]] = [
                {
                    "offer": no,
                    "market": market,
                    "stats": {},
                    "available": offer.available,
                    "failures_in_row": 0,
                    "backoff_until": None,
                    "updated": asked,
                }
                for no, offer in zip(numbers, offers, strict=True)
                for market in Market
                if market is Market.ON_DEMAND or offer.cost_spot is not None
            ]
            await _write(connection, _seen(), seen)
            if self._written is None:
                await connection.execute(_open_closed(self._supplier))
            after = await self._rooms(connection)
        self._written, self._numbers, self._looked = given, numbers, True
        return any(no not in before or _more(room, before[no]) for no, room in after.items())

    async def load(self) -> tuple[list[OfferingClass], list[Offer]]:
        """Return the classes not retired, and the supplier's offers with their statistics."""
        async with self._database.snapshot() as connection:
            loaded = (await connection.execute(_versions())).one()
            classes = (await connection.execute(_classes())).mappings().all()
            offers = (await connection.execute(_offers(self._supplier))).mappings().all()
            stats = (await connection.execute(_stats_of(self._supplier))).mappings().all()
        known: dict[int, dict[Market, OfferStats]] = {}
        for row in stats:
            found = stats_of(row)
            known.setdefault(row["offer"], {})[found.market] = found
        self._loaded, self._looked = tuple(loaded), False
        self.touched.clear()
        return [class_of(row) for row in classes], [
            offer_of(row, known.get(row["no"], {})) for row in offers
        ]

    async def news(self, *, everything: bool) -> News | None:
        """Return what is new since the last load; None if classes or offers themselves changed.

        Statistics are those of offers that this reign has written to, or, for `everything` and
        after a look at what the supplier offers, those of all.
        """
        touched, whole = sorted(self.touched), everything or self._looked
        async with self._database.snapshot() as connection:
            if tuple((await connection.execute(_versions())).one()) != self._loaded:
                return None
            counts = (await connection.execute(_requested())).all()
            if whole:
                rows = (await connection.execute(_stats_of(self._supplier))).mappings().all()
                found = [(row["offer"], stats_of(row)) for row in rows]
                stats = {(offer, one.market): one for offer, one in found}
            else:
                stats = await read_stats(connection, touched)
        self.touched.difference_update(touched)
        self._looked = self._looked and not whole
        return News(stats=stats, requested={row.offer: row.requested for row in counts})

    async def _rooms(self, connection: AsyncConnection) -> dict[int, int | None]:
        """Return how many machines each offer has to give, as far as is known, by its number.

        What a look may not have seen counts as taken until the next: so an offer gains room even
        if it names the same number twice.
        """
        query = _rooms_of(self._supplier)
        return {row.no: row.room for row in await connection.execute(query)}

    async def _write_catalog(self, connection: AsyncConnection, given: _Catalog) -> list[int]:
        """Write classes and offers, and disable the others; return the offers' numbers."""
        await _write(connection, _upsert_classes(), given.classes)
        numbers = await self._write_offers(connection, given.offers)
        await connection.execute(
            sa.update(t.supplier_offers)
            .where(t.supplier_offers.c.supplier == self._supplier)
            .values(enabled=t.supplier_offers.c.no.in_(numbers))
        )
        return numbers

    async def _write_offers(
        self, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Upsert offers; return their numbers in the order given. Unique key of the offer."""
        if not rows:
            return []
        await connection.execute(_upsert_offers(), as_json(rows))
        offers = t.supplier_offers.c
        query = sa.select(offers.no, *(offers[name] for name in OFFER_KEY)).where(
            offers.supplier == self._supplier
        )
        numbers = {tuple(row[1:]): row[0] for row in (await connection.execute(query)).all()}
        return [numbers[tuple(row[name] for name in OFFER_KEY)] for row in rows]


def _more(room: int | None, before: int | None) -> bool:
    return before is not None and (room is None or room > before)


async def _write(
    connection: AsyncConnection, statement: sa.Executable, rows: Sequence[Mapping[str, Any]]
) -> None:
    if rows:
        await connection.execute(statement, as_json(rows))


@cache
def _upsert_classes() -> postgresql.Insert:
    """Write classes. Primary key; an operator's `enabled` and `retired` stay as they are."""
    return upsert_rows(t.offering_classes, ["name"], CLASS_COLUMNS)


@cache
def _upsert_offers() -> postgresql.Insert:
    """Write offers. Unique key of the offer."""
    return upsert_rows(t.supplier_offers, OFFER_KEY, OFFER_COLUMNS)


@cache
def _seen() -> postgresql.Insert:
    """Note what is available now, and leave the history of an offer as it is. Primary key.

    But it opens what was closed and had rested when it was looked.
    """
    insert = insert_rows(t.offering_stats, ["offer", "market", *STATS_COLUMNS])
    had_rested = t.offering_stats.c.backoff_until <= insert.excluded.updated
    stats = sa.case(
        (sa.and_(_closed(), had_rested), t.offering_stats.c.stats.op("-")(FAILURE)),
        else_=t.offering_stats.c.stats,
    )
    seen = {name: insert.excluded[name] for name in ("available", "updated")}
    return insert.on_conflict_do_update(
        index_elements=["offer", "market"], set_=seen | {"stats": stats}
    )


@cache
def _open_closed(supplier: str) -> sa.Update:
    """Open every closed offer of a supplier. Its offers are a few hundred."""
    offers = sa.select(t.supplier_offers.c.no).where(t.supplier_offers.c.supplier == supplier)
    return (
        sa.update(t.offering_stats)
        .where(t.offering_stats.c.offer.in_(offers), _closed())
        .values(stats=t.offering_stats.c.stats.op("-")(FAILURE), backoff_until=None)
    )


def _closed() -> sa.ColumnElement[bool]:
    noted: sa.ColumnElement[bool] = t.offering_stats.c.stats[FAILURE].astext == Failure.AUTH.value
    return noted


@cache
def _classes() -> sa.Select[Any]:
    return sa.select(t.offering_classes).where(t.offering_classes.c.retired.is_(False))


@cache
def _versions() -> sa.Select[Any]:
    """Tell one state of classes and offers from another: any write makes a newer row.

    Reads both tables whole, some thousands of rows.
    """
    newest: sa.ColumnElement[int] = sa.literal_column("max(xmin::text::bigint)")
    classes = sa.select(sa.func.count().label("n"), newest.label("x")).select_from(
        t.offering_classes
    )
    offers = sa.select(sa.func.count().label("n"), newest.label("x")).select_from(t.supplier_offers)
    one, other = classes.subquery("classes"), offers.subquery("offers")
    return sa.select(one.c.n, one.c.x, other.c.n, other.c.x).select_from(one.join(other, sa.true()))


@cache
def _requested() -> sa.Select[Any]:
    """Count for each offer the machines that its last look may not have seen, as `_offers` does.

    Partial index machines_open.
    """
    stats = t.offering_stats.c
    looked = (
        sa.select(stats.offer, sa.func.max(stats.updated).label("at"))
        .group_by(stats.offer)
        .subquery("looked")
    )
    return (
        sa.select(t.machines.c.offer, sa.func.count().label("requested"))
        .join(looked, looked.c.offer == t.machines.c.offer)
        .where(machine_open(), _unseen(looked.c.at))
        .group_by(t.machines.c.offer)
    )


def _unseen(looked: Any) -> sa.ColumnElement[bool]:
    """A machine that may not have been there when it was looked.

    It was there for sure if it was granted before, or had its handle.
    """
    machines = t.machines.c
    return sa.or_(
        machines.granted >= looked,
        sa.and_(
            machines.granted.is_(None),
            sa.or_(machines.handle.is_(None), machines.requested >= looked),
        ),
    )


@cache
def _offers(supplier: str) -> sa.Select[Any]:
    """Offers of one supplier, with the machines that the last look at them may not have seen."""
    looked = (
        sa.select(sa.func.max(t.offering_stats.c.updated))
        .where(t.offering_stats.c.offer == t.supplier_offers.c.no)
        .scalar_subquery()
    )
    since = (
        sa.select(sa.func.count())
        .where(t.machines.c.offer == t.supplier_offers.c.no, machine_open())
        .where(_unseen(looked))
        .scalar_subquery()
    )
    return (
        sa.select(t.supplier_offers, since.label("requested_since"))
        .where(t.supplier_offers.c.supplier == supplier, t.supplier_offers.c.enabled.is_(True))
        .order_by(t.supplier_offers.c.no)
    )


@cache
def _rooms_of(supplier: str) -> sa.Select[Any]:
    offers = _offers(supplier).subquery()
    stats = t.offering_stats.c
    room = stats.available - offers.c.requested_since
    return sa.select(offers.c.no, room.label("room")).outerjoin(
        t.offering_stats,
        sa.and_(stats.offer == offers.c.no, stats.market == Market.ON_DEMAND.value),
    )


@cache
def _stats_of(supplier: str) -> sa.Select[Any]:
    return (
        sa.select(t.offering_stats)
        .join(t.supplier_offers, t.supplier_offers.c.no == t.offering_stats.c.offer)
        .where(t.supplier_offers.c.supplier == supplier)
    )
