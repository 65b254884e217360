"""Lists at revisions that only the log still has (LW-104, LW-110, LW-117, LW-198)."""

from uuid import UUID

import pytest
from tests.watchcache.feed_log import FeedLog, Row
from tests.watchcache.model import Seen, seen_page, state_at

from nodus_api.metav1 import labels
from nodus_api.watchcache import AttemptCache, Window, past
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.epochs import Epochs
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    ReadTimedOut,
    StateTooOld,
)
from nodus_api.watchcache.filters import EVERYTHING, Filter

RED = Filter(labels=labels.parse("team=red"))


def commit(log: FeedLog, kind: str, number: int, team: str = "red", project: str = "p") -> int:
    values = {"team": team}
    return log.commit((kind, UUID(int=number), project, f"n{number}", values, {}))[0]


def history(log: FeedLog) -> None:
    """Attempts of two projects that come, change, leave a selector and go; a name comes twice."""
    for number in range(6):
        commit(log, "A", number, project="pq"[number % 2])
    commit(log, "M", 0, "blue")
    commit(log, "M", 1, "blue", project="q")
    commit(log, "D", 2)
    log.commit(("A", UUID(int=102), "p", "n2", {"team": "blue"}, {}))
    commit(log, "M", 0, "red")
    commit(log, "D", 4)


async def forget(cache: AttemptCache) -> None:
    """Let everything leave the history, as ten minutes or a burst of changes would."""
    page = await cache.list(None, LATEST)
    assert cache._contents is not None
    cache._contents.history._drop_through(page.rev)


async def at(
    cache: AttemptCache, rev: int, project: str | None = "p", chosen: Filter = EVERYTHING
) -> list[Seen]:
    page = await cache.list(project, ReadAt(Mode.EXACT, rev), chosen=chosen)
    assert page.rev == rev
    return seen_page(page)


@pytest.mark.parametrize("project", ["p", "q", None])
@pytest.mark.parametrize("selector", ["", "team=red", "team!=red"])
async def test_every_state_that_the_log_tells(
    log: FeedLog, cache: AttemptCache, project: str | None, selector: str
) -> None:  # LW-117, LW-101
    history(log)
    await forget(cache)
    chosen = Filter(labels=labels.parse(selector)) if selector else EVERYTHING

    for rev in range(1, log.rows[-1].rev + 1):
        cache._pins.clear()
        expected = state_at(log, rev, project, labels.parse(selector).matches)
        assert await at(cache, rev, project, chosen) == expected


async def test_pages_go_on_in_what_the_log_tells(
    log: FeedLog, cache: AttemptCache
) -> None:  # LW-110
    history(log)
    await forget(cache)
    page = await cache.list(None, ReadAt(Mode.EXACT, 7), limit=2)
    found = seen_page(page)
    while page.more:
        commit(log, "M", 3, project="q")
        await forget(cache)
        start = (found[-1].project, f"{found[-1].name}\0")
        page = await cache.list(None, ReadAt(Mode.EXACT, 7), limit=2, start=start)
        found += seen_page(page)

    assert found == state_at(log, 7, None, lambda _: True)


async def test_documents_that_only_a_later_change_has(log: FeedLog, cache: AttemptCache) -> None:
    """The log is promised from `oldest` on: the rows before are gone, what they held is not."""
    history(log)
    await forget(cache)
    log.lost_below = 7  # rows 8 and later are there, each with its predecessor at hand

    assert await at(cache, 7) == state_at(log, 7, "p", lambda _: True)


async def test_what_the_log_no_longer_has_is_too_old(
    log: FeedLog, cache: AttemptCache
) -> None:  # LW-104
    history(log)
    await forget(cache)
    log.lost_below = 7

    with pytest.raises(StateTooOld):
        await at(cache, 6)
    assert len((await cache.list("p", ReadAt(Mode.NOT_OLDER_THAN, 1))).entries) == 2


async def test_the_log_is_not_asked_too_far_back(
    log: FeedLog, cache: AttemptCache, monkeypatch: pytest.MonkeyPatch
) -> None:  # storage.md section 6
    history(log)
    await forget(cache)
    monkeypatch.setattr(past, "FARTHEST", 3)

    assert await at(cache, cache.position - 3) != []
    with pytest.raises(StateTooOld):
        await at(cache, cache.position - 4)


async def test_a_read_that_takes_too_long_is_to_be_repeated(
    log: FeedLog, cache: AttemptCache
) -> None:  # LW-198
    history(log)
    await forget(cache)
    log.slow = True

    with pytest.raises(ReadTimedOut):
        await at(cache, 3)
    log.slow = False
    assert await at(cache, 3) == state_at(log, 3, "p", lambda _: True)


async def test_old_states_need_the_database(log: FeedLog, cache: AttemptCache) -> None:  # LW-199
    history(log)
    await forget(cache)
    log.away = True

    with pytest.raises(FeedUnavailable):
        await at(cache, 3)


async def test_what_was_read_while_the_history_was_replaced_counts_no_more(
    log: FeedLog, cache: AttemptCache, monkeypatch: pytest.MonkeyPatch
) -> None:  # storage.md section 8
    history(log)
    await forget(cache)
    read = log.first_changes

    async def reload(after: int, upto: int, project: str | None) -> tuple[int, list[Row]]:
        found = await read(after, upto, project)
        cache._contents = Contents(Window())
        return found

    monkeypatch.setattr(log, "first_changes", reload)
    with pytest.raises(CacheWarming):
        await at(cache, 3)


async def test_old_states_across_an_epoch(log: FeedLog, cache: AttemptCache) -> None:
    history(log)
    last = log.rows[-1].rev
    log.begin_epoch()
    commit(log, "M", 0, "blue")
    await forget(cache)

    for rev in (3, last):
        assert await at(cache, rev) == state_at(log, rev, "p", lambda _: True)
    with pytest.raises(StateTooOld):
        await at(cache, last + 1)


def test_the_distance_is_counted_in_rows() -> None:  # storage.md section 8
    log = FeedLog()
    for number in range(4):
        commit(log, "A", number)
    log.begin_epoch(losing=1)
    commit(log, "M", 0)
    log.begin_epoch()
    commit(log, "M", 0)
    epochs, revs = Epochs(log.epochs), [row.rev for row in log.rows]

    for low in revs:
        for high in revs:
            between = [rev for rev in revs if low < rev <= high]
            assert epochs.distance(low, high) == len(between)


async def test_a_page_of_an_old_state_is_no_page_of_a_later_one(
    log: FeedLog, cache: AttemptCache
) -> None:  # LW-101: the history does not tell what followed a state from before it
    history(log)
    quiet = log.rows[-1].rev
    await forget(cache)

    for rev in range(1, quiet):
        page = await cache.list("p", ReadAt(Mode.EXACT, rev), limit=1)
        assert seen_page(page) == state_at(log, rev, "p", lambda _: True)[:1]
    for rev in range(1, quiet + 1):
        assert await at(cache, rev) == state_at(log, rev, "p", lambda _: True)


async def test_the_pages_of_a_quiet_project_ask_the_log_once(
    log: FeedLog, cache: AttemptCache, monkeypatch: pytest.MonkeyPatch
) -> None:  # LW-110
    history(log)
    rev = log.rows[-1].rev
    for _ in range(3):
        commit(log, "M", 1, project="q")
    await forget(cache)
    asked = []
    read = log.first_changes

    async def counted(after: int, upto: int, project: str | None) -> tuple[int, list[Row]]:
        asked.append(after)
        return await read(after, upto, project)

    monkeypatch.setattr(log, "first_changes", counted)
    page = await cache.list("p", ReadAt(Mode.EXACT, rev), limit=1)
    found = seen_page(page)
    changed = 0
    while page.more:
        changed = commit(log, "M", 0, project="p")
        await cache.list(None, LATEST)
        page = await cache.list(
            "p", ReadAt(Mode.EXACT, rev), limit=1, start=("p", f"{found[-1].name}\0")
        )
        found += seen_page(page)

    assert found == state_at(log, rev, "p", lambda _: True)
    assert asked == [rev]
    assert await at(cache, changed) == state_at(log, changed, "p", lambda _: True)
