"""Offers that no running supplier tells: read whole, planned, and written in one transaction.

The loop's own supplier writes through `CatalogStore`; an import leaves what that one offers alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.offering import OfferingClass
from nodus_api.storage import tables as t
from nodus_api.storage.bulk import as_json, upsert_rows
from nodus_api.storage.catalog_store import (
    CLASS_COLUMNS,
    OFFER_COLUMNS,
    OFFER_KEY,
    Offer,
    class_of,
    class_row,
    offer_of,
    offer_row,
)
from nodus_api.storage.engine import Database
from nodus_api.storage.supplier_ledger import reprice

IMPORT_LOCK = 7237386


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """All classes and offers that were ever known, those no longer on offer too.

    Classes by name, offers by the name of who offers them; `retired` are names of classes.
    """

    classes: Mapping[str, OfferingClass]
    retired: frozenset[str]
    offers: Mapping[str, Sequence[Offer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is to be written: classes, whether they are retired, and one supplier's offers.

    Only what differs from the stock; `Offer.enabled` says whether it is on offer.
    """

    supplier: str
    classes: Sequence[tuple[OfferingClass, bool]] = ()
    offers: Sequence[Offer] = ()


class Planned(Protocol):
    """A plan that knows what is to be written."""

    @property
    def edit(self) -> Edit:
        """Return what is to be written."""


P = TypeVar("P", bound=Planned)


class ImportStore:
    """The door to all classes and offers, for imports."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def stock(self) -> Stock:
        """Return what is known now."""
        async with self._database.snapshot() as connection:
            return await _stock(connection)

    async def change(self, plan: Callable[[Stock], P]) -> P:
        """Plan on what is known, and write the plan's edit, all or nothing; one import at a time.

        What `plan` raises is raised, and nothing is written.
        """
        async with self._database.transaction() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(IMPORT_LOCK)))
            planned = plan(await _stock(connection))
            await _write(connection, planned.edit)
        return planned


async def _stock(connection: AsyncConnection) -> Stock:
    classes = (await connection.execute(_all_classes())).mappings().all()
    rows = (await connection.execute(_all_offers())).mappings().all()
    offers: dict[str, list[Offer]] = {}
    for row in rows:
        offers.setdefault(row["supplier"], []).append(offer_of(row, {}))
    return Stock(
        classes={row["name"]: class_of(row) for row in classes},
        retired=frozenset(row["name"] for row in classes if row["retired"]),
        offers=offers,
    )


async def _write(connection: AsyncConnection, edit: Edit) -> None:
    """Write classes and then offers, each in the order of their keys, as the loop does."""
    classes = [class_row(one) | {"retired": retired} for one, retired in edit.classes]
    offers = [offer_row(edit.supplier, one) | {"enabled": one.enabled} for one in edit.offers]
    if classes:
        ordered = sorted(classes, key=lambda row: str(row["name"]))
        await connection.execute(_upsert_classes(), as_json(ordered))
    if offers:
        by_key = sorted(offers, key=lambda row: tuple(row[name] for name in OFFER_KEY))
        await connection.execute(_upsert_offers(), as_json(by_key))
        await reprice(connection, edit.supplier)


@cache
def _all_classes() -> sa.Select[Any]:
    return sa.select(t.offering_classes).order_by(t.offering_classes.c.name)


@cache
def _all_offers() -> sa.Select[Any]:
    return sa.select(t.supplier_offers, sa.literal(0).label("requested_since")).order_by(
        t.supplier_offers.c.no
    )


@cache
def _upsert_classes() -> postgresql.Insert:
    """Write classes, whether retired too. Primary key; an operator's `enabled` stays as it is."""
    return upsert_rows(t.offering_classes, ["name"], [*CLASS_COLUMNS, "retired"])


@cache
def _upsert_offers() -> postgresql.Insert:
    """Write offers, on offer or not. Unique key of the offer."""
    return upsert_rows(t.supplier_offers, OFFER_KEY, [*OFFER_COLUMNS, "enabled"])
