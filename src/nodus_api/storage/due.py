"""Which rows want the loop's attention now (SC-605): reads only, nothing is locked.

Each function builds one query, once. What it finds is a hint: the batch that follows locks,
reads again and decides. "Now" is the database's.
"""

from datetime import timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from nodus_api.storage import tables as t
from nodus_api.storage.conditions import machine_open
from nodus_api.storage.statements import bigints, database_now

_QUEUED = ("Pending", "Placing")
_ON_MACHINES = ("Acquiring", "Starting", "Running")
ANSWERED = t.machines.c.no == sa.any_(bigints("answered"))
"""Whether a machine is among the :answered ones."""


def has_come(moment: Any) -> sa.ColumnElement[bool]:
    """Whether a moment has come, or none is set."""
    return sa.or_(moment.is_(None), moment <= database_now)


def _live() -> sa.Select[Any]:
    """Live Attempts with their work. Uses `attempts_live`."""
    return (
        sa.select(t.attempts.c.no)
        .join(t.attempt_work, t.attempt_work.c.attempt == t.attempts.c.no)
        .where(t.attempts.c.deletion_proven.is_(None), t.attempts.c.finished.is_(None))
        .order_by(t.attempts.c.no)
    )


@cache
def placeable(limit: int) -> sa.Select[Any]:
    """Queued Attempts whose next try has come: projects in turn, each its oldest first (SC-371).

    A gang takes one turn, before singles of its age.
    """
    attempts = t.attempts.c
    unit = sa.func.coalesce(attempts.gang, sa.cast(attempts.no, sa.Text))
    oldest = (attempts.queued, attempts.gang.is_(None))
    turn = sa.func.dense_rank().over(partition_by=attempts.project, order_by=(*oldest, unit))
    due = (
        _live()
        .add_columns(attempts.queued, attempts.gang, turn.label("turn"))
        .where(attempts.stage.in_(_QUEUED), has_come(t.attempt_work.c.next_try))
        .order_by(None)
        .subquery()
    )
    return (
        sa.select(due.c.no)
        .order_by(due.c.turn, due.c.queued, due.c.gang.is_(None), due.c.no)
        .limit(limit)
    )


@cache
def to_stop(limit: int) -> sa.Select[Any]:
    """Live Attempts that nothing stops yet, though workload or slot no longer wants them."""
    unwanted = sa.or_(
        t.workloads.c.state != "Active", t.slots.c.state != "Open", t.slots.c.wanted.is_(False)
    )
    return (
        _live()
        .join(t.workloads, t.workloads.c.uid == t.attempts.c.workload)
        .join(
            t.slots,
            sa.and_(
                t.slots.c.workload == t.attempts.c.workload, t.slots.c.slot == t.attempts.c.slot
            ),
        )
        .where(unwanted, t.attempt_work.c.drain_cause.is_(None))
        .limit(limit)
    )


@cache
def overdue(limit: int, *, silence: timedelta, grace: timedelta) -> sa.Select[Any]:
    """Live Attempts with a limit that has passed, or a runner silent for `silence`."""
    work = t.attempt_work.c
    return (
        _live()
        .where(
            sa.or_(
                work.limit_at <= database_now,
                sa.and_(
                    t.attempts.c.stage.in_((*_QUEUED, "Acquiring")),
                    work.start_deadline <= database_now,
                ),
                work.drain_deadline <= database_now - grace,
                sa.and_(
                    work.drain_cause.is_not(None), t.attempts.c.stage.in_(("Acquiring", "Starting"))
                ),
                sa.and_(
                    t.attempts.c.stage == "Running", work.last_heartbeat <= database_now - silence
                ),
                work.suspect_since.is_not(None),
            )
        )
        .limit(limit)
    )


@cache
def hedgeable(limit: int) -> sa.Select[Any]:
    """Live Attempts late to run, for which a second machine may be asked (SC-340), latest first."""
    work = t.attempt_work.c
    return (
        _live()
        .where(t.attempts.c.stage.in_(("Acquiring", "Starting")), work.hedge_at <= database_now)
        .where(work.drain_cause.is_(None))
        .order_by(None)
        .order_by(work.hedge_at, t.attempts.c.no)
        .limit(limit)
    )


@cache
def races() -> sa.Select[int, int]:
    """How many Attempts are live, and in how many a hedge races. Uses `attempts_live`."""
    hedged = sa.exists().where(
        t.leases.c.attempt == t.attempts.c.no,
        t.leases.c.role == "hedge",
        sa.func.upper_inf(t.leases.c.held),
    )
    racing = sa.and_(t.attempts.c.stage.in_(("Acquiring", "Starting")), hedged)
    return sa.select(
        sa.func.count().label("live"), sa.func.count().filter(racing).label("in_flight")
    ).where(t.attempts.c.deletion_proven.is_(None), t.attempts.c.finished.is_(None))


@cache
def accruable(limit: int, *, every: timedelta) -> sa.Select[Any]:
    """Attempts on a machine with a later proof of life than their bill shows (SC-508)."""
    work = t.attempt_work.c
    shown = sa.func.coalesce(work.accrued, t.attempts.c.billing_start)
    alive = sa.func.greatest(work.watermark, work.last_heartbeat)
    return (
        _live()
        .where(t.attempts.c.billing_start.is_not(None), shown <= database_now - every)
        .where(alive > shown)
        .limit(limit)
    )


@cache
def reported() -> sa.Select[Any]:
    """Attempts with reports that wait and whose machine is no longer just Requested."""
    return (
        sa.select(t.leases.c.attempt)
        .join(
            t.runner_reports,
            sa.and_(
                t.runner_reports.c.machine == t.leases.c.machine,
                t.runner_reports.c.fence == t.leases.c.fence,
            ),
        )
        .join(t.machines, t.machines.c.no == t.leases.c.machine)
        .where(t.machines.c.state != "Requested")
        .group_by(t.leases.c.attempt)
        .order_by(t.leases.c.attempt)
    )


def open_machines(*columns: Any) -> sa.Select[Any]:
    """Machines that are not Gone, with the Attempt of their latest lease. Uses `machines_open`."""
    later = t.leases.alias("later")
    return (
        sa.select(
            t.machines.c.no,
            t.machines.c.key,
            t.machines.c.handle,
            t.machines.c.state,
            t.leases.c.attempt,
            *columns,
        )
        .join(t.leases, t.leases.c.machine == t.machines.c.no)
        .where(machine_open())
        .where(
            ~sa.exists().where(
                later.c.machine == t.leases.c.machine, later.c.fence > t.leases.c.fence
            )
        )
        .order_by(t.machines.c.no)
    )


@cache
def requested(limit: int) -> sa.Select[Any]:
    """Intents whose next try has come, whose runner has reported already, or the :answered ones.

    With a handle the supplier knows it and is asked again in its own time, reports or not.
    """
    return (
        open_machines(t.machines.c.tries, t.machines.c.offer, t.leases.c.fence)
        .where(t.machines.c.state == "Requested")
        .where(sa.or_(_to_request(), ANSWERED))
        .order_by(None)
        .order_by(ANSWERED.desc(), t.machines.c.no)
        .limit(sa.func.cardinality(bigints("answered")) + limit)
    )


@cache
def requestable() -> sa.Select[Any]:
    """Whether `requested` finds any without an answer."""
    return open_machines().where(t.machines.c.state == "Requested", _to_request())


def _to_request() -> sa.ColumnElement[bool]:
    reports = sa.exists().where(t.runner_reports.c.machine == t.machines.c.no)
    heard = sa.and_(reports, t.machines.c.handle.is_(None))
    return sa.or_(has_come(t.machines.c.next_try), heard)


@cache
def observable() -> sa.Select[Any]:
    """Machines that a supplier can be asked about, but for those to be deleted."""
    return open_machines().where(
        t.machines.c.handle.is_not(None), t.machines.c.state.in_(("Granted", "Registered"))
    )


@cache
def signallable(limit: int) -> sa.Select[Any]:
    """Machines of draining Attempts whose stop order is not known to have arrived."""
    return (
        open_machines(t.attempt_work.c.drain_deadline)
        .join(t.attempts, t.attempts.c.no == t.leases.c.attempt)
        .join(t.attempt_work, t.attempt_work.c.attempt == t.attempts.c.no)
        .where(t.attempts.c.stage.in_(_ON_MACHINES), t.attempt_work.c.drain_cause.is_not(None))
        .where(t.attempt_work.c.drain_signalled.is_(None), t.machines.c.handle.is_not(None))
        .where(t.machines.c.state != "Releasing")
        .limit(limit)
    )


@cache
def drilled() -> sa.Select[Any]:
    """Machines of live Attempts for which a drill was asked (SC-630)."""
    return (
        open_machines(t.attempt_work.c.drill, t.attempt_work.c.drill_at)
        .join(t.attempts, t.attempts.c.no == t.leases.c.attempt)
        .join(t.attempt_work, t.attempt_work.c.attempt == t.attempts.c.no)
        .where(t.attempts.c.stage.in_(_ON_MACHINES), t.attempt_work.c.drill.is_not(None))
    )


def named(project: str, name: str) -> sa.Select[Any]:
    """The Attempt of a name. Uses the unique (project, name)."""
    return sa.select(t.attempts.c.no).where(
        t.attempts.c.project == project, t.attempts.c.name == name
    )


@cache
def releasing(limit: int) -> sa.Select[Any]:
    """Machines to delete or to prove gone whose next try has come, or the :answered ones."""
    return (
        open_machines(t.machines.c.tries, t.machines.c.gone_seen, t.machines.c.releasing)
        .where(t.machines.c.state == "Releasing")
        .where(sa.or_(has_come(t.machines.c.next_try), ANSWERED))
        .order_by(None)
        .order_by(ANSWERED.desc(), t.machines.c.no)
        .limit(sa.func.cardinality(bigints("answered")) + limit)
    )


@cache
def releasable() -> sa.Select[Any]:
    """Whether `releasing` finds any without an answer."""
    return open_machines().where(t.machines.c.state == "Releasing", has_come(t.machines.c.next_try))


@cache
def next_moment() -> sa.Select[Any]:
    """Return how long it is until a row wants attention by its own time; NULL if none does.

    Uses `attempts_live` and `machines_open`. Moments up to :since do not count: what the pass
    that looked then could not do is not done sooner by asking at once.
    """
    work = t.attempt_work.c
    since = sa.bindparam("since", type_=sa.DateTime(timezone=True))
    moments = sa.func.least(work.next_try, work.limit_at, work.drain_deadline, work.hedge_at)
    of_attempts = (
        sa.select(sa.func.min(moments).label("at"))
        .join(t.attempts, t.attempts.c.no == work.attempt)
        .where(t.attempts.c.deletion_proven.is_(None), t.attempts.c.finished.is_(None))
        .where(moments > since)
    )
    own = sa.func.least(t.machines.c.next_try, t.machines.c.warm_until)
    of_machines = sa.select(sa.func.min(own).label("at")).where(machine_open(), own > since)
    both = of_attempts.union_all(of_machines).subquery()
    return sa.select(sa.func.min(both.c.at) - database_now)


@cache
def waiting_for_capacity(limit: int) -> sa.Select[Any]:
    """Queued Attempts that wait for Capacity, that of a gang, or for Quota, oldest first.

    Uses `attempts_live`.
    """
    return _live().where(t.attempts.c.waiting_for.in_(("Capacity", "Gang", "Quota"))).limit(limit)


@cache
def waiting_for_funds(limit: int) -> sa.Select[Any]:
    """Queued Attempts that wait for Funds, oldest first. Uses `attempts_live`."""
    return _live().where(t.attempts.c.waiting_for == "Funds").limit(limit)
