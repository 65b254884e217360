"""What can be rented: classes are public, offers and their statistics are not (SC-202, SC-203)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
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
from nodus_api.storage.conditions import machine_open
from nodus_api.storage.engine import Database
from nodus_api.storage.statements import bigints
from nodus_api.storage.supplier_ledger import reprice

CLASS_COLUMNS = (
    "accelerator", "form", "count", "accelerator_memory_gib", "vcpus", "memory_gib", "disk_gib",
    "arch", "region_class", "gang_capable", "rate_on_demand", "rate_spot", "speed",
    "reference_rate",
)  # fmt: skip
OFFER_KEY = ("supplier", "instance_type", "region", "zone")
OFFER_COLUMNS = (
    "class", "cost_on_demand", "cost_spot", "billing_increment_seconds", "minimum_seconds",
)  # fmt: skip
_STATS = ("stats", "available", "failures_in_row", "backoff_until", "updated")


_FAILURE = "failure"
"""The key in the JSON of statistics of why the offer rests."""


class Failure(StrEnum):
    """Why an offer did not deliver (SC-360, SC-617)."""

    NO_CAPACITY = "NoCapacity"
    QUOTA = "Quota"
    AUTH = "Auth"
    """The credentials were refused: the offer is closed until an answer of offers opens it."""
    NEVER_READY = "NeverReady"
    """Its machine failed to start up, or its checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferStats:
    """What is known of one offer in one market (SC-205, SC-360).

    `available` counts the machines that could be started at `updated`: 0 is none, None
    unknown. `stats` holds what needs no column, as JSON.
    """

    market: Market
    stats: Mapping[str, Any] = field(default_factory=dict)
    available: int | None = None
    failures_in_row: int = 0
    backoff_until: datetime | None = None
    updated: datetime

    @property
    def failure(self) -> Failure | None:
        """Why it rests until `backoff_until`; None if nobody noted it."""
        noted = self.stats.get(_FAILURE)
        return None if noted is None else Failure(noted)

    def failing(self, failure: Failure | None) -> "OfferStats":
        """Return them with this note of a failure, or with none."""
        others = {key: value for key, value in self.stats.items() if key != _FAILURE}
        noted = {} if failure is None else {_FAILURE: failure.value}
        return replace(self, stats=others | noted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One private row behind a class; `no` is None until it is written."""

    no: int | None = None
    offering: str
    instance_type: str
    region: str
    zone: str
    cost_on_demand: Decimal
    cost_spot: Decimal | None
    increment: timedelta
    minimum: timedelta
    enabled: bool = True
    available: int | None = None
    """As the supplier says now; kept in the statistics."""
    requested_since: int = 0
    """Machines asked for that `available` does not know of, as far as can be told."""
    stats: Mapping[Market, OfferStats] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        """Whether its supplier refused the credentials, which are one for both markets."""
        return any(one.failure is Failure.AUTH for one in self.stats.values())


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
                await reprice(connection, self._supplier)
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
        self._written, self._numbers = given, numbers
        return any(no not in before or _more(room, before[no]) for no, room in after.items())

    async def load(self) -> tuple[list[OfferingClass], list[Offer]]:
        """Return the classes not retired, and the supplier's offers with their statistics."""
        async with self._database.snapshot() as connection:
            classes = (await connection.execute(_classes())).mappings().all()
            offers = (await connection.execute(_offers(self._supplier))).mappings().all()
            stats = (await connection.execute(_stats_of(self._supplier))).mappings().all()
        known: dict[int, dict[Market, OfferStats]] = {}
        for row in stats:
            found = _stats(row)
            known.setdefault(row["offer"], {})[found.market] = found
        return [class_of(row) for row in classes], [
            offer_of(row, known.get(row["no"], {})) for row in offers
        ]

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


async def read_stats(
    connection: AsyncConnection, offers: Sequence[int]
) -> dict[tuple[int, Market], OfferStats]:
    """Return the statistics of offers. Primary key."""
    if not offers:
        return {}
    found = (await connection.execute(_stats_by_offer(), {"nos": list(offers)})).mappings().all()
    return {(row["offer"], Market(row["market"])): _stats(row) for row in found}


async def write_stats(
    connection: AsyncConnection, stats: Mapping[int, Sequence[OfferStats]]
) -> None:
    """Write statistics by offer, in the transaction of the outcome that changed them."""
    rows = [
        {
            "offer": offer,
            "market": one.market,
            "stats": one.stats,
            "available": one.available,
            "failures_in_row": one.failures_in_row,
            "backoff_until": one.backoff_until,
            "updated": one.updated,
        }
        for offer, several in sorted(stats.items())
        for one in several
    ]
    await _write(connection, _upsert_stats(), rows)


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
    insert = insert_rows(t.offering_stats, ["offer", "market", *_STATS])
    had_rested = t.offering_stats.c.backoff_until <= insert.excluded.updated
    stats = sa.case(
        (sa.and_(_closed(), had_rested), t.offering_stats.c.stats.op("-")(_FAILURE)),
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
        .values(stats=t.offering_stats.c.stats.op("-")(_FAILURE), backoff_until=None)
    )


def _closed() -> sa.ColumnElement[bool]:
    noted: sa.ColumnElement[bool] = t.offering_stats.c.stats[_FAILURE].astext == Failure.AUTH.value
    return noted


@cache
def _classes() -> sa.Select[Any]:
    return sa.select(t.offering_classes).where(t.offering_classes.c.retired.is_(False))


@cache
def _offers(supplier: str) -> sa.Select[Any]:
    """Offers of one supplier, with the machines that the last look at them may not have seen.

    A machine was there for sure if it was granted before the look, or had its handle.
    """
    looked = (
        sa.select(sa.func.max(t.offering_stats.c.updated))
        .where(t.offering_stats.c.offer == t.supplier_offers.c.no)
        .scalar_subquery()
    )
    since = (
        sa.select(sa.func.count())
        .where(t.machines.c.offer == t.supplier_offers.c.no, machine_open())
        .where(
            sa.or_(
                t.machines.c.granted >= looked,
                sa.and_(
                    t.machines.c.granted.is_(None),
                    sa.or_(t.machines.c.handle.is_(None), t.machines.c.requested >= looked),
                ),
            )
        )
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


@cache
def _stats_by_offer() -> sa.Select[Any]:
    return sa.select(t.offering_stats).where(t.offering_stats.c.offer == sa.any_(bigints("nos")))


@cache
def _upsert_stats() -> postgresql.Insert:
    return upsert_rows(t.offering_stats, ["offer", "market"], _STATS)


def offer_row(supplier: str, offer: Offer) -> dict[str, Any]:
    """Return the columns of an offer that are told by who offers it."""
    return {
        "supplier": supplier,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "zone": offer.zone,
        "class": offer.offering,
        "cost_on_demand": offer.cost_on_demand,
        "cost_spot": offer.cost_spot,
        "billing_increment_seconds": offer.increment // timedelta(seconds=1),
        "minimum_seconds": offer.minimum // timedelta(seconds=1),
    }


def class_row(one: OfferingClass) -> dict[str, Any]:
    """Return the columns of a class that are told by who offers it."""
    return {"name": one.name} | {name: getattr(one, name) for name in CLASS_COLUMNS}


def class_of(row: Any) -> OfferingClass:
    """Return the class of a row."""
    return OfferingClass(
        name=row["name"], enabled=row["enabled"], **{name: row[name] for name in CLASS_COLUMNS}
    )


def offer_of(row: Any, stats: Mapping[Market, OfferStats]) -> Offer:
    """Return the offer of a row that knows `requested_since`."""
    return Offer(
        no=row["no"],
        offering=row["class"],
        instance_type=row["instance_type"],
        region=row["region"],
        zone=row["zone"],
        cost_on_demand=row["cost_on_demand"],
        cost_spot=row["cost_spot"],
        increment=timedelta(seconds=row["billing_increment_seconds"]),
        minimum=timedelta(seconds=row["minimum_seconds"]),
        enabled=row["enabled"],
        requested_since=row["requested_since"],
        stats=stats,
    )


def _stats(row: Any) -> OfferStats:
    return OfferStats(
        market=Market(row["market"]),
        stats=row["stats"],
        available=row["available"],
        failures_in_row=row["failures_in_row"],
        backoff_until=row["backoff_until"],
        updated=row["updated"],
    )
