"""Lists, pages and watches through the HTTP application, compared with the log they come from.

Random histories with deletions, lost tails and reloads; the cursors of clients are those that
earlier answers gave them.
"""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.apiserver.conftest import A, Replica, replica_of, running
from tests.apiserver.test_many_watches import Told, chosen, told_by
from tests.watchcache.model import state_at

from nodus_api.metav1 import labels

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
        st.tuples(st.just("watch"), scopes, selectors, st.integers(0, 9)),
        st.tuples(st.just("stream"), scopes, selectors),
        st.just(("forget",)),
        st.just(("compact",)),
    ),
    max_size=14,
)


class Play:
    """One client of one replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.alive: dict[int, UUID] = {}
        self.made = 0
        self.known = 1

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
        self.replica.log.commit(*rows)

    async def ask(self, scope: str | None, **query: str) -> Any:
        got = await self.replica.admin.get(f"{path(scope)}?{urlencode(query)}")
        found = orjson.loads(got.body)
        assert found.get("code", 200) == got.status
        return found

    def check(self, found: Any, scope: str | None, selector: str) -> None:
        rev = int(found["metadata"]["resourceVersion"])
        assert shown(found["items"]) == self.state(rev, scope, selector)
        self.known = max(self.known, rev)

    def state(self, rev: int, scope: str | None, selector: str) -> list[tuple[str, str, int]]:
        expected = state_at(self.replica.log, rev, scope, labels.parse(selector).matches)
        return [(one.project, one.name, one.rev) for one in expected]

    async def do_list(self, scope: str | None, selector: str, version: str) -> None:
        head = self.replica.rev
        query = {"resourceVersion": str(self.known) if version == "known" else version}
        found = await self.ask(scope, labelSelector=selector, **query)
        rev = int(found["metadata"]["resourceVersion"])
        assert rev >= {"": head, "0": 0, "known": self.known}[version]
        self.check(found, scope, selector)

    async def do_exact(self, scope: str | None, selector: str, back: int) -> None:
        rev = max(self.replica.rev - back, 1)
        found = await self.ask(
            scope,
            labelSelector=selector,
            resourceVersion=str(rev),
            resourceVersionMatch="Exact",
        )
        if rev < self.replica.log.lost_below:
            # an old state may be kept yet; it is never another one
            assert found["kind"] == "AttemptList" or found["reason"] == "Expired"
        if found["kind"] == "AttemptList":
            assert found["metadata"]["resourceVersion"] == str(rev)
            self.check(found, scope, selector)
        else:
            assert rev < self.replica.log.lost_below

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

    async def do_watch(self, scope: str | None, selector: str, back: int) -> None:
        since = max(self.replica.rev - back, 1)
        assert self.replica.cache._contents is not None
        await self.ask(None)
        floor = self.replica.cache._contents.history.floor
        expected = chosen(self.replica.log.rows, since, scope, selector, "")
        query = urlencode({"watch": "1", "labelSelector": selector, "resourceVersion": str(since)})
        async with self.replica.admin.open("GET", f"{path(scope)}?{query}") as stream:
            if since < floor:
                event = await stream.event()
                assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
                return
            got: list[Told] = [told_by(await stream.line() or b"") for _ in expected]
            assert got == expected
            assert stream.idle()

    async def do_stream(self, scope: str | None, selector: str) -> None:
        query = {"watch": "1", "labelSelector": selector, "allowWatchBookmarks": "1"}
        added: list[Any] = []
        async with self.replica.admin.open("GET", f"{path(scope)}?{urlencode(query)}") as stream:
            while (event := await stream.event())["type"] == "ADDED":
                added.append(event["object"])
        assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        rev = int(event["object"]["metadata"]["resourceVersion"])
        assert [r for _, _, r in shown(added)] == sorted(r for _, _, r in shown(added))
        assert sorted(shown(added)) == self.state(rev, scope, selector)
        self.known = max(self.known, rev)

    async def do_forget(self) -> None:
        await self.ask(None)
        assert self.replica.cache._contents is not None
        self.replica.cache._contents.history._drop_through(self.replica.cache.position)

    async def do_compact(self) -> None:
        await self.replica.compact()


def path(scope: str | None) -> str:
    return A if scope is None else f"/apis/nodus.dev/v1/namespaces/{scope}/attempts"


def shown(items: list[Any]) -> list[tuple[str, str, int]]:
    found = [item["metadata"] for item in items]
    return [(one["namespace"], one["name"], int(one["resourceVersion"])) for one in found]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.lists(commits, max_size=4), play=steps)
async def test_every_answer_is_what_the_log_says(
    before: list[list[tuple[int, str, str | None]]], play: list[tuple[Any, ...]]
) -> None:  # LW-101, LW-104, LW-110, LW-111, LW-123, LW-131 to LW-135, LW-138, LW-139
    client = Play(replica_of())
    for changes in before:
        await client.do_commit(changes)
    async with running(client.replica):
        for step in play:
            await client.run(step)
