"""Which machine of an Attempt the customer pays, and what each of them costs (SC-342, SC-520).

Until the program starts the first granted machine is the billed one, even if it died or was beaten
meanwhile: a bill falls at T10 or at the end, not between (SC-509). From T10 on it is the winner,
and all time of the others is Nodus's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodus_api.kernel.billing import (
    ALL_COVERED,
    SECOND,
    Cover,
    MachineClock,
    Release,
    clock_of,
    cover_of,
)
from nodus_api.kernel.moments import floored
from nodus_api.storage.records import AttemptRecord, Tenancy


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedClock:
    """One machine's clock, and who pays which part of it.

    `accrues`: up to the last proof of life while its end is not known (SC-508).
    """

    clock: MachineClock
    cover: Cover
    accrues: bool = False


def billed(record: AttemptRecord) -> Tenancy | None:
    """Return the machine that the customer pays: the winner from T10 on, else the first granted."""
    granted = [one for one in record.tenancies if one.machine.billing_start is not None]
    won = next((one for one in granted if one.lease.won), None)
    if won is not None and record.attempt.command_started is not None:
        return won
    return min(granted, key=_granted_order, default=None)


def clock_start(tenancy: Tenancy) -> datetime | None:
    """Return when a machine began to cost for its Attempt, in whole seconds; None before that.

    A warm one costs its Attempt from its assignment on (SC-344).
    """
    since = tenancy.machine.billing_start
    return None if since is None else floored(max(since, tenancy.lease.held))


def clocks_of(record: AttemptRecord, release: Release) -> Iterator[CountedClock]:
    """Yield the clock of every machine of which it is known who pays it, in order of machine.

    While a race is open that is the billed machine alone: the other may win yet.
    """
    attempt, payer = record.attempt, billed(record)
    if payer is None:
        return
    decided = attempt.command_started is not None or not attempt.live
    for tenancy in record.tenancies:
        own = _own_clock(record, tenancy)
        if own is None:
            continue
        if tenancy.machine.key != payer.machine.key:
            if decided or tenancy.lease.lost is not None:
                yield CountedClock(clock=own, cover=ALL_COVERED)
        elif tenancy.lease.lost is not None:  # it gave billingStartTime, and died before T10
            head = cover_of(attempt, release).head
            yield CountedClock(clock=own, cover=Cover(head=head, teardown=True))
        else:
            shown = clock_of(
                attempt,
                machine=own.machine,
                rate_usd_per_hour=own.rate_usd_per_hour,
                increment=own.increment,
                minimum=own.minimum,
                before=own.before,
            )
            if shown is not None:
                cover = cover_of(attempt, release)
                yield CountedClock(clock=shown, cover=cover, accrues=True)


def _own_clock(record: AttemptRecord, tenancy: Tenancy) -> MachineClock | None:
    """Return the clock of a machine on which no program started, by its own moments (SC-342)."""
    machine, lease, start = tenancy.machine, tenancy.lease, clock_start(tenancy)
    if machine.no is None or start is None:
        return None
    ended, over = lease.lost or record.attempt.finished, tenancy.over_at
    wiped = lease.wiped is not None  # the supplier goes on with its clock: no padding yet
    return MachineClock(
        machine=machine.no,
        rate_usd_per_hour=lease.rate_usd_per_hour,
        start=start,
        ended=None if ended is None else floored(ended),
        gone=None if over is None else floored(over),
        resumes=record.attempt.resumes,
        increment=SECOND if wiped else machine.increment,
        minimum=timedelta(0) if wiped else machine.minimum,
        before=max(timedelta(0), start - floored(machine.billing_start or start)),
    )


def _granted_order(tenancy: Tenancy) -> tuple[datetime, int]:
    machine = tenancy.machine
    return machine.granted or machine.requested, machine.no or 0
