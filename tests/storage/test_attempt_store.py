"""Batches of Attempts: what is written, what is refused, and what costs a revision."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from uuid import UUID, uuid5

import pytest
import sqlalchemy as sa

from nodus_api.attempts import render
from nodus_api.clock import ManualClock
from nodus_api.kernel import events
from nodus_api.kernel.attempt import AttemptView, Owner
from nodus_api.kernel.lifecycle import advance, queue
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.offering import CatalogSnapshot, OfferingClass, candidates_of
from nodus_api.kernel.placement import PlacementRequest, place
from nodus_api.kernel.vocabulary import MachineState, Market, OwnerKind, Stage
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import AttemptStore, load
from nodus_api.storage.catalog_store import CatalogStore, Offer
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff, StorageConflict
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.records import AttemptRecord, Lease, Machine, Slot, Tenancy, Workload
from nodus_api.storage.workload_store import WorkloadStore

OWNER = UUID("0190c7a2-0000-7000-8000-000000000001")
SMALL = OfferingClass(
    name="cpu-1c-4g-other",
    accelerator=None,
    form=None,
    count=0,
    accelerator_memory_gib=None,
    vcpus=Decimal(1),
    memory_gib=Decimal(4),
    disk_gib=Decimal(10),
    arch="x86_64",
    region_class="other",
    gang_capable=False,
    rate_on_demand=Decimal("0.06"),
    rate_spot=None,
    speed=Decimal(1),
    reference_rate=Decimal("0.06"),
)


Decide = Callable[[AttemptRecord, datetime], AttemptRecord]


class Bench:
    """A leader's stores over a workload with three slots."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = AttemptStore(database, render)
        self.token = 0
        self.workload = Workload(
            uid=OWNER,
            project="default",
            organization="default",
            kind=OwnerKind.JOB,
            name="train",
            spec={},
            created=datetime(2026, 1, 1, tzinfo=UTC),
        )

    async def lead(self) -> None:
        self.token = (await LeaderStore(self.database).take_over("test")).token
        offer = Offer(
            offering=SMALL.name,
            instance_type="small",
            region="here",
            zone="",
            cost_on_demand=Decimal("0.05"),
            cost_spot=None,
            increment=timedelta(seconds=60),
            minimum=timedelta(0),
            available=4,
        )
        await CatalogStore(self.database, "fake").sync(
            self.token, [SMALL], [offer], asked=self.workload.created
        )
        workloads = WorkloadStore(self.database)
        async with workloads.edit(self.token, OWNER) as edit:
            await edit.put(self.workload)

    async def queued(self, *slots: str) -> list[int]:
        async with self.store.batch(self.token) as batch:
            for slot in slots:
                batch.put(self.first_epoch(slot, batch.now))
        return await self.nos()

    def first_epoch(self, slot: str, now: datetime) -> AttemptRecord:
        attempt = queue(
            uid=uuid5(OWNER, slot),
            project="default",
            name=attempt_name("train", slot, 1, OWNER),
            workload=OWNER,
            slot=slot,
            epoch=1,
            at=now,
        )
        owner = Owner(kind=OwnerKind.JOB, name="train", uid=OWNER)
        return AttemptRecord(
            view=AttemptView(attempt=attempt, owner=owner),
            slot=Slot(workload=OWNER, slot=slot, current_epoch=1),
            workload=self.workload,
        )

    async def nos(self) -> list[int]:
        return await self.store.nos(sa.select(t.attempts.c.no).order_by(t.attempts.c.no))

    async def move(
        self, no: int, decide: Callable[[AttemptRecord, datetime], AttemptRecord]
    ) -> None:
        async with self.store.batch(self.token, [no]) as batch:
            batch.put(decide(batch.records[no], batch.now))

    async def record(self, no: int) -> AttemptRecord:
        async with self.database.transaction(read_only=True) as connection:
            return (await load(connection, [no]))[no]

    async def count(self, table: sa.Table) -> int:
        async with self.database.transaction(read_only=True) as connection:
            query = sa.select(sa.func.count()).select_from(table)
            return int((await connection.execute(query)).scalar_one())


@pytest.fixture
async def bench(scheduler_database: Database) -> Bench:
    bench = Bench(scheduler_database)
    await bench.lead()
    return bench


def claimed(record: AttemptRecord, now: datetime) -> AttemptRecord:
    return record.moved(advance(record.attempt, events.Claimed(at=now, start_deadline=now)))


def placed(record: AttemptRecord, now: datetime) -> AttemptRecord:
    """T2 and T3 with one machine intended."""
    snapshot = CatalogSnapshot.of(candidates_of(SMALL, {}))
    decision = place(PlacementRequest(), snapshot, now)
    attempt = advance(record.attempt, events.Claimed(at=now))
    attempt = advance(attempt, events.Placed(at=now))
    tenancy = Tenancy(
        machine=Machine(
            key=f"key-{record.no}",
            organization="default",
            offer=1,
            offering=SMALL.name,
            market=Market.ON_DEMAND,
            requested=now,
        ),
        lease=Lease(
            held=now,
            rate_usd_per_hour=Decimal("0.06"),
            token_sha256=sha256(str(record.no).encode()).digest(),
        ),
    )
    moved = record.moved(attempt).with_tenancy(tenancy)
    return replace(moved, view=replace(moved.view, placement=decision.placement))


async def offer_one(bench: Bench) -> int:
    async with bench.database.transaction(read_only=True) as connection:
        return int((await connection.execute(sa.select(t.supplier_offers.c.no))).scalar_one())


async def test_what_is_put_comes_back_the_same(bench: Bench) -> None:
    (no,) = await bench.queued("0")
    offer = await offer_one(bench)

    def decide(record: AttemptRecord, now: datetime) -> AttemptRecord:
        after = placed(record, now)
        (tenancy,) = after.tenancies
        machine = replace(tenancy.machine, offer=offer)
        return after.with_tenancy(replace(tenancy, machine=machine))

    wanted: list[AttemptRecord] = []

    def keep(record: AttemptRecord, now: datetime) -> AttemptRecord:
        wanted.append(decide(record, now))
        return wanted[0]

    await bench.move(no, keep)
    got = await bench.record(no)
    assert got.view == wanted[0].view
    assert got.work == wanted[0].work
    assert got.slot == wanted[0].slot
    (tenancy,) = got.tenancies
    assert tenancy.machine.no is not None
    assert tenancy.machine.increment == timedelta(seconds=60)
    assert tenancy.lease == wanted[0].tenancies[0].lease


async def test_equal_records_write_nothing(bench: Bench) -> None:
    (no,) = await bench.queued("0")
    changes = await bench.count(t.changes)
    await bench.move(no, lambda record, _: record)
    assert await bench.count(t.changes) == changes


async def test_what_only_the_loop_sees_costs_no_revision(bench: Bench) -> None:  # SC-804
    (no,) = await bench.queued("0")
    changes = await bench.count(t.changes)

    def tried(record: AttemptRecord, now: datetime) -> AttemptRecord:
        work = replace(record.work, next_try=now + timedelta(seconds=5))
        slot = replace(record.slot, retries_used=2)
        return replace(record, work=work, slot=slot)

    await bench.move(no, tried)
    got = await bench.record(no)
    assert (got.work.next_try, got.slot.retries_used) == (
        datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC),
        2,
    )
    assert await bench.count(t.changes) == changes


async def test_one_commit_numbers_its_attempts_together(bench: Bench) -> None:
    await bench.queued("0", "1", "2")
    async with bench.database.transaction(read_only=True) as connection:
        query = sa.select(t.changes.c.rev, t.changes.c.kind).order_by(t.changes.c.rev)
        rows = (await connection.execute(query)).all()
    assert [tuple(row) for row in rows] == [(1, "E"), (2, "A"), (3, "A"), (4, "A")]


async def test_an_old_token_writes_nothing(bench: Bench) -> None:  # SC-602
    (no,) = await bench.queued("0")
    old = bench.token
    await LeaderStore(bench.database).take_over("another")
    with pytest.raises(FencedOff):
        async with bench.store.batch(old, [no]):
            pytest.fail("a deposed leader got a batch")


async def test_a_second_live_attempt_of_a_slot_is_refused(bench: Bench) -> None:  # SC-104
    await bench.queued("0")

    async def add_second() -> None:
        async with bench.store.batch(bench.token) as batch:
            second = bench.first_epoch("0", batch.now)
            name = attempt_name("train", "0", 2, OWNER)
            attempt = replace(second.attempt, uid=uuid5(OWNER, "second"), epoch=2, name=name)
            batch.put(second.moved(attempt))

    with pytest.raises(StorageConflict) as refused:
        await add_second()
    assert refused.value.constraint == "attempts_one_live"
    assert len(await bench.nos()) == 1


async def test_a_row_at_another_stage_is_not_moved(bench: Bench) -> None:  # SC-004
    (no,) = await bench.queued("0")

    async def move_what_has_moved() -> None:
        async with bench.store.batch(bench.token, [no]) as batch:
            elsewhere = {"stage": "Placing", "waiting_for": "Capacity"}
            await batch.connection.execute(sa.update(t.attempts).values(elsewhere))
            batch.put(claimed(batch.records[no], batch.now))

    with pytest.raises(StorageConflict):
        await move_what_has_moved()
    assert (await bench.record(no)).attempt.stage is Stage.PENDING


async def test_an_error_leaves_nothing_of_the_batch(bench: Bench) -> None:
    first, second = await bench.queued("0", "1")

    async def fail_midway() -> None:
        async with bench.store.batch(bench.token, [first, second]) as batch:
            record = batch.records[first]
            batch.put(record.moved(advance(record.attempt, events.Claimed(at=batch.now))))
            raise LookupError("the second could not be decided")

    with pytest.raises(LookupError):
        await fail_midway()
    assert (await bench.record(first)).attempt.stage is Stage.PENDING


async def test_a_batch_locks_in_rising_order_and_misses_what_is_gone(bench: Bench) -> None:
    nos = await bench.queued("0", "1", "2")
    async with bench.store.batch(bench.token, [nos[2], 999_999, nos[0]]) as batch:
        assert list(batch.records) == [nos[0], nos[2]]


async def test_a_machine_that_is_gone_stays_gone(bench: Bench) -> None:  # SC-608
    (no,) = await bench.queued("0")
    offer = await offer_one(bench)

    def intend(record: AttemptRecord, now: datetime) -> AttemptRecord:
        after = placed(record, now)
        (tenancy,) = after.tenancies
        return after.with_tenancy(replace(tenancy, machine=replace(tenancy.machine, offer=offer)))

    def lose(record: AttemptRecord, now: datetime) -> AttemptRecord:
        (tenancy,) = record.tenancies
        gone = replace(tenancy.machine, state=MachineState.GONE, gone=now)
        lease = replace(tenancy.lease, released=now)
        return record.with_tenancy(Tenancy(machine=gone, lease=lease))

    def revive(record: AttemptRecord, _: datetime) -> AttemptRecord:
        (tenancy,) = record.tenancies
        back = replace(tenancy.machine, state=MachineState.REQUESTED, gone=None)
        return record.with_tenancy(replace(tenancy, machine=back))

    await bench.move(no, intend)
    await bench.move(no, lose)
    (tenancy,) = (await bench.record(no)).tenancies
    assert tenancy.machine.state is MachineState.GONE
    assert tenancy.lease.released == datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)  # never empty
    with pytest.raises(StorageConflict) as refused:
        await bench.move(no, revive)
    assert refused.value.constraint == "machines_guard"


async def test_the_database_clock_is_read_with_the_fence(
    bench: Bench, clock: ManualClock
) -> None:  # SC-615
    await clock.advance(7)
    async with bench.store.batch(bench.token) as batch:
        assert batch.now == datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
