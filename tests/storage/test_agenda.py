"""What there is to do is read once, and again when something was written."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import sqlalchemy as sa

from nodus_api.clock import ManualClock
from nodus_api.kernel.vocabulary import OwnerKind, SlotState
from nodus_api.storage import tables as t
from nodus_api.storage.agenda import WHOLE, Agenda, Bounds
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import StorageRefused
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.records import Slot, Workload
from nodus_api.storage.workload_store import WorkloadStore

UID = UUID("0190c7a2-0000-7000-8000-000000000001")
TRAIN = Workload(
    uid=UID,
    project="default",
    organization="default",
    kind=OwnerKind.JOB,
    name="train",
    spec={"completions": 2, "limits": {"maxCostUSD": "5"}},
    created=datetime(2026, 1, 1, tzinfo=UTC),
)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def agenda(scheduler_database: Database) -> Agenda:
    bounds = Bounds(batch=10, at_once=10, silence=MINUTE, grace=MINUTE, accrual=MINUTE)
    return Agenda(scheduler_database, bounds)


@pytest.fixture
async def token(scheduler_database: Database) -> int:
    return (await LeaderStore(scheduler_database).take_over("test")).token


@pytest.fixture
def statements(scheduler_database: Database) -> Iterator[list[str]]:
    """Every statement sent from here on."""
    sent: list[str] = []

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    engine = scheduler_database._engine.sync_engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(engine, "before_cursor_execute", note)


async def test_what_a_step_writes_is_found_by_the_next(  # SC-605
    scheduler_database: Database, agenda: Agenda, token: int
) -> None:
    store = WorkloadStore(scheduler_database)
    assert await agenda.workloads("fill") == []
    async with store.edit(token, UID) as edit:
        await edit.put(TRAIN)
        await edit.put_slots([Slot(workload=UID, slot=name) for name in ("0", "1")])
    assert await agenda.workloads("fill") == [UID]
    assert await agenda.workloads("end") == []
    async with store.edit(token, UID) as edit:  # one of two slots is decided: it goes on
        await edit.put_slots([replace(edit.slots["0"].slot, state=SlotState.SUCCEEDED)])
    assert await agenda.workloads("fill") == [UID]
    assert await agenda.workloads("end") == []
    async with store.edit(token, UID) as edit:
        await edit.put_slots(
            [replace(one.slot, state=SlotState.SUCCEEDED) for one in edit.slots.values()]
        )
    assert await agenda.workloads("fill") == []
    assert await agenda.workloads("end") == [UID]


async def test_all_that_there_is_to_do_is_one_statement(
    agenda: Agenda, statements: list[str], clock: ManualClock
) -> None:
    began = clock.now()
    assert await agenda.now() == began
    assert await agenda.attempts("stop") == []
    assert await agenda.projects("drill turns") == []
    assert not await agenda.any("request")
    assert len(statements) == 1
    await clock.advance(1)
    assert await agenda.began() == began
    agenda.begin()
    assert await agenda.began() == clock.now()
    assert len(statements) == 2


async def test_what_one_query_cannot_read_is_no_other_step_s(  # P-28
    scheduler_database: Database, agenda: Agenda, token: int
) -> None:
    async with WorkloadStore(scheduler_database).edit(token, UID) as edit:
        await edit.put(replace(TRAIN, spec={"parallelism": "many"}))
        await edit.put_slots([Slot(workload=UID, slot="0", state=SlotState.SUCCEEDED)])
    assert await agenda.workloads("end") == [UID]
    assert not await agenda.any("intake")
    with pytest.raises(Exception, match="many"):
        await agenda.workloads("crowded")
    async with scheduler_database.transaction() as connection:
        await connection.execute(sa.update(t.workloads).values(spec=TRAIN.spec))
    agenda.begin()
    assert await agenda.workloads("crowded") == []


async def test_a_table_that_is_refused_stops_the_step_that_reads_it(  # P-28
    database_url: str, agenda: Agenda, clock: ManualClock
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("REVOKE SELECT ON nodus.drill_schedules FROM nodus_scheduler")
        assert not await agenda.any("intake")
        with pytest.raises(StorageRefused, match="drill_schedules"):
            await agenda.projects("drill turns")
        assert await agenda.workloads("fill") == []
        assert await agenda.began() == clock.now()
    finally:
        await connection.execute("GRANT SELECT ON nodus.drill_schedules TO nodus_scheduler")
        await connection.close()


async def test_a_pass_that_writes_much_asks_for_the_rest_apart(  # SC-606
    scheduler_database: Database, agenda: Agenda, statements: list[str]
) -> None:
    for turn in range(WHOLE + 1):
        before = len(statements)
        assert await agenda.workloads("fill") == []
        whole = "drill_schedules" in statements[before]
        assert whole is (turn < WHOLE)
        async with scheduler_database.transaction():
            pass
    agenda.begin()
    assert not await agenda.any("intake")
    assert "drill_schedules" in statements[-1]
