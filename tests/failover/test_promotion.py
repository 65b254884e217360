"""Promotion, switchover and restored dumps on two real servers: storage.md sections 8 and 11.3."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
import sqlalchemy as sa
from tests.apiserver.fronting import in_front_of
from tests.asgi_client import AsgiClient
from tests.failover.conftest import Pair, head_of, opened, replica
from tests.failover.servers import Door, Server
from tests.watchcache.conftest import until
from tests.watchcache.published import Publisher
from tests.watchcache.test_postgres import shown

from nodus_api.clock import SystemClock
from nodus_api.storage import migrate
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageError
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.errors import FeedUnavailable, StateNotReached, StateTooOld
from nodus_api.watchcache.watcher import Watcher

LIST = "/apis/nodus.dev/v1/namespaces/default/attempts"
MARKER = 1 << 44
PATIENCE = 30.0


def exactly(rev: int) -> ReadAt:
    return ReadAt(Mode.EXACT, rev)


async def watch(cache: AttemptCache, rev: int) -> Watcher:
    return await cache.watch(None, WatchFrom(exactly(rev), False))


async def events(watcher: Watcher) -> list[tuple[str, str, str, int]]:
    return [(one.type, *shown(one.body)) for one in await watcher.take()]


def names(entries: Sequence[object]) -> list[str]:
    return [entry.name for entry in entries]  # type: ignore[attr-defined]


async def replicated(standby: Server, head: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await head_of(standby.url) < head:  # noqa: ASYNC110  another process's doing
            await asyncio.sleep(0.01)


async def answered(client: AsgiClient, query: str) -> tuple[int, str]:
    """Return the status of a list, and the reason or the list's version."""
    got = await client.get(f"{LIST}?{query}")
    body = orjson.loads(got.body)
    return got.status, body.get("reason") or body["metadata"]["resourceVersion"]


async def taken_over(scheduler: Database) -> None:
    """Lead, as soon as the pool has found the new primary: the first transaction may fail."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await LeaderStore(scheduler).take_over("the new leader")
            except StorageError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.slow  # a revision that never comes is waited for 3 s
async def test_commits_that_were_lost_are_refused_and_no_number_names_two_changes(
    pair: Pair,
) -> None:  # 11.3, H-19, F11
    async with (
        Door() as service,
        Door() as aside,
        opened(service.url, Role.SCHEDULER) as scheduler,
    ):
        for door in (service, aside):
            door.lead_to(pair.primary.socket)
        publisher = Publisher(scheduler)
        await publisher.begin()
        kept = await publisher.add(*(f"n{number}" for number in range(1, 101)))
        await replicated(pair.standby, kept)
        async with replica(service.url) as cache, replica(aside.url) as behind:
            # the replica aside is cut off before the commits that are going to be lost
            waiting = await watch(behind, kept + 4)
            resting = await watch(behind, kept)
            aside.lead_to(None)
            aside.cut()
            pair.standby.stop()
            heads = [await publisher.change(n, f"n{n}", "Running") for n in range(1, 8)]
            await until(lambda: cache.position == heads[-1], PATIENCE)
            live = await watch(cache, heads[-1])
            assert (kept, heads[-1]) == (101, 108)

            service.lead_to(None)
            pair.primary.crash()
            await until(lambda: cache.health.refused, PATIENCE)
            with pytest.raises(FeedUnavailable):
                await cache.list(None, LATEST)
            assert len((await cache.list(None, CACHED)).entries) == 100
            pair.standby.start()
            pair.standby.promote()
            assert await head_of(pair.standby.url) == 101
            for door in (service, aside):
                door.lead_to(pair.standby.socket)

            # found out before the new primary has written a thing: its head is below ours
            await until(lambda: cache.health.reloads == 2, PATIENCE)
            assert (cache.position, cache.health.faults, live.over is not None) == (101, 1, True)
            await taken_over(scheduler)
            await until(lambda: cache.position == MARKER, PATIENCE)
            new = await publisher.change(9, "n9", "Running")
            state = await Feed(scheduler, clock=SystemClock()).state()
            assert [(e.epoch, e.first_rev, e.prev_last) for e in state.epochs] == [
                (0, 1, 0),
                (1, MARKER, 101),
            ]
            assert new == state.head == MARKER + 1

            above = spawn("above", cache.list(None, ReadAt(Mode.NOT_OLDER_THAN, 2 << 44)))
            page = await cache.list(None, LATEST)
            assert page.rev == new
            assert {shown(e.body)[1] for e in page.entries if e.name != "n9"} == {"Queued"}
            for gone in (102, 105, 108):
                with pytest.raises(StateTooOld):
                    await watch(cache, gone)
                with pytest.raises(StateTooOld):
                    await cache.list(None, exactly(gone))
                later = await cache.list(None, ReadAt(Mode.NOT_OLDER_THAN, gone))  # LW-104
                assert later.rev == new
            async with in_front_of(cache) as client:
                for gone in (102, 105, 108):
                    exact = f"resourceVersion={gone}&resourceVersionMatch=Exact"
                    assert await answered(client, exact) == (410, "Expired")
                    resumed = f"{LIST}?watch=1&resourceVersion={gone}"
                    async with client.open("GET", resumed) as stream:
                        event = await stream.event()
                        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
                    assert await answered(client, f"resourceVersion={gone}") == (200, str(new))
            told = [("MODIFIED", "n9", "Running", new)]
            assert await events(await watch(cache, 101)) == told  # as if it were the marker
            assert await events(await watch(cache, MARKER)) == told
            first = [("ADDED", "n100", "Queued", 101), *told]
            assert await events(await watch(cache, 100)) == first
            before = await cache.list(None, exactly(101))
            assert {shown(e.body)[1] for e in before.entries} == {"Queued"}

            # who stood at a revision that was kept has lost nothing, and loads nothing anew
            await until(lambda: behind.position == new, PATIENCE)
            assert (behind.health.reloads, behind.health.faults) == (1, 0)
            assert (resting.over, await events(resting)) == (None, told)
            assert waiting.over is not None  # it waited for a number that never comes
            with pytest.raises(StateNotReached):
                await above


async def test_a_replica_that_missed_the_failover_is_told_by_the_epoch(pair: Pair) -> None:  # H-19
    async with Door() as service, opened(pair.primary.url, Role.SCHEDULER) as old:
        service.lead_to(pair.primary.socket)
        before = Publisher(old)
        await before.begin()
        kept = await before.add("n1", "n2")
        await replicated(pair.standby, kept)
        pair.standby.stop()
        async with replica(service.url) as cache:
            lost = await before.change(1, "n1", "Running")
            await until(lambda: cache.position == lost, PATIENCE)
            live = await watch(cache, lost)
            service.lead_to(None)
            service.cut()
            pair.primary.crash()
            pair.standby.start()
            pair.standby.promote()
            async with opened(pair.standby.url, Role.SCHEDULER) as fresh:
                await LeaderStore(fresh).take_over("the new leader")
                after = Publisher(fresh)
                after._made = 2
                new = [await after.add(f"m{number}") for number in range(3)]
            service.lead_to(pair.standby.socket)  # its head is above ours by now

            await until(lambda: cache.position == new[-1], PATIENCE)

            assert (cache.health.reloads, cache.health.faults) == (2, 1)
            assert live.over is not None
            with pytest.raises(StateTooOld):
                await watch(cache, lost)
            assert [one[1] for one in await events(await watch(cache, kept))] == ["m0", "m1", "m2"]


async def test_a_planned_switchover_costs_nobody_anything(pair: Pair) -> None:  # F10, H-19
    both = f"postgresql://postgres@/nodus?host={pair.primary.run_dir},{pair.standby.run_dir}"
    async with (
        opened(f"{both}&target_session_attrs=read-write", Role.SCHEDULER) as scheduler,
        opened(pair.standby.url, Role.API) as following,
        replica(f"{both}&target_session_attrs=read-write") as cache,
        replica(pair.standby.url) as second,
    ):
        publisher = Publisher(scheduler)
        await publisher.begin()
        last = await publisher.add("n1", "n2")
        # a standby has no LISTEN: it is polled, and the order holds
        async with Feed(following, clock=SystemClock()).listen() as wakeups:
            assert not wakeups.listening
        await until(lambda: cache.position == second.position == last, PATIENCE)
        watchers = [await watch(one, rev) for one in (cache, second) for rev in (last, last - 1)]

        pair.primary.stop()
        pair.standby.promote()
        await taken_over(scheduler)
        new = await publisher.change(1, "n1", "Running")
        await until(lambda: cache.position == second.position == new, PATIENCE)

        assert new == MARKER + 1
        for one in (cache, second):
            assert (one.health.reloads, one.health.faults) == (1, 0)
            for rev in (last - 1, last, MARKER):  # nobody gets 410
                await watch(one, rev)
                assert (await one.list(None, exactly(rev))).rev == rev
        told = [("MODIFIED", "n1", "Running", new)]
        added = [("ADDED", "n2", "Queued", last), *told]
        assert [await events(one) for one in watchers] == [told, added, told, added]
        assert [one.over for one in watchers] == [None] * 4
        # a history that begins at the marker still serves whoever saw all that was before it
        async with scheduler.transaction() as connection:
            await connection.execute(sa.select(sa.func.nodus.advance_oldest(MARKER)))
        async with replica(pair.standby.url) as third:
            assert await events(await watch(third, last)) == told
            with pytest.raises(StateTooOld):
                await watch(third, last - 1)


async def test_a_restored_dump_and_a_clone_have_an_epoch_of_their_own(
    clean_database: str, postgres: EmbeddedPostgres, open_folder: Path
) -> None:  # F14, storage.md section 8
    restored = Server(
        open_folder / "restored", binaries=postgres._prepare()[1], settings={"fsync": "off"}
    )
    restored.start()
    try:
        async with Door() as service:
            service.lead_to(Path(postgres._run_dir, ".s.PGSQL.5432"))
            async with opened(service.url, Role.SCHEDULER) as scheduler:
                publisher = Publisher(scheduler)
                await publisher.begin()
                last = await publisher.add("n1", "n2")
                async with replica(service.url) as cache:
                    resting = await watch(cache, last)
                    place = ["-U", "postgres", "-h"]
                    old, new = str(postgres._run_dir), str(restored.run_dir)
                    roles = restored.tool("pg_dumpall", *place, old, "--roles-only")
                    dump = restored.tool("pg_dump", *place, old, "nodus")
                    restored.tool("psql", *place, new, "-q", "-d", "postgres", feed=roles)
                    restored.tool(
                        "psql", *place, new, "-q", "-v", "ON_ERROR_STOP=1", "-d", "nodus", feed=dump
                    )
                    service.lead_to(restored.socket)
                    service.cut()
                    async with opened(restored.url, Role.SCHEDULER) as fresh:
                        await LeaderStore(fresh).take_over("the new leader")
                        assert await head_of(restored.url) == MARKER
                        await LeaderStore(fresh).take_over("and the next")  # once is enough
                        assert await migrate.new_epoch(restored.url) == 2 * MARKER  # a clone
                        after = Publisher(fresh)
                        after._made = 2
                        added = await after.add("n3")
                    await until(lambda: cache.position == added, PATIENCE)

                    assert added == 2 * MARKER + 1
                    assert (cache.health.reloads, cache.health.faults) == (1, 0)
                    told = [("ADDED", "n3", "Queued", added)]
                    assert await events(resting) == told
                    for rev in (last, MARKER, 2 * MARKER):
                        assert await events(await watch(cache, rev)) == told
                    with pytest.raises(StateTooOld):
                        await watch(cache, last + 1)
                    page = await cache.list(None, LATEST)
                    assert names(page.entries) == ["n1", "n2", "n3"]
    finally:
        restored.stop()
