"""A batch of Attempts under lock, and how what a decision changed becomes rows.

`flush` compares each record with what was loaded and writes only what differs, table by
table in the order that the keys ask for, then publishes the documents of the Attempts
that readers see changed, once and last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.attempt import AttemptView
from nodus_api.kernel.funding import Account
from nodus_api.storage import attempt_rows as rows
from nodus_api.storage import checkpoint_store, statements
from nodus_api.storage.bulk import Row, as_json
from nodus_api.storage.errors import StorageConflict
from nodus_api.storage.fund_store import write_holds
from nodus_api.storage.last_words import write_last_words
from nodus_api.storage.proposal_store import write_proposals
from nodus_api.storage.records import AttemptRecord, Decided, IdleTime, Slot, Tenancy
from nodus_api.storage.supplier_ledger import write_supplier_costs
from nodus_api.storage.work_rows import lease_row, machine_row, slot_row, work_row


class Rendered(Protocol):
    """A finished document and its labels and selectable fields."""

    @property
    def doc(self) -> bytes:
        """The document, its resourceVersion empty."""
        ...

    @property
    def sel(self) -> Mapping[str, Mapping[str, str]]:
        """`{"labels": {}, "fields": {}}`."""
        ...


Render = Callable[[AttemptView], Rendered]


@dataclass(slots=True, kw_only=True)
class Batch:
    """Attempts under lock, and what became of them in this transaction."""

    connection: AsyncConnection
    now: datetime
    """The database's time, read after the fence: every decision in here uses it (SC-615)."""
    loaded: dict[int, AttemptRecord] = field(default_factory=dict)
    records: dict[int, AttemptRecord] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    """The money of the organizations of those Attempts, as this transaction leaves it."""
    added: list[AttemptRecord] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    idled: list[IdleTime] = field(default_factory=list)
    reported: set[int] = field(default_factory=set)
    """Machines whose reports were applied; the rows are deleted at the end."""

    def put(self, record: AttemptRecord) -> None:
        """Keep what became of an Attempt, or add a new one (`no` is None)."""
        if record.no is None:
            self.added.append(record)
        else:
            self.records[record.no] = record


Change = tuple[AttemptRecord, AttemptRecord]
"""A record as it was loaded, and as the decision left it."""


async def flush(batch: Batch, render: Render) -> int:
    """Write what differs and publish it; return how many documents were published.

    Raises StorageConflict when a guard refused a row: another writer was first.
    """
    changes = [
        (batch.loaded[no], record)
        for no, record in sorted(batch.records.items())
        if record != batch.loaded[no]
    ]
    shown = {no: batch.records[no].view for no in sorted(batch.records)}
    committed = await _commit_checkpoints(batch.connection, changes)
    await _write_slots(batch, changes)
    await _end_workloads(batch.connection, changes)
    touched = await _advance(batch.connection, changes)
    new = await _insert_attempts(batch)
    shown |= {no: record.view for no, record in new.items()}
    await _write_work(batch.connection, changes, new)
    await _write_tenancies(batch.connection, changes)
    touched |= new.keys() | committed | await _write_children(batch.connection, changes)
    touched |= await _lose_checkpoints(batch, changes)
    await write_proposals(batch.connection, changes)
    await write_last_words(batch.connection, changes)
    await write_holds(batch.connection, changes)
    await _write_aside(batch)
    await _publish(batch.connection, {no: shown[no] for no in sorted(touched)}, render)
    return len(touched)


async def _commit_checkpoints(connection: AsyncConnection, changes: Iterable[Change]) -> set[int]:
    """Write commits while the slots still hold the seq they follow: that is their guard."""
    given = [row for _, after in changes for row in checkpoint_store.commit_rows(after)]
    await _guarded(connection, checkpoint_store.commit(), given, "checkpoints")
    return {row["attempt"] for row in given}


async def _lose_checkpoints(batch: Batch, changes: Iterable[Change]) -> set[int]:
    """Mark checkpoints that cannot be restored; return the Attempts that made them."""
    lost = [after for _, after in changes if after.restore_lost]
    given = [checkpoint_store.lost_row(record, batch.now) for record in lost]
    if not given:
        return set()
    makers = await batch.connection.execute(checkpoint_store.lose(), as_json(given))
    return {no for no in makers.scalars() if no is not None}


async def _write_slots(batch: Batch, changes: Iterable[Change]) -> None:
    """Write slots before new Attempts, which refer to them."""
    slots = {(one.workload, one.slot): one for one in batch.slots}
    moved = [after for before, after in changes if before.slot != after.slot]
    for record in (*moved, *batch.added):
        slots[record.slot.workload, record.slot.slot] = record.slot
    given = [slot_row(slots[key]) for key in sorted(slots)]
    await _execute(batch.connection, statements.write_slots(), given)


async def _end_workloads(connection: AsyncConnection, changes: Iterable[Change]) -> None:
    ended = {
        after.workload.uid: {
            "uid": after.workload.uid,
            "state": after.workload.state,
            "outcome": after.workload.outcome,
            "ended": after.workload.ended,
        }
        for before, after in changes
        if before.workload != after.workload
    }
    await _execute(connection, statements.end_workloads(), list(ended.values()))


async def _advance(connection: AsyncConnection, changes: Iterable[Change]) -> set[int]:
    """Write the moved Attempts' own rows, each at the stage it was loaded at."""
    given = [
        {"no": after.no, "epoch": after.attempt.epoch, "expected": before.attempt.stage}
        | rows.state_row(after.attempt)
        for before, after in changes
        if rows.state_row(before.attempt) != rows.state_row(after.attempt)
    ]
    return await _guarded(connection, statements.advance_attempts(), given, "attempts")


async def _insert_attempts(batch: Batch) -> dict[int, AttemptRecord]:
    """Insert new epochs; return them by the `no` they were given."""
    if not batch.added:
        return {}
    given = [
        rows.identity_row(record.attempt) | rows.state_row(record.attempt) for record in batch.added
    ]
    answered = await batch.connection.execute(statements.insert_attempts(), as_json(given))
    numbers = {uid: no for no, uid in answered}
    return {numbers[record.attempt.uid]: record for record in batch.added}


async def _write_work(
    connection: AsyncConnection, changes: Iterable[Change], new: Mapping[int, AttemptRecord]
) -> None:
    given = [
        {"attempt": after.no} | work_row(after)
        for before, after in changes
        if work_row(before) != work_row(after)
    ]
    given += [{"attempt": no} | work_row(record) for no, record in new.items()]
    await _execute(connection, statements.write_work(), given)


async def _write_tenancies(connection: AsyncConnection, changes: Iterable[Change]) -> None:
    """Write machines, then the leases that refer to them; a warm one gets another lease."""
    pairs = [
        (after.no, known.get(tenancy.machine.key), tenancy)
        for before, after in changes
        for known in [{one.machine.key: one for one in before.tenancies}]
        for tenancy in after.tenancies
    ]
    new = [(no, tenancy) for no, before, tenancy in pairs if before is None]
    warm = [tenancy.machine for _, tenancy in new if tenancy.machine.no is not None]
    made = [tenancy for _, tenancy in new if tenancy.machine.no is None]
    numbers = await _insert_machines(connection, made)
    leases = [
        lease_row(tenancy.machine.no or numbers[tenancy.machine.key], no or 0, tenancy.lease)
        for no, tenancy in new
    ]
    await _execute(connection, statements.insert_leases(), leases)
    kept = [(no, before, after) for no, before, after in pairs if before and before != after]
    await write_supplier_costs(
        connection,
        [
            (before.machine if before else None, after.machine, number)
            for _, before, after in pairs
            if (number := after.machine.no or numbers.get(after.machine.key)) is not None
        ],
    )
    changed = [after.machine for _, before, after in kept if before.machine != after.machine]
    machines = [{"no": one.no} | machine_row(one) for one in (*changed, *warm)]
    await _guarded(connection, statements.write_machines(), machines, "machines")
    await _write_leases(connection, kept)


async def _insert_machines(
    connection: AsyncConnection, tenancies: Sequence[Tenancy]
) -> dict[str, int]:
    if not tenancies:
        return {}
    given = [machine_row(tenancy.machine) for tenancy in tenancies]
    answered = await connection.execute(statements.insert_machines(), as_json(given))
    return {key: no for no, key in answered}


async def _write_leases(
    connection: AsyncConnection, kept: Iterable[tuple[int | None, Tenancy, Tenancy]]
) -> None:
    """Write open leases, win starts one by one, close what ended."""
    moved = [(no or 0, before, after) for no, before, after in kept if before.lease != after.lease]
    for no, before, after in moved:
        if after.lease.won and not before.lease.won:
            of = {"of_machine": after.machine.no, "of_attempt": no, "of_fence": after.lease.fence}
            won = await connection.execute(statements.win_start(), of)
            _all_written("leases_start", 1, len(won.all()))
    given = [lease_row(after.machine.no or 0, no, after.lease) for no, _, after in moved]
    await _guarded(connection, statements.write_leases(), given, "leases")
    closed = [
        {
            "machine": after.machine.no,
            "fence": after.lease.fence,
            "closed": after.lease.released,
        }
        for _, before, after in moved
        if before.open and not after.open
    ]
    await _execute(connection, statements.close_leases(), closed)


async def _write_children(connection: AsyncConnection, changes: Iterable[Change]) -> set[int]:
    """Write the child tables that readers see; return the Attempts touched."""
    touched = set()
    placed = [(a.no or 0, a) for b, a in changes if a.view.placement != b.view.placement]
    if placed:
        await _write_placements(connection, placed)
    touched |= {no for no, _ in placed}
    touched |= await _write_segments(connection, changes)
    ended = [
        {"attempt": after.no} | rows.interruption_row(after.attempt.interruption)
        for before, after in changes
        if after.attempt.interruption and after.attempt.interruption != before.attempt.interruption
    ]
    await _execute(connection, statements.write_interruptions(), ended)
    touched |= {row["attempt"] for row in ended}
    return touched | {a.no or 0 for b, a in changes if a.view.successor != b.view.successor}


async def _write_placements(
    connection: AsyncConnection, placed: Sequence[tuple[int, AttemptRecord]]
) -> None:
    await connection.execute(statements.clear_rejections(), {"nos": [no for no, _ in placed]})
    shown = [(no, record.view.placement) for no, record in placed if record.view.placement]
    await _execute(
        connection,
        statements.write_placements(),
        [{"attempt": no} | rows.placement_row(placement) for no, placement in shown],
    )
    rejections = [
        {"attempt": no, "ord": place, "offering": one.offering, "reason": one.reason}
        for no, placement in shown
        for place, one in enumerate(placement.rejected)
    ]
    await _execute(connection, statements.insert_rejections(), rejections)


async def _write_segments(connection: AsyncConnection, changes: Iterable[Change]) -> set[int]:
    """Write the rows of the ledger that a recount changed."""
    written: list[Row] = []
    cleared: list[Row] = []
    for before, after in changes:
        old = {(one.machine, one.seq): one for one in before.view.segments}
        new = {(one.machine, one.seq): one for one in after.view.segments}
        no = after.no or 0
        written += [rows.segment_row(no, one) for key, one in new.items() if old.get(key) != one]
        cleared += [
            {"attempt": no, "machine": machine, "seq": seq}
            for machine, seq in old.keys() - new.keys()
        ]
    await _execute(connection, statements.clear_segments(), cleared)
    await _execute(connection, statements.write_segments(), written)
    return {row["attempt"] for row in (*written, *cleared)}


async def _write_aside(batch: Batch) -> None:
    """Write what no reader of the API sees."""
    decided = [
        {
            "attempt": one.attempt,
            "at": one.at,
            "request": one.request,
            "snapshot_id": one.snapshot_id,
            "result_hash": one.result_hash,
            "top": list(one.top),
            "counters": one.counters,
        }
        for one in batch.decided
    ]
    await _execute(batch.connection, statements.insert_decisions(), decided)
    idled = [
        {
            "machine": one.machine,
            "from_ts": one.start,
            "to_ts": one.end,
            "rate": one.rate_usd_per_hour,
            "usd": one.usd,
        }
        for one in batch.idled
    ]
    await _execute(batch.connection, statements.insert_idle_time(), idled)
    if batch.reported:
        machines = {"machines": sorted(batch.reported)}
        await batch.connection.execute(statements.delete_reports(), machines)


async def _publish(
    connection: AsyncConnection, views: Mapping[int, AttemptView], render: Render
) -> None:
    if not views:
        return
    finished = [render(view) for view in views.values()]
    given = {
        "nos": list(views),
        "docs": [one.doc for one in finished],
        "sels": [one.sel for one in finished],
    }
    await connection.execute(statements.publish(), given)


async def _execute(
    connection: AsyncConnection, statement: sa.Executable, given: Sequence[Row]
) -> None:
    if given:
        await connection.execute(statement, as_json(given))


async def _guarded(
    connection: AsyncConnection,
    statement: sa.Executable,
    given: Sequence[Row],
    what: str,
) -> set[int]:
    """Execute an update that answers one number a row; every row must have passed its guard."""
    if not given:
        return set()
    written = list((await connection.execute(statement, as_json(given))).scalars())
    _all_written(f"{what}_guard", len(given), len(written))
    return set(written)


def _all_written(guard: str, given: int, written: int) -> None:
    if written != given:
        raise StorageConflict(guard, f"{given - written} of {given} rows were moved by another")
