"""Which workloads want the loop's attention now (SC-605): reads only, nothing is locked.

A query finds only those for which there is something to do: the loop takes so many a pass, and
those that merely look like work would keep the others out for ever (P-28).
"""

from functools import cache
from typing import Any

import sqlalchemy as sa

from nodus_api.storage import tables as t

_UNDECIDED = ("Open", "Suspended", "Unfunded")
_SCALED = ("Function", "Agent")


@cache
def unfilled(limit: int) -> sa.Select[Any]:
    """Active workloads with an Open, wanted, empty slot and room under their parallelism.

    A gang has room only once nothing of it lives (SC-130).
    Uses the primary key of `slots` and `attempts_one_live`.
    """
    slots = t.slots.c
    lives = sa.exists().where(
        t.attempts.c.workload == slots.workload,
        t.attempts.c.slot == slots.slot,
        t.attempts.c.finished.is_(None),
    )
    empty = sa.exists().where(
        slots.workload == t.workloads.c.uid,
        slots.state == "Open",
        slots.wanted.is_(True),
        ~lives,
    )
    spec = t.workloads.c.spec
    alone = sa.func.coalesce(spec["gang"].astext, "false") == "false"
    room = sa.or_(_allowed().is_(None), sa.and_(alone, _live() < _allowed()), _live() == 0)
    return _active().where(empty, room).limit(limit)


@cache
def decided(limit: int) -> sa.Select[Any]:
    """Active workloads with slots, all of them decided; workers never are (SC-101).

    Uses the primary key of `slots`.
    """
    slots = t.slots.c
    mine = slots.workload == t.workloads.c.uid
    undecided = sa.exists().where(mine, slots.state.in_(_UNDECIDED))
    return (
        _active()
        .where(t.workloads.c.kind.not_in(_SCALED), sa.exists().where(mine), ~undecided)
        .limit(limit)
    )


@cache
def crowded(limit: int) -> sa.Select[Any]:
    """Active workloads in which more undrained Attempts live than their spec allows at once."""
    draining = sa.exists().where(
        t.attempt_work.c.attempt == t.attempts.c.no, t.attempt_work.c.drain_cause.is_not(None)
    )
    return _active().where(_live(~draining) > _allowed()).limit(limit)


@cache
def unfunded(limit: int) -> sa.Select[Any]:
    """Active workloads with a slot that waits for funds to return (SC-623)."""
    slots = t.slots.c
    waits = sa.exists().where(slots.workload == t.workloads.c.uid, slots.state == "Unfunded")
    return _active().where(waits).limit(limit)


def _active() -> sa.Select[Any]:
    return (
        sa.select(t.workloads.c.uid)
        .where(t.workloads.c.state == "Active")
        .order_by(t.workloads.c.created, t.workloads.c.uid)
    )


def _live(*conditions: sa.ColumnElement[bool]) -> Any:
    """How many Attempts of a workload live. Uses `attempts_one_live`."""
    return (
        sa.select(sa.func.count())
        .select_from(t.attempts)
        .where(t.attempts.c.workload == t.workloads.c.uid, t.attempts.c.finished.is_(None))
        .where(*conditions)
        .scalar_subquery()
    )


def _allowed() -> sa.ColumnElement[int | None]:
    """How many Attempts may live at once; NULL for a kind with one slot."""
    spec = t.workloads.c.spec
    return sa.cast(sa.func.coalesce(spec["parallelism"].astext, spec["workers"].astext), sa.Integer)
