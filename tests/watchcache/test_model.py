"""Any interleaving of commits, reads and watches ends in what the log says."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.watchcache.conftest import following
from tests.watchcache.feed_log import FeedLog
from tests.watchcache.model import (
    Chooses,
    Seen,
    commit_ends,
    events_after,
    seen_of,
    seen_page,
    state_at,
    told,
)

from nodus_api.clock import ManualClock
from nodus_api.metav1 import labels
from nodus_api.watchcache import AttemptCache, Window, cacher, index, reflector
from nodus_api.watchcache.consistency import CACHED, LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.errors import HeldTooMuch, StateTooOld
from nodus_api.watchcache.filters import EVERYTHING, Filter
from nodus_api.watchcache.holds import BUDGET_BYTES, Held
from nodus_api.watchcache.watcher import Watcher, WatchOver

PROJECTS = ("p", "q")
SELECTORS = (
    "", "team=red", "team!=red", "team in (red,blue)", "!team", "team", "team=blue,team!=red",
)  # fmt: skip

slots = st.integers(0, 5)
teams = st.sampled_from(["red", "blue", None])
commits = st.lists(st.tuples(slots, st.sampled_from("AMD"), teams), min_size=1, max_size=4)
scopes = st.sampled_from([*PROJECTS, None])
selectors = st.sampled_from(SELECTORS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), commits),
        st.tuples(st.just("turns"), st.integers(1, 8)),
        st.tuples(st.just("watch"), scopes, selectors, st.booleans()),
        st.tuples(st.just("resume"), scopes, selectors, st.integers(0, 6)),
        st.tuples(st.just("take"), st.integers(0, 20)),
        st.tuples(st.just("list"), scopes, selectors, st.booleans()),
        st.tuples(st.just("exact"), scopes, selectors, st.integers(0, 8)),
        st.tuples(st.just("pages"), scopes, selectors, st.integers(1, 3)),
        st.tuples(st.just("send"), scopes, selectors, st.integers(0, 8)),
        st.tuples(st.just("sent"), st.integers(0, 5)),
        st.just(("forget",)),
    ),
    max_size=30,
)


@dataclass
class Watching:
    scope: str | None
    selector: str
    since: int
    watcher: Watcher
    initial: list[Seen] | None
    got: list[tuple[str, int, int]]
    over: bool = False

    async def take(self) -> bool:
        """Take what is there; False when nothing is, or when the watch is over."""
        try:
            deliveries = await self.watcher.take()
        except WatchOver:
            self.over = True
            return False
        self.got += [told(delivery) for delivery in deliveries]
        return bool(deliveries)


class Play:
    """Runs steps against a cache and the log that it follows."""

    def __init__(self, log: FeedLog, cache: AttemptCache) -> None:
        self.log = log
        self.cache = cache
        self.watching: list[Watching] = []
        self.alive: dict[int, UUID] = {}
        self.sending: list[tuple[Held[bytes], list[Seen]]] = []
        self._made = 0

    async def run(self, step: tuple[object, ...]) -> None:
        await getattr(self, f"do_{step[0]}")(*step[1:])

    async def do_commit(self, changes: list[tuple[int, str, str | None]]) -> None:
        rows: list[tuple[str, UUID, str, str, dict[str, str], dict[str, str]]] = []
        for slot, kind, team in changes:
            project, name = PROJECTS[slot % 2], f"n{slot}"
            values = {"team": team} if team else {}
            if kind == "D" and slot in self.alive:
                rows.append(("D", self.alive.pop(slot), project, name, values, {}))
            elif kind != "D" and slot in self.alive:
                rows.append(("M", self.alive[slot], project, name, values, {}))
            elif kind != "D":
                self._made += 1
                self.alive[slot] = UUID(int=self._made)
                rows.append(("A", self.alive[slot], project, name, values, {}))
        if rows:
            self.log.commit(*rows)

    async def do_turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def do_watch(self, scope: str | None, selector: str, cached: bool) -> None:
        at = CACHED if cached else LATEST
        watcher = await self.cache.watch(scope, WatchFrom(at, True), chosen=chosen(selector))
        initial = [seen_of(body) for piece in watcher.initial_pieces() or () for _, body in piece]
        assert [seen.rev for seen in initial] == sorted(seen.rev for seen in initial)  # LW-134
        self.watching.append(Watching(scope, selector, watcher.position, watcher, initial, []))

    async def do_resume(self, scope: str | None, selector: str, back: int) -> None:
        since = max(self.log.rows[-1].rev - back, 1)
        begin = WatchFrom(ReadAt(Mode.EXACT, since), False)
        assert self.cache._contents is not None
        if since < self.cache._contents.history.floor:
            with pytest.raises(StateTooOld):  # LW-123
                await self.cache.watch(scope, begin, chosen=chosen(selector))
            return
        watcher = await self.cache.watch(scope, begin, chosen=chosen(selector))
        self.watching.append(Watching(scope, selector, since, watcher, None, []))

    async def do_forget(self) -> None:
        """Let the history in memory end here: what is older only the log still tells."""
        assert self.cache._contents is not None
        self.cache._contents.history._drop_through(self.cache.position)

    async def do_take(self, which: int) -> None:
        if self.watching:
            await self.watching[which % len(self.watching)].take()

    async def do_list(self, scope: str | None, selector: str, cached: bool) -> None:
        before = self.log.rows[-1].rev
        if self.refused():
            return
        page = await self.cache.list(scope, CACHED if cached else LATEST, chosen=chosen(selector))
        assert page.rev in commit_ends(self.log)  # H-07: never half of a commit
        assert cached or page.rev >= before
        assert seen_page(page) == state_at(self.log, page.rev, scope, chooses(selector))

    async def do_exact(self, scope: str | None, selector: str, back: int) -> None:
        if self.refused():
            return
        rev = max(self.log.rows[-1].rev - back, 1)
        page = await self.cache.list(scope, ReadAt(Mode.EXACT, rev), chosen=chosen(selector))
        assert page.rev == rev  # LW-101
        assert seen_page(page) == state_at(self.log, rev, scope, chooses(selector))

    async def do_pages(self, scope: str | None, selector: str, limit: int) -> None:
        page = await self.cache.list(scope, LATEST, chosen=chosen(selector), limit=limit)
        rev, found = page.rev, seen_page(page)
        while page.more:
            await self.do_commit([(len(found) % 6, "M", "blue"), (5, "D", None), (5, "A", "red")])
            last = found[-1]
            page = await self.cache.list(
                scope,
                ReadAt(Mode.EXACT, rev),
                chosen=chosen(selector),
                limit=limit,
                start=(last.project, f"{last.name}\0"),
            )
            found += seen_page(page)
        assert found == state_at(self.log, rev, scope, chooses(selector))  # LW-110

    def refused(self) -> bool:
        """Whether lists without a limit are; only while long ones are being sent."""
        held = self.cache._holds.exceeded
        assert not held or self.sending or any(one.watcher.initial for one in self.watching)
        return held

    async def do_send(self, scope: str | None, selector: str, back: int) -> None:
        """Begin to send a list at some revision to a client that takes it slowly."""
        rev = max(self.log.rows[-1].rev - back, 1)
        at = ReadAt(Mode.EXACT, rev)
        if self.refused():
            with pytest.raises(HeldTooMuch):
                await self.cache.list(scope, at, chosen=chosen(selector))
            return
        page = await self.cache.list(scope, at, chosen=chosen(selector))
        self.sending.append((page.bodies(), state_at(self.log, rev, scope, chooses(selector))))

    async def do_sent(self, which: int) -> None:
        if self.sending:
            bodies, due = self.sending.pop(which % len(self.sending))
            assert [seen_of(body) for body in bodies] == due  # whatever was dropped meanwhile

    def compare_index(self) -> None:
        """What the index leaves is what a walk of all finds."""
        contents = self.cache._contents
        assert contents is not None
        for scope in (*PROJECTS, None):
            entries = [one for piece in contents.snapshot(scope).pieces() for one in piece]
            for selector in SELECTORS[1:]:
                wanted = chosen(selector)
                choice = contents.index.choice(scope, wanted)
                due = [one for one in entries if wanted.chooses(one)]
                assert choice.of(entries) == due
                assert choice.gathered(10**6, 0) in (due, None)

    async def finish(self) -> None:
        """Let everything be read, then compare all that the watchers were told."""
        await self.cache.list(None, LATEST, limit=1)
        self.compare_index()
        while self.sending:
            await self.do_sent(0)
        for one in self.watching:
            while await one.take():
                pass
            accept = chooses(one.selector)
            expected = events_after(self.log, one.since, one.scope, accept)
            if one.over:  # LW-146: it fell out of the documents, after whole events
                expected = expected[: len(one.got)]
            assert one.got == expected  # LW-131, LW-132, LW-133
            if one.initial is not None:
                state = state_at(self.log, one.since, one.scope, accept)
                assert sorted(one.initial, key=lambda s: (s.project, s.name)) == state  # LW-139
            assert one.over or one.watcher.position >= self.log.rows[-1].rev
            one.watcher.close()
        assert len(self.cache._pins) <= 64
        assert not self.cache._holds.exceeded
        self.cache._pins.clear()
        assert self.cache._holds.bytes == 0  # nobody holds anything any more


def chosen(selector: str) -> Filter:
    return Filter(labels=labels.parse(selector)) if selector else EVERYTHING


def chooses(selector: str) -> Chooses:
    return labels.parse(selector).matches


SMALL = 900
"""Bytes of some three documents."""


@pytest.mark.parametrize(
    ("window", "budget", "worth"),
    [
        (Window(), BUDGET_BYTES, 0),  # the index gathers whatever there is …
        (Window(documents=timedelta(seconds=75), document_bytes=SMALL), SMALL, 10**6),  # … or never
    ],
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.lists(commits, max_size=4), stubs=st.integers(0, 8), play=steps)
async def test_any_interleaving_ends_in_what_the_log_says(
    monkeypatch: pytest.MonkeyPatch,
    window: Window,
    budget: int,
    worth: int,
    before: list[list[tuple[int, str, str | None]]],
    stubs: int,
    play: list[tuple[object, ...]],
) -> None:
    monkeypatch.setattr(reflector, "PIECE", 3)  # so that commits are cut by pieces
    monkeypatch.setattr(cacher, "LONG", 1)  # so that lists count as long
    monkeypatch.setattr(index, "_WORTH", worth)
    log = FeedLog(stubs_below=stubs)
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    early = Play(log, None)  # type: ignore[arg-type]  # it only writes
    for changes in before:
        await early.do_commit(changes)
    async with following(log, clock, window=window) as cache:
        cache._holds._budget = budget
        running = Play(log, cache)
        running.alive, running._made = early.alive, early._made
        for step in play:
            await running.run(step)
        await running.finish()
