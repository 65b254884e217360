"""An Attempt with two machines: what follows when one of them wins, dies or never comes (SC-342).

One that is out of the race is deleted at once and the Attempt goes on with the other. Without
another one every loss is the Attempt's own, as of an Attempt that was never hedged.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodus_api.kernel.attempt import Choice
from nodus_api.kernel.deadlines import ACQUIRE_LIMIT
from nodus_api.kernel.events import CapacityLost, CommandStarted
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage
from nodus_api.scheduler.machine_clocks import clock_start
from nodus_api.scheduler.settling import released
from nodus_api.storage.records import AttemptRecord, Loss, Tenancy

DIE_ORDER = "die"

_GRANTED = (MachineState.GRANTED, MachineState.REGISTERED)
_UNREADY = (Reason.READINESS_FAILED, Reason.STARTUP_TIMEOUT)


def rivals(record: AttemptRecord, tenancy: Tenancy) -> tuple[Tenancy, ...]:
    """Return the other machines that may still start the program."""
    racing = record.attempt.stage in (Stage.ACQUIRING, Stage.STARTING)
    others = (one for one in record.kept if one.machine.key != tenancy.machine.key)
    return tuple(others) if racing else ()


def lose_machine(
    record: AttemptRecord, tenancy: Tenancy, event: CapacityLost, now: datetime
) -> AttemptRecord:
    """T12 or T15; where another machine races on, the loss is that of this machine alone."""
    if not tenancy.lease.won and rivals(record, tenancy):
        return without(record, tenancy, now, Loss(trigger=event.trigger, reason=event.reason))
    return record.moved(advance(record.attempt, event))


def win(record: AttemptRecord, tenancy: Tenancy, now: datetime) -> AttemptRecord:
    """Let a machine start the program, and delete its rivals at once (SC-341)."""
    for rival in rivals(record, tenancy):
        record = without(record, rival, now)
    return record.with_tenancy(replace(tenancy, lease=replace(tenancy.lease, won=True)))


def without(
    record: AttemptRecord, tenancy: Tenancy, now: datetime, cause: Loss | None = None
) -> AttemptRecord:
    """Take a machine out of the race; `cause` is what it died of, None if it was beaten or late."""
    leaving = released(tenancy, now)
    lease = replace(leaving.lease, lost=now, lost_cause=cause, orders=({"kind": DIE_ORDER},))
    unready = record.unready
    if cause is not None and cause.reason in _UNREADY:
        unready = (*unready, tenancy.machine.key)
    moved = record.with_tenancy(replace(leaving, lease=lease))
    moved = replace(moved, unready=unready)
    return _with_limit_of_rest(moved, tenancy, now)


def without_intent(record: AttemptRecord, tenancy: Tenancy, now: datetime) -> AttemptRecord | None:
    """Return the record after a machine of a race never came; None if that ends no race.

    The Attempt goes on with its other machine. Where that has died before, it is Lost by that.
    """
    if rivals(record, tenancy):
        return _with_limit_of_rest(record, tenancy, now)
    causes = [one.lease.lost_cause for one in record.tenancies if one.lease.lost_cause is not None]
    if record.attempt.stage is not Stage.STARTING or not causes:
        return None
    lost = CapacityLost(at=now, trigger=causes[-1].trigger, reason=causes[-1].reason)
    return record.moved(advance(record.attempt, lost))


def oldest(record: AttemptRecord) -> Tenancy | None:
    """Return the machine whose limit `limit_at` is: the first that came to the stage; or None."""
    return min(_at_stage(record, record.kept), key=_since, default=None)


def winners_start(record: AttemptRecord, tenancy: Tenancy, event: CommandStarted) -> CommandStarted:
    """Return T10 with the winner's own milestones, if the Attempt was hedged (SC-342)."""
    placement = record.view.placement
    if placement is None or placement.choice is None or not placement.choice.hedged:
        return event
    return replace(
        event,
        billing_start=clock_start(tenancy),
        registered=tenancy.machine.registered or event.at,
        pull_seconds=tenancy.lease.pull_seconds,
    )


def with_winner_shown(record: AttemptRecord, tenancy: Tenancy) -> AttemptRecord:
    """Let the placement describe the machine that won (SC-342); `predicted` stays as it was."""
    placement = record.view.placement
    choice = placement.choice if placement else None
    if placement is None or choice is None or not choice.hedged:
        return record
    shown = replace(placement, choice=_describing(choice, tenancy))
    return replace(record, view=replace(record.view, placement=shown))


def _describing(choice: Choice, tenancy: Tenancy) -> Choice:
    machine = tenancy.machine
    fallbacks = choice.fallbacks
    if machine.offering != choice.offering:  # the beaten class would be tried next
        others = (name for name in fallbacks if name != machine.offering)
        fallbacks = (choice.offering, *others)
    return replace(
        choice,
        offering=machine.offering,
        region_class=machine.region_class,
        market=machine.market,
        rate_usd_per_hour=tenancy.lease.rate_usd_per_hour,
        fallbacks=fallbacks,
    )


def _with_limit_of_rest(record: AttemptRecord, gone: Tenancy, now: datetime) -> AttemptRecord:
    """Give the machines that are left their own time, less or more what the one gone had (SC-613).

    `limit_at` is the oldest machine's, and as a take-over has moved it.
    """
    limit, rest = record.work.limit_at, rivals(record, gone)
    if limit is None or not rest:
        return record
    there = _at_stage(record, rest)
    if there:
        first = min(_since(one) for one in there)
        if _at_stage(record, [gone]):
            limit += max(first - _since(gone), timedelta(0))
    else:  # it is asked for still, while the granted one has died
        limit = max(now, max(one.machine.requested for one in rest) + ACQUIRE_LIMIT)
    return replace(record, work=replace(record.work, limit_at=limit))


def _at_stage(record: AttemptRecord, several: Sequence[Tenancy]) -> list[Tenancy]:
    if record.attempt.stage is not Stage.STARTING:
        return list(several)
    return [one for one in several if one.machine.state in _GRANTED]


def _since(tenancy: Tenancy) -> datetime:
    return tenancy.machine.granted or tenancy.machine.requested
