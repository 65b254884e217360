"""The statements by which a batch loads Attempts whole: each function builds one and runs none.

A batch has locked the Attempts first; none of these takes a lock. All read the Attempts :nos.
"""

from functools import cache
from typing import Any

import sqlalchemy as sa

from nodus_api.storage import fund_store
from nodus_api.storage import tables as t
from nodus_api.storage.statements import LEASE_STATE, SLOT_STATE, WORK, bigints

LEASE_READ = ("fence", "role", "rate", "token_sha256", *LEASE_STATE)


@cache
def attempts_by_no() -> sa.Select[Any]:
    """Return Attempts with their work, slot, workload, money and successor's name. Primary keys.

    And which of their children there are, so that nothing is asked for that no Attempt has.
    """
    later = t.attempts.alias("later")
    same_slot = sa.and_(
        later.c.workload == t.attempts.c.workload,
        later.c.slot == t.attempts.c.slot,
        later.c.epoch == t.attempts.c.superseded_by,
    )
    return (
        sa.select(
            t.attempts,
            *(t.attempt_work.c[name] for name in WORK),
            *(t.slots.c[name].label(f"slot_{name}") for name in SLOT_STATE),
            *(column.label(f"workload_{column.name}") for column in t.workloads.c),
            t.projects.c.organization,
            later.c.name.label("successor"),
            _unheard().label("unheard"),
            t.workloads.c.spec["limits"].has_key("maxCostUSD").label("limited"),
            *fund_store.columns(),
            *(_has(table).label(f"has_{table.name}") for table in _CHILDREN),
        )
        .join(t.attempt_work, t.attempt_work.c.attempt == t.attempts.c.no)
        .join(
            t.slots,
            sa.and_(
                t.slots.c.workload == t.attempts.c.workload, t.slots.c.slot == t.attempts.c.slot
            ),
        )
        .join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .join(t.projects, t.projects.c.name == t.attempts.c.project)
        .outerjoin(t.funds, t.funds.c.organization == t.projects.c.organization)
        .outerjoin(t.holds, t.holds.c.attempt == t.attempts.c.no)
        .outerjoin(later, same_slot)
        .where(t.attempts.c.no == sa.any_(bigints("nos")))
        .order_by(t.attempts.c.no)
    )


_CHILDREN = (
    t.placements,
    t.placement_rejections,
    t.cost_segments,
    t.interruptions,
    t.checkpoints,
    t.leases,
)


def _has(child: sa.Table) -> sa.Exists:
    return sa.exists().where(child.c.attempt == t.attempts.c.no).correlate(t.attempts)


def _unheard() -> sa.Exists:
    """Whether reports wait that may be applied: not those of a Requested machine (SC-606)."""
    reports = t.runner_reports.c
    return (
        sa.exists()
        .where(t.leases.c.attempt == t.attempts.c.no, sa.func.upper_inf(t.leases.c.held))
        .where(t.machines.c.no == t.leases.c.machine, t.machines.c.state != "Requested")
        .where(reports.machine == t.leases.c.machine, reports.fence == t.leases.c.fence)
        .where(reports.n > t.leases.c.last_report)
        .correlate(t.attempts)
    )


@cache
def placements_by_attempt() -> sa.Select[Any]:
    """Return placements with their class's region. Primary key."""
    return (
        sa.select(t.placements, t.offering_classes.c.region_class)
        .outerjoin(t.offering_classes, t.offering_classes.c.name == t.placements.c.offering)
        .where(t.placements.c.attempt == sa.any_(bigints("nos")))
    )


@cache
def children_by_attempt(table: sa.Table) -> sa.Select[Any]:
    """Return the rows of a child table of Attempts in order of its primary key."""
    return (
        sa.select(table)
        .where(table.c.attempt == sa.any_(bigints("nos")))
        .order_by(*table.primary_key.columns)
    )


@cache
def charged_by_workload() -> sa.Select[Any]:
    """Return what the workloads of Attempts were charged, archived Attempts too (SC-806).

    Only workloads with a limit: nobody else asks. Keys (workload, slot, epoch) and
    (attempt, machine, seq).
    """
    mine, every = t.attempts.alias("mine"), t.attempts.alias("every")
    limited = (
        sa.select(t.workloads.c.uid, t.workloads.c.archived_usd)
        .join(mine, mine.c.workload == t.workloads.c.uid)
        .where(mine.c.no == sa.any_(bigints("nos")))
        .where(t.workloads.c.spec["limits"].has_key("maxCostUSD"))
        .distinct()
        .subquery()
    )
    charged = sa.func.coalesce(sa.func.sum(t.cost_segments.c.usd), 0)
    return (
        sa.select(limited.c.uid, (limited.c.archived_usd + charged).label("charged"))
        .join(every, every.c.workload == limited.c.uid)
        .outerjoin(
            t.cost_segments,
            sa.and_(t.cost_segments.c.attempt == every.c.no, t.cost_segments.c.covered.is_(False)),
        )
        .group_by(limited.c.uid, limited.c.archived_usd)
    )


@cache
def checkpoints_by_attempt() -> sa.Select[Any]:
    """Return how many checkpoints Attempts committed, and the last. Uses `checkpoints_attempt`."""
    checkpoints = t.checkpoints.c
    return (
        sa.select(
            checkpoints.attempt,
            sa.func.count().label("count"),
            sa.func.max(checkpoints.seq).label("last_seq"),
            sa.func.max(checkpoints.committed).label("committed"),
        )
        .where(checkpoints.attempt == sa.any_(bigints("nos")))
        .group_by(checkpoints.attempt)
    )


@cache
def tenancies_by_attempt() -> sa.Select[Any]:
    """Return machines with the leases of Attempts, in order of machine. Key (attempt, machine)."""
    leases, later = t.leases.c, t.leases.alias("later")
    passed_on = sa.exists().where(later.c.machine == leases.machine, later.c.fence > leases.fence)
    return (
        sa.select(
            t.machines,
            t.supplier_offers.c.billing_increment_seconds,
            t.supplier_offers.c.minimum_seconds,
            t.offering_classes.c.region_class,
            leases.attempt,
            *(leases[name].label(f"lease_{name}") for name in LEASE_READ),
            sa.func.lower(leases.held).label("lease_held"),
            sa.func.upper(leases.held).label("lease_released"),
            (~passed_on).label("lease_latest"),
        )
        .join(t.machines, t.machines.c.no == leases.machine)
        .join(t.supplier_offers, t.supplier_offers.c.no == t.machines.c.offer)
        .join(t.offering_classes, t.offering_classes.c.name == t.machines.c.offering)
        .where(leases.attempt == sa.any_(bigints("nos")))
        .order_by(leases.attempt, leases.machine)
    )
