"""The cache over a log that the test writes."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import orjson
from tests.watchcache.feed_log import FeedLog

from nodus_api.clock import ManualClock
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.filters import Filter


def uid(number: int) -> UUID:
    return UUID(int=number)


async def test_a_list_holds_what_was_committed_before_it(log: FeedLog, cache: AttemptCache) -> None:
    log.commit(("A", uid(1), "p", "b", {}, {}), ("A", uid(2), "p", "a", {}, {}))

    page = await cache.list("p", LATEST)

    assert [entry.name for entry in page.entries] == ["a", "b"]  # LW-106
    assert page.rev == 3
    assert [orjson.loads(e.body or b"")["metadata"]["resourceVersion"] for e in page.entries] == [
        "3",
        "2",
    ]


async def test_a_watch_sees_each_change_once(log: FeedLog, cache: AttemptCache) -> None:
    watcher = await cache.watch("p", WatchFrom(LATEST, initial=True))
    log.commit(("A", uid(1), "p", "a", {}, {}))
    log.commit(("M", uid(1), "p", "a", {}, {"status.phase": "Running"}))
    log.commit(("D", uid(1), "p", "a", {}, {}))

    await cache.list("p", LATEST)
    got = await watcher.take()

    assert watcher.initial == []
    assert [(d.type, d.rev) for d in got] == [("ADDED", 2), ("MODIFIED", 3), ("DELETED", 4)]
    last = orjson.loads(got[2].body)
    assert (last["metadata"]["resourceVersion"], last["status"]["phase"]) == ("4", "Running")


async def test_an_exact_list_shows_the_state_at_its_revision(
    log: FeedLog, cache: AttemptCache
) -> None:
    log.commit(("A", uid(1), "p", "a", {}, {}))
    log.commit(("A", uid(2), "p", "b", {}, {}))
    log.commit(("D", uid(1), "p", "a", {}, {}))

    page = await cache.list("p", ReadAt(Mode.EXACT, 3))

    assert [(e.name, e.rev) for e in page.entries] == [("a", 2), ("b", 3)]
    assert page.rev == 3


async def test_the_cached_state_needs_no_database(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    log.commit(("A", uid(1), "p", "a", {}, {}))
    await cache.list(None, LATEST)
    log.away = True

    page = await cache.list(None, CACHED)

    assert [e.name for e in page.entries] == ["a"]


class Slow:
    """A selector that takes 10 ms for each object."""

    empty = False

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def matches(self, values: Mapping[str, str]) -> bool:
        self._clock._elapsed += 0.01
        return True


async def test_a_watch_that_is_cancelled_while_it_begins_leaves_nothing(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-148
    log.commit(*(("A", uid(number), "p", f"n{number}", {}, {}) for number in range(1, 9)))
    await cache.list(None, LATEST)
    beginning = spawn(
        "begin",
        cache.watch("p", WatchFrom(CACHED, initial=True), chosen=Filter(labels=Slow(clock))),
    )
    await asyncio.sleep(0)
    assert len(cache.watchers) == 1
    beginning.cancel()
    await asyncio.wait((beginning,))

    assert beginning.cancelled()
    assert len(cache.watchers) == 0


async def test_initial_events_come_in_pieces_of_rising_revision(
    log: FeedLog, cache: AttemptCache
) -> None:  # LW-134
    for number in range(1, 601):
        log.commit(("A", uid(number), "p", f"n{number}", {}, {}))
    await cache.list(None, LATEST)
    watcher = await cache.watch("p", WatchFrom(CACHED, initial=True))
    pieces = watcher.initial_pieces()
    assert pieces is not None

    revs = [[rev for rev, _ in piece] for piece in pieces]
    assert [len(piece) for piece in revs] == [256, 256, 88]
    assert [rev for piece in revs for rev in piece] == list(range(2, 602))
    assert watcher.initial_pieces() is None  # let go as they were given
    watcher.close()
