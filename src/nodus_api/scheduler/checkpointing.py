"""Checkpoints as the loop sees them: which proposal is committed, and how often one is wanted.

A proposal becomes a checkpoint by its row alone (SC-126, SC-142); what its sender is told is made
from the rows afterwards, by `storage.checkpoint_store.verdict_on`.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodus_api.kernel.attempt import Checkpoints, Cursor
from nodus_api.kernel.events import CheckpointCommitted, Heartbeat
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.scores import young_interval
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.storage.records import AttemptRecord, Commit, Proposal, Report, Tenancy

CHECKPOINT_ORDER = "checkpointNow"


def proposed(
    record: AttemptRecord, tenancy: Tenancy, report: Report, at: datetime
) -> AttemptRecord:
    """Commit a proposal if it is the slot's next, from the machine that runs the program.

    A rank's is kept until its gang commits together. Any other is a sign of life: a replay,
    or one that its sender is told of as refused. Raises IllegalTransition where no program
    runs. An order to save is obeyed by it.
    """
    seq = report.body["seq"]
    alive = record.moved(advance(record.attempt, Heartbeat(at=at)))
    if seq != record.slot.last_seq + 1 or not tenancy.lease.won:
        return alive
    proposal = Proposal(
        machine=report.machine,
        seq=seq,
        size=report.body["bytes"],
        uri=report.body["uri"],
        sha256=bytes.fromhex(report.body["sha256"]),
        cursor=_cursor(report.body.get("cursor")),
        at=at,
    )
    committed = _committed(record, tenancy, proposal)
    if record.attempt.gang is None:
        return committed
    return alive if record.proposal is not None else replace(alive, proposal=proposal)


def commit_together(ranks: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """Commit what all ranks of a gang epoch propose, or wait for the others (SC-142).

    Once a rank has ended, not every rank can have one more: what waits is dropped.
    """
    if not all(one.attempt.live for one in ranks):
        return [replace(one, proposal=None) for one in ranks]
    proposals = [one.proposal for one in ranks if one.proposal is not None]
    if len(proposals) < len(ranks):
        return list(ranks)
    committed = []
    for record, proposal in zip(ranks, proposals, strict=True):
        tenancy = next(one for one in record.tenancies if one.machine.no == proposal.machine)
        committed.append(replace(_committed(record, tenancy, proposal), proposal=None))
    return committed


def _committed(record: AttemptRecord, tenancy: Tenancy, proposal: Proposal) -> AttemptRecord:
    last = record.slot.last_seq
    attempt = advance(record.attempt, CheckpointCommitted(at=proposal.at))
    known = record.view.checkpoints or Checkpoints(count=0)
    shown = Checkpoints(count=known.count + 1, last_seq=proposal.seq)
    commit = Commit(
        seq=proposal.seq,
        after=last - len(record.commits),
        size=proposal.size,
        uri=proposal.uri,
        sha256=proposal.sha256,
        cursor=proposal.cursor,
        committed=attempt.last_committed or proposal.at,
    )
    orders = tuple(one for one in tenancy.lease.orders if one.get("kind") != CHECKPOINT_ORDER)
    obeyed = replace(tenancy, lease=replace(tenancy.lease, orders=orders))
    moved = record.moved(attempt).with_tenancy(obeyed)
    return replace(
        moved,
        slot=replace(record.slot, last_seq=proposal.seq),
        view=replace(moved.view, checkpoints=shown),
        commits=(*record.commits, commit),
    )


def interval_of(record: AttemptRecord, spec: WorkloadSpec) -> timedelta | None:
    """Return how often the program should save: as the spec says, else by SC-144.

    None if the spec says nothing and the program cannot go on from what it saves, or is
    not placed. λ is that of the placement's prediction, the work what was left at the start.
    """
    policy = spec.checkpoint
    if policy.interval_seconds is not None:
        return timedelta(seconds=policy.interval_seconds)
    choice = record.view.placement.choice if record.view.placement else None
    if choice is None or not policy.restartable:
        return None
    restore = record.attempt.restore
    work = PlacementRequest.of(spec, cursor=restore.cursor if restore else None).work_hours
    rate = float(choice.predicted.interruption_rate)
    hours = young_interval(float(policy.cost_seconds), rate, work)
    return timedelta(seconds=round(hours * 3600))


def _cursor(value: Any) -> Cursor | None:
    return None if value is None else Cursor(completed=value["completed"], total=value["total"])
