"""Lists, pages and watches of two replicas, compared with the log that both come from.

Random histories with deletions, compactions, and replicas that remember more or less than the
other or start anew. The cursors of clients are those that earlier answers gave them, and each is
taken to the other replica: the next page, the resumed watch, the list at a bookmark.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.apiserver.conftest import START, A, Replica, replica_of, running
from tests.apiserver.test_many_watches import Told, chosen, told_by
from tests.history.checking import WIRE, assert_sound
from tests.history.facts import Answer, History, Stream, event_of
from tests.history.modelled import log_of
from tests.watchcache.feed_log import FeedLog
from tests.watchcache.model import state_at

from nodus_api.metav1 import labels
from nodus_api.watchcache.digest import digests_of
from nodus_api.watchcache.entry import Entry, Selections, finished

SELECTORS = ("", "team=a", "team!=a", "team in (a,b)", "!team")
slots = st.integers(0, 5)
scopes = st.sampled_from(["p", "q", None])
selectors = st.sampled_from(SELECTORS)
commits = st.lists(
    st.tuples(slots, st.sampled_from("AMD"), st.sampled_from(["a", "b", None])),
    min_size=1,
    max_size=3,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), commits),
        st.tuples(st.just("list"), scopes, selectors, st.sampled_from(["", "0", "known"])),
        st.tuples(st.just("exact"), scopes, selectors, st.integers(0, 9)),
        st.tuples(st.just("pages"), scopes, selectors, st.integers(1, 3), commits),
        st.tuples(st.just("watch"), scopes, selectors, st.integers(0, 9), st.integers(0, 3)),
        st.tuples(st.just("stream"), scopes, selectors),
        st.tuples(st.just("forget"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
        st.just(("compact",)),
    ),
    max_size=14,
)


SIX: list[list[tuple[int, str, str | None]]] = [
    [(0, "A", "a"), (1, "A", "b"), (2, "A", None)],
    [(3, "A", "a"), (4, "A", "b"), (5, "A", None)],
]


class Play:
    """One client of two replicas, who comes to the other with each request."""

    def __init__(self) -> None:
        self.log = FeedLog()
        self.replicas: list[Replica] = []
        self.held: list[AsyncExitStack] = []
        self.turn = 0
        self.alive: dict[int, UUID] = {}
        self.made = 0
        self.known = 1
        self.second = 0
        self.answers: list[Answer] = []
        self.streams: list[Stream] = []

    async def start(self) -> None:
        """Start both replicas."""
        for _ in range(2):
            self.replicas.append(replica_of(log=self.log))
            self.held.append(AsyncExitStack())
            await self.held[-1].enter_async_context(running(self.replicas[-1]))

    async def stop(self) -> None:
        for held in self.held:
            await held.aclose()

    async def compare(self) -> None:
        """Hold both caches against the objects as they stand (G11)."""
        for replica in self.replicas:
            await replica.admin.get(path(None))
            pieces = await replica.cache.pieces_at(replica.cache.position)
            held = await digests_of(pieces, replica.clock)
            assert held == await digests_of(as_stored(self.log), replica.clock)

    def now(self) -> datetime:
        """A moment after all that were asked for before."""
        self.second += 1
        return START + timedelta(seconds=self.second)

    def history(self) -> History:
        """What this one client was told, and the log (H-01 to H-22)."""
        return History(
            log=log_of(self.log, START),
            streams=tuple(self.streams),
            answers=tuple(self.answers),
            window=timedelta(0),  # history is lost whenever the play has it so
        )

    @property
    def rev(self) -> int:
        return self.log.rows[-1].rev

    def next(self) -> Replica:
        """The replica whose turn it is."""
        self.turn = 1 - self.turn
        return self.replicas[self.turn]

    async def run(self, step: tuple[Any, ...]) -> None:
        await getattr(self, f"do_{step[0]}")(*step[1:])

    async def do_commit(self, changes: list[tuple[int, str, str | None]]) -> None:
        rows: list[tuple[str, UUID, str, str, dict[str, str], dict[str, str]]] = []
        for slot, kind, team in changes:
            values = {"team": team} if team else {}
            what = "A" if slot not in self.alive else "D" if kind == "D" else "M"
            if what == "A":
                self.made += 1
                self.alive[slot] = UUID(int=self.made)
            uid = self.alive.pop(slot) if what == "D" else self.alive[slot]
            fields = {"status.phase": "Running"}
            rows.append((what, uid, "pq"[slot % 2], f"n{slot}", values, fields))
        self.log.commit(*rows)

    async def ask(self, scope: str | None, **query: str) -> Any:
        target = f"{path(scope)}?{urlencode(query)}"
        asked = self.now()
        got = await self.next().admin.get(target)
        answered = self.now()
        self.answers.append(
            Answer(
                client="play",
                target=target,
                asked=asked,
                answered=answered,
                body=got.body,
                status=got.status,
            )
        )
        found = orjson.loads(got.body)
        assert found.get("code", 200) == got.status
        return found

    def check(self, found: Any, scope: str | None, selector: str) -> None:
        rev = int(found["metadata"]["resourceVersion"])
        assert shown(found["items"]) == self.state(rev, scope, selector)
        self.known = max(self.known, rev)

    def state(self, rev: int, scope: str | None, selector: str) -> list[tuple[str, str, int]]:
        expected = state_at(self.log, rev, scope, labels.parse(selector).matches)
        return [(one.project, one.name, one.rev) for one in expected]

    async def do_list(self, scope: str | None, selector: str, version: str) -> None:
        head = self.rev
        query = {"resourceVersion": str(self.known) if version == "known" else version}
        found = await self.ask(scope, labelSelector=selector, **query)
        rev = int(found["metadata"]["resourceVersion"])
        assert rev >= {"": head, "0": 0, "known": self.known}[version]
        self.check(found, scope, selector)

    async def do_exact(self, scope: str | None, selector: str, back: int) -> None:
        rev = max(self.rev - back, 1)
        found = await self.ask(
            scope,
            labelSelector=selector,
            resourceVersion=str(rev),
            resourceVersionMatch="Exact",
        )
        if rev < self.log.lost_below:
            # an old state may be kept yet; it is never another one
            assert found["kind"] == "AttemptList" or found["reason"] == "Expired"
        if found["kind"] == "AttemptList":
            assert found["metadata"]["resourceVersion"] == str(rev)
            self.check(found, scope, selector)
        else:
            assert rev < self.log.lost_below

    async def do_pages(
        self,
        scope: str | None,
        selector: str,
        limit: int,
        between: list[tuple[int, str, str | None]],
    ) -> None:
        query = {"labelSelector": selector, "limit": str(limit)}
        page = await self.ask(scope, **query)
        rev, items = page["metadata"]["resourceVersion"], page["items"]
        whole = self.state(int(rev), scope, selector)
        while token := page["metadata"].get("continue"):
            left = page["metadata"].get("remainingItemCount")
            assert left == (None if selector else len(whole) - len(items))
            await self.do_commit(between)
            page = await self.ask(scope, **{**query, "continue": token})
            assert page["metadata"]["resourceVersion"] == rev
            items += page["items"]
        assert shown(items) == whole

    async def do_watch(self, scope: str | None, selector: str, back: int, cut: int) -> None:
        """A watch that breaks after some events goes on at the other replica."""
        since = max(self.rev - back, 1)
        expected = chosen(self.log.rows, since, scope, selector, "")
        first, rest = expected[:cut], expected[cut:]
        if await self.watched(scope, selector, since, first, ends=not rest) and first:
            await self.watched(scope, selector, first[-1][1], rest, ends=True)

    async def watched(
        self, scope: str | None, selector: str, since: int, due: list[Told], *, ends: bool = False
    ) -> bool:
        """Compare what a watch tells first; return whether it could be served."""
        replica = self.next()
        await replica.admin.get(path(None))  # it has what the log has
        assert replica.cache._contents is not None
        floor = replica.cache._contents.history.floor
        query = urlencode({"watch": "1", "labelSelector": selector, "resourceVersion": str(since)})
        target = f"{path(scope)}?{query}"
        asked, lines = self.now(), []
        async with replica.admin.open("GET", target) as stream:
            if since < floor:
                lines = [await stream.line() or b""]
                event = orjson.loads(lines[0])
                assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
            else:
                lines = [await stream.line() or b"" for _ in due]
                assert [told_by(line) for line in lines] == due
                assert stream.idle() or not ends
        self.saw(target, asked, lines)
        return since >= floor

    def saw(self, target: str, asked: datetime, lines: list[bytes]) -> None:
        events = tuple(event_of(line.rstrip(b"\n") + b"\n", self.now()) for line in lines)
        client = f"stream-{len(self.streams)}"
        self.streams.append(
            Stream(client=client, target=target, asked=asked, events=events, ending="left")
        )

    async def do_stream(self, scope: str | None, selector: str) -> None:
        query = {"watch": "1", "labelSelector": selector, "allowWatchBookmarks": "1"}
        added: list[Any] = []
        target = f"{path(scope)}?{urlencode(query)}"
        asked, lines = self.now(), []
        async with self.next().admin.open("GET", target) as stream:
            while True:
                lines.append(await stream.line() or b"")
                event = orjson.loads(lines[-1])
                if event["type"] != "ADDED":
                    break
                added.append(event["object"])
        self.saw(target, asked, lines)
        assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        rev = int(event["object"]["metadata"]["resourceVersion"])
        assert [r for _, _, r in shown(added)] == sorted(r for _, _, r in shown(added))
        assert sorted(shown(added)) == self.state(rev, scope, selector)
        self.known = max(self.known, rev)
        again = await self.ask(  # LW-139, at the other replica
            scope,
            labelSelector=selector,
            resourceVersion=str(rev),
            resourceVersionMatch="Exact",
        )
        if again["kind"] == "AttemptList":
            in_order = sorted(
                again["items"], key=lambda one: int(one["metadata"]["resourceVersion"])
            )
            assert in_order == added
            await self.watched(scope, selector, rev, [], ends=True)
        else:
            assert rev < self.log.lost_below

    async def do_forget(self, which: int) -> None:
        replica = self.replicas[which]
        await replica.admin.get(path(None))
        assert replica.cache._contents is not None
        replica.cache._contents.history._drop_through(replica.cache.position)

    async def do_restart(self, which: int) -> None:
        await self.held[which].aclose()
        self.replicas[which] = replica_of(log=self.log)
        await self.held[which].enter_async_context(running(self.replicas[which]))

    async def do_compact(self) -> None:
        for replica in self.replicas:
            await replica.compact()


def path(scope: str | None) -> str:
    return A if scope is None else f"/apis/nodus.dev/v1/namespaces/{scope}/attempts"


def shown(items: list[Any]) -> list[tuple[str, str, int]]:
    found = [item["metadata"] for item in items]
    return [(one["namespace"], one["name"], int(one["resourceVersion"])) for one in found]


async def as_stored(log: FeedLog) -> AsyncIterator[list[Entry]]:
    selections = Selections()
    for one in log.stored.values():
        yield [
            Entry(
                project=one.project,
                name=one.name,
                uid=one.uid,
                rev=one.rev,
                selection=selections.of(one.sel),
                body=finished(one.doc, one.rev),
            )
        ]


@pytest.mark.slow  # a hundred histories, two replicas each
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@example(before=SIX, play=[("pages", None, "", 2, [(0, "D", "a")]), ("pages", "p", "", 1, [])])
@example(before=SIX, play=[("pages", None, "team!=a", 1, [(1, "D", None)])])
@example(before=SIX, play=[("watch", None, "team!=a", 9, 3), ("restart", 1), ("stream", "q", "")])
@given(before=st.lists(commits, max_size=4), play=steps)
async def test_every_answer_is_what_the_log_says(
    before: list[list[tuple[int, str, str | None]]], play: list[tuple[Any, ...]]
) -> None:  # LW-101, LW-104, LW-110, LW-111, LW-123, LW-131 to LW-135, LW-138, LW-139
    """The examples make sure of pages that count what remains, and of a watch that is resumed."""
    client = Play()
    for changes in before:
        await client.do_commit(changes)
    try:
        await client.start()
        for step in play:
            await client.run(step)
        await client.compare()
    finally:
        await client.stop()
    assert_sound(client.history(), WIRE)
