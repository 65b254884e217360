"""The private ledger of what machines cost Nodus, in rate periods (SC-504, SC-523).

Written in the transactions that grant a machine, prove it gone, or change its offer's price, so
that it has neither gap nor overlap. No reader of the API may see it (SC-203).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.supplier_cost import RatePeriod
from nodus_api.kernel.vocabulary import MachineState, Market
from nodus_api.storage import tables as t
from nodus_api.storage.bulk import as_json, rows_of
from nodus_api.storage.records import Machine
from nodus_api.storage.statements import database_now


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCosts:
    """What is known of one machine's costs: its periods, and what its Attempts were billed."""

    machine: int
    offering: str
    supplier: str
    increment: timedelta
    minimum: timedelta
    periods: tuple[RatePeriod, ...]
    charged: Decimal
    covered: Decimal


async def write_supplier_costs(
    connection: AsyncConnection, machines: Iterable[tuple[Machine | None, Machine, int]]
) -> None:
    """Open and close the periods of machines, each as it was, as it is, and its number.

    One opens where billing began; one that nobody knew when it was released, at what its supplier
    said then; and the open one ends when the machine is Gone.
    """
    opened, closed = [], []
    for before, after, number in machines:
        since = after.billing_start or after.billed_unheld_since
        known = before is not None and (before.billing_start or before.billed_unheld_since)
        if since is not None and not known:
            opened.append({"machine": number, "from_ts": since})
        was_gone = before is not None and before.state is MachineState.GONE
        if after.gone is not None and not was_gone:
            closed.append({"machine": number, "to_ts": after.gone})
    if opened:
        await connection.execute(_open(), as_json(opened))
    if closed:
        await connection.execute(_close(), as_json(closed))


async def reprice(connection: AsyncConnection, supplier: str) -> None:
    """Begin a new period for every machine whose offer has another cost now.

    A period that begins at this very moment gets the new rate itself.
    """
    at = {"supplier": supplier}
    await connection.execute(_corrected(), at)
    await connection.execute(_repriced(), at)


async def read_supplier_costs(connection: AsyncConnection) -> list[MachineCosts]:
    """Return every machine that has cost something and whose row is still kept."""
    rows = (await connection.execute(_costs())).mappings().all()
    periods: dict[int, list[RatePeriod]] = {}
    query = sa.select(t.supplier_costs).order_by(
        t.supplier_costs.c.machine, t.supplier_costs.c.from_ts
    )
    for row in (await connection.execute(query)).mappings():
        periods.setdefault(row["machine"], []).append(
            RatePeriod(start=row["from_ts"], end=row["to_ts"], rate_usd_per_hour=row["rate"])
        )
    return [_costs_of(row, periods[row["no"]]) for row in rows]


def _costs_of(row: Mapping[str, Any], periods: Sequence[RatePeriod]) -> MachineCosts:
    return MachineCosts(
        machine=row["no"],
        offering=row["offering"],
        supplier=row["supplier"],
        increment=timedelta(seconds=row["billing_increment_seconds"]),
        minimum=timedelta(seconds=row["minimum_seconds"]),
        periods=tuple(periods),
        charged=row["charged"],
        covered=row["covered"],
    )


def _cost() -> sa.ColumnElement[Any]:
    """What the offer of a machine costs in the market in which that was rented."""
    offers = t.supplier_offers.c
    spot = sa.func.coalesce(offers.cost_spot, offers.cost_on_demand)
    return sa.case((t.machines.c.market == Market.SPOT.value, spot), else_=offers.cost_on_demand)


@cache
def _open() -> postgresql.Insert:
    """Begin the first period of machines that have none, at their offer's cost of now."""
    given = rows_of(t.supplier_costs, ["machine", "from_ts"])
    rates = (
        sa.select(given.c.machine, given.c.from_ts, _cost())
        .join(t.machines, t.machines.c.no == given.c.machine)
        .join(t.supplier_offers, t.supplier_offers.c.no == t.machines.c.offer)
        .where(~sa.exists().where(t.supplier_costs.c.machine == given.c.machine))
    )
    return postgresql.insert(t.supplier_costs).from_select(["machine", "from_ts", "rate"], rates)


@cache
def _close() -> sa.Update:
    """End the open periods of machines that are gone. Uses `supplier_costs_open`."""
    given = rows_of(t.supplier_costs, ["machine", "to_ts"])
    costs = t.supplier_costs.c
    return (
        sa.update(t.supplier_costs)
        .where(costs.machine == given.c.machine, costs.to_ts.is_(None))
        .values(to_ts=sa.func.greatest(given.c.to_ts, costs.from_ts))
    )


@cache
def _moved() -> sa.Select[Any]:
    """Return open periods whose offer costs something else now. Uses `supplier_costs_open`."""
    costs = t.supplier_costs.c
    supplier = sa.bindparam("supplier", type_=sa.Text)
    return (
        sa.select(costs.machine, costs.from_ts, _cost().label("cost"))
        .join(t.machines, t.machines.c.no == costs.machine)
        .join(t.supplier_offers, t.supplier_offers.c.no == t.machines.c.offer)
        .where(costs.to_ts.is_(None), t.supplier_offers.c.supplier == supplier)
        .where(costs.rate != _cost())
    )


@cache
def _corrected() -> sa.Update:
    """Give a period that begins now the cost of now."""
    moved, costs = _moved().subquery(), t.supplier_costs.c
    return (
        sa.update(t.supplier_costs)
        .where(costs.machine == moved.c.machine, costs.from_ts == moved.c.from_ts)
        .where(costs.from_ts >= database_now)
        .values(rate=moved.c.cost)
    )


@cache
def _repriced() -> sa.Insert:
    """End periods now, and begin the next at the cost of now, by one statement."""
    moved, costs = _moved().subquery(), t.supplier_costs.c
    ended = (
        sa.update(t.supplier_costs)
        .where(costs.machine == moved.c.machine, costs.from_ts == moved.c.from_ts)
        .where(costs.from_ts < database_now)
        .values(to_ts=database_now)
        .returning(costs.machine, costs.to_ts, moved.c.cost)
        .cte("ended")
    )
    return sa.insert(t.supplier_costs).from_select(
        ["machine", "from_ts", "rate"], sa.select(ended.c.machine, ended.c.to_ts, ended.c.cost)
    )


@cache
def _costs() -> sa.Select[Any]:
    """Return machines with periods, and the sums of their ledger rows."""
    segments, offers = t.cost_segments.c, t.supplier_offers.c

    def sum_of(covered: bool) -> Any:
        total = sa.func.sum(segments.usd).filter(segments.covered.is_(covered))
        return (
            sa.select(sa.func.coalesce(total, 0))
            .where(segments.machine == t.machines.c.no)
            .scalar_subquery()
        )

    return (
        sa.select(
            t.machines.c.no,
            t.machines.c.offering,
            offers.supplier,
            offers.billing_increment_seconds,
            offers.minimum_seconds,
            sum_of(covered=False).label("charged"),
            sum_of(covered=True).label("covered"),
        )
        .join(t.supplier_offers, offers.no == t.machines.c.offer)
        .where(sa.exists().where(t.supplier_costs.c.machine == t.machines.c.no))
        .order_by(t.machines.c.no)
    )
