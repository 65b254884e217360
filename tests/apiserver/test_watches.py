"""Watches in process, by the conformance cases of list-watch.md; time is moved by hand."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from tests.apiserver.conftest import A, N, Replica, T, names
from tests.asgi_client import Stream
from tests.watchcache.conftest import until

from nodus_api.clock import ManualClock
from nodus_api.tasks import end, spawn

INITIAL_END = {"k8s.io/initial-events-end": "true"}


@asynccontextmanager
async def watching(replica: Replica, query: str, **headers: str) -> AsyncIterator[Stream]:
    async with replica.admin.open("GET", f"{N}?watch=1&{query}", headers=headers) as stream:
        assert stream.response.status == 200
        yield stream


def short(event: Any) -> tuple[str, str, int]:
    meta = event["object"]["metadata"]
    return event["type"], meta.get("name", ""), int(meta["resourceVersion"])


async def ended(replica: Replica, stream: Stream, seconds: float = 0) -> bool:
    """Move the clock and return whether the body ended cleanly, with nothing before."""
    ticking = spawn("tick", replica.advance(seconds + 2))
    try:
        return await stream.line() is None
    finally:
        await end(ticking)


async def test_changes_come_one_line_each(replica: Replica) -> None:  # LW C-64, LW C-65
    async with watching(replica, f"resourceVersion={replica.rev}") as stream:
        assert stream.response.headers["content-type"] == "application/json"
        assert "content-length" not in stream.response.headers
        assert stream.idle()
        changed = replica.change("example", "train-0-e1", "Failed")
        gone = replica.delete("example", "train-0-e1")
        lines = [await stream.line(), await stream.line()]

    events = [orjson.loads(line or b"") for line in lines]
    assert [short(e) for e in events] == [
        ("MODIFIED", "train-0-e1", changed),
        ("DELETED", "train-0-e1", gone),
    ]
    assert lines == [orjson.dumps(event) for event in events]  # compact


async def test_a_watch_from_nothing_begins_with_the_state(replica: Replica) -> None:  # LW C-66
    async with watching(replica, "") as stream:
        events = [short(e) for e in await stream.events(12)]
        assert stream.idle()

    assert {kind for kind, _, _ in events} == {"ADDED"}
    assert [rev for _, _, rev in events] == sorted(rev for _, _, rev in events)


async def test_the_end_of_the_state_is_told(replica: Replica) -> None:  # LW C-67, LW-138, LW-139
    await replica.admin.get(N)
    async with watching(replica, "resourceVersion=0&allowWatchBookmarks=1") as stream:
        events = await stream.events(13)
    mark = events[-1]
    rev = mark["object"]["metadata"]["resourceVersion"]
    exact = await replica.admin.get(f"{N}?resourceVersion={rev}&resourceVersionMatch=Exact")

    assert mark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Attempt",
            "apiVersion": "nodus.dev/v1",
            "metadata": {"resourceVersion": rev, "annotations": INITIAL_END},
        },
    }
    added = {e["object"]["metadata"]["name"]: e["object"] for e in events[:-1]}
    assert added == {i["metadata"]["name"]: i for i in orjson.loads(exact.body)["items"]}


async def test_an_empty_state_ends_too(replica: Replica) -> None:  # LW C-68
    query = (
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
        "&fieldSelector=metadata.name%3Dnope"
    )
    async with watching(replica, query) as stream:
        event = await stream.event()

    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"] == INITIAL_END
    assert int(event["object"]["metadata"]["resourceVersion"]) == replica.rev


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("sendInitialEvents=true", 1),  # LW C-69
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 2),
        ("resourceVersion=1&resourceVersionMatch=NotOlderThan", 1),
    ],
)
async def test_what_a_watch_cannot_ask(replica: Replica, query: str, causes: int) -> None:
    got = await replica.admin.get(f"{N}?watch=1&{query}")

    assert got.status == 422
    assert len(orjson.loads(got.body)["details"]["causes"]) == causes


async def test_only_later_changes_without_the_state(replica: Replica) -> None:  # LW C-70
    query = (
        f"resourceVersion={replica.rev}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    )
    async with watching(replica, query) as stream:
        rev = replica.change("example", "train-0-e1", "Failed")
        assert short(await stream.event()) == ("MODIFIED", "train-0-e1", rev)


async def test_a_start_before_the_history_is_an_error_event(replica: Replica) -> None:  # LW C-71
    await replica.compact()
    async with watching(replica, "resourceVersion=1") as stream:
        event = await stream.event()
        assert await ended(replica, stream)

    status = event["object"]
    assert event["type"] == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"] == f"too old resource version: 1 ({replica.rev})"
    assert status["requestId"] == stream.response.headers["audit-id"]  # LW-181


async def test_a_future_version_waits(replica: Replica) -> None:  # LW C-72, LW-124
    query = f"resourceVersion={replica.rev + 3}&timeoutSeconds=5"
    async with watching(replica, query) as stream:
        for phase in ("Failed", "Running", "Failed"):
            replica.change("example", "train-0-e1", phase)
        await replica.caught_up()
        assert stream.idle()
        rev = replica.change("example", "train-0-e1", "Running")
        assert short(await stream.event()) == ("MODIFIED", "train-0-e1", rev)
        assert await ended(replica, stream, 5)


async def test_a_future_state_is_an_error_event(replica: Replica) -> None:  # LW C-73
    query = (
        f"resourceVersion={replica.rev + 1000}&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    async with watching(replica, query) as stream:
        ticking = spawn("tick", replica.advance(4))
        event = await stream.event()
        await ticking

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
        "ERROR",
        504,
        "Timeout",
    )


async def test_leaving_a_selector_shows_the_state_before(replica: Replica) -> None:  # LW C-74
    query = f"resourceVersion={replica.rev}&fieldSelector=status.phase%3DRunning"
    async with watching(replica, query) as stream:
        rev = replica.change("example", "train-0-e1", "Failed")
        event = await stream.event()

    assert short(event) == ("DELETED", "train-0-e1", rev)
    assert event["object"]["status"]["phase"] == "Running"


async def test_entering_a_selector_is_added(replica: Replica) -> None:  # LW C-75
    query = f"resourceVersion={replica.rev}&fieldSelector=status.phase%3DRunning"
    async with watching(replica, query) as stream:
        rev = replica.change("example", "train-1-e1", "Running")
        assert short(await stream.event()) == ("ADDED", "train-1-e1", rev)


async def test_a_bookmark_comes_before_the_end(replica: Replica) -> None:  # LW C-76
    query = f"resourceVersion={replica.rev}&allowWatchBookmarks=1&timeoutSeconds=10"
    async with watching(replica, query) as stream:
        rev = replica.change("other", "scan-0-e1", "Failed")
        await replica.caught_up()
        await replica.advance(7.75)
        assert stream.idle()
        await replica.advance(0.75)
        event = await stream.event()
        assert await ended(replica, stream, 2)

    assert event == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Attempt",
            "apiVersion": "nodus.dev/v1",
            "metadata": {"resourceVersion": str(rev)},
        },
    }


async def test_bookmarks_come_once_a_minute_and_only_when_something_moved(
    replica: Replica,
) -> None:  # LW-137
    async with watching(replica, f"resourceVersion={replica.rev}&allowWatchBookmarks=1") as stream:
        await replica.advance(61)
        assert stream.idle()
        rev = replica.change("other", "scan-0-e1", "Failed")
        await replica.caught_up()
        await replica.advance(61)
        assert short(await stream.event()) == ("BOOKMARK", "", rev)
        await replica.advance(61)
        assert stream.idle()


async def test_a_watch_of_tables(replica: Replica) -> None:  # LW C-77
    async with watching(replica, "", accept=T) as stream:
        events = await stream.events(12)
    tables = [event["object"] for event in events]

    assert len(tables[0]["columnDefinitions"]) == 17
    assert {orjson.dumps(t["columnDefinitions"]) for t in tables[1:]} == {b"null"}
    assert {len(t["rows"]) for t in tables} == {1}
    first = tables[0]["rows"][0]["object"]
    assert (first["kind"], first["metadata"]["name"]) == ("PartialObjectMetadata", "train-0-e1")
    assert tables[0]["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_ages_in_a_watch_are_as_of_the_event(replica: Replica) -> None:  # LW-141, LW-252
    assert isinstance(replica.clock, ManualClock)
    await replica.clock.advance(1800)  # all are 12 h 30 min old
    query = f"resourceVersion={replica.rev}&timeoutSeconds=3600"
    async with watching(replica, query, accept=T) as stream:
        replica.change("example", "train-0-e1", "Running")
        before = (await stream.event())["object"]
        await replica.clock.advance(1801)
        replica.change("example", "train-0-e1", "Failed")
        after = (await stream.event())["object"]

    columns = [column["name"] for column in before["columnDefinitions"]]
    assert before["rows"][0]["cells"][columns.index("Age")] == "12h"
    assert after["rows"][0]["cells"][columns.index("Age")] == "13h"


async def test_a_bookmark_may_be_the_first_event_of_a_table(replica: Replica) -> None:  # LW-141
    query = "allowWatchBookmarks=1&includeObject=None&fieldSelector=metadata.name%3Dnope"
    async with watching(replica, query, accept=T) as stream:
        table = (await stream.event())["object"]

    assert len(table["columnDefinitions"]) == 17
    assert table["rows"][0]["object"]["metadata"]["annotations"] == INITIAL_END


async def test_an_error_of_a_table_watch_is_a_plain_status(replica: Replica) -> None:  # LW C-78
    await replica.compact()
    async with watching(replica, "resourceVersion=1", accept=T) as stream:
        event = await stream.event()
        assert await ended(replica, stream)

    assert (event["type"], event["object"]["kind"]) == ("ERROR", "Status")


@pytest.mark.parametrize("form", ["PartialObjectMetadata", "PartialObjectMetadataList"])
async def test_a_watch_of_metadata(replica: Replica, form: str) -> None:  # LW-053, LW-142
    accept = f"application/json;as={form};g=meta.k8s.io;v=v1"
    async with watching(replica, "allowWatchBookmarks=1", accept=accept) as stream:
        events = await stream.events(13)

    assert {event["object"]["kind"] for event in events} == {"PartialObjectMetadata"}
    assert set(events[0]["object"]) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize("query", ["watch=", "watch=banana", "watch=1"])
async def test_what_watches(replica: Replica, query: str) -> None:  # LW C-39
    async with replica.admin.open("GET", f"{N}?{query}") as stream:
        assert (await stream.event())["type"] == "ADDED"


@pytest.mark.parametrize("query", ["watch=FALSE", "watch=0", "", "Watch=1"])
async def test_what_lists(replica: Replica, query: str) -> None:  # LW C-39, LW-018
    assert len(names((await replica.admin.get(f"{N}?{query}")).body)) == 12


async def test_a_named_path_does_not_watch(replica: Replica) -> None:  # LW-005
    got = await replica.admin.get(f"{N}/train-0-e1?watch=true")

    assert (got.status, orjson.loads(got.body)["kind"]) == (200, "Attempt")


async def test_the_old_watch_paths(replica: Replica) -> None:  # LW-006
    base = "/apis/nodus.dev/v1/watch"
    async with replica.admin.open("GET", f"{base}/attempts") as stream:
        assert len(await stream.events(15)) == 15
    async with replica.admin.open("GET", f"{base}/namespaces/example/attempts") as stream:
        assert len(await stream.events(12)) == 12
    named = f"{base}/namespaces/example/attempts/train-1-e1"
    async with replica.admin.open("GET", named) as stream:
        assert short(await stream.event())[1] == "train-1-e1"
        replica.change("example", "train-0-e1", "Failed")
        rev = replica.change("example", "train-1-e1", "Running")
        assert short(await stream.event()) == ("MODIFIED", "train-1-e1", rev)
    refused = await replica.admin.get(f"{named}?fieldSelector=metadata.name%3Dx")

    assert orjson.loads(refused.body)["message"] == (
        "fieldSelector metadata.name doesn't match requested name"
    )


@pytest.mark.parametrize(
    ("selector", "status"),
    [
        (r"metadata.name=a\,b", 200),
        (r"metadata.name==a\=b", 200),
        ("metadata.name=a/b", 200),
        ("metadata.name=a,metadata.name=b", 200),
        ("metadata.name=", 200),
        ("metadata.name=a=b", 400),
    ],
)
async def test_an_old_watch_path_without_a_name_takes_any_selector(
    replica: Replica, selector: str, status: int
) -> None:  # LW-006, LW-097
    """The name that a selector pins is read by the selector's own grammar, not beside it."""
    path = f"/apis/nodus.dev/v1/watch/attempts?fieldSelector={quote(selector)}"
    async with replica.admin.open("GET", path) as stream:
        assert stream.response.status == status


async def test_resuming_misses_and_repeats_nothing(replica: Replica) -> None:  # LW-135
    seen: list[tuple[str, str, int]] = []
    rev = replica.rev
    expected = []
    for phase in ("Failed", "Running", "Failed", "Running"):
        expected.append(("MODIFIED", "train-0-e1", replica.change("example", "train-0-e1", phase)))
        async with watching(replica, f"resourceVersion={rev}") as stream:
            seen.append(short(await stream.event()))
        rev = seen[-1][2]

    assert seen == expected


async def test_all_projects_in_one_stream(replica: Replica) -> None:  # LW-131
    async with replica.admin.open("GET", f"{A}?watch=1&resourceVersion={replica.rev}") as stream:
        revs = [
            replica.change("other", "scan-0-e1", "Failed"),
            replica.change("example", "train-0-e1", "Failed"),
        ]
        assert [short(e)[2] for e in await stream.events(2)] == revs


async def test_a_client_that_leaves_frees_its_watcher(replica: Replica) -> None:  # LW-148
    async with watching(replica, f"resourceVersion={replica.rev}"):
        assert len(replica.cache.watchers) == 1

    assert len(replica.cache.watchers) == 0
    assert replica.app.in_flight.watches == 0


async def test_a_watch_lasts_as_long_as_it_was_asked(replica: Replica) -> None:  # LW-143
    async with watching(replica, f"resourceVersion={replica.rev}&timeoutSeconds=30") as stream:
        await replica.advance(29.5)
        assert stream.idle()
        assert await ended(replica, stream)


async def test_a_watch_without_a_timeout_lasts_half_an_hour_or_more(
    replica: Replica,
) -> None:  # LW-143: chance is 0.5, so 2700 s
    async with watching(replica, f"resourceVersion={replica.rev}") as stream:
        assert isinstance(replica.clock, ManualClock)
        await replica.clock.advance(2699)
        await replica.advance(0.25)
        assert stream.idle()
        assert await ended(replica, stream, 1)


async def test_a_negative_timeout_is_refused(replica: Replica) -> None:  # LW-143
    assert (await replica.admin.get(f"{N}?watch=1&timeoutSeconds=-1")).status == 400


async def test_a_watch_is_refused_while_the_feed_is_known_to_be_down(
    replica: Replica,
) -> None:  # LW-122
    await replica.admin.get(N)
    replica.log.away = True
    await replica.admin.get(N)
    await until(lambda: replica.cache.health.refused)
    got = await replica.admin.get(f"{N}?watch=1")

    assert got.status == 503
    assert got.headers["retry-after"] == "1"


async def test_a_reload_ends_the_watches_cleanly(replica: Replica) -> None:  # storage.md section 6
    await replica.admin.get(N)
    async with watching(replica, f"resourceVersion={replica.rev}") as stream:
        replica.cache.faulted()
        assert await ended(replica, stream)


async def test_a_watch_that_fails_says_so_and_ends(replica: Replica) -> None:  # AS-094
    async with watching(replica, f"resourceVersion={replica.rev}") as stream:
        [watcher] = replica.cache.watchers.all()
        watcher._chosen = None  # type: ignore[assignment]  # a fault of ours
        replica.change("example", "train-0-e1", "Failed")
        event = await stream.event()
        assert await ended(replica, stream)

    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
    assert event["object"]["reason"] == "InternalError"


async def test_a_watch_of_a_name_that_is_not_there_waits_for_it(
    replica: Replica,
) -> None:  # LW-125, LW-100
    query = f"resourceVersion={replica.rev}&fieldSelector=metadata.name%3Dlater-0-e1"
    async with watching(replica, query) as stream:
        replica.change("example", "train-0-e1", "Failed")
        rev = replica.add("example", "later-0-e1")
        assert short(await stream.event()) == ("ADDED", "later-0-e1", rev)


@pytest.mark.parametrize("form", ["", "Table", "PartialObjectMetadata"])
async def test_every_object_says_what_it_is(replica: Replica, form: str) -> None:  # LW-130
    accept = f"application/json;as={form};g=meta.k8s.io;v=v1" if form else "application/json"
    async with watching(replica, "allowWatchBookmarks=1", accept=accept) as stream:
        events = await stream.events(13)

    version = "meta.k8s.io/v1" if form else "nodus.dev/v1"
    assert [event["type"] for event in events] == ["ADDED"] * 12 + ["BOOKMARK"]  # LW-128
    for event in events:
        shown = event["object"]
        assert (shown["kind"], shown["apiVersion"]) == (form or "Attempt", version)
        assert int(shown["metadata"]["resourceVersion"]) > 0


@pytest.mark.parametrize("selector", ["labelSelector=nodus.dev/job%3Dtrain",
                                      "fieldSelector=metadata.namespace%3Dexample"])  # fmt: skip
async def test_what_a_selector_never_chose_is_silent(
    replica: Replica, selector: str
) -> None:  # LW-132: not before and not after is nothing
    async with replica.admin.open(
        "GET", f"{A}?watch=1&resourceVersion={replica.rev}&{selector}"
    ) as stream:
        replica.change("other", "scan-0-e1", "Failed")
        replica.delete("other", "scan-0-e1")
        rev = replica.change("example", "train-0-e1", "Failed")
        assert short(await stream.event()) == ("MODIFIED", "train-0-e1", rev)


async def test_a_shard_gets_each_change_in_one_stream(replica: Replica) -> None:  # LW C-86, LW-168
    half = "0x8000000000000000"
    bounds = [("0x0000000000000000", half), (half, "0x10000000000000000")]
    texts = [f"shardRange(object.metadata.uid,'{low}','{high}')" for low, high in bounds]
    rev = replica.rev
    made = {f"made-{number}-e1" for number in range(100)}
    async with AsyncExitStack() as held:
        streams = [
            await held.enter_async_context(
                watching(
                    replica,
                    f"resourceVersion={rev}&allowWatchBookmarks=1&timeoutSeconds=10"
                    f"&shardSelector={quote(text)}",
                )
            )
            for text in texts
        ]
        for name in sorted(made):
            replica.add("example", name)
        replica.change("other", "scan-0-e1", "Failed")  # so that both have a bookmark due
        await replica.caught_up()
        await replica.advance(8.5)
        seen = []
        for stream in streams:
            events = []
            while (event := await stream.event())["type"] != "BOOKMARK":
                events.append(short(event))
            assert int(event["object"]["metadata"]["resourceVersion"]) == replica.rev
            seen.append(events)

    assert {kind for events in seen for kind, _, _ in events} == {"ADDED"}
    lists = [{name for _, name, _ in events} for events in seen]
    assert (lists[0] & lists[1], lists[0] | lists[1]) == (set(), made)


async def test_a_lost_tail_is_caught_up_from_any_older_state(replica: Replica) -> None:  # LW-153
    """As reflectors start over after a 410: not older than the last revision they knew."""
    await replica.compact()
    query = (
        "resourceVersion=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        "&allowWatchBookmarks=1"
    )
    async with watching(replica, query) as stream:
        events = await stream.events(13)

    assert events[-1]["object"]["metadata"]["annotations"] == INITIAL_END


async def test_a_skipped_number_is_never_bookmarked_away(replica: Replica) -> None:  # LW-124
    """The client saw lost history: only a 410 at its next start makes it forget that."""
    skipped = replica.rev + 3
    query = f"resourceVersion={skipped}&allowWatchBookmarks=1"
    async with watching(replica, query) as stream:
        await until(lambda: len(replica.app.watches) == 1)
        replica.log.begin_epoch()
        replica.change("example", "train-0-e1", "Failed")
        await replica.caught_up()
        assert await ended(replica, stream)
    async with watching(replica, query) as stream:
        event = await stream.event()

    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_a_right_that_goes_while_a_watch_begins_ends_it(replica: Replica) -> None:  # AS-054
    async with replica.alice.open("GET", f"{N}?watch=1&resourceVersion={replica.rev + 9}") as one:
        # the wait for a state that is not there yet is a start that takes its time
        query = (
            f"resourceVersion={replica.rev + 1}&sendInitialEvents=true"
            "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
        )
        async with replica.alice.open("GET", f"{N}?watch=1&{query}") as beginning:
            replica.tables.remove_member("example", "user", "alice")
            assert await ended(replica, one)
            replica.change("example", "train-0-e1", "Failed")
            assert await ended(replica, beginning)  # not one object was shown


async def test_a_start_that_is_cut_short_sends_nothing_later(replica: Replica) -> None:  # LW-134
    """Whoever resumes from the last revision seen must find all that was not sent above it."""
    for number in range(600):
        replica.add("example", f"many-{number}-e1")
    async with watching(replica, "allowWatchBookmarks=1") as stream:
        first = [short(await stream.event())]
        replica.change("example", "train-0-e1", "Failed")
        replica.app.watches.allowed = lambda _user, _info: False
        replica.app.watches.judge()
        while (event := await stream.event()) is not None:
            first.append(short(event))
    replica.app.watches.allowed = lambda _user, _info: True

    assert {kind for kind, _, _ in first} == {"ADDED"}
    assert len(first) < 612
    revs = [rev for _, _, rev in first]
    assert revs == sorted(revs)
    assert revs[-1] < replica.rev
