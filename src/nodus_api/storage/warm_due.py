"""Which machines between two Attempts want the loop's attention now (SC-343): reads only.

Each function builds one query, once; what it finds is a hint, as in `due`.
"""

from functools import cache
from typing import Any

import sqlalchemy as sa

from nodus_api.storage import tables as t
from nodus_api.storage.conditions import machine_open
from nodus_api.storage.due import ANSWERED, has_come, open_machines
from nodus_api.storage.statements import bigints, database_now

_NAMED = ("no", "key", "handle", "state")
"""The columns that `open_machines` has in any case."""


@cache
def warm(limit: int) -> sa.Select[Any]:
    """Machines to wipe, to assign or to let go, or whose call was answered (SC-343)."""
    return (
        open_machines(
            t.leases.c.fence,
            t.machines.c.offer,
            _to_wipe().label("wipes"),
            _to_assign().label("assigns"),
            _cold().label("cold"),
        )
        .where(sa.or_(_to_wipe(), _to_assign(), _cold(), ANSWERED))
        .order_by(None)
        .order_by(ANSWERED.desc(), t.machines.c.no)
        .limit(sa.func.cardinality(bigints("answered")) + limit)
    )


@cache
def restarting() -> sa.Select[Any]:
    """Workloads of gangs of which a machine is about to be wiped for the next epoch (SC-134).

    Uses `machines_open`.
    """
    return (
        sa.select(t.workloads.c.uid)
        .select_from(t.machines)
        .join(t.leases, t.leases.c.machine == t.machines.c.no)
        .join(t.attempts, t.attempts.c.no == t.leases.c.attempt)
        .join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .where(machine_open(), t.machines.c.state == "Registered")
        .where(t.machines.c.warm_until.is_not(None), sa.func.upper_inf(t.leases.c.held))
        .where(t.attempts.c.gang.is_not(None), t.attempts.c.finished.is_not(None))
        .where(t.workloads.c.state == "Active")
    )


@cache
def warmable() -> sa.Select[Any]:
    """Whether `warm` finds any without an answer."""
    return open_machines().where(sa.or_(_to_wipe(), _to_assign(), _cold()))


@cache
def idle() -> sa.Select[Any]:
    """Warm machines that nobody has, those first that are kept the shortest (SC-343)."""
    return (
        open_machines(
            *(column for column in t.machines.c if column.name not in _NAMED),
            t.supplier_offers.c.billing_increment_seconds,
            t.supplier_offers.c.minimum_seconds,
            t.offering_classes.c.region_class,
            t.leases.c.fence,
            t.leases.c.rate,
            t.leases.c.wiped,
        )
        .join(t.supplier_offers, t.supplier_offers.c.no == t.machines.c.offer)
        .join(t.offering_classes, t.offering_classes.c.name == t.machines.c.offering)
        .where(t.machines.c.state == "Registered", t.machines.c.warm_until > database_now)
        .where(t.leases.c.wiped.is_not(None))
        .order_by(None)
        .order_by(t.machines.c.warm_until, t.machines.c.no)
    )


@cache
def warm_boots() -> sa.Select[Any]:
    """By class and market, how many published Attempts started on warm machines, and their p50.

    Uses `placements_warm`.
    """
    seconds = sa.func.extract("epoch", t.attempts.c.command_started - t.attempts.c.acquired)
    middle = sa.func.percentile_cont(0.5).within_group(seconds)
    return (
        sa.select(
            t.placements.c.offering,
            t.placements.c.market,
            sa.func.count().label("starts"),
            sa.cast(middle, sa.Float).label("p50"),
        )
        .join(t.attempts, t.attempts.c.no == t.placements.c.attempt)
        .where(t.placements.c.warm_reuse, t.attempts.c.command_started.is_not(None))
        .group_by(t.placements.c.offering, t.placements.c.market)
    )


def _to_wipe() -> sa.ColumnElement[bool]:
    ended = sa.exists().where(
        t.attempts.c.no == t.leases.c.attempt, t.attempts.c.finished.is_not(None)
    )
    return sa.and_(
        t.machines.c.state == "Registered",
        t.machines.c.warm_until.is_not(None),
        sa.func.upper_inf(t.leases.c.held),
        ended,
        has_come(t.machines.c.next_try),
    )


def _to_assign() -> sa.ColumnElement[bool]:
    return sa.and_(
        sa.or_(t.machines.c.state == "Granted", t.machines.c.state == "Registered"),
        t.leases.c.fence > 1,
        t.leases.c.assigned.is_(None),
        sa.func.upper_inf(t.leases.c.held),
        has_come(t.machines.c.next_try),
    )


def _cold() -> sa.ColumnElement[bool]:
    return sa.and_(
        t.machines.c.state == "Registered",
        t.machines.c.warm_until <= database_now,
        ~sa.func.upper_inf(t.leases.c.held),
    )
