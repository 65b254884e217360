"""Who pays for which second, to the micro-dollar: SC-501 to SC-523."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.lives import T0, acquiring, after, at, registered, running, starting, succeeded

from nodus_api.kernel.attempt import Attempt, Interruption
from nodus_api.kernel.billing import (
    ALL_COVERED,
    CHARGED,
    TEARDOWN_COVERED,
    Actual,
    Cover,
    MachineClock,
    Release,
    actual,
    charge,
    clock_of,
    cover_of,
    proof_of_life,
)
from nodus_api.kernel.events import (
    CapacityLost,
    CheckpointCommitted,
    DeletionProven,
    Exited,
    Heartbeat,
    Registered,
    RunFault,
)
from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.vocabulary import Reason, Segment, Trigger, fault_of, stage_of

SECOND = timedelta(seconds=1)


def a_clock(
    rate: str,
    started: int | None,
    ended: int | None,
    gone: int | None,
    *,
    resumes: bool = False,
    increment: int = 1,
    minimum: int = 0,
) -> MachineClock:
    return MachineClock(
        machine=7,
        rate_usd_per_hour=Decimal(rate),
        start=T0,
        started=None if started is None else at(started),
        ended=None if ended is None else at(ended),
        gone=None if gone is None else at(gone),
        resumes=resumes,
        increment=increment * SECOND,
        minimum=minimum * SECOND,
    )


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row of the worked examples; USD in the order Boot, Running, Restore, Teardown."""

    clock: MachineClock
    cover: Cover = CHARGED
    cap: str | None = None
    hours: str
    cost: str
    split: tuple[str, str, str, str]
    covered: tuple[tuple[Segment, str], ...] = ()


NOTHING = ("0.000000", "0.000000", "0.000000", "0.000000")
EXAMPLES = {
    "1 plain success": Example(
        clock=a_clock("2.95", 95, 3695, 3725),
        hours="1.034722",
        cost="3.052431",
        split=("0.077847", "2.950000", "0.000000", "0.024584"),
    ),
    "2 StartupTimeout": Example(
        clock=a_clock("2.95", None, 900, 940),
        cover=ALL_COVERED,
        hours="0.000000",
        cost="0.000000",
        split=NOTHING,
        covered=((Segment.BOOT, "0.737500"), (Segment.TEARDOWN, "0.032778")),
    ),
    "3 ImagePullFailed, 60 s increment": Example(
        clock=a_clock("2.95", None, 42, 58, increment=60),
        hours="0.016667",
        cost="0.049167",
        split=("0.034417", "0.000000", "0.000000", "0.014750"),
    ),
    "4a Preempted while running": Example(
        clock=a_clock("1.25", 80, 7280, 7340),
        cover=TEARDOWN_COVERED,
        hours="2.022222",
        cost="2.527778",
        split=("0.027778", "2.500000", "0.000000", "0.000000"),
        covered=((Segment.TEARDOWN, "0.020833"),),
    ),
    "4b Preempted during restore": Example(
        clock=a_clock("1.25", None, 130, 190, resumes=True),
        cover=ALL_COVERED,
        hours="0.000000",
        cost="0.000000",
        split=NOTHING,
        covered=((Segment.RESTORE, "0.045139"), (Segment.TEARDOWN, "0.020833")),
    ),
    "4c its replacement succeeds": Example(
        clock=a_clock("1.45", 150, 3750, 3780, resumes=True),
        hours="1.050000",
        cost="1.522500",
        split=("0.000000", "1.450000", "0.060417", "0.012083"),
    ),
    "5 the winner of a hedge": Example(
        clock=a_clock("3.50", 60, 1860, 1890),
        hours="0.525000",
        cost="1.837500",
        split=("0.058333", "1.750000", "0.000000", "0.029167"),
    ),
    "5 the loser of a hedge": Example(
        clock=a_clock("2.95", None, 300, 340),
        cover=ALL_COVERED,
        hours="0.000000",
        cost="0.000000",
        split=NOTHING,
        covered=((Segment.BOOT, "0.245833"), (Segment.TEARDOWN, "0.032778")),
    ),
    "6 CustomerExit after 1 s, 60 s increment": Example(
        clock=a_clock("23.60", 200, 201, 231, increment=60),
        hours="0.066667",
        cost="1.573333",
        split=("1.311111", "0.006556", "0.000000", "0.255666"),
    ),
    "7 InternalError, last checkpoint 600 s before": Example(
        clock=a_clock("2.95", 100, 5000, 5045),
        cover=Cover(head=True, running_seconds=600, teardown=True),
        hours="1.194444",
        cost="3.523612",
        split=("0.000000", "3.523612", "0.000000", "0.000000"),
        covered=(
            (Segment.BOOT, "0.081944"),
            (Segment.RUNNING, "0.491666"),
            (Segment.TEARDOWN, "0.036875"),
        ),
    ),
    "8 granted and gone in the same second": Example(
        clock=a_clock("2.95", None, 0, 0, increment=60, minimum=300),
        hours="0.000000",
        cost="0.000000",
        split=NOTHING,
    ),
    "9 deleted before the observed exit": Example(
        clock=a_clock("0.80", 30, 630, 625),
        hours="0.175000",
        cost="0.140000",
        split=("0.006667", "0.133333", "0.000000", "0.000000"),
    ),
    "10 cap 5.00 hit in teardown": Example(
        clock=a_clock("23.60", 100, 745, 775),
        cap="5.00",
        hours="0.211667",
        cost="4.995333",
        split=("0.655556", "4.228333", "0.000000", "0.111444"),
        covered=((Segment.TEARDOWN, "0.085223"),),
    ),
    "11 hourly increment": Example(
        clock=a_clock("10.00", 300, 3900, 3960, increment=3600),
        hours="2.000000",
        cost="20.000000",
        split=("0.833333", "10.000000", "0.000000", "9.166667"),
    ),
    "12 three times 7 s": Example(
        clock=a_clock("0.10", 7, 14, 21),
        hours="0.005833",
        cost="0.000583",
        split=("0.000194", "0.000195", "0.000000", "0.000194"),
    ),
    "13 HeartbeatLoss": Example(
        clock=a_clock("2.95", 90, 4000, 4150),
        cover=TEARDOWN_COVERED,
        hours="1.111111",
        cost="3.277778",
        split=("0.073750", "3.204028", "0.000000", "0.000000"),
        covered=((Segment.TEARDOWN, "0.122916"),),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_worked_examples_come_out_to_the_digit(name: str) -> None:
    example = EXAMPLES[name]

    made = charge(
        example.clock,
        cover=example.cover,
        cap_usd=None if example.cap is None else Decimal(example.cap),
    )

    boot, running_usd, restore, teardown = (Decimal(usd) for usd in example.split)
    assert made.totals == Actual(
        cost_usd=Decimal(example.cost),
        hours=Decimal(example.hours),
        boot_usd=boot,
        running_usd=running_usd,
        restore_usd=restore,
        teardown_usd=teardown,
        covered=tuple(segment for segment, _ in example.covered),
        covered_usd=sum((Decimal(usd) for _, usd in example.covered), Decimal(0)),
    )
    assert [(row.segment, str(row.usd)) for row in made.segments if row.covered] == list(
        example.covered
    )


def test_a_hedged_attempts_actual_is_the_sum_of_both_machines() -> None:  # SC-342, SC-523
    winner = charge(EXAMPLES["5 the winner of a hedge"].clock)
    loser = charge(EXAMPLES["5 the loser of a hedge"].clock, cover=ALL_COVERED)

    both = actual((*winner.segments, *loser.segments))

    assert both.cost_usd == winner.totals.cost_usd
    assert both.hours == winner.totals.hours
    assert both.covered == (Segment.BOOT, Segment.TEARDOWN)


def test_the_padding_is_part_of_the_last_teardown_row() -> None:  # SC-507, SC-523
    made = charge(a_clock("10.00", 300, 3900, 3960, increment=3600))

    assert [(row.seq, row.machine, row.segment, row.start, row.end) for row in made.segments] == [
        (0, 7, Segment.BOOT, at(0), at(300)),
        (1, 7, Segment.RUNNING, at(300), at(3900)),
        (2, 7, Segment.TEARDOWN, at(3900), at(7200)),
    ]
    assert made.segments[2].seconds == 3300


def test_a_minimum_is_billed_in_whole_increments() -> None:  # SC-507
    made = charge(a_clock("10.00", None, 5, 8, increment=60, minimum=90))

    assert made.segments[-1].end == at(120)


def test_an_increment_below_a_second_pads_nothing() -> None:  # SC-507: whole seconds
    assert charge(a_clock("10.00", None, 5, 8, increment=0)).segments[-1].end == at(8)


@pytest.mark.parametrize("started", [1, None])
def test_a_cap_once_reached_covers_later_seconds_that_round_to_nothing(
    started: int | None,
) -> None:  # SC-522
    ended = 3 if started else 1
    clock = a_clock("0.0018", started, ended, 4)  # half a micro-dollar a second
    made = charge(clock, cap_usd=Decimal(0))

    assert made.totals.hours == 0
    assert all(row.covered for row in made.segments)


def test_a_cap_inside_a_segment_splits_it_once() -> None:  # SC-522
    made = charge(a_clock("3600", 10, 20, 30), cap_usd=Decimal("12.5"))

    assert [(row.segment, row.covered, row.seconds) for row in made.segments] == [
        (Segment.BOOT, False, 10),
        (Segment.RUNNING, False, 2),
        (Segment.RUNNING, True, 8),
        (Segment.TEARDOWN, True, 10),
    ]


def test_what_a_cap_covers_joins_what_is_covered_anyway() -> None:  # SC-522, SC-523
    lost = Cover(running_seconds=5)
    made = charge(a_clock("3600", 10, 20, 30), cover=lost, cap_usd=Decimal("12.5"))

    assert [(row.segment, row.covered, row.seconds) for row in made.segments] == [
        (Segment.BOOT, False, 10),
        (Segment.RUNNING, False, 2),
        (Segment.RUNNING, True, 8),
        (Segment.TEARDOWN, True, 10),
    ]


def test_a_cap_that_others_have_used_up_charges_nothing() -> None:  # SC-522
    made = charge(a_clock("3600", 10, 20, 30), cap_usd=Decimal("-1"))

    assert made.totals.cost_usd == 0
    assert made.totals.covered == (Segment.BOOT, Segment.RUNNING, Segment.TEARDOWN)


def test_free_capacity_never_reaches_a_cap() -> None:
    made = charge(a_clock("0", 10, 20, 30), cap_usd=Decimal(0))

    assert made.totals.covered == ()
    assert made.totals.hours == Decimal("0.008333")


# -- SC-508: accrual to the watermark ------------------------------------------------------


def test_a_live_clock_runs_to_the_watermark() -> None:
    made = charge(a_clock("2.95", 95, None, None), watermark=at(395))

    assert [(row.segment, row.seconds) for row in made.segments] == [
        (Segment.BOOT, 95),
        (Segment.RUNNING, 300),
    ]


@pytest.mark.parametrize("seen", [None, 40])
def test_a_milestone_is_a_proof_of_life_itself(seen: int | None) -> None:
    made = charge(a_clock("2.95", 95, None, None), watermark=None if seen is None else at(seen))

    assert [(row.segment, row.seconds) for row in made.segments] == [(Segment.BOOT, 95)]


def test_padding_waits_for_the_proof_of_deletion() -> None:  # SC-507: at T18
    open_end = charge(a_clock("10.00", 300, 3900, None, increment=3600), watermark=at(3960))

    assert open_end.segments[-1].end == at(3960)


@pytest.mark.parametrize(
    ("attempt", "observed", "watermark"),
    [
        (starting(), None, None),
        (starting(), at(170), at(170)),  # before the registration: the supplier's word
        (after(starting(), Registered(at=at(165))), at(170), at(170)),  # SC-509: not back to 165
        (after(running(), Heartbeat(at=at(150))), at(55), at(150)),
        (after(running(), Heartbeat(at=at(150))), None, at(150)),
        (after(running(), Heartbeat(at=at(505)), Exited(at=at(500), exit_code=0)), None, at(505)),
    ],
)
def test_the_watermark_is_the_last_proof_of_life(
    attempt: Attempt, observed: datetime | None, watermark: datetime | None
) -> None:
    assert proof_of_life(attempt, observed) == watermark


# -- SC-520: cover by reason ---------------------------------------------------------------


def ended_by(
    reason: Reason | None, *, started: bool = True, trigger: Trigger | None = None
) -> Attempt:
    """An Attempt that ended at 500 s, its last checkpoint at 440 s."""
    attempt = after(running(), CheckpointCommitted(at=at(440))) if started else registered()
    return replace(
        attempt,
        stage=succeeded().stage if reason is None else stage_of(reason),
        reason=reason,
        finished=at(500),
        interruption=None
        if trigger is None
        else Interruption(time=at(500), trigger=trigger, lost_seconds=60),
    )


NODUS_PAYS = Cover(head=True, running_seconds=60, teardown=True)


@pytest.mark.parametrize(
    ("reason", "started", "cover"),
    [
        (None, True, CHARGED),
        (Reason.CUSTOMER_EXIT, True, CHARGED),
        (Reason.OUT_OF_MEMORY, True, CHARGED),
        (Reason.DEADLINE_EXCEEDED, True, CHARGED),
        (Reason.IMAGE_PULL_FAILED, False, CHARGED),
        (Reason.START_FAILED, False, CHARGED),
        (Reason.RESTORE_FAILED, False, CHARGED),
        (Reason.STOPPED, True, CHARGED),
        (Reason.SUSPENDED, True, CHARGED),
        (Reason.UNFUNDED, True, CHARGED),
        (Reason.MAX_COST_REACHED, True, CHARGED),
        (Reason.PREEMPTED, True, TEARDOWN_COVERED),
        (Reason.NODE_LOST, True, TEARDOWN_COVERED),
        (Reason.PREEMPTED, False, ALL_COVERED),
        (Reason.NODE_LOST, False, ALL_COVERED),
        (Reason.READINESS_FAILED, False, ALL_COVERED),
        (Reason.STARTUP_TIMEOUT, False, ALL_COVERED),
        (Reason.NO_CAPACITY, False, ALL_COVERED),
        (Reason.UNPLACEABLE, False, ALL_COVERED),
        (Reason.INTERNAL_ERROR, True, NODUS_PAYS),
        (Reason.INTERNAL_ERROR, False, ALL_COVERED),
        (Reason.CHECKPOINT_UNAVAILABLE, False, ALL_COVERED),
        (Reason.RELEASED, True, CHARGED),
    ],
)
def test_the_reason_decides_who_pays(reason: Reason | None, started: bool, cover: Cover) -> None:
    assert cover_of(ended_by(reason, started=started)) == cover


@pytest.mark.parametrize("reason", list(Reason))
def test_no_fault_of_supplier_or_nodus_costs_a_program_that_never_ran(reason: Reason) -> None:
    if fault_of(reason).value in ("customer", "user") or reason is Reason.RELEASED:  # SC-010
        return
    assert cover_of(ended_by(reason, started=False)) == ALL_COVERED


@pytest.mark.parametrize("reason", [Reason.PREEMPTED, Reason.NODE_LOST, Reason.RELEASED])
def test_any_drill_is_nodus_to_pay(reason: Reason) -> None:  # scenario 41
    assert cover_of(ended_by(reason, trigger=Trigger.DRILL)) == NODUS_PAYS


@pytest.mark.parametrize(
    ("release", "cover"),
    [
        (Release.NOT_NEEDED, CHARGED),
        (Release.NEVER_STARTED, ALL_COVERED),
        (Release.CAPACITY_FAULT, TEARDOWN_COVERED),
    ],
)
def test_a_release_is_paid_by_its_cause(release: Release, cover: Cover) -> None:
    assert cover_of(ended_by(Reason.RELEASED), release) == cover


def test_nothing_is_covered_while_the_attempt_lives() -> None:
    assert cover_of(running()) == CHARGED


def test_an_attempt_without_a_machine_has_no_clock() -> None:  # SC-006
    assert clock_of(acquiring(), machine=7, rate_usd_per_hour=Decimal(1)) is None
    assert actual(()) == Actual()


def test_an_attempts_clock_is_its_own_milestones() -> None:  # SC-501
    ended = after(
        running(),
        CheckpointCommitted(at=at(440)),
        RunFault(at=at(500), reason=Reason.INTERNAL_ERROR),
        DeletionProven(at=at(530)),
    )

    clock = clock_of(
        ended,
        machine=7,
        rate_usd_per_hour=Decimal("3.60"),
        increment=60 * SECOND,
        minimum=300 * SECOND,
    )

    assert clock == MachineClock(
        machine=7,
        rate_usd_per_hour=Decimal("3.60"),
        start=at(20),
        started=at(100),
        ended=at(500),
        gone=at(530),
        increment=60 * SECOND,
        minimum=300 * SECOND,
    )
    made = charge(clock, cover=cover_of(ended))
    assert [(row.segment, row.covered, str(row.usd)) for row in made.segments] == [
        (Segment.BOOT, True, "0.080000"),
        (Segment.RUNNING, False, "0.340000"),
        (Segment.RUNNING, True, "0.060000"),
        (Segment.TEARDOWN, True, "0.060000"),
    ]


def test_a_loss_is_charged_to_its_finish() -> None:  # SC-012
    ended = after(
        running(),
        Heartbeat(at=at(400)),
        CapacityLost(at=at(900), trigger=Trigger.HEARTBEAT_LOSS, reason=Reason.NODE_LOST),
        DeletionProven(at=at(950)),
    )
    clock = clock_of(ended, machine=7, rate_usd_per_hour=Decimal("3.60"))

    assert clock is not None
    made = charge(clock, cover=cover_of(ended)).totals
    assert (made.running_usd, made.covered) == (Decimal("0.300000"), (Segment.TEARDOWN,))


# -- properties ----------------------------------------------------------------------------

rates = st.integers(0, 200_000_000).map(lambda micros: Decimal(micros).scaleb(-6))
lengths = st.integers(0, 20_000)
covers = st.builds(
    Cover, head=st.booleans(), running_seconds=st.integers(0, 30_000), teardown=st.booleans()
)
caps = st.none() | st.integers(-1_000_000, 500_000_000).map(lambda m: Decimal(m).scaleb(-6))


@st.composite
def clocks(draw: st.DrawFn, *, proven: bool = True) -> MachineClock:
    boot, run, teardown = draw(lengths), draw(lengths), draw(lengths)
    started = draw(st.booleans())
    ended = proven or draw(st.booleans())
    end = boot + (run if started else 0)
    skew = draw(st.integers(0, 9))
    return MachineClock(
        machine=1,
        rate_usd_per_hour=draw(rates),
        start=T0,
        started=at(boot) if started else None,
        ended=at(end) if ended else None,
        gone=at(end + teardown - skew) if proven else None,
        resumes=draw(st.booleans()),
        increment=draw(st.sampled_from([1, 60, 3600])) * SECOND,
        minimum=draw(st.sampled_from([0, 60, 600])) * SECOND,
    )


@given(clock=clocks(), cover=covers, cap=caps)
def test_charged_and_covered_add_up_to_the_rounded_clock(
    clock: MachineClock, cover: Cover, cap: Decimal | None
) -> None:  # P-11, P-12
    made = charge(clock, cover=cover, cap_usd=cap)
    totals, rows = made.totals, made.segments

    assert clock.ended is not None
    assert clock.gone is not None
    whole = max(clock.ended, clock.gone) - T0
    increments = -(-max(whole, clock.minimum if whole else whole) // clock.increment)
    billed = increments * (clock.increment // SECOND)
    assert totals.cost_usd + totals.covered_usd == cumulative_usd(clock.rate_usd_per_hour, billed)
    assert sum(row.seconds for row in rows) == billed
    assert all(row.usd >= 0 for row in rows)
    assert totals.cost_usd == (
        totals.boot_usd + totals.running_usd + totals.restore_usd + totals.teardown_usd
    )
    assert totals.covered == tuple(
        s for s in Segment if any(r.segment is s for r in rows if r.covered)
    )


@given(clock=clocks(), cover=covers, cap=caps)
def test_rows_partition_the_clock_in_order(
    clock: MachineClock, cover: Cover, cap: Decimal | None
) -> None:  # P-11, SC-523
    rows = charge(clock, cover=cover, cap_usd=cap).segments

    assert [row.seq for row in rows] == list(range(len(rows)))
    assert all(row.end > row.start for row in rows)
    assert [row.start for row in rows] == [T0, *(row.end for row in rows[:-1])][: len(rows)]
    kinds = [(row.segment, row.covered) for row in rows]
    assert all(one != other for one, other in pairwise(kinds))


@given(clock=clocks(), cover=covers, cap=caps)
def test_the_cost_keeps_to_the_cap(
    clock: MachineClock, cover: Cover, cap: Decimal | None
) -> None:  # P-14, SC-522
    cost = charge(clock, cover=cover, cap_usd=cap).totals.cost_usd

    assert cap is None or cost <= max(cap, Decimal(0))


@given(clock=clocks(), cover=covers, cap=caps)
def test_hours_times_rate_is_the_cost(
    clock: MachineClock, cover: Cover, cap: Decimal | None
) -> None:  # SC-506: a micro-dollar a charged row, and half of the hours' last digit
    made = charge(clock, cover=cover, cap_usd=cap)
    charged = [row for row in made.segments if not row.covered]
    seconds = sum(row.seconds for row in charged)
    exact = clock.rate_usd_per_hour * seconds / 3600

    assert abs(made.totals.cost_usd - exact) <= Decimal("0.000001") * max(1, len(charged))
    assert abs(made.totals.hours - Decimal(seconds) / 3600) <= Decimal("0.0000005")


@given(clock=clocks(), cover=covers)
def test_boot_and_restore_exclude_each_other(clock: MachineClock, cover: Cover) -> None:  # SC-502
    kinds = {row.segment for row in charge(clock, cover=cover).segments}

    assert not {Segment.BOOT, Segment.RESTORE} <= kinds
    assert clock.started is not None or Segment.RUNNING not in kinds


@given(clock=clocks(proven=False), first=lengths, later=lengths, cap=caps)
def test_the_cost_never_falls_as_the_watermark_advances(
    clock: MachineClock, first: int, later: int, cap: Decimal | None
) -> None:  # P-13, SC-508
    before = charge(clock, watermark=at(first), cap_usd=cap).totals
    afterwards = charge(clock, watermark=at(first + later), cap_usd=cap).totals
    proven = charge(replace(clock, gone=at(first + later)), cap_usd=cap).totals

    assert before.cost_usd <= afterwards.cost_usd <= proven.cost_usd
    assert before.hours <= afterwards.hours <= proven.hours
