"""What pins, running lists and starts of watches hold of before, and its budget."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.watchcache.feed_log import FeedLog
from tests.watchcache.model import seen_page, state_at

from nodus_api.apiserver.errors import expired_list, of_cache
from nodus_api.clock import ManualClock
from nodus_api.watchcache import AttemptCache, cacher
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.entry import Selection
from nodus_api.watchcache.errors import HeldTooMuch
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.holds import Hold, Holds

NOTHING = Selection({}, {})


def change(rev: int, prev_rev: int | None, project: str, size: int = 1) -> Event:
    return Event(
        rev=rev,
        kind="A" if prev_rev is None else "M",
        uid=UUID(int=1),
        project=project,
        name="n",
        selection=NOTHING,
        body=b"",
        prev_rev=prev_rev,
        prev_selection=NOTHING,
        prev_body=None if prev_rev is None else b"x" * size,
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.sampled_from(["p", "q", None])),
        st.tuples(st.just("release"), st.integers(0, 20)),
        st.tuples(st.just("change"), st.integers(0, 5)),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_each_held_document_counts_once_until_the_last_has_let_go(
    play: list[tuple[str, object]],
) -> None:  # storage.md section 6, Pins
    holds, held = Holds(), list[Hold]()
    position, present = 10, dict[int, int]()
    superseded: list[Event] = []
    for what, value in play:
        if what == "hold":
            held.append(holds.hold(value, position))  # type: ignore[arg-type]
        elif what == "release" and held:
            holds.release(held.pop(int(str(value)) % len(held)))
        elif what == "change":
            number = int(str(value))
            position += 1
            event = change(position, present.get(number), "pq"[number % 2], size=number + 1)
            present[number] = position
            superseded.append(event)
            holds.superseded(event)
        assert holds.bytes == sum(
            len(event.prev_body or b"")
            for event in superseded
            if event.prev_rev is not None
            and any(
                one.scope in (None, event.project) and event.prev_rev <= one.rev < event.rev
                for one in held
            )
        )


def crowd(log: FeedLog, count: int = 20) -> None:
    log.commit(*(("A", UUID(int=n), "p", f"n{n:02}", {}, {}) for n in range(count)))


def churn(log: FeedLog, count: int = 20) -> None:
    log.commit(*(("M", UUID(int=n), "p", f"n{n:02}", {}, {}) for n in range(count)))


def bound(cache: AttemptCache, size: int) -> None:
    cache._holds._budget = size


async def test_the_oldest_pins_go_when_what_they_hold_exceeds_the_budget(
    log: FeedLog, cache: AttemptCache
) -> None:  # storage.md section 6, Pins
    crowd(log)
    revs = []
    for _ in range(4):
        revs.append((await cache.list("p", LATEST, limit=5)).rev)
        churn(log)
    await cache.list("p", LATEST, limit=100)
    assert len(cache._pins) == 4
    one_state = cache._holds.bytes // 4
    assert 20 * 200 < one_state < 20 * 400  # each of the four states was superseded whole

    bound(cache, 2 * one_state + 100)
    churn(log)
    await cache.list("p", LATEST, limit=100)

    assert [pin.since for pin in cache._pins._pins] == revs[2:]
    for rev in revs:  # a later page of a dropped one undoes, and is the same
        page = await cache.list("p", ReadAt(Mode.EXACT, rev), limit=5, start=("p", "n05"))
        assert seen_page(page) == state_at(log, rev, "p", lambda _: True)[5:10]


async def test_pages_of_one_list_share_one_pin(log: FeedLog, cache: AttemptCache) -> None:
    crowd(log)
    page = await cache.list("p", LATEST, limit=2)
    churn(log)
    for at in range(2, 18, 2):
        start = ("p", f"n{at:02}")
        await cache.list("p", ReadAt(Mode.EXACT, page.rev), limit=2, start=start)

    assert len(cache._pins) == 1


async def test_what_is_being_sent_is_held_until_its_end_and_refuses_further_lists(
    log: FeedLog, cache: AttemptCache, monkeypatch: pytest.MonkeyPatch
) -> None:  # storage.md section 6, Pins; LW-196
    monkeypatch.setattr(cacher, "LONG", 10)
    crowd(log)
    bodies = (await cache.list("p", LATEST)).bodies()
    due = list(bodies)
    assert len(cache._pins) == 1  # every list that streams is kept as one
    bound(cache, 1000)
    churn(log)
    await cache.list("p", LATEST, limit=100)

    assert (cache._holds.exceeded, len(cache._pins)) == (True, 0)
    with pytest.raises(HeldTooMuch):
        await cache.list(None, CACHED)
    with pytest.raises(HeldTooMuch):
        await cache.list("p", LATEST)
    assert len((await cache.list("p", LATEST, limit=5)).entries) == 5
    named = await cache.list("p", LATEST, chosen=Filter(name="n03"))
    assert [one.name for one in named.entries] == ["n03"]
    assert bodies == due
    del bodies

    assert cache._holds.bytes == 0
    assert len((await cache.list("p", LATEST)).entries) == 20


def test_a_client_is_told_to_ask_again_or_in_pages() -> None:  # LW-183, LW-196
    refused = of_cache(HeldTooMuch(), too_old=expired_list)

    assert (refused.http_status, refused.retry_after) == (429, 1)
    assert "in pages" in refused.fix


async def test_a_start_of_a_watch_holds_its_state_until_it_is_sent(
    log: FeedLog, cache: AttemptCache
) -> None:  # storage.md section 6, Pins
    crowd(log)
    watcher = await cache.watch("p", WatchFrom(LATEST, True))
    churn(log)
    await cache.list("p", LATEST, limit=5)
    held = cache._holds.bytes
    pieces = watcher.initial_pieces()
    assert pieces is not None
    sent = list(pieces)
    del pieces

    assert held > 20 * 200
    assert len(sent[0]) == 20
    cache._pins.clear()
    assert cache._holds.bytes == 0
    watcher.close()


async def test_an_old_state_counts_what_was_undone_for_it(
    log: FeedLog, cache: AttemptCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cacher, "LONG", 10)
    crowd(log)
    rev = log.rows[-1].rev
    churn(log)
    churn(log)
    await cache.list("p", LATEST, limit=100)
    bound(cache, 100)

    page = await cache.list("p", ReadAt(Mode.EXACT, rev))

    assert len(cache._pins) == 0  # it alone exceeds the budget, and is dropped
    assert cache._holds.bytes == sum(len(body) for body in page.bodies())
    del page
    assert cache._holds.bytes == 0


async def test_pins_end_after_five_minutes(
    log: FeedLog, cache: AttemptCache, clock: ManualClock
) -> None:
    crowd(log)
    await cache.list("p", LATEST, limit=5)
    churn(log)
    await cache.list("p", LATEST, limit=100)
    assert cache._holds.bytes > 0
    await clock.advance(301)
    await cache.list("p", LATEST, limit=5)

    assert (len(cache._pins), cache._holds.bytes) == (1, 0)
