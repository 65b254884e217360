"""The index against a walk of all, and how much of others a read touches."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.watchcache.feed_log import FeedLog

from nodus_api.metav1 import fields, labels
from nodus_api.watchcache import AttemptCache, index
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.entry import Entry, Selections
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.index import Index
from nodus_api.watchcache.terms import values_of

LABELS = (
    "", "team=red", "team!=red", "team in (red,blue)", "team notin (red,blue)", "team", "!team",
    "tier>2", "team=red,tier", "team,team!=blue", "tier<5,team in (red,)", "team=none,tier",
)  # fmt: skip
FIELDS = (
    "", "status.phase=Running", "status.phase!=Running", "status.reason=", "status.reason!=",
    "status.reason=,status.phase=Running", "metadata.namespace=p", "spec.slot=1,spec.slot=2",
)  # fmt: skip

some_labels = st.fixed_dictionaries(
    {},
    optional={"team": st.sampled_from(["red", "blue", ""]), "tier": st.sampled_from(["1", "4"])},
)
some_fields = st.fixed_dictionaries(
    {"status.phase": st.sampled_from(["Running", "Queued"])},
    optional={"status.reason": st.sampled_from(["Lost", ""]), "spec.slot": st.just("1")},
)
changes = st.lists(
    st.tuples(st.integers(0, 40), st.booleans(), some_labels, some_fields), max_size=120
)


def chosen(of_labels: str, of_fields: str) -> Filter:
    return Filter(
        labels=labels.parse(of_labels) if of_labels else None,
        fields=fields.parse(of_fields) if of_fields else None,
    )


class Kept:
    """An index, and beside it the plain dict that it must agree with."""

    def __init__(self) -> None:
        self.index = Index()
        self.entries: dict[int, Entry] = {}
        self.made: list[Entry] = []  # every version there ever was
        self._selections = Selections()

    def change(self, number: int, there: bool, *values: Mapping[str, str]) -> None:
        before = self.entries.pop(number, None)
        if not there:
            if before is not None:
                self.index.remove(before)
            return
        selection = self._selections.of(text(*values))
        entry = Entry(
            project="pqr"[number % 3],
            name=f"n{number:02}",
            uid=UUID(int=number),
            rev=len(self.made) + 1,
            selection=selection,
            body=b"",
            slot=self.index.slot() if before is None else before.slot,
        )
        self.index.put(entry, before)
        self.entries[number] = entry
        self.made.append(entry)

    def of(self, project: str | None) -> list[Entry]:
        found = [one for one in self.entries.values() if project in (None, one.project)]
        return sorted(found, key=lambda one: (one.project, one.name))


def text(of_labels: Mapping[str, str], of_fields: Mapping[str, str]) -> str:
    return orjson.dumps({"labels": of_labels, "fields": of_fields}).decode()


def brute(filter_: Filter, entries: Iterable[Entry]) -> list[Entry]:
    return [one for one in entries if filter_.chooses(one)]


@settings(max_examples=60, deadline=None)
@given(changes, changes, st.sampled_from(LABELS), st.sampled_from(FIELDS))
def test_the_index_chooses_what_a_walk_chooses(
    before: list[tuple[int, bool, dict[str, str], dict[str, str]]],
    after: list[tuple[int, bool, dict[str, str], dict[str, str]]],
    of_labels: str,
    of_fields: str,
) -> None:  # LW-094, LW-099; storage.md section 6
    kept, filter_ = Kept(), chosen(of_labels, of_fields)
    for change in before:
        kept.change(*change)
    choices = {project: kept.index.choice(project, filter_) for project in ("p", "q", None)}
    states = {project: kept.of(project) for project in choices}
    for project, choice in choices.items():
        gathered = choice.gathered(10**6, 0)
        by_revision = choice.gathered(10**6, 0, by_revision=True)
        if gathered is not None and by_revision is not None:
            assert choice.of(gathered) == brute(filter_, states[project])
            assert [one.rev for one in by_revision] == sorted(one.rev for one in gathered)
    old = kept.made[::]
    for change in after:  # a choice is of its moment, whatever is walked with it later
        kept.change(*change)
    for project, choice in choices.items():
        assert choice.of(states[project]) == brute(filter_, states[project])
    everything = choices[None]
    assert everything.of(old) == brute(filter_, old)  # versions of before, too


@settings(max_examples=30, deadline=None)
@given(changes)
def test_what_is_gone_leaves_nothing_in_the_index(
    play: list[tuple[int, bool, dict[str, str], dict[str, str]]],
) -> None:
    kept = Kept()
    for change in play:
        kept.change(*change)
    held = {pair for one in kept.entries.values() for pair in values_of(one.selection)}
    assert set(kept.index._by_value) == held
    assert set(kept.index._by_key) == {key for key, _ in held}
    for number in list(kept.entries):
        kept.change(number, False)

    assert (kept.index._by_value, kept.index._by_key, kept.index._projects) == ({}, {}, {})
    assert not kept.index._all
    assert set(kept.index._free) == set(range(len(kept.index.present)))


class Counting:
    """A selector that is no metav1 one, so that nothing but a look at each object answers it."""

    empty = False

    def __init__(self) -> None:
        self.looked = 0

    def matches(self, values: Mapping[str, str]) -> bool:
        self.looked += 1
        return True


def crowd(log: FeedLog) -> None:
    """Ten Attempts of p, one of them red, among 2,000 of q, of which every second is red."""
    for number in range(10):
        values = {"team": "red" if number == 3 else "blue"}
        log.commit(("A", UUID(int=number), "p", f"n{number}", values, {}))
    for number in range(10, 2010):
        values = {"team": "red" if number % 2 else "blue"}
        log.commit(("A", UUID(int=number), "q", f"n{number}", values, {}))


async def test_a_selective_list_looks_only_at_what_the_index_leaves(
    log: FeedLog, cache: AttemptCache
) -> None:
    crowd(log)
    for number in range(3000, 3003):
        log.commit(("A", UUID(int=number), "q", f"n{number}", {"team": "green"}, {}))
    await cache.list(None, LATEST)
    looks = Counting()
    green = Filter(labels=labels.parse("team=green"), fields=looks)

    for scope in ("q", None):
        page = await cache.list(scope, CACHED, chosen=green)
        assert [one.name for one in page.entries] == ["n3000", "n3001", "n3002"]
        watcher = await cache.watch(scope, WatchFrom(CACHED, True), chosen=green)
        assert len(watcher.initial or ()) == 3
        watcher.close()

    assert looks.looked == 4 * 3  # not 2,003


class Touched(list[Entry | None]):
    """The table of present versions, counting who is looked up."""

    looked = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked += 1
        return super().__getitem__(at)


async def test_a_project_is_served_without_a_look_at_others(
    log: FeedLog, cache: AttemptCache
) -> None:
    """Counts what is touched: entries, rows of the table, events; the others are 2,000."""
    crowd(log)
    await cache.list(None, LATEST)
    contents = cache._contents
    assert contents is not None
    start = log.rows[-1].rev
    log.commit(("M", UUID(int=3), "p", "n3", {"team": "blue"}, {}))
    for number in range(10, 2010):
        log.commit(("M", UUID(int=number), "q", f"n{number}", {"team": "red"}, {}))
    await cache.list(None, LATEST)
    table = contents.index.present = Touched(contents.index.present)
    looks = Counting()
    red = Filter(labels=labels.parse("team=red"), fields=looks)

    assert (await cache.list("p", CACHED, chosen=red)).entries == []
    old = await cache.list("p", ReadAt(Mode.EXACT, start), chosen=red)
    assert [one.name for one in old.entries] == ["n3"]
    watcher = await cache.watch("p", WatchFrom(ReadAt(Mode.EXACT, start), False), chosen=red)
    assert [event.type for event in await watcher.take()] == ["DELETED"]
    assert len(contents.history.of("p")) == 11
    assert looks.looked + table.looked <= 60


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_few_are_gathered_in_the_order_of_a_list(
    log: FeedLog, cache: AttemptCache, count: int
) -> None:  # LW-106
    crowd(log)
    for number in reversed(range(count)):
        log.commit(("A", UUID(int=5000 + number), "q", f"a{number}", {"team": "green"}, {}))
    green = Filter(labels=labels.parse("team=green"))

    found: list[str] = []
    page = await cache.list(None, LATEST, chosen=green, limit=2)
    found += [one.name for one in page.entries]
    while page.more:
        assert page.remaining is None  # LW-111
        begin = (page.entries[-1].project, page.entries[-1].name + "\0")
        at = ReadAt(Mode.EXACT, page.rev)
        page = await cache.list(None, at, chosen=green, limit=2, start=begin)
        found += [one.name for one in page.entries]

    assert found == [f"a{number}" for number in range(count)]


async def test_many_are_not_sorted_in_one_step(
    log: FeedLog, cache: AttemptCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(log)
    await cache.list(None, LATEST)
    monkeypatch.setattr(index, "GATHERED", 2)
    assert cache._contents is not None
    choice = cache._contents.index.choice(None, Filter(labels=labels.parse("team=red")))

    assert choice.gathered(10**6, 0) is None
    page = await cache.list(None, CACHED, chosen=Filter(labels=labels.parse("team=red")))
    assert len(page.entries) == 1001
