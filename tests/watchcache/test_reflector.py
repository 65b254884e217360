"""Following the log: contiguity, whole commits, epochs, outages."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest
from tests.watchcache.conftest import following, running, until
from tests.watchcache.feed_log import FeedLog, Row, State
from tests.watchcache.model import told

from nodus_api.clock import ManualClock
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache, reflector
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    StateNotReached,
    StateTooOld,
)


def add(log: FeedLog, number: int) -> int:
    return log.commit(("A", UUID(int=number), "p", f"n{number}", {}, {}))[0]


def names(page: object) -> list[str]:
    return [entry.name for entry in page.entries]  # type: ignore[attr-defined]


async def settle(log: FeedLog, cache: AttemptCache, clock: ManualClock) -> None:
    """Let the follower come to the head of the log, waiting out its pauses."""
    for _ in range(100):
        if cache.ready and cache.position == log.rows[-1].rev and cache.health.connected:
            return
        await clock.advance(0.2)
        await asyncio.sleep(0.005)
    raise AssertionError("the follower did not come to the head")


async def test_a_missing_row_is_a_fault_and_is_loaded_anew(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # storage.md section 1.2
    add(log, 1)
    await cache.list("p", LATEST)
    watcher = await cache.watch("p", WatchFrom(CACHED, True))
    lost = log.rows[-1]
    log.rows.append(replace(lost, rev=lost.rev + 2, uid=UUID(int=9), name="n9", tx=lost.tx + 2))
    log.grown.set()
    await until(lambda: cache.health.faults == 1)
    with pytest.raises(CacheWarming):
        await cache.list("p", LATEST)
    assert names(await cache.list("p", CACHED)) == ["n1"]  # any cached state goes on

    await settle(log, cache, clock)

    assert (cache.health.faults, cache.health.reloads) == (1, 2)
    assert watcher.over is not None  # all watches end


async def test_each_whole_load_is_told(log: FeedLog, clock: ManualClock) -> None:
    """The process spares what a load brought its searches for garbage (performance.md 5)."""
    held: list[int] = []
    add(log, 1)
    cache = AttemptCache(
        log, clock=clock, chance=lambda: 0.5, settled=lambda: held.append(cache.size)
    )
    async with running(cache):
        assert held == [1]
        add(log, 2)
        await cache.list("p", LATEST)
        assert held == [1]
        cache._reflector.doubt()
        while cache.health.reloads < 2:
            await clock.advance(0.2)
            await asyncio.sleep(0.005)
    assert held == [1, 2]


async def test_a_change_of_an_attempt_that_is_not_held_is_a_fault(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    add(log, 1)
    await cache.list("p", LATEST)
    assert cache._contents is not None
    row = log.rows[-1]
    log.rows.append(replace(row, rev=row.rev + 1, tx=row.tx + 1, uid=UUID(int=9), kind="M"))
    log.grown.set()

    await until(lambda: cache.health.faults == 1)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
async def test_a_commit_is_seen_whole_however_the_pieces_are_cut(
    monkeypatch: pytest.MonkeyPatch, log: FeedLog, clock: ManualClock, size: int
) -> None:  # H-07
    monkeypatch.setattr(reflector, "PIECE", 3)
    async with following(log, clock) as cache:
        for batch in range(6):
            log.commit(
                *(
                    ("A", UUID(int=batch * 10 + at + 1), "p", f"n{batch}-{at}", {}, {})
                    for at in range(size)
                )
            )
        while cache.position < log.rows[-1].rev:
            page = await cache.list("p", CACHED)
            assert len(page.entries) % size == 0
            await asyncio.sleep(0)

        assert len((await cache.list("p", CACHED)).entries) == 6 * size


async def test_an_outage_leaves_cached_reads_and_watches_alone(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-199
    add(log, 1)
    await cache.list("p", LATEST)
    watcher = await cache.watch("p", WatchFrom(CACHED, True))
    log.away = True
    await until(lambda: not cache.health.connected)

    with pytest.raises(FeedUnavailable):
        await cache.list("p", LATEST)
    with pytest.raises(FeedUnavailable):
        cache.check_watch()  # LW-122
    assert names(await cache.list("p", CACHED)) == ["n1"]
    log.away = False
    rev = add(log, 2)
    await settle(log, cache, clock)

    assert watcher.over is None
    assert [told(d) for d in await watcher.take()] == [("ADDED", rev, rev)]
    assert cache.health.reloads == 1  # it went on where it stood


async def test_a_replica_that_was_cut_off_for_too_long_loads_anew(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    add(log, 1)
    await cache.list("p", LATEST)
    log.away = True
    await until(lambda: not cache.health.connected)
    for number in range(2, 6):
        add(log, number)
    log.lost_below = log.rows[-2].rev
    log.away = False

    await settle(log, cache, clock)

    assert cache.health.reloads == 2
    assert len((await cache.list("p", CACHED)).entries) == 5


async def test_an_error_of_ours_is_logged_and_the_task_goes_on(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # AS-094
    add(log, 1)
    await cache.list("p", LATEST)
    good = log.rows[-1]
    for crash in range(3):
        log.rows[-1] = replace(good, rev=good.rev, tx=good.tx)
        broken = Row(rev=good.rev + 1, kind="A", tx=good.tx + 1, uid=UUID(int=7), sel="not JSON",
                     project="p", name="n7", doc=good.doc)  # fmt: skip
        log.rows.append(broken)
        log.grown.set()
        await until(lambda crash=crash: cache.crashes.total == crash + 1)  # type: ignore[misc]
        log.rows.pop()
        await settle(log, cache, clock)

    assert cache.crashes.often()
    await clock.advance(61)
    assert not cache.crashes.often()


# -- epochs (storage.md section 8) ---------------------------------------------------------------


async def test_a_planned_switchover_costs_nobody_anything(
    log: FeedLog, cache: AttemptCache
) -> None:
    last = add(log, 1)
    await cache.list("p", LATEST)
    watcher = await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, last), False))
    log.begin_epoch()
    rev = add(log, 2)

    page = await cache.list("p", LATEST)
    resumed = await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, last), False))

    assert rev == (1 << 44) + 1
    assert names(page) == ["n1", "n2"]
    assert [told(d) for d in await watcher.take()] == [("ADDED", rev, rev)]
    assert [told(d) for d in await resumed.take()] == [("ADDED", rev, rev)]
    assert names(await cache.list("p", ReadAt(Mode.EXACT, last))) == ["n1"]
    assert (cache.health.faults, watcher.over) == (0, None)


async def test_lost_commits_are_found_out_and_their_revisions_refused(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    kept = add(log, 1)
    lost = add(log, 2)
    await cache.list("p", LATEST)
    watcher = await cache.watch("p", WatchFrom(CACHED, True))
    log.begin_epoch(losing=1)
    rev = add(log, 3)
    await until(lambda: cache.health.faults == 1)
    await settle(log, cache, clock)

    assert names(await cache.list("p", LATEST)) == ["n1", "n3"]
    assert watcher.over is not None
    with pytest.raises(StateTooOld):
        await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, lost), False))
    with pytest.raises(StateTooOld):
        await cache.list("p", ReadAt(Mode.EXACT, lost))
    resumed = await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, kept), False))
    assert [told(d) for d in await resumed.take()] == [("ADDED", rev, rev)]
    # numbers only grow, so "not older than" an old one is served (LW-104)
    assert names(await cache.list("p", ReadAt(Mode.NOT_OLDER_THAN, lost))) == ["n1", "n3"]


async def test_a_head_that_fell_is_found_out_by_the_reader_that_asks(
    log: FeedLog, cache: AttemptCache
) -> None:
    add(log, 1)
    await cache.list("p", LATEST)
    log.rows.pop()
    log.stored.clear()

    with pytest.raises(CacheWarming):
        await cache.list("p", LATEST)

    await until(lambda: cache.health.faults >= 1)


async def test_a_watch_at_a_number_that_an_epoch_skipped_ends_at_the_marker(
    log: FeedLog, cache: AttemptCache
) -> None:
    last = add(log, 1)
    await cache.list("p", LATEST)
    waiting = await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, last + 50), False))
    assert await waiting.take() == []
    log.begin_epoch()
    await cache.list("p", LATEST)

    assert waiting.over is not None


async def test_a_revision_of_a_later_epoch_is_not_known_here(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    later = (3 << 44) + 5
    with pytest.raises(StateTooOld):
        await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, later), False))
    with pytest.raises(StateTooOld):
        await cache.list("p", ReadAt(Mode.EXACT, later))
    reading = spawn("read", cache.list("p", ReadAt(Mode.NOT_OLDER_THAN, later)))
    await asyncio.sleep(0.01)
    await clock.advance(3.1)
    with pytest.raises(StateNotReached):
        await reading


# -- freshness -----------------------------------------------------------------------------------


async def test_reads_that_arrive_together_share_one_question(
    log: FeedLog, cache: AttemptCache
) -> None:
    add(log, 1)
    before = log.heads

    pages = await asyncio.gather(*(cache.list("p", LATEST) for _ in range(20)))

    assert [names(page) for page in pages] == [["n1"]] * 20
    assert log.heads - before == 1


async def test_a_revision_that_does_not_come_is_waited_for_3_seconds(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-103
    reading = spawn("read", cache.list("p", ReadAt(Mode.NOT_OLDER_THAN, 100)))
    await asyncio.sleep(0.01)
    await clock.advance(2.9)
    assert not reading.done()
    await clock.advance(0.2)
    with pytest.raises(StateNotReached) as refused:
        await reading

    assert (refused.value.requested, refused.value.current) == (100, log.rows[-1].rev)


async def test_a_revision_that_comes_in_time_is_served(log: FeedLog, cache: AttemptCache) -> None:
    reading = spawn("read", cache.list("p", ReadAt(Mode.NOT_OLDER_THAN, 2)))
    await asyncio.sleep(0.01)
    add(log, 1)

    assert names(await reading) == ["n1"]


async def test_nothing_is_served_before_the_first_load(log: FeedLog, clock: ManualClock) -> None:
    cache = AttemptCache(log, clock=clock, chance=lambda: 0.5)

    with pytest.raises(CacheWarming):
        await cache.list("p", CACHED)
    log.away = True
    async with following(log, clock) as cut_off:
        await until(lambda: cut_off.health.refused)
        with pytest.raises(FeedUnavailable):
            await cut_off.list("p", CACHED)


class Noting(FeedLog):
    """Notes when it was tried while it was away."""

    def note(self, clock: ManualClock) -> list[float]:
        self.tries: list[float] = []
        self.clock = clock
        return self.tries

    def check(self) -> None:
        if self.away:
            self.tries.append(self.clock.monotonic())
        super().check()


async def test_it_tries_often_enough_to_be_back_within_five_seconds(clock: ManualClock) -> None:
    """Field cases A06 and C14: whatever the jitter draws, and with a second to get there."""
    log = Noting(away=True)
    tries = log.note(clock)
    cache = AttemptCache(log, clock=clock, chance=lambda: 0.999)
    async with running(cache, or_else=lambda: True):
        for _ in range(120):
            await clock.advance(0.25)
            await asyncio.sleep(0.001)

    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert len(gaps) > 5
    assert max(gaps) <= 4.0


class Counting(FeedLog):
    """Counts what it was asked for."""

    reads = states = 0

    async def state(self) -> State:
        self.states += 1
        return await super().state()

    async def read(self, after: int, *, limit: int = 1000) -> list[Row]:
        self.reads += 1
        return await super().read(after, limit=limit)


async def test_an_idle_turn_reads_rows_only_where_the_head_has_moved(clock: ManualClock) -> None:
    """storage.md sections 1.3 and 8: an idle poll reads head and epochs; no word may be lost."""
    log = Counting()
    async with following(log, clock) as cache:
        await settle(log, cache, clock)
        loaded = log.states
        await until(lambda: log.states > loaded, 30)  # what is read at the beginning was read
        reads, states = log.reads, log.states
        await until(lambda: log.states >= states + 3, 30)
        assert log.reads == reads

        add(log, 1)
        log.grown.clear()  # the notification is lost
        await settle(log, cache, clock)
    assert log.reads > reads
