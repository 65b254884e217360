"""What must hold after every step, read back from the rows and the published documents."""

import itertools
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from tests.scheduler.fund_books import broken_books
from tests.scheduler.world import World

from nodus_api.attempts import render, splice
from nodus_api.kernel.attempt import Attempt, CostSegment
from nodus_api.kernel.billing import actual
from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.vocabulary import LeaseRole, MachineState, Stage
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import load
from nodus_api.storage.records import AttemptRecord

_MILESTONES = (
    "queued",
    "acquired",
    "billing_start",
    "registered",
    "command_started",
    "finished",
    "deletion_proven",
)


async def all_records(world: World) -> list[AttemptRecord]:
    async with world.database.transaction(read_only=True) as connection:
        nos = (await connection.execute(sa.select(t.attempts.c.no))).scalars().all()
        return list((await load(connection, nos)).values())


async def check(world: World) -> None:
    """Check everything that holds at any moment."""
    records = await all_records(world)
    await _documents_match_rows(world, records)
    retired: dict[Any, list[int]] = defaultdict(list)
    for row in await world.rows(t.attempts_archive):
        retired[row["workload"], row["slot"]].append(row["epoch"])
    _epochs(records, retired)
    leaving = {workload for workload, _ in retired}  # not all ranks leave at once
    _gangs([one for one in records if one.workload.uid not in leaving])
    _saved_together(records, await world.rows(t.checkpoints))
    await _funds(world, records)
    await _supplier_costs(world)
    for record in records:
        _milestones(record.attempt)
        _ledger(record)
        _machines(record)


async def check_quiet(world: World) -> None:
    """Check what holds besides once nothing is left to do."""
    await check(world)
    assert world.fake.machines == {}, "a machine still runs"  # P-09
    for row in await world.rows(t.machines):
        assert row["state"] == "Gone"
    for record in await all_records(world):  # P-09
        had_machine = bool(record.tenancies)
        assert (record.attempt.deletion_proven is not None) == had_machine
    assert await world.rows(t.runner_reports) == []


async def _documents_match_rows(world: World, records: list[AttemptRecord]) -> None:
    """The bytes that readers serve are those that the rows render to."""
    published = {row["attempt"]: row for row in await world.rows(t.attempt_objects)}
    for record in records:
        row = published[record.no]
        assert splice(bytes(row["doc"]), 1) == splice(render(record.view).doc, 1)


def _epochs(records: list[AttemptRecord], retired: Mapping[Any, list[int]]) -> None:
    """At most one live Attempt a slot; epochs 1, 2, 3 …; superseded by the next (P-04).

    Those that were retired are the first ones.
    """
    slots: dict[Any, list[Attempt]] = defaultdict(list)
    for record in records:
        slots[record.attempt.workload, record.attempt.slot].append(record.attempt)
    for key, attempts in slots.items():
        attempts.sort(key=lambda one: one.epoch)
        epochs = [*sorted(retired.get(key, ())), *(one.epoch for one in attempts)]
        assert epochs == list(range(1, len(epochs) + 1))
        assert sum(one.live for one in attempts) <= 1
        assert all(not one.live for one in attempts[:-1])
        for earlier, later in itertools.pairwise(attempts):
            assert earlier.superseded_by == later.epoch
        assert attempts[-1].superseded_by is None


def _gangs(records: list[AttemptRecord]) -> None:
    """Each gang epoch is whole, placed at once, and starts when all are registered (P-23, P-24)."""
    gangs: dict[Any, list[Attempt]] = defaultdict(list)
    for record in records:
        gang = record.attempt.gang
        if gang is not None:
            assert gang.epoch == record.attempt.epoch
            gangs[gang.id, gang.epoch, gang.size].append(record.attempt)
    for (_, _, size), ranks in gangs.items():
        assert sorted(one.gang.rank for one in ranks if one.gang) == list(range(size))
        assert len({one.queued for one in ranks}) == 1
        assert len({one.restore.seq if one.restore else None for one in ranks}) == 1
        placed = {one.acquired for one in ranks}
        assert len(placed) == 1 or any(not one.live for one in ranks)
        starts = [one.command_started for one in ranks if one.command_started is not None]
        registered = [one.registered for one in ranks if one.registered is not None]
        assert not starts or (len(registered) == size and min(starts) >= max(registered))


def _saved_together(records: list[AttemptRecord], checkpoints: list[Any]) -> None:
    """All rows of a gang's seq come from one gang epoch, one a rank (P-24)."""
    sizes = {one.attempt.workload: one.attempt.gang.size for one in records if one.attempt.gang}
    seqs: dict[Any, list[Any]] = defaultdict(list)
    for row in checkpoints:
        if row["workload"] in sizes:
            seqs[row["workload"], row["seq"]].append(row)
    for (workload, _), rows in seqs.items():
        assert len(rows) == sizes[workload]
        assert len({row["epoch"] for row in rows}) == 1
        assert len({row["deleted"] is None for row in rows}) == 1


async def _funds(world: World, records: list[AttemptRecord]) -> None:
    """Captured is what was charged, no hold outlives its Attempt, no money is lost (P-15)."""
    async with world.database.transaction(read_only=True) as connection:
        for finding in await broken_books(connection):
            raise AssertionError(finding)
    for record in records:
        over = not record.attempt.live and (
            record.attempt.deletion_proven is not None or not record.tenancies
        )
        if record.hold is None:
            assert not actual(record.view.segments).cost_usd
        else:
            assert record.hold.captured == actual(record.view.segments).cost_usd
            assert (record.hold.released is not None) == over


async def _supplier_costs(world: World) -> None:
    """The private ledger has no gap, from a machine's first billed moment to its end (SC-504)."""
    periods: dict[int, list[Any]] = defaultdict(list)
    for row in await world.rows(t.supplier_costs):
        periods[row["machine"]].append(row)
    for machine in await world.rows(t.machines):
        known = periods[machine["no"]]
        if machine["billing_start"] is not None:
            assert known[0]["from_ts"] == machine["billing_start"]
        for earlier, later in itertools.pairwise(known):
            assert earlier["to_ts"] == later["from_ts"] > earlier["from_ts"]
            assert earlier["rate"] != later["rate"]
        if known:
            ended = machine["state"] == "Gone"
            assert (known[-1]["to_ts"] is not None) == ended
            assert not ended or known[-1]["to_ts"] >= known[-1]["from_ts"]


def _milestones(attempt: Attempt) -> None:
    """In order and in whole seconds (P-03)."""
    known = [getattr(attempt, name) for name in _MILESTONES]
    times = [at for at in known if at is not None]
    assert times == sorted(times)
    assert all(at.microsecond == 0 for at in times)


def _ledger(record: AttemptRecord) -> None:
    """Segments partition the clock; charged and covered add up to the whole (P-11, P-12)."""
    segments = record.view.segments
    clocks: dict[int, list[CostSegment]] = defaultdict(list)
    for one in segments:
        clocks[one.machine].append(one)
    for clock in clocks.values():
        for earlier, later in itertools.pairwise(clock):
            assert earlier.end == later.start
        whole = cumulative_usd(clock[0].rate_usd_per_hour, sum(one.seconds for one in clock))
        assert sum((one.usd for one in clock), Decimal(0)) == whole
    _billed(record, clocks)
    total = sum((one.usd for one in segments), Decimal(0))
    shown = actual(segments)
    assert shown.cost_usd == (
        shown.boot_usd + shown.running_usd + shown.restore_usd + shown.teardown_usd
    )
    assert shown.cost_usd + shown.covered_usd == total


def _billed(record: AttemptRecord, clocks: Mapping[int, list[CostSegment]]) -> None:
    """One machine is billed, from billingStartTime on; all others are Nodus's (SC-342, P-25)."""
    paid = [one for one in clocks.values() if any(not part.covered for part in one)]
    assert len(paid) <= 1
    choice = record.view.placement.choice if record.view.placement else None
    for clock in paid:
        assert clock[0].start == record.attempt.billing_start
    if record.attempt.command_started is not None:
        won = [one for one in record.tenancies if one.lease.won]
        assert choice is not None
        for one in won:
            assert one.lease.rate_usd_per_hour == choice.rate_usd_per_hour
            assert one.machine.offering == choice.offering
            assert all(clock[0].machine == one.machine.no for clock in paid)


def _machines(record: AttemptRecord) -> None:
    """A machine not on its way out is held; a Gone one is not; one start an Attempt (P-05)."""
    for tenancy in record.tenancies:
        gone = tenancy.machine.state is MachineState.GONE
        assert not (gone and tenancy.open)
        kept = tenancy.lease.wiped is not None or tenancy.machine.warm_until is not None
        if not record.attempt.live and not kept:  # kept warm for another one (SC-343)
            assert tenancy.machine.state in (MachineState.RELEASING, MachineState.GONE)
    assert sum(one.lease.won for one in record.tenancies) <= 1
    assert len(record.held) <= 2  # P-25
    assert sum(one.lease.role is LeaseRole.HEDGE for one in record.tenancies) <= 1
    choice = record.view.placement.choice if record.view.placement else None
    if choice is not None:
        latest = max(record.tenancies, key=lambda one: one.lease.held)
        assert choice.hedged == (latest.lease.role is LeaseRole.HEDGE)  # P-25
    if len(record.kept) == 2:  # a race: nobody has won
        assert record.attempt.stage in (Stage.ACQUIRING, Stage.STARTING)
        assert not any(one.lease.won for one in record.tenancies)
