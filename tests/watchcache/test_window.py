"""How far back history goes: the window, the stubs, and what is older."""

import gc
import sys
from datetime import timedelta
from types import FunctionType, ModuleType
from typing import Any
from uuid import UUID

import pytest
from tests.watchcache.conftest import following, until
from tests.watchcache.feed_log import FeedLog
from tests.watchcache.model import events_after, seen_page, state_at, told

from nodus_api.clock import ManualClock
from nodus_api.metav1 import labels
from nodus_api.watchcache import AttemptCache, Window
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.entry import finished
from nodus_api.watchcache.errors import StateTooOld
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.watcher import Watcher, WatchOver

RED = Filter(labels=labels.parse("team=red"))


def commit(log: FeedLog, kind: str, number: int, team: str = "red") -> int:
    values = {"team": team}
    return log.commit((kind, UUID(int=number), "p", f"n{number}", values, {}))[0]


async def resume(cache: AttemptCache, rev: int, chosen: Filter = RED) -> Watcher:
    return await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, rev), False), chosen=chosen)


async def pass_time(cache: AttemptCache, clock: ManualClock, seconds: float) -> None:
    """Move the clock, and let the follower notice."""
    await clock.advance(seconds)
    assert cache._contents is not None
    cache._contents.history.trim(clock.monotonic())


async def test_a_watch_resumes_from_stubs_with_fetched_documents(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-117, LW-133, LW-135
    start = commit(log, "A", 1)
    revs = [commit(log, "M", 1), commit(log, "M", 1, "blue"), commit(log, "A", 2)]
    gone = commit(log, "D", 2)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 76)

    watcher = await resume(cache, start)
    got = [told(delivery) for delivery in await watcher.take()]

    assert got == [
        ("MODIFIED", revs[0], revs[0]),
        ("DELETED", revs[1], revs[0]),  # the state before it left the selector
        ("ADDED", revs[2], revs[2]),
        ("DELETED", gone, revs[2]),
    ]


async def test_a_selector_exit_whose_predecessor_left_the_log_takes_the_kept_document(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    start = commit(log, "A", 1)
    left = commit(log, "M", 1, "blue")
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 76)
    log.lost_below = start

    watcher = await resume(cache, start)

    assert [told(d) for d in await watcher.take()] == [("DELETED", left, start)]


async def test_a_watch_from_before_the_window_is_too_old(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-123
    first = commit(log, "A", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 200)
    second = commit(log, "M", 1)
    third = commit(log, "M", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 101)

    with pytest.raises(StateTooOld) as refused:
        await resume(cache, first - 1)

    assert refused.value.oldest == second  # the first change that is kept
    watcher = await resume(cache, first)  # oldest - 1 is served
    assert [told(d) for d in await watcher.take()] == [
        ("MODIFIED", second, second),
        ("MODIFIED", third, third),
    ]


async def test_how_long_history_and_its_documents_are_kept(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-117
    start = commit(log, "A", 1)
    changed = commit(log, "M", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 74)
    log.away = True  # documents are at hand, so nothing is asked of it

    got = [await (await resume(cache, start)).take()]
    log.away = False
    await pass_time(cache, clock, 225)
    got.append(await (await resume(cache, start)).take())
    await pass_time(cache, clock, 2)

    assert [[told(d) for d in one] for one in got] == [[("MODIFIED", changed, changed)]] * 2
    with pytest.raises(StateTooOld):
        await resume(cache, start)


async def test_a_pin_outlives_the_window_for_the_pages_of_its_list(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    for number in range(4):
        commit(log, "A", number)
    page = await cache.list("p", LATEST, limit=2)
    commit(log, "D", 3)
    await cache.list("p", LATEST)
    assert cache._contents is not None
    cache._contents.history._drop_through(log.rows[-1].rev)  # as a burst of changes would
    log.lost_below = log.rows[-1].rev

    rest = await cache.list("p", ReadAt(Mode.EXACT, page.rev), limit=2, start=("p", "n1\0"))

    assert [e.name for e in rest.entries] == ["n2", "n3"]
    await clock.advance(301)
    with pytest.raises(StateTooOld):
        await cache.list("p", ReadAt(Mode.EXACT, page.rev), limit=2, start=("p", "n1\0"))


async def test_an_exact_list_fetches_the_documents_that_history_let_go(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    for number in range(3):
        commit(log, "A", number)
    rev = log.rows[-1].rev
    commit(log, "M", 0, "blue")
    commit(log, "D", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 76)

    page = await cache.list("p", ReadAt(Mode.EXACT, rev))

    assert seen_page(page) == state_at(log, rev, "p", lambda _: True)


async def test_a_watcher_that_fell_out_of_the_documents_ends(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-146
    watcher = await cache.watch("p", WatchFrom(CACHED, True), chosen=RED)
    assert await watcher.take() == []
    commit(log, "A", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 76)

    with pytest.raises(WatchOver):
        await watcher.take()


async def test_a_watcher_that_fell_out_of_the_window_ends(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-146
    watcher = await resume(cache, 1)
    commit(log, "A", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 301)

    with pytest.raises(WatchOver):
        await watcher.take()


async def outlasting(
    log: FeedLog, cache: AttemptCache, clock: ManualClock, scope: str | None
) -> tuple[Watcher, int]:
    """A watch whose initial events are sent when its position has left the history."""
    for number in range(4):
        commit(log, "A", number)
    start = log.rows[-1].rev
    await cache.list("p", LATEST)
    watcher = await cache.watch(scope, WatchFrom(CACHED, True), chosen=RED)
    assert watcher.initial_pieces() is not None
    for number in range(600):
        commit(log, "M", number % 3, "red" if number % 5 else "blue")
    log.commit(("A", UUID(int=99), "q", "n99", {"team": "red"}, {}))
    commit(log, "D", 3)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 301)
    assert cache.history_size == 0
    return watcher, start


async def all_of(watcher: Watcher) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    while deliveries := await watcher.take():
        found += [told(delivery) for delivery in deliveries]
    return found


@pytest.mark.parametrize("scope", ["p", None])
async def test_a_start_that_outlasts_the_window_goes_on_from_the_log(
    log: FeedLog, cache: AttemptCache, clock: ManualClock, scope: str | None
) -> None:  # LW-134
    watcher, start = await outlasting(log, cache, clock, scope)

    got = await all_of(watcher)
    commit(log, "M", 0)
    await cache.list("p", LATEST)
    got += await all_of(watcher)

    due = events_after(log, start, scope, lambda found: found["team"] == "red")
    assert len(due) > 400
    assert got == due
    assert watcher.position == log.rows[-1].rev


async def test_a_start_over_the_end_of_an_epoch_goes_on_from_the_log(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-134, storage.md section 8
    commit(log, "A", 1)
    await cache.list("p", LATEST)
    watcher = await cache.watch("p", WatchFrom(CACHED, True))
    log.begin_epoch()
    after = commit(log, "M", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 301)

    assert await all_of(watcher) == [("MODIFIED", after, after)]


@pytest.mark.parametrize("why", ["the log has lost it", "Postgres is away", "it caught up once"])
async def test_a_start_that_cannot_go_on_ends(
    log: FeedLog, cache: AttemptCache, clock: ManualClock, why: str
) -> None:  # LW-146
    watcher, start = await outlasting(log, cache, clock, "p")
    if why == "it caught up once":
        await all_of(watcher)
        commit(log, "M", 0)
        await cache.list("p", LATEST)
        await pass_time(cache, clock, 301)
    log.lost_below = start + 5 if why == "the log has lost it" else 0
    log.away = why == "Postgres is away"

    with pytest.raises(WatchOver):
        await watcher.take()


async def test_a_watch_whose_documents_cannot_be_fetched_ends(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # LW-122 [D]
    start = commit(log, "A", 1)
    commit(log, "M", 1)
    await cache.list("p", LATEST)
    await pass_time(cache, clock, 76)
    watcher = await resume(cache, start)
    log.away = True

    with pytest.raises(WatchOver):
        await watcher.take()


async def test_a_replica_that_restarts_resumes_what_it_did_not_see(
    log: FeedLog, clock: ManualClock
) -> None:  # LW-135: the history is filled back from the log
    start = commit(log, "A", 1)
    changed = commit(log, "M", 1, "blue")
    back = commit(log, "M", 1)

    async with following(log, clock) as cache:
        watcher = await resume(cache, start)
        got = [told(d) for d in await watcher.take()]

    assert got == [("DELETED", changed, start), ("ADDED", back, back)]


async def test_events_are_bounded_but_never_those_of_the_last_75_seconds(
    log: FeedLog, clock: ManualClock
) -> None:
    window = Window(events=3, stubs=timedelta(minutes=5))
    async with following(log, clock, window=window) as cache:
        for number in range(6):
            commit(log, "A", number)
        await cache.list("p", LATEST)
        await until(lambda: cache.position == log.rows[-1].rev)
        assert cache.history_size == 6
        await pass_time(cache, clock, 76)
        commit(log, "A", 7)
        await cache.list("p", LATEST)

        assert cache.history_size == 1


def sizes(roots: list[Any], shared: list[Any]) -> int:
    """Bytes of all that the roots lead to, save what the shared ones lead to as well."""
    seen = {id(one) for one in reached(shared)}
    return sum(sys.getsizeof(one) for one in reached(roots) if id(one) not in seen)


def reached(roots: list[Any]) -> list[Any]:
    """All objects that the roots lead to, each once; code and classes aside."""
    found: dict[int, Any] = {}
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in found or isinstance(one, type | ModuleType | FunctionType):
            continue
        found[id(one)] = one
        left += gc.get_referents(one)
    return list(found.values())


def busy(log: FeedLog) -> None:
    """100 Attempts that change ten times, most of the times what is selected by, too."""
    for number in range(100):
        commit(log, "A", number)
    for turn in range(10):
        for number in range(100):
            team = "red" if turn < 2 else ["red", "blue", "green"][(turn + number) % 3]
            values, fields = {"team": team}, {"status.phase": f"phase-{turn}", "spec.slot": "0"}
            log.commit(("M", UUID(int=number), "p", f"n{number}", values, fields))


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_stub_takes_at_most_250_bytes(
    log: FeedLog, clock: ManualClock, restarted: bool
) -> None:  # storage.md section 6, Watch window
    log.backfilled = 10_000
    if restarted:
        busy(log)
    async with following(log, clock) as cache:
        if not restarted:
            busy(log)
        await cache.list("p", LATEST)
        await pass_time(cache, clock, 76)
        contents = cache._contents
        assert contents is not None
        events = list(contents.history.of(None).after(0))
        rows = list(contents._by_uid.values())  # what stubs share uid and names with
        lists = 2 * sys.getsizeof(events)  # the ring's, and the project's

        assert len(events) == 1100
        assert all(event.body is None and event.prev_body is None for event in events)
        assert all(event.uid is contents._by_uid[event.uid].uid for event in events)
        values = list(contents._selections._values.values())  # of all that are alike
        assert (sizes(events, [*rows, *values]) + lists) / len(events) <= 250


def ring(contents: Contents) -> list[tuple[int, bool]]:
    """The revisions in the ring, and whether they have their documents."""
    events = contents.history.of(None).after(0)
    return [(event.rev, event.body is not None) for event in events]


async def test_documents_are_bounded_by_their_bytes_the_oldest_go_first(
    log: FeedLog, clock: ManualClock
) -> None:  # storage.md section 6, Watch window: predecessors that nothing else holds
    size = len(doc_of(log, commit(log, "A", 1)))
    window = Window(document_bytes=3 * size + size // 2)
    async with following(log, clock, window=window) as cache:
        revs = [commit(log, "M", 1) for _ in range(6)]
        await cache.list("p", LATEST)
        await pass_time(cache, clock, 1)
        contents = cache._contents
        assert contents is not None

        assert contents.history.document_bytes <= window.document_bytes
        assert ring(contents)[-6:] == [(rev, rev in revs[-3:]) for rev in revs]
        assert contents.history.document_bytes == sum(
            len(event.prev_body or b"") for event in contents.history.of(None).after(0)
        )


def doc_of(log: FeedLog, rev: int) -> bytes:
    return finished(next(row.doc or b"" for row in log.rows if row.rev == rev), rev)


async def test_each_part_of_an_event_ends_at_its_time(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:  # storage.md section 6, Watch window: documents 75 s, stubs five minutes
    commit(log, "A", 1)
    await cache.list("p", LATEST)
    contents = cache._contents
    assert contents is not None
    assert [whole for _, whole in ring(contents)] == [True]
    await pass_time(cache, clock, 74)
    assert [whole for _, whole in ring(contents)] == [True]
    await pass_time(cache, clock, 2)
    assert [whole for _, whole in ring(contents)] == [False]
    await pass_time(cache, clock, 223)
    assert [whole for _, whole in ring(contents)] == [False]
    await pass_time(cache, clock, 2)
    assert ring(contents) == []
