"""What a machine's clock costs, by segment, and who pays for it (SC-501 to SC-523).

`charge` turns one machine's clock into its ledger rows; `actual` sums the rows of
all machines of an Attempt. The loop writes the rows anew and sums them: nothing is
ever incremented.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from nodus_api.kernel.attempt import Attempt, CostSegment
from nodus_api.kernel.money import ZERO, affordable_seconds, cumulative_usd, hours_of
from nodus_api.kernel.vocabulary import Fault, Reason, Segment, Trigger, fault_of

SECOND = timedelta(seconds=1)


class Release(StrEnum):
    """Why an Attempt was Released; decides its cover (SC-520)."""

    NOT_NEEDED = "NotNeeded"
    """Scale-down, idle, a decided Job, a gang restart after a customer's fault."""
    NEVER_STARTED = "NeverStarted"
    """A member of a gang in which no program started."""
    CAPACITY_FAULT = "CapacityFault"
    """A gang restart after a supplier's or Nodus's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """The time of a clock that Nodus pays (SC-520): whole segments, and the end of Running."""

    head: bool = False
    """Boot or Restore."""
    running_seconds: int = 0
    """So many of Running's last seconds."""
    teardown: bool = False


CHARGED = Cover()
TEARDOWN_COVERED = Cover(teardown=True)
ALL_COVERED = Cover(head=True, teardown=True)
"""For an Attempt whose program never ran: the loser of a hedge, too (SC-342)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClock:
    """One machine's billed time for one Attempt, in whole seconds (SC-501).

    A loser of a hedge has no `started`, and `ended` is the winner's start or its own death.
    """

    machine: int
    rate_usd_per_hour: Decimal
    start: datetime
    started: datetime | None = None
    ended: datetime | None = None
    gone: datetime | None = None
    resumes: bool = False
    increment: timedelta = SECOND
    minimum: timedelta = timedelta(0)
    before: timedelta = timedelta(0)
    """How long the machine had cost others before: increments count from there (SC-344)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """`status.actual`: charged USD and hours, and the segments with covered time (SC-521)."""

    cost_usd: Decimal = ZERO
    hours: Decimal = ZERO
    boot_usd: Decimal = ZERO
    running_usd: Decimal = ZERO
    restore_usd: Decimal = ZERO
    teardown_usd: Decimal = ZERO
    covered: tuple[Segment, ...] = ()
    covered_usd: Decimal = ZERO
    """What Nodus paid; in the ledger, never in the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One machine's ledger rows and their sum."""

    segments: tuple[CostSegment, ...]
    totals: Actual


def clock_of(
    attempt: Attempt,
    *,
    machine: int,
    rate_usd_per_hour: Decimal,
    increment: timedelta = SECOND,
    minimum: timedelta = timedelta(0),
    before: timedelta = timedelta(0),
) -> MachineClock | None:
    """Return the clock of the Attempt's billed machine; None if it has none (SC-006)."""
    if attempt.billing_start is None:
        return None
    return MachineClock(
        machine=machine,
        rate_usd_per_hour=rate_usd_per_hour,
        start=attempt.billing_start,
        started=attempt.command_started,
        ended=attempt.finished,
        gone=attempt.deletion_proven,
        resumes=attempt.resumes,
        increment=increment,
        minimum=minimum,
        before=before,
    )


def cover_of(attempt: Attempt, release: Release = Release.NOT_NEEDED) -> Cover:
    """Return what Nodus pays of an Attempt's billed machine (SC-520); nothing while it is live.

    `release` matters for the reason Released alone; `gang.release_of` finds it.
    """
    started = attempt.command_started is not None
    drilled = attempt.interruption is not None and attempt.interruption.trigger is Trigger.DRILL
    match attempt.reason:
        case None:
            return CHARGED
        case Reason.INTERNAL_ERROR | Reason.CHECKPOINT_UNAVAILABLE:
            return _nodus(attempt)
        case _ if drilled:
            return _nodus(attempt)
        case Reason.RELEASED:
            return _RELEASES[release]
        case reason if fault_of(reason) is Fault.SUPPLIER:
            return TEARDOWN_COVERED if started else ALL_COVERED
        case Reason.UNPLACEABLE:
            return ALL_COVERED
        case _:
            return CHARGED


def proof_of_life(attempt: Attempt, observed: datetime | None) -> datetime | None:
    """Return the watermark up to which `actual` accrues (SC-508).

    It is the later of the runner's last report and `observed`, the supplier's last
    successful observation before the runner registered, after which it stands still.
    The later, and after the end too: a report may tell of an earlier moment than one
    already billed, and the bill may not fall for that (SC-509).
    """
    known = [at for at in (attempt.last_heartbeat, observed) if at is not None]
    return max(known, default=None)


def charge(
    clock: MachineClock,
    *,
    cover: Cover = CHARGED,
    watermark: datetime | None = None,
    cap_usd: Decimal | None = None,
) -> Charge:
    """Return the ledger rows of one machine and their sum.

    The clock runs to the proven deletion, rounded up to the increment (SC-507), or,
    while that is not proven, to `watermark`, the last proof of life (SC-508), but at
    least to the last milestone. `cap_usd` is what may be charged here, the lesser of what
    maxCostUSD leaves beside the workload's other Attempts and what funds can pay:
    charging stops at the last whole second that keeps to it, Nodus pays the rest (SC-522).
    """
    segments = tuple(_rows(clock, _paid(_parts(clock, cover, watermark), clock, cap_usd)))
    return Charge(segments=segments, totals=actual(segments))


def actual(segments: Iterable[CostSegment]) -> Actual:
    """Return the sum of ledger rows, of all machines of one Attempt (SC-506, SC-521, SC-523)."""
    usd = dict.fromkeys(Segment, ZERO)
    covered = set()
    covered_usd = ZERO
    seconds = 0
    for row in segments:
        if row.covered:
            covered.add(row.segment)
            covered_usd += row.usd
        else:
            usd[row.segment] += row.usd
            seconds += row.seconds
    return Actual(
        cost_usd=sum(usd.values(), ZERO),
        hours=hours_of(seconds),
        boot_usd=usd[Segment.BOOT],
        running_usd=usd[Segment.RUNNING],
        restore_usd=usd[Segment.RESTORE],
        teardown_usd=usd[Segment.TEARDOWN],
        covered=tuple(segment for segment in Segment if segment in covered),
        covered_usd=covered_usd,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the clock, in seconds from its start."""

    segment: Segment
    start: int
    end: int
    covered: bool


_RELEASES = {
    Release.NOT_NEEDED: CHARGED,
    Release.NEVER_STARTED: ALL_COVERED,
    Release.CAPACITY_FAULT: TEARDOWN_COVERED,
}


def _nodus(attempt: Attempt) -> Cover:
    return Cover(head=True, running_seconds=attempt.lost_seconds, teardown=True)


def _parts(clock: MachineClock, cover: Cover, watermark: datetime | None) -> Iterator[_Part]:
    """Split the clock by segment, and Running where its covered seconds begin."""
    end = _length(clock, watermark)
    ended = end if clock.ended is None else _offset(clock, clock.ended)
    started = ended if clock.started is None else _offset(clock, clock.started)
    kept = max(started, ended - cover.running_seconds)
    head = Segment.RESTORE if clock.resumes else Segment.BOOT
    yield _Part(head, 0, started, cover.head)
    yield _Part(Segment.RUNNING, started, kept, False)
    yield _Part(Segment.RUNNING, kept, ended, True)
    yield _Part(Segment.TEARDOWN, ended, end, cover.teardown)


def _offset(clock: MachineClock, at: datetime) -> int:
    return max(0, (at - clock.start) // SECOND)


def _length(clock: MachineClock, watermark: datetime | None) -> int:
    """Return the clock's length in seconds, padded once its end is proven (SC-507)."""
    known = (clock.started, clock.ended, clock.gone or watermark)
    length = max(_offset(clock, at) for at in (clock.start, *known) if at is not None)
    if clock.gone is None or length == 0:
        return length
    before = clock.before // SECOND
    return billed_seconds(before + length, clock.increment, clock.minimum) - before


def billed_seconds(length: int, increment: timedelta, minimum: timedelta) -> int:
    """Return the seconds that a supplier bills of a machine that was there so long (SC-507)."""
    step = max(1, increment // SECOND)
    return -(-max(length, minimum // SECOND) // step) * step


def _paid(parts: Iterator[_Part], clock: MachineClock, cap_usd: Decimal | None) -> Iterator[_Part]:
    """Cover what lies past the cap: it is reached once, and all later time is covered (SC-522)."""
    rate = clock.rate_usd_per_hour
    spent, reached = ZERO, False
    for part in parts:
        if cap_usd is None or part.covered:
            yield part
            continue
        until = part.start
        if not reached:
            until = affordable_seconds(rate, cap_usd - spent, start=part.start, end=part.end)
        reached = reached or until < part.end
        spent += cumulative_usd(rate, until) - cumulative_usd(rate, part.start)
        yield _Part(part.segment, part.start, until, False)
        yield _Part(part.segment, until, part.end, True)


def _rows(clock: MachineClock, parts: Iterator[_Part]) -> Iterator[CostSegment]:
    """Make the chain of rows: no empty ones, equal neighbours joined (SC-523)."""
    joined: list[_Part] = []
    for part in parts:
        if part.start == part.end:
            continue
        last = joined[-1] if joined else None
        if last is not None and (last.segment, last.covered) == (part.segment, part.covered):
            joined[-1] = _Part(part.segment, last.start, part.end, part.covered)
        else:
            joined.append(part)
    rate = clock.rate_usd_per_hour
    for seq, part in enumerate(joined):
        yield CostSegment(
            machine=clock.machine,
            seq=seq,
            segment=part.segment,
            start=clock.start + part.start * SECOND,
            end=clock.start + part.end * SECOND,
            covered=part.covered,
            rate_usd_per_hour=rate,
            usd=cumulative_usd(rate, part.end) - cumulative_usd(rate, part.start),
        )
