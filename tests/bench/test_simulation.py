"""Simulated lives: legal, billed to the micro-dollar, and the same for the same seed."""

import asyncio
import json
import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal

import asyncpg
import pytest
import sqlalchemy as sa
from tests.conftest import START, FirstRows

from nodus_api.attempts.projection import render
from nodus_api.bench.simulation.leading import AnotherLeads, lead
from nodus_api.bench.simulation.publisher import Done, Plan, Publisher, SeedUsed
from nodus_api.clock import SystemClock
from nodus_api.scheduler.lease import Leadership
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import load
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.leader_store import LeaderStore, Reign
from nodus_api.tasks import spawn

SEED = 7  # with it, Attempts of each kind: replaced, restored, lost
PLAN = Plan(attempts=80, projects=3, seed=SEED, live=4000)


async def simulate(database: Database, plan: Plan = PLAN, *, take_over: bool = False) -> Done:
    publisher = Publisher(
        database=database,
        plan=plan,
        clock=SystemClock(),
        chance=random.Random(plan.seed).random,  # noqa: S311 - lives, not secrets
        start=START,
    )
    clock = SystemClock()
    async with asyncio.timeout(120):
        await lead(
            database,
            publisher.publish,
            clock=clock,
            holder="test",
            take_over=take_over,
            retention=timedelta(hours=1),
        )
    return publisher.done


async def documents(database: Database) -> dict[int, bytes]:
    query = sa.select(t.attempt_objects.c.attempt, t.attempt_objects.c.doc)
    async with database.single_reads() as connection:
        return {row.attempt: row.doc for row in await connection.execute(query)}


@pytest.mark.slow  # some forty transactions of the real batch path
async def test_every_life_ends_with_its_bill_and_document(scheduler_database: Database) -> None:
    done = await simulate(scheduler_database)

    docs = await documents(scheduler_database)
    async with scheduler_database.snapshot() as connection:
        records = await load(connection, sorted(docs))
        log = (await connection.execute(sa.select(t.changes.c.kind))).scalars().all()
        workloads = (await connection.execute(sa.select(t.workloads.c.state))).scalars().all()
        charged = await connection.scalar(
            sa.select(sa.func.sum(t.cost_segments.c.usd)).where(~t.cost_segments.c.covered)
        )
    assert done.attempts == len(docs) >= PLAN.attempts
    assert done.failures == 0
    kinds = Counter(log)
    assert (kinds["A"], kinds["A"] + kinds["M"]) == (done.attempts, done.changes)
    # H-23: each document is the projection of its rows
    assert {no: render(record.view).doc for no, record in records.items()} == docs
    shown = [json.loads(doc)["status"] for doc in docs.values()]
    assert all("deletionProvenTime" in one["timings"] for one in shown)
    assert {one["phase"] for one in shown} == {"Succeeded", "Failed"}
    assert {"Preempted", "CustomerExit"} <= {one.get("reason") for one in shown}
    # P-12: bills add up
    billed = sum((Decimal(one["actual"]["costUSD"]) for one in shown), Decimal(0))
    assert billed == charged > 0
    assert "Active" not in workloads
    successors = {one["supersededBy"] for one in shown if "supersededBy" in one}
    names = [json.loads(doc)["metadata"]["name"] for doc in docs.values()]
    assert successors == {name for name in names if "-e1-" not in name}
    assert any("restoreFrom" in json.loads(doc)["spec"] for doc in docs.values())
    assert any("recoverySeconds" in one.get("interruption", {}) for one in shown)


@pytest.mark.slow  # fills the database twice
async def test_a_seed_makes_the_same_lives_again(
    scheduler_database: Database, first_rows: FirstRows
) -> None:
    plan = Plan(attempts=20, seed=3, live=4000)
    await simulate(scheduler_database, plan)
    first = await documents(scheduler_database)
    with pytest.raises(SeedUsed):
        await simulate(scheduler_database, plan)

    await first_rows.restore()
    await simulate(scheduler_database, plan)

    assert await documents(scheduler_database) == first


async def test_it_does_not_fight_a_scheduler(scheduler_database: Database) -> None:
    """SC-601: whoever holds the lock leads; SC-602: who stood aside writes nothing more."""
    store = LeaderStore(scheduler_database)
    async with store.line() as line:
        assert await line.try_lock()
        await store.take_over("host/1")
        with pytest.raises(AnotherLeads) as refused:
            await simulate(scheduler_database, Plan(attempts=1))
        assert refused.value.holder == "host/1"
    assert (await simulate(scheduler_database, Plan(attempts=1))).attempts >= 1


@pytest.mark.slow  # the scheduler that stood aside tries again after 2 s
async def test_a_scheduler_stands_aside_and_leads_again(scheduler_database: Database) -> None:
    """SC-602: the raised token fences the leader off; the lock decides who is next (SC-601)."""
    clock, stop, reigns = SystemClock(), asyncio.Event(), list[int]()

    async def reign(given: Reign) -> None:
        reigns.append(given.token)
        await stop.wait()

    standing = Leadership(
        LeaderStore(scheduler_database), clock, holder="host/1", reign=reign, wake=lambda: None
    )
    scheduling = spawn("scheduler", standing.run(stop))
    async with asyncio.timeout(60):
        while not reigns:
            await clock.sleep(0.02)
        done = await simulate(scheduler_database, Plan(attempts=1), take_over=True)
        while len(reigns) < 2:
            await clock.sleep(0.02)
        stop.set()
        await scheduling

    assert done.attempts >= 1
    assert reigns[1] > reigns[0] + 1  # simulate led in between


@pytest.mark.slow  # loses its sessions twice, and leads again 2 s later
async def test_lost_sessions_lose_and_repeat_nothing(clean_database: str) -> None:
    """Wherever a transaction is cut, its commit included, the rows tell what is next."""
    database = Database(clean_database, role=Role.SCHEDULER)
    other = await asyncpg.connect(clean_database)
    ours = "pid <> pg_backend_pid() AND NOT pid = ANY($1) AND datname = current_database()"
    before = await other.fetchval("SELECT array_agg(pid) FROM pg_stat_activity")

    async def cut() -> None:
        head = 1
        for _ in range(2):
            while (now := await other.fetchval("SELECT max(rev) FROM nodus.changes")) <= head:
                await SystemClock().sleep(0.005)
            head = now
            await other.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}",  # noqa: S608
                before,
            )

    cutting = spawn("cut", cut())
    await simulate(database, Plan(attempts=40, seed=9, live=200))
    await cutting

    docs = await documents(database)
    async with database.snapshot() as connection:
        records = await load(connection, sorted(docs))
        reigns = await connection.scalar(sa.select(t.leader.c.token))
    await database.close()
    await other.close()
    assert reigns is not None
    assert reigns > 1
    assert {no: render(record.view).doc for no, record in records.items()} == docs
    assert all(record.attempt.deletion_proven for record in records.values())
    slots = {(one.attempt.workload, one.attempt.slot) for one in records.values()}
    assert len(slots) == 40
