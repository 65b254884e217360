"""Commands on a real Postgres: once a key, refused in one sentence, heard by the loop."""

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa
from tests.workloads.manifests import MINIMUM, a_job

from nodus_api.clock import ManualClock
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage.engine import Database
from nodus_api.storage.tables import commands
from nodus_api.workloads import (
    KeyReused,
    Outcome,
    UnknownProject,
    Verb,
    outcome,
    parse_manifests,
    request,
    submit,
    wait_for_outcome,
    wake,
)
from nodus_api.workloads.intake import CHANNEL


async def stop(database: Database, *, key: str = "k", target: str = "train") -> int:
    async with database.transaction() as connection:
        return await request(
            connection,
            Verb.STOP,
            kind=OwnerKind.JOB,
            target=target,
            project="default",
            body={},
            key=key,
            asked_by="ada",
        )


async def answer(database: Database, key: str, clock: ManualClock) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            sa.update(commands)
            .where(commands.c.key == key)
            .values(applied=clock.now(), outcome="Applied", message="1 slot")
        )


async def test_a_manifest_becomes_one_command(  # SC-801
    scheduler_database: Database, clock: ManualClock
) -> None:
    (manifest,) = parse_manifests(a_job("completions: 3"))

    async with scheduler_database.transaction() as connection:
        number = await submit(connection, manifest, key="k1", asked_by="ada")
        await wake(connection)

    async with scheduler_database.transaction(read_only=True) as connection:
        (row,) = (await connection.execute(sa.select(commands))).mappings().all()
    assert dict(row) == {
        "no": number,
        "key": "k1",
        "project": "default",
        "verb": "submit",
        "kind": "Job",
        "target": "train",
        "body": {"spec": manifest.spec},
        "asked_by": "ada",
        "asked": clock.now(),
        "applied": None,
        "outcome": None,
        "message": None,
    }


async def test_the_same_key_is_the_same_command(scheduler_database: Database) -> None:  # SC-801
    (manifest,) = parse_manifests(a_job())
    numbers = []
    for _ in range(2):
        async with scheduler_database.transaction() as connection:
            numbers.append(await submit(connection, manifest, key="k", asked_by="ada"))

    assert numbers[0] == numbers[1]


async def test_a_key_is_not_used_for_another_request(scheduler_database: Database) -> None:
    first = await stop(scheduler_database)

    with pytest.raises(KeyReused, match="key 'k' was used for another request: take a new one"):
        await stop(scheduler_database, target="other")
    assert await stop(scheduler_database) == first


async def test_two_callers_of_one_key_make_one_command(scheduler_database: Database) -> None:
    numbers = await asyncio.gather(*(stop(scheduler_database) for _ in range(4)))

    assert len(set(numbers)) == 1


async def test_an_unknown_project_is_refused(scheduler_database: Database) -> None:
    (manifest,) = parse_manifests(MINIMUM)

    async with scheduler_database.transaction() as connection:
        with pytest.raises(UnknownProject) as refused:
            await submit(connection, manifest, key="k", asked_by="ada")

    assert str(refused.value) == (
        "project 'example' does not exist: create it with `nodus project create example`, "
        "or name another"
    )
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(commands)) == 0


async def test_a_drill_names_an_attempt_and_no_kind(scheduler_database: Database) -> None:
    async with scheduler_database.transaction() as connection:
        await request(
            connection,
            Verb.DRILL,
            kind=None,
            target="train-0-e1-abcde",
            project="default",
            body={"trigger": "preemption", "noticeSeconds": 30},
            key="k",
            asked_by="ada",
        )
        row = (await connection.execute(sa.select(commands))).mappings().one()

    assert (row["verb"], row["kind"], row["body"]["noticeSeconds"]) == ("drill", None, 30)


async def test_the_loop_hears_of_it_when_it_is_committed(scheduler_database: Database) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with scheduler_database.dedicated() as listener:
        await listener.add_listener(CHANNEL, lambda *args: heard.put_nowait(str(args[2])))
        async with scheduler_database.transaction() as connection:
            await wake(connection)
            assert heard.empty()
        assert await asyncio.wait_for(heard.get(), 10) == CHANNEL


async def test_the_outcome_is_there_once_it_is_applied(
    scheduler_database: Database, clock: ManualClock
) -> None:
    await stop(scheduler_database)
    async with scheduler_database.transaction(read_only=True) as connection:
        assert await outcome(connection, "k") is None
        assert await outcome(connection, "nobody's") is None

    await answer(scheduler_database, "k", clock)

    async with scheduler_database.transaction(read_only=True) as connection:
        found = await outcome(connection, "k")
    assert found == Outcome(outcome="Applied", message="1 slot", applied=clock.now())


async def test_waiting_ends_with_the_outcome(
    scheduler_database: Database, clock: ManualClock
) -> None:
    await stop(scheduler_database)
    waiting = asyncio.ensure_future(wait_for_outcome(scheduler_database, "k", clock=clock))

    await answer(scheduler_database, "k", clock)
    async with asyncio.timeout(10):
        while not waiting.done():
            await clock.advance(0.1)
            await asyncio.wait([waiting], timeout=0.01)

    found = waiting.result()
    assert found is not None
    assert found.outcome == "Applied"


async def test_waiting_ends_at_its_timeout(
    scheduler_database: Database, clock: ManualClock
) -> None:
    await stop(scheduler_database)
    began = clock.now()
    waiting = asyncio.ensure_future(
        wait_for_outcome(scheduler_database, "k", clock=clock, timeout_seconds=1.0)
    )

    async with asyncio.timeout(10):
        while not waiting.done():
            await clock.advance(0.5)
            await asyncio.wait([waiting], timeout=0.01)

    assert waiting.result() is None
    assert clock.now() - began >= timedelta(seconds=1)
