"""Checkpoints as the loop sees them: which proposal is committed, and how often one is wanted.

A proposal becomes a checkpoint by its row alone (SC-126, SC-142); what its sender is told is made
from the rows afterwards, by `storage.checkpoint_store.verdict_on`.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodus_api.kernel.attempt import Checkpoints, Cursor
from nodus_api.kernel.events import CheckpointCommitted, Heartbeat
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.scores import young_interval
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.storage.records import AttemptRecord, Commit, Report, Tenancy

CHECKPOINT_ORDER = "checkpointNow"


def proposed(
    record: AttemptRecord, tenancy: Tenancy, report: Report, at: datetime
) -> AttemptRecord:
    """Commit a proposal if it is the slot's next, from the machine that runs the program.

    Any other is a sign of life: a replay, or one that its sender is told of as refused.
    Raises IllegalTransition where no program runs. An order to save is obeyed by it.
    """
    seq = report.body["seq"]
    last = record.slot.last_seq
    if seq != last + 1 or not tenancy.lease.won:
        return record.moved(advance(record.attempt, Heartbeat(at=at)))
    attempt = advance(record.attempt, CheckpointCommitted(at=at))
    known = record.view.checkpoints or Checkpoints(count=0)
    shown = Checkpoints(count=known.count + 1, last_seq=seq)
    commit = Commit(
        seq=seq,
        after=last - len(record.commits),
        size=report.body["bytes"],
        uri=report.body["uri"],
        sha256=bytes.fromhex(report.body["sha256"]),
        cursor=_cursor(report.body.get("cursor")),
        committed=attempt.last_committed or at,
    )
    orders = tuple(one for one in tenancy.lease.orders if one.get("kind") != CHECKPOINT_ORDER)
    obeyed = replace(tenancy, lease=replace(tenancy.lease, orders=orders))
    moved = record.moved(attempt).with_tenancy(obeyed)
    return replace(
        moved,
        slot=replace(record.slot, last_seq=seq),
        view=replace(moved.view, checkpoints=shown),
        commits=(*record.commits, commit),
    )


def interval_of(record: AttemptRecord, spec: WorkloadSpec) -> timedelta | None:
    """Return how often the program should save: as the spec says, else by SC-144.

    None if the spec says nothing and the program cannot go on from what it saves, or is
    not placed. λ and the work are those of the prediction that was made at placement.
    """
    policy = spec.checkpoint
    if policy.interval_seconds is not None:
        return timedelta(seconds=policy.interval_seconds)
    choice = record.view.placement.choice if record.view.placement else None
    if choice is None or not policy.restartable:
        return None
    predicted = choice.predicted
    hours = young_interval(
        float(policy.cost_seconds), float(predicted.interruption_rate), float(predicted.hours)
    )
    return timedelta(seconds=round(hours * 3600))


def _cursor(value: Any) -> Cursor | None:
    return None if value is None else Cursor(completed=value["completed"], total=value["total"])
