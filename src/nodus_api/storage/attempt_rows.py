"""How what readers see of Attempts becomes rows and back: one function a table and direction.

All pure. What the loop alone sees is in `work_rows`.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from nodus_api.kernel.attempt import (
    Attempt,
    Checkpoints,
    Choice,
    CostSegment,
    Cursor,
    Drain,
    Gang,
    Interruption,
    Placement,
    Prediction,
    Rejection,
    RestorePoint,
)
from nodus_api.kernel.vocabulary import (
    Market,
    Profile,
    Reason,
    Segment,
    Stage,
    Trigger,
    WaitingFor,
)

Row = sa.RowMapping | Mapping[str, Any]


def attempt_of(row: Row, interruption: Interruption | None, last_committed: Any) -> Attempt:
    """Build an Attempt from its row joined with `attempt_work`."""
    return Attempt(
        uid=row["uid"],
        project=row["project"],
        name=row["name"],
        workload=row["workload"],
        slot=row["slot"],
        epoch=row["epoch"],
        queued=row["queued"],
        gang=_gang(row),
        resumes=row["resumes"],
        restore=_restore(row),
        restore_bytes=row["restore_bytes"],
        stage=Stage(row["stage"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        exit_code=row["exit_code"],
        signal=row["signal"],
        waiting_for=WaitingFor(row["waiting_for"]) if row["waiting_for"] else None,
        waiting_message=row["waiting_message"],
        acquired=row["acquired"],
        billing_start=row["billing_start"],
        registered=row["registered"],
        command_started=row["command_started"],
        finished=row["finished"],
        deletion_proven=row["deletion_proven"],
        pull_seconds=row["pull_seconds"],
        superseded_by=row["superseded_by"],
        interruption=interruption,
        drain=drain_of(row),
        start_deadline=row["start_deadline"],
        last_heartbeat=row["last_heartbeat"],
        last_committed=last_committed,
    )


def identity_row(attempt: Attempt) -> dict[str, Any]:
    """Return the columns of `attempts` that never change."""
    gang, restore = attempt.gang, attempt.restore
    cursor = restore.cursor if restore else None
    return {
        "uid": attempt.uid,
        "project": attempt.project,
        "name": attempt.name,
        "workload": attempt.workload,
        "slot": attempt.slot,
        "epoch": attempt.epoch,
        "queued": attempt.queued,
        "gang": gang.id if gang else None,
        "gang_epoch": gang.epoch if gang else None,
        "gang_rank": gang.rank if gang else None,
        "gang_size": gang.size if gang else None,
        "resumes": attempt.resumes,
        "restore_seq": restore.seq if restore else None,
        "cursor_completed": cursor.completed if cursor else None,
        "cursor_total": cursor.total if cursor else None,
    }


def state_row(attempt: Attempt) -> dict[str, Any]:
    """Return the columns of `attempts` that move."""
    return {
        "stage": attempt.stage,
        "reason": attempt.reason,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "waiting_for": attempt.waiting_for,
        "waiting_message": attempt.waiting_message,
        "acquired": attempt.acquired,
        "billing_start": attempt.billing_start,
        "registered": attempt.registered,
        "command_started": attempt.command_started,
        "finished": attempt.finished,
        "deletion_proven": attempt.deletion_proven,
        "pull_seconds": attempt.pull_seconds,
        "restore_bytes": attempt.restore_bytes,
        "superseded_by": attempt.superseded_by,
    }


def interruption_of(row: Row) -> Interruption:
    """Build what ended an Attempt early."""
    return Interruption(
        time=row["at"],
        trigger=Trigger(row["trigger"]),
        lost_seconds=row["lost_seconds"],
        recovery_seconds=row["recovery_seconds"],
    )


def interruption_row(interruption: Interruption) -> dict[str, Any]:
    """Return the columns of `interruptions`."""
    return {
        "at": interruption.time,
        "trigger": interruption.trigger,
        "lost_seconds": interruption.lost_seconds,
        "recovery_seconds": interruption.recovery_seconds,
    }


def placement_of(row: Row, rejected: Iterable[Rejection]) -> Placement:
    """Build a placement from its row joined with the class's region."""
    choice = None
    if row["offering"] is not None:
        choice = Choice(
            offering=row["offering"],
            region_class=row["region_class"],
            market=Market(row["market"]),
            rate_usd_per_hour=row["rate"],
            scores={name: _decimal(value) for name, value in row["scores"].items()},
            fallbacks=tuple(row["fallbacks"]),
            predicted=Prediction(
                hours=row["predicted_hours"],
                cost_usd=row["predicted_usd"],
                interruption_rate=row["predicted_rate"],
            ),
            hedged=row["hedged"],
            warm_reuse=row["warm_reuse"],
        )
    return Placement(
        profile=Profile(row["profile"]),
        candidates=row["candidates"],
        rejected=tuple(rejected),
        choice=choice,
    )


def placement_row(placement: Placement) -> dict[str, Any]:
    """Return the columns of `placements`; what the class says itself is not stored."""
    choice = placement.choice
    row: dict[str, Any] = {"profile": placement.profile, "candidates": placement.candidates}
    if choice is None:
        names = ("offering", "market", "rate", "hedged", "warm_reuse", "scores", "fallbacks")
        predicted = ("predicted_usd", "predicted_hours", "predicted_rate")
        return row | dict.fromkeys((*names, *predicted))
    return row | {
        "offering": choice.offering,
        "market": choice.market,
        "rate": choice.rate_usd_per_hour,
        "hedged": choice.hedged,
        "warm_reuse": choice.warm_reuse,
        "scores": {name: str(value) for name, value in choice.scores.items()},
        "fallbacks": list(choice.fallbacks),
        "predicted_usd": choice.predicted.cost_usd,
        "predicted_hours": choice.predicted.hours,
        "predicted_rate": choice.predicted.interruption_rate,
    }


def segment_of(row: Row) -> CostSegment:
    """Build one row of the ledger."""
    return CostSegment(
        machine=row["machine"],
        seq=row["seq"],
        segment=Segment(row["segment"]),
        start=row["from_ts"],
        end=row["to_ts"],
        covered=row["covered"],
        rate_usd_per_hour=row["rate"],
        usd=row["usd"],
    )


def segment_row(no: int, segment: CostSegment) -> dict[str, Any]:
    """Return a row of `cost_segments`."""
    return {
        "attempt": no,
        "machine": segment.machine,
        "seq": segment.seq,
        "segment": segment.segment,
        "from_ts": segment.start,
        "to_ts": segment.end,
        "covered": segment.covered,
        "rate": segment.rate_usd_per_hour,
        "usd": segment.usd,
    }


def checkpoints_of(attempt: Row, totals: Row | None) -> Checkpoints | None:
    """Build the published count; present from the program's start (SC-017)."""
    if attempt["command_started"] is None:
        return None
    if totals is None:
        return Checkpoints(count=0)
    return Checkpoints(count=totals["count"], last_seq=totals["last_seq"])


def _gang(row: Row) -> Gang | None:
    if row["gang"] is None:
        return None
    return Gang(
        id=row["gang"], epoch=row["gang_epoch"], rank=row["gang_rank"], size=row["gang_size"]
    )


def _restore(row: Row) -> RestorePoint | None:
    if row["restore_seq"] is None:
        return None
    cursor = None
    if row["cursor_total"] is not None:
        cursor = Cursor(completed=row["cursor_completed"], total=row["cursor_total"])
    return RestorePoint(seq=row["restore_seq"], cursor=cursor)


def drain_of(row: Row) -> Drain | None:
    """Build a standing drain from its columns of `attempt_work`; None if nothing stops it."""
    if row["drain_cause"] is None:
        return None
    trigger, reason, *barred = row["drain_cause"].split("/")
    return Drain(
        trigger=Trigger(trigger) if trigger else None,
        reason=Reason(reason),
        signalled=row["drain_signalled"],
        deadline=row["drain_deadline"],
        barred=Reason(barred[0]) if barred else None,
    )


def _decimal(value: Any) -> Any:
    return value if value is None else Decimal(str(value))
