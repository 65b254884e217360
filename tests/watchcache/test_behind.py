"""A cache that lags behind the log: what is read from the database instead (storage.md section 6).

The model's log keeps its rows back, as a replica sees it that does not come to read them.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.watchcache.conftest import until
from tests.watchcache.feed_log import FeedLog
from tests.watchcache.model import seen_page, state_at

from nodus_api.clock import ManualClock
from nodus_api.metav1 import labels
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    ReadTimedOut,
    StateNotReached,
)
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.freshness import WAIT_SECONDS

T = TypeVar("T")


def commit(log: FeedLog, kind: str, number: int, team: str = "red", project: str = "p") -> int:
    values = {"team": team}
    return log.commit((kind, UUID(int=number), project, f"n{number}", values, {}))[0]


async def asking(cache: AttemptCache, *answers: Coroutine[Any, Any, T]) -> "list[asyncio.Task[T]]":
    """Ask, and wait until all wait for the cache to get to the head."""
    before = len(cache._reached)
    asked = [spawn("asked", answer) for answer in answers]
    await until(lambda: len(cache._reached) == before + len(asked))
    await asyncio.sleep(0)  # their timers are made by then, and begin now
    return asked


async def waited(cache: AttemptCache, answer: Coroutine[Any, Any, T], clock: ManualClock) -> T:
    """The answer, after three seconds of the clock."""
    [asked] = await asking(cache, answer)
    await clock.advance(WAIT_SECONDS)
    async with asyncio.timeout(30):
        return await asked


async def behind(log: FeedLog, cache: AttemptCache) -> int:
    """Three Attempts that the cache has, and changes that it has not; returns its position."""
    for number in (3, 1, 2):
        commit(log, "A", number)
    commit(log, "A", 9, project="q")
    position = (await cache.list(None, LATEST)).rev
    log.lagging = True
    commit(log, "M", 1, "blue")
    commit(log, "D", 2)
    commit(log, "A", 4)
    return position


async def test_the_newest_state_is_read_around_it(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-101, LW-103
    position = await behind(log, cache)
    head = log.rows[-1].rev

    for scope in ("p", None, "none"):
        page = await waited(cache, cache.list(scope, LATEST), clock)
        assert page.rev == head
        assert seen_page(page) == state_at(log, head, scope, lambda _: True)
    red = Filter(labels=labels.parse("team=red"))
    page = await waited(cache, cache.list("p", LATEST, chosen=red), clock)
    assert [entry.name for entry in page.entries] == ["n3", "n4"]
    assert cache.position == position


async def test_one_object_is_read_around_it(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-105
    await behind(log, cache)

    got = [
        await waited(cache, cache.get("p", f"n{number}", LATEST), clock) for number in range(1, 5)
    ]

    state = {seen.name: seen.rev for seen in state_at(log, log.rows[-1].rev, "p", lambda _: True)}
    assert [entry and entry.rev for entry in got] == [
        state["n1"], None, state["n3"], state["n4"],
    ]  # fmt: skip


async def test_its_pages_are_of_one_state_though_the_cache_lags_on(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-110, LW-111
    await behind(log, cache)
    first = await waited(cache, cache.list(None, LATEST, limit=2), clock)
    due = state_at(log, first.rev, None, lambda _: True)
    commit(log, "D", 9, project="q")

    second = await cache.list(None, ReadAt(Mode.EXACT, first.rev), limit=2, start=("p", "n3\0"))

    assert seen_page(first) + seen_page(second) == due
    assert (first.more, first.remaining, second.more, second.remaining) == (True, 2, False, None)
    assert second.rev == first.rev


async def test_what_the_cache_holds_is_not_held_twice(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    await behind(log, cache)
    cached = {entry.name: entry for entry in (await cache.list("p", CACHED)).entries}

    page = await waited(cache, cache.list("p", LATEST), clock)

    found = {entry.name: entry for entry in page.entries}
    assert found["n3"] is cached["n3"]
    assert found["n1"] is not cached["n1"]


async def test_what_asks_for_a_revision_is_told_to_come_again(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-103, LW-124: 504 is for who names a revision, and for initial events
    position = await behind(log, cache)
    head = log.rows[-1].rev

    for asked in (
        cache.list("p", ReadAt(Mode.NOT_OLDER_THAN, head)),
        cache.list("p", ReadAt(Mode.EXACT, head)),
        cache.get("p", "n1", ReadAt(Mode.NOT_OLDER_THAN, head)),
        cache.watch("p", WatchFrom(LATEST, initial=True)),
    ):
        with pytest.raises(StateNotReached) as refused:
            await waited(cache, asked, clock)
        assert (refused.value.requested, refused.value.current) == (head, position)


async def test_few_read_around_it_at_once(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # bounded concurrency, else 504
    await behind(log, cache)

    log.standing_held = asyncio.Event()

    asked = await asking(cache, *(cache.list("p", LATEST) for _ in range(4)))
    await clock.advance(WAIT_SECONDS)
    await until(lambda: sum(one.done() for one in asked) == 2)
    log.standing_held.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert sorted(type(one).__name__ for one in answers) == [
        "Page", "Page", "StateNotReached", "StateNotReached",
    ]  # fmt: skip
    assert (await waited(cache, cache.list("p", LATEST), clock)).rev == log.rows[-1].rev


async def test_a_database_that_fails_then_is_told(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-198, LW-199
    await behind(log, cache)
    log.slow = True
    with pytest.raises(ReadTimedOut) as refused:
        await waited(cache, cache.list("p", LATEST), clock)
    assert refused.value.verb == "list"
    with pytest.raises(ReadTimedOut) as refused:
        await waited(cache, cache.get("p", "n1", LATEST), clock)
    assert refused.value.verb == "get"

    [asked] = await asking(cache, cache.list("p", LATEST))
    log.standing_away = True
    await clock.advance(WAIT_SECONDS)
    with pytest.raises(FeedUnavailable):
        await asked


async def test_a_head_that_was_lost_meanwhile_is_no_state(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    """The database that is read is behind the one that told the head, as after a failover."""
    await behind(log, cache)
    [asked] = await asking(cache, cache.list("p", LATEST))
    log.rows.pop()
    await clock.advance(WAIT_SECONDS)

    with pytest.raises(CacheWarming):
        await asked
