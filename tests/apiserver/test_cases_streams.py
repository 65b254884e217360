"""The conformance cases of list-watch.md that change something or go on, over TLS.

The numbers are those of the specification. The server's clock is moved by hand, so that nothing
waits for real seconds.
"""

import asyncio
import gzip
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import START, A, N, T
from tests.apiserver.raw import connected, request
from tests.apiserver.serving import QUICK, served
from tests.apiserver.wire import Lines, Wire, meta, names, refusal_of, short
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions
from nodus_api.clock import ManualClock
from nodus_api.tasks import end, spawn

RV, MATCH, INITIAL = "resourceVersion", "resourceVersionMatch", "sendInitialEvents"
BOOKMARKS = {"allowWatchBookmarks": "1"}
STREAMING = {INITIAL: "true", MATCH: "NotOlderThan"}
END_MARK = {"k8s.io/initial-events-end": "true"}


@pytest.fixture
async def wire(certificates: Path) -> AsyncIterator[Wire]:
    options = ServerOptions(
        public_url="https://nodus.test",
        shutdown_delay=timedelta(0),
        shutdown_watch_grace=timedelta(0),
    )
    async with served(certificates, options, clock=ManualClock(START)) as one:
        yield Wire(one)


async def passing(wire: Wire, seconds: float, lines: Lines) -> list[str]:
    """Let time pass and return what the stream says until its clean end."""
    ticking = spawn("time", wire.one.replica.advance(seconds))
    try:
        return await lines.rest()
    finally:
        await end(ticking)


async def begun(wire: Wire, count: int = 1) -> None:
    await until(lambda: len(wire.one.replica.app.watches) == count, 30)


# -- lists ----------------------------------------------------------------------------------------


async def test_c20_discovery_needs_no_database(wire: Wire) -> None:  # LW C-20
    wire.one.replica.log.away = True
    got = await wire.ask("/apis/nodus.dev/v1")

    assert got.status_code == 200
    assert got.json()["resources"][0]["verbs"] == ["get", "list", "watch"]


async def test_c36_gzip(wire: Wire) -> None:  # LW C-36
    small = await wire.ask(A, accept_encoding="gzip")
    for number in range(400):
        wire.one.replica.add("bulk", f"n-{number}-e1")
    big = await wire.ask(A, accept_encoding="gzip")
    plain = await wire.ask(A, accept_encoding="identity")
    async with connected(wire.one.port, wire.one.context) as connection:
        raw = await connection.ask(request("GET", A, "Accept-Encoding: gzip"))

    assert "content-encoding" not in small.headers
    assert big.headers["content-encoding"] == "gzip"
    assert len(plain.content) > 131_072
    assert big.json() == plain.json()
    assert len(gzip.decompress(raw.body)) == len(orjson.dumps(big.json())) + 1


@pytest.mark.parametrize("value", ["", "banana", "TRUE", "1", "FALSE", "0"])
async def test_c39_what_watches(wire: Wire, value: str) -> None:  # LW C-39
    async with wire.watch({"watch": value}) as lines:
        first = orjson.loads(await lines.line()) if value not in ("FALSE", "0") else None
    listed = await wire.ask(N, {"watch": value}) if first is None else None

    assert first is None or first["type"] == "ADDED"
    assert listed is None or listed.json()["kind"] == "AttemptList"


async def test_c41_pages_show_one_state(wire: Wire) -> None:  # LW C-41
    replica = wire.one.replica
    before = await wire.ask()
    page = await wire.ask(N, {"limit": "5"})
    replica.delete("example", names(before)[6])
    replica.change("example", names(before)[7], "Failed")
    replica.add("example", "zz-0-e1")
    items, revs = page.json()["items"], {meta(page)[RV]}
    while "continue" in meta(page):
        page = await wire.ask(N, {"limit": "5", "continue": meta(page)["continue"]})
        items += page.json()["items"]
        revs.add(meta(page)[RV])

    assert items == before.json()["items"]
    assert revs == {meta(before)[RV]}
    assert set(meta(page)) == {RV}


@pytest.mark.parametrize(("query", "count"), [({"limit": "5"}, 5), ({MATCH: "Exact"}, 12)])
async def test_c44_c45_an_exact_state(
    wire: Wire, query: dict[str, str], count: int
) -> None:  # LW C-44, LW C-45
    before = await wire.ask()
    rev = meta(before)[RV]
    wire.one.replica.delete("example", "fit-0-e1")
    wire.one.replica.change("example", "train-1-e1", "Running")
    got = await wire.ask(N, query | {RV: rev})

    assert meta(got)[RV] == rev
    assert got.json()["items"] == before.json()["items"][:count]


async def test_c46_c47_what_is_compacted(wire: Wire) -> None:  # LW C-46, LW C-47, LW-192
    await wire.one.replica.compact()
    exact = await wire.refusal(N, {RV: "1", MATCH: "Exact"})
    newest = await wire.ask(N, {RV: "1"})

    assert exact == (410, "Expired", "The resourceVersion for the provided list is too old.")
    assert (newest.status_code, len(names(newest))) == (200, 12)


async def test_c53_a_version_of_the_future(wire: Wire) -> None:  # LW C-53
    rev = wire.one.replica.rev
    asking = spawn("list", wire.ask(N, {RV: str(rev + 1_000_000)}))
    await until(lambda: wire.one.replica.app.in_flight.requests == 1)
    await wire.one.replica.advance(2.75)
    assert not asking.done()
    await wire.one.replica.advance(0.5)
    got = await asking

    said = f"Timeout: Too large resource version: {rev + 1_000_000}, current: {rev}"
    assert refusal_of(got) == (504, "Timeout", said)
    assert got.json()["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    assert got.headers["retry-after"] == "1"


async def test_c55_expired_and_changed_tokens(wire: Wire) -> None:  # LW C-55, LW-115
    replica = wire.one.replica
    token = meta(await wire.ask(N, {"limit": "5"}))["continue"]
    replica.change("example", "train-0-e1", "Failed")
    changed = [
        await wire.refusal(N, {"limit": "5", "continue": token[:at] + "x" + token[at + 1 :]})
        for at in range(0, len(token), 9)
        if token[at] != "x"
    ]
    elsewhere = await wire.refusal(A, {"limit": "5", "continue": token})
    larger = await wire.ask(N, {"limit": "50", "continue": token})
    await replica.compact()
    expired = await wire.ask(N, {"limit": "5", "continue": token})
    fresh = await wire.ask(N, {"limit": "5", "continue": meta(expired)["continue"]})

    prefix = "invalid continue token: continue key is not valid: "
    for code, reason, said in [*changed, elsewhere]:
        assert (code, reason, said.startswith(prefix)) == (400, "BadRequest", True)
    assert elsewhere[2] == f"{prefix}checksum"
    assert len(names(larger)) == 7  # LW-116: another limit is fine
    assert refusal_of(expired)[:2] == (410, "Expired")
    assert "in the response" not in refusal_of(expired)[2]
    assert (fresh.status_code, names(fresh)) == (200, names(larger)[:5])
    assert meta(fresh)[RV] == str(replica.rev)


# -- watches --------------------------------------------------------------------------------------


async def test_c64_c65_changes_one_line_each(wire: Wire) -> None:  # LW C-64, LW C-65
    replica = wire.one.replica
    async with wire.watch({RV: str(replica.rev)}) as lines:
        headers = lines.response.headers  # they came before there was any change
        changed = replica.change("example", "train-0-e1", "Failed")
        gone = replica.delete("example", "train-0-e1")
        events = await lines.events(2)

    assert headers["transfer-encoding"] == "chunked"
    assert headers["content-type"] == "application/json"
    assert [short(event) for event in events] == [
        ("MODIFIED", "train-0-e1", changed),
        ("DELETED", "train-0-e1", gone),
    ]


async def test_c66_the_state_first(wire: Wire) -> None:  # LW C-66, LW-134; field case B03
    replica = wire.one.replica
    for name in ("fit-3-e1", "train-1-e1", "fit-0-e1", "fit-7-e1"):
        replica.change("example", name, "Failed")
    await replica.caught_up()
    async with wire.watch() as lines:
        events = [short(event) for event in await lines.events(12)]
        cut = events[7][2]
        rev = replica.change("example", "train-2-e1", "Running")
        assert short(await lines.event()) == ("MODIFIED", "train-2-e1", rev)
    async with wire.watch({RV: str(cut)}) as lines:
        resumed = [short(event) for event in await lines.events(5)]

    assert {kind for kind, _, _ in events} == {"ADDED"}
    assert [rev for _, _, rev in events] == sorted(rev for _, _, rev in events)
    # whoever resumes from the last one seen gets all that came later, and nothing twice
    assert [rev for _, _, rev in resumed] == [*(rev for _, _, rev in events[8:]), rev]


async def test_c67_the_end_of_the_state(wire: Wire) -> None:  # LW C-67
    """Field case A01: the mark, with a resourceVersion, or a client's cache never syncs."""
    async with wire.watch({RV: "0"} | BOOKMARKS) as lines:
        events = await lines.events(13)
        rev = wire.one.replica.change("example", "train-0-e1", "Failed")
        live = await lines.event()

    assert [event["type"] for event in events] == ["ADDED"] * 12 + ["BOOKMARK"]
    assert events[-1]["object"]["metadata"]["annotations"] == END_MARK
    assert short(live) == ("MODIFIED", "train-0-e1", rev)


@pytest.mark.parametrize("target", [N, "/apis/nodus.dev/v1/namespaces/ghost/attempts"])
async def test_c68_an_empty_state(wire: Wire, target: str) -> None:  # LW C-68; field case A01
    query = STREAMING | {"allowWatchBookmarks": "true", "fieldSelector": "metadata.name=nope"}
    async with wire.watch(query, target=target) as lines:
        assert await lines.event() == {
            "type": "BOOKMARK",
            "object": {
                "kind": "Attempt",
                "apiVersion": "nodus.dev/v1",
                "metadata": {RV: str(wire.one.replica.rev), "annotations": END_MARK},
            },
        }


async def test_c70_only_what_comes_later(wire: Wire) -> None:  # LW C-70
    replica = wire.one.replica
    query = {RV: str(replica.rev), INITIAL: "false", MATCH: "NotOlderThan"}
    async with wire.watch(query) as lines:
        rev = replica.change("example", "train-0-e1", "Failed")
        assert short(await lines.event()) == ("MODIFIED", "train-0-e1", rev)


@pytest.mark.parametrize("accept", ["*/*", T])
async def test_c71_c78_a_start_that_is_compacted(wire: Wire, accept: str) -> None:
    """LW C-71, LW C-78, LW-192; field case A29: one event, the error, and the clean end."""
    await wire.one.replica.compact()
    async with wire.watch({RV: "1"}, accept=accept) as lines:
        event = await lines.event()
        assert await passing(wire, 2, lines) == []

    status = event["object"]
    assert (event["type"], status["kind"], status["apiVersion"]) == ("ERROR", "Status", "v1")
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == f"too old resource version: 1 ({wire.one.replica.rev})"
    assert status["requestId"] == lines.response.headers["audit-id"]


async def test_c72_a_start_in_the_future(wire: Wire) -> None:  # LW C-72
    query = {RV: str(wire.one.replica.rev + 1_000_000), "timeoutSeconds": "5"}
    async with wire.watch(query) as lines:
        await begun(wire)
        wire.one.replica.change("example", "train-0-e1", "Failed")
        assert await passing(wire, 6, lines) == []


async def test_c73_a_state_of_the_future(wire: Wire) -> None:  # LW C-73
    query = {RV: str(wire.one.replica.rev + 1_000_000)} | STREAMING
    async with wire.watch(query) as lines:
        [line] = await passing(wire, 5, lines)

    event = orjson.loads(line)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_c74_c75_leaving_and_entering_a_selector(wire: Wire) -> None:
    """LW C-74, LW C-75; field case B18: DELETED with the old state at the change's version."""
    replica = wire.one.replica
    query = {RV: str(replica.rev), "fieldSelector": "status.phase=Running"}
    async with wire.watch(query) as lines:
        left = replica.change("example", "train-0-e1", "Failed")
        came = replica.change("example", "train-1-e1", "Running")
        stayed = replica.change("example", "train-1-e1", "Running", **{"status.reason": "x"})
        events = await lines.events(3)

    assert [short(event) for event in events] == [
        ("DELETED", "train-0-e1", left),
        ("ADDED", "train-1-e1", came),
        ("MODIFIED", "train-1-e1", stayed),
    ]
    assert events[0]["object"]["status"]["phase"] == "Running"


async def test_c76_a_bookmark_before_the_end(wire: Wire) -> None:  # LW C-76
    replica = wire.one.replica
    query = {RV: str(replica.rev), "timeoutSeconds": "10"} | BOOKMARKS
    async with wire.watch(query) as lines:
        await begun(wire)
        rev = replica.change("other", "scan-0-e1", "Failed")
        await replica.caught_up()
        [line] = await passing(wire, 11, lines)

    assert orjson.loads(line) == {
        "type": "BOOKMARK",
        "object": {"kind": "Attempt", "apiVersion": "nodus.dev/v1", "metadata": {RV: str(rev)}},
    }


async def test_c77_a_watch_of_tables(wire: Wire) -> None:  # LW C-77
    async with wire.watch(accept=T) as lines:
        tables = [(await lines.event())["object"] for _ in range(12)]

    assert len(tables[0]["columnDefinitions"]) == 17
    assert [table["columnDefinitions"] for table in tables[1:]] == [None] * 11
    assert [len(table["rows"]) for table in tables] == [1] * 12
    assert {len(table["rows"][0]["cells"]) for table in tables} == {17}


async def test_c86_shards_of_a_watch(wire: Wire) -> None:  # LW C-86
    replica, half = wire.one.replica, "0x8000000000000000"
    texts = [
        f"shardRange(object.metadata.uid,'{low}','{high}')"
        for low, high in (("0x0000000000000000", half), (half, "0x10000000000000000"))
    ]
    made = {f"made-{number}-e1" for number in range(100)}
    seen: list[set[str]] = [set(), set()]
    async with AsyncExitStack() as held:
        streams = [
            await held.enter_async_context(
                wire.watch({RV: str(replica.rev), "shardSelector": text, "timeoutSeconds": "60"})
            )
            for text in texts
        ]
        await begun(wire, 2)
        for name in sorted(made):
            replica.add("example", name)
        await replica.caught_up()
        for lines, found in zip(streams, seen, strict=True):
            for line in await passing(wire, 61, lines):
                kind, name, _ = short(orjson.loads(line))
                assert (kind, name in found) == ("ADDED", False)
                found.add(name)

    assert seen[0] | seen[1] == made
    assert not seen[0] & seen[1]


async def test_an_event_of_any_size_comes_whole(wire: Wire) -> None:  # LW-129
    """A line longer than a chunk is split, and nothing waits for more to come."""
    replica = wire.one.replica
    async with wire.watch({RV: str(replica.rev)}) as lines:
        for size in (10, 70_000, 300_000, 10):
            replica.change("example", "train-0-e1", "Failed", **{"status.reason": "y" * size})
            event = await lines.event()
            assert event["object"]["status"]["reason"] == "y" * size


async def test_how_reflectors_start(wire: Wire) -> None:  # LW-152, LW-126, LW-040
    """A stream with the state first; where that fails, any cached list and a watch from it."""
    replica = wire.one.replica
    query = STREAMING | {"allowWatchBookmarks": "true", "timeoutSeconds": "300"}
    async with wire.watch(query) as lines:
        *added, mark = await lines.events(13)
    listed = await wire.ask(N, {RV: "0", "limit": "500"})
    async with wire.watch({RV: meta(listed)[RV], "timeoutSeconds": "300"} | BOOKMARKS) as lines:
        rev = replica.change("example", "train-0-e1", "Failed")
        later = await lines.event()

    assert mark["object"]["metadata"]["annotations"] == END_MARK
    stored = {one["object"]["metadata"]["name"]: one["object"] for one in added}
    assert [stored[name] for name in sorted(stored)] == listed.json()["items"]
    assert set(meta(listed)) == {RV}
    assert short(later) == ("MODIFIED", "train-0-e1", rev)


@pytest.mark.parametrize("target", [N, A, "/api/v1/namespaces"])
@pytest.mark.parametrize("form", ["", "Table", "PartialObjectMetadata"])
async def test_no_form_of_a_start_leaves_the_mark_out(
    wire: Wire, target: str, form: str
) -> None:  # LW-126
    accept = f"application/json;as={form};g=meta.k8s.io;v=v1" if form else "application/json"
    async with wire.watch(STREAMING | BOOKMARKS, target=target, accept=accept) as lines:
        while (event := await lines.event())["type"] != "BOOKMARK":
            assert event["type"] == "ADDED"
        shown = event["object"]
        if form == "Table":
            shown = shown["rows"][0]["object"]
        assert shown["metadata"]["annotations"] == END_MARK


async def test_overload_is_a_429_from_which_watches_go_on(certificates: Path) -> None:
    """LW-154: no list is needed, since the watch goes on from the same version."""
    options = ServerOptions(max_watches_per_user=1, shutdown_delay=timedelta(0))
    async with served(certificates, options, clock=ManualClock(START)) as one:
        wire, replica = Wire(one), one.replica
        query = {RV: str(replica.rev)}
        async with wire.watch(query):
            await begun(wire)
            got = await wire.ask(N, query | {"watch": "1"})
        await begun(wire, 0)
        rev = replica.change("example", "train-0-e1", "Failed")
        async with wire.watch(query) as lines:
            assert short(await lines.event()) == ("MODIFIED", "train-0-e1", rev)

    assert refusal_of(got)[:2] == (429, "TooManyRequests")
    assert got.headers["retry-after"] == str(got.json()["details"]["retryAfterSeconds"]) == "5"


# -- servers that come and go ---------------------------------------------------------------------


async def follow(wire: Wire, since: int, until_rev: int, seen: list[tuple[str, str, int]]) -> int:
    """Watch from a version until the stream ends, or all is seen; return the last version."""
    async with wire.watch({RV: str(since)}) as lines:
        while since < until_rev:
            try:
                event = short(await lines.event())
            except StopAsyncIteration:
                return since
            seen.append(event)
            since = event[2]
    return since


@pytest.mark.slow  # 100 TLS connections
async def test_c87_a_restart_under_fifty_watchers(certificates: Path) -> None:
    """LW C-87, LW-135, LW-147: clean ends over the grace period, and nobody misses a change."""
    options = ServerOptions(
        shutdown_delay=timedelta(0), shutdown_watch_grace=timedelta(seconds=0.5)
    )
    seen: list[list[tuple[str, str, int]]] = [[] for _ in range(50)]
    async with served(certificates, options) as one:
        replica, port, start = one.replica, one.port, one.replica.rev
        followers = [spawn("watch", follow(Wire(one), start, 2**62, found)) for found in seen]
        await until(lambda: len(replica.app.watches) == 50, 30)
        for phase in ("Failed", "Running"):
            replica.change("example", "train-0-e1", phase)
        one.server.begin_drain()
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        for follower in followers:
            follower.add_done_callback(lambda _: ended.append(loop.time()))
        replica.change("example", "train-0-e1", "Failed")
        last = await asyncio.gather(*followers)  # one that was cut off would raise
        await one.serving
        log = replica.log
    uid = next(iter(log.stored))
    while_down = log.commit(("M", uid, "example", "train-0-e1", {}, {}))[0]
    async with served(certificates, options, log=log, port=port) as again:
        wire = Wire(again)
        await asyncio.gather(
            *(follow(wire, rev, while_down, found) for rev, found in zip(last, seen, strict=True))
        )

    assert max(ended) - min(ended) > 0.1  # spread, not all at once
    expected = list(range(start + 1, while_down + 1))
    assert [[rev for _, _, rev in found] for found in seen] == [expected] * 50


async def test_c92_replicas_in_turn(certificates: Path) -> None:
    """LW C-92, LW-135: never an older state, whoever answers, and no 5xx but that of LW-103."""
    async with AsyncExitStack() as held:
        first = await held.enter_async_context(served(certificates, QUICK))
        replica = first.replica
        others = [
            await held.enter_async_context(served(certificates, QUICK, log=replica.log))
            for _ in range(2)
        ]
        writing = spawn("writes", write(replica))
        latest = 0
        try:
            for wire in itertools.islice(itertools.cycle(map(Wire, (first, *others))), 15):
                got = await wire.ask(N)
                again = await wire.ask(N, {RV: meta(got)[RV]})
                assert (got.status_code, again.status_code) == (200, 200)
                assert latest <= int(meta(got)[RV]) <= int(meta(again)[RV])
                latest = int(meta(again)[RV])
        finally:
            await end(writing)
        token, pages = "", []
        for wire in map(Wire, (others[0], first, others[1])):
            page = await wire.ask(N, {"limit": "5", "continue": token} if token else {"limit": "5"})
            token = meta(page).get("continue", "")
            pages += names(page)
        whole = names(await Wire(first).ask(N))

    assert pages == whole  # a token is good on any replica (LW-109)


async def write(replica: Any) -> None:
    for number in itertools.count():
        replica.change("example", "train-0-e1", ("Failed", "Running")[number % 2])
        await asyncio.sleep(0.01)


async def test_a_right_is_judged_before_a_stream(wire: Wire) -> None:  # field case B20
    replica = wire.one.replica
    alice: Any = {"authorization": replica.alice._headers["authorization"]}
    refused = await wire.ask(
        "/apis/nodus.dev/v1/namespaces/other/attempts", {"watch": "1"}, **alice
    )
    async with wire.watch(
        BOOKMARKS, target="/apis/nodus.dev/v1/namespaces/nowhere/attempts"
    ) as lines:
        event = await lines.event()

    assert refusal_of(refused)[:2] == (403, "Forbidden")
    assert event["type"] == "BOOKMARK"
