"""What broke elsewhere (field-cases.md), tried on this server over TLS; tests name their cases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import ALICE, START, A, N, T, fill, replica_of, running
from tests.apiserver.raw import connected, left_unread, request
from tests.apiserver.serving import Served, served
from tests.apiserver.wire import Wire, meta, names, refusal_of
from tests.history.checking import WIRE, assert_sound
from tests.history.facts import Event, Head, History, Stop, Stream, event_of
from tests.history.modelled import log_of
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions
from nodus_api.clock import ManualClock, SystemClock

V1 = "/apis/nodus.dev/v1"
OPTIONS = ServerOptions(
    public_url="https://nodus.test",
    shutdown_delay=timedelta(0),
    shutdown_watch_grace=timedelta(0),
    stuck_watch_timeout=timedelta(seconds=1),
)
STATIC = ("/apis", "/apis/nodus.dev", V1, "/openapi/v2", "/openapi/v3", "/version", "/livez")


@pytest.fixture
async def one(certificates: Path) -> AsyncIterator[Served]:
    async with served(certificates, OPTIONS, clock=ManualClock(START)) as made:
        yield made


@pytest.fixture
def wire(one: Served) -> Wire:
    return Wire(one)


@pytest.fixture(scope="module")
async def reader(certificates: Path) -> AsyncIterator[Wire]:
    """A client of a server that many tests share, which change nothing there."""
    async with served(certificates, OPTIONS, clock=ManualClock(START)) as made:
        yield Wire(made)


# -- the database is away --------------------------------------------------------------------------


async def test_an_outage_of_the_database(wire: Wire) -> None:  # field case A06
    replica = wire.one.replica
    await wire.ask()
    replica.log.away = True
    for second in range(0, 61, 20):
        for target in STATIC:
            assert (await wire.ask(target)).status_code == 200
        refused, cached = await wire.ask(), await wire.ask(N, {"resourceVersion": "0"})
        assert refusal_of(refused)[:2] == (503, "ServiceUnavailable")
        assert refused.headers["retry-after"] == str(refused.json()["details"]["retryAfterSeconds"])
        assert len(names(cached)) == 12
        assert (await wire.ask("/readyz")).status_code == (200 if second < 30 else 500)
        await replica.advance(20)
    replica.log.away = False
    await replica.advance(5)
    async with asyncio.timeout(30):
        for target in (A, "/readyz"):
            while (await wire.ask(target)).status_code != 200:
                await replica.advance(0.25)


async def test_an_outage_names_nothing_inside(wire: Wire) -> None:  # field case A34
    wire.one.replica.log.away = True
    got = await wire.ask()
    said = f"{got.headers}{got.text}".lower()

    assert got.status_code == 503
    for word in ("postgres", "sql", "asyncpg", "the model", "host=", "5432", ".py", "traceback"):
        assert word not in said


# -- what clients ask ------------------------------------------------------------------------------


async def test_an_idle_watch_says_nothing(wire: Wire) -> None:  # field case A19
    async with wire.watch({"resourceVersion": str(wire.one.replica.rev)}, accept=T) as lines:
        await until(lambda: len(wire.one.replica.app.watches) == 1)
        await wire.one.replica.advance(90)
        rev = wire.one.replica.change("example", "train-0-e1", "Failed")
        first = await lines.event()

    assert first["object"]["metadata"]["resourceVersion"] == str(rev)


@pytest.mark.parametrize("limit", [10, 1, 96, 97, 98])
async def test_pages_of_a_selector(wire: Wire, limit: int) -> None:  # field case A24
    log = wire.one.replica.log
    chosen = {number * 83 % 250 for number in range(97)}
    for number in range(250):
        labels = {"x": "1"} if number in chosen else {}
        uid = next(iter(log.stored)).__class__(int=2**90 + number)
        log.commit(("A", uid, "pages", f"n{number * 7919 % 250:03}-e1", labels, {}))
    query = {"labelSelector": "x=1", "limit": str(limit)}
    target = f"{V1}/namespaces/pages/attempts"
    page = await wire.ask(target, query)
    found, sizes, revs = names(page), [len(names(page))], {meta(page)["resourceVersion"]}
    while token := meta(page).get("continue"):
        assert "remainingItemCount" not in meta(page)
        page = await wire.ask(target, query | {"continue": token})
        found += names(page)
        sizes.append(len(names(page)))
        revs.add(meta(page)["resourceVersion"])

    assert (len(found), len(set(found)), len(revs)) == (97, 97, 1)
    assert found == sorted(found)
    assert sizes[:-1] == [limit] * (len(sizes) - 1)


async def test_old_and_altered_tokens(wire: Wire) -> None:  # field case A26
    token = meta(await wire.ask(N, {"limit": "5"}))["continue"]
    refused = {
        "one byte": {"continue": token[:20] + ("A" if token[20] != "A" else "B") + token[21:]},
        "a version": {"continue": token, "resourceVersion": "5"},
        "a selector": {"continue": token, "labelSelector": "a"},
        "3 KB": {"continue": token * 20},
    }
    for query in refused.values():
        assert (await wire.refusal(N, query))[:2] == (400, "BadRequest")
    assert len(names(await wire.ask(N, {"limit": "50", "continue": token}))) == 7
    assert len(names(await wire.ask(N, {"limit": "5", "continue": ""}))) == 5
    async with connected(wire.one.port, wire.one.context) as connection:
        huge = await connection.ask(request("GET", f"{N}?continue={'x' * 1_000_000}"))
    assert (huge.status, huge.json()["reason"]) == (431, "RequestEntityTooLarge")
    wire.one.replica.change("example", "train-0-e1", "Failed")
    await wire.one.replica.compact()
    pruned = await wire.ask(N, {"limit": "5", "continue": token})
    assert refusal_of(pruned)[:2] == (410, "Expired")
    assert len(names(await wire.ask(N, {"continue": meta(pruned)["continue"]}))) == 7


async def test_documents_in_json_or_not_at_all(reader: Wire) -> None:  # field case A09
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    index = (await reader.ask("/openapi/v3")).json()["paths"]
    urls = [path["serverRelativeURL"] for path in index.values()]
    assert urls
    for target in ("/openapi/v2", "/openapi/v3", *urls):
        found = await reader.ask(target, accept="application/json")
        both = await reader.ask(target, accept=f"{protobuf},application/json")
        again = await reader.ask(target, if_none_match=found.headers["etag"])
        assert (await reader.refusal(target, accept=protobuf))[:2] == (406, "NotAcceptable")
        assert found.headers["content-type"] == both.headers["content-type"] == "application/json"
        assert found.json() == both.json()
        assert (again.status_code, again.content) == (304, b"")


async def test_metadata_alone_for_who_prefers_protobuf(wire: Wire) -> None:  # field case A16
    def accept(kind: str) -> str:
        form = f"as={kind};g=meta.k8s.io;v=v1"
        return (
            f"application/vnd.kubernetes.protobuf;{form},application/json;{form},application/json"
        )

    listed = await wire.ask(N, {"limit": "5"}, accept=accept("PartialObjectMetadataList"))
    rest = await wire.ask(
        N,
        {"limit": "50", "continue": meta(listed)["continue"]},
        accept=accept("PartialObjectMetadataList"),
    )
    one = await wire.ask(f"{N}/train-0-e1", accept=accept("PartialObjectMetadata"))
    async with wire.watch({}, accept=accept("PartialObjectMetadata")) as lines:
        events = await lines.events(12)

    assert listed.headers["content-type"] == "application/json"
    assert listed.json()["kind"] == "PartialObjectMetadataList"
    items = [*listed.json()["items"], *rest.json()["items"]]
    objects = [*items, one.json(), *(event["object"] for event in events)]
    assert len(items) == 12
    for found in objects:
        assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert sorted(found) == ["apiVersion", "kind", "metadata"]


@pytest.mark.parametrize(
    "target",
    [*STATIC, "/api", "/api/v1", "/api/v1/namespaces", "/healthz", "/docs/errors", N, A,
     f"{N}/train-0-e1", f"{N}/nope"],
)  # fmt: skip
async def test_a_final_slash(reader: Wire, target: str) -> None:  # field case A31
    plain, slashed = await reader.ask(target), await reader.ask(f"{target}/")

    assert plain.status_code == slashed.status_code == (404 if target.endswith("nope") else 200)
    if plain.status_code == 200:
        assert plain.content == slashed.content


@pytest.mark.parametrize(
    "target",
    ["/api/v1/namespaces/demo/events", "/apis/apps/v1", "/apis/nodus.dev/v2", "/", "/favicon.ico",
     f"{V1}/namespaces/demo/pods"],
)  # fmt: skip
async def test_paths_of_others(reader: Wire, target: str) -> None:  # field case A36
    assert (await reader.refusal(target))[:2] == (404, "NotFound")
    assert (await reader.refusal(target, authorization=""))[0] == 401


async def test_what_needs_no_credential(wire: Wire) -> None:  # field case A36
    assert (await wire.ask("/healthz", authorization="")).text == "ok"
    assert (await wire.refusal("/metrics", authorization=""))[0] == 401
    alice = f"Bearer {ALICE.text}"
    assert (await wire.refusal("/metrics", authorization=alice))[0] == 403


# -- slow and stopped readers ----------------------------------------------------------------------


async def large(one: Served) -> None:
    for number in range(300):
        one.replica.add("example", f"n-{number}-e1", **{"status.reason": "y" * 10_000})
    await one.replica.caught_up()


async def test_a_slow_reader_gets_one_document(certificates: Path) -> None:  # field case A39
    options = ServerOptions(shutdown_delay=timedelta(0))
    async with served(certificates, options) as one, AsyncExitStack() as held:
        await large(one)
        readers = [
            await held.enter_async_context(connected(one.port, one.context)) for _ in range(3)
        ]
        for reader in readers:
            reader.writer.write(request("GET", N))
        sizes = [int((await reader.head()).header("content-length")) for reader in readers]
        bodies = [b"" for _ in readers]
        async with asyncio.timeout(60):
            while any(len(body) < size for body, size in zip(bodies, sizes, strict=True)):
                for at, reader in enumerate(readers):
                    bodies[at] += await reader.reader.read(min(2**18, sizes[at] - len(bodies[at])))
                small = await one.http.get(f"{N}/train-0-e1")  # nobody else waits
                assert small.status_code == 200

    for body in bodies:
        assert len(orjson.loads(body)["items"]) == 312


async def test_a_reader_that_takes_too_long_is_cut_off() -> None:
    """Field case A39: its body has no end, and above all no second document in it."""
    replica = replica_of(options=ServerOptions(request_timeout=timedelta(seconds=0.2)))
    fill(replica)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 2:
            await asyncio.Event().wait()  # the client reads no further

    async with running(replica):
        scope = replica.admin._scope("GET", N, None)
        async with asyncio.timeout(30):
            await replica.app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]

    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert replica.admin.aborts == 1


@pytest.mark.slow  # a stopped reader is given a second before it is cut off
async def test_a_stopped_watcher_hinders_nobody(certificates: Path) -> None:  # field case C02
    """H-21, H-03; the machine may be slow, so others have seconds where 250 ms are meant."""
    clock = SystemClock()
    heads: list[Head] = []
    seen: list[list[Event]] = [[] for _ in range(10)]
    async with served(certificates, OPTIONS) as one, AsyncExitStack() as held:
        wire, replica = Wire(one), one.replica
        start = replica.rev
        raw = request("GET", f"{N}?watch=1&resourceVersion={start}")
        held.enter_context(await asyncio.to_thread(left_unread, one, raw))
        await until(lambda: len(replica.app.watches) == 1, 30)
        [stopped] = one.server.server_state.connections
        healthy = [
            await held.enter_async_context(wire.watch({"resourceVersion": str(start)}))
            for _ in seen
        ]
        buffered, rev = 0, start
        since = asked = clock.now()
        heads.append(Head(asked=since, answered=since, rev=start))
        async with asyncio.timeout(60):
            while replica.app.metrics.terminated_watchers == 0:
                buffered = max(buffered, stopped.transport.get_write_buffer_size())
                rev = replica.change(
                    "example", "train-0-e1", "Running", **{"status.reason": "y" * 100_000}
                )
                heads.append(Head(asked=clock.now(), answered=clock.now(), rev=rev))
                for lines, events in zip(healthy, seen, strict=True):
                    events.append(event_of(f"{await lines.line()}\n".encode(), clock.now()))
                await asyncio.sleep(0.03)  # some megabytes until then, not all that can be
        until_then = clock.now()
        async with wire.watch({"resourceVersion": str(start)}) as lines:
            resumed = [
                event_of(f"{await lines.line()}\n".encode(), clock.now())
                for _ in range(rev - start)
            ]

    def stream(client: str, at: datetime, events: list[Event]) -> Stream:
        target = f"{N}?watch=1&resourceVersion={start}"
        return Stream(client=client, target=target, asked=at, events=tuple(events), ending="left")

    assert buffered < 2**20  # no queue: what is not taken stays in the history
    assert [one.rev for one in resumed] == list(range(start + 1, rev + 1))
    assert_sound(
        History(
            log=log_of(replica.log, since),
            streams=(
                *(stream(f"healthy-{n}", asked, events) for n, events in enumerate(seen)),
                stream("stopped", asked, []),
                stream("stopped", until_then, resumed),
            ),
            heads=tuple(heads),
            stops=(Stop(client="stopped", since=since, until=until_then),),
            isolation=timedelta(seconds=10),
        ),
        WIRE,
    )


# -- what a connection sends -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["query", "header"])
@pytest.mark.parametrize("kilobytes", [8, 14, 34, 60, 66, 70, 200, 300])
async def test_long_urls_and_headers(reader: Wire, where: str, kilobytes: int) -> None:
    """Field case C04: the answer depends on the size, never on how the bytes arrive."""
    text = "x" * kilobytes * 1000
    raw = request("GET", f"{N}?a={text}") if where == "query" else request("GET", N, f"X: {text}")
    answers = []
    for size in (len(raw), 8000):
        async with connected(reader.one.port, reader.one.context) as connection:
            for at in range(0, len(raw), size):
                connection.writer.write(raw[at : at + size])
                await asyncio.sleep(0.002 if size == 8000 else 0)
            async with asyncio.timeout(30):
                answers.append(await connection.answer())

    statuses = {got.status for got in answers}
    if where == "query":
        expected = 200 if kilobytes < 16 else 414 if kilobytes < 256 else 431
    else:
        expected = 200 if kilobytes < 256 else 431
    assert statuses == {expected}
    if expected != 200:
        for got in answers:
            assert got.closes
            assert got.json()["reason"] == "RequestEntityTooLarge"
    assert (await reader.ask("/livez")).text == "ok"


NUMBERS = {  # limit, resourceVersion: the code of each
    "99999999999999999999": (400, 400),
    "9223372036854775808": (400, 504),
    "18446744073709551615": (400, 504),
    "18446744073709551616": (400, 400),
    "-1": (200, 400),
    "+5": (200, 400),
    "%20 7".replace(" ", ""): (400, 400),
    "7%20": (400, 400),
    "1_000": (400, 400),
    "0x10": (400, 400),
    "1.0": (400, 400),
    "1e3": (400, 400),
    "%EF%BC%91%EF%BC%92": (400, 400),
    "%D9%A1": (400, 400),
    "": (400, 200),
    "007": (200, 200),
}


@pytest.mark.parametrize("accept", ["application/json", T])
async def test_numbers_as_go_reads_them(wire: Wire, accept: str) -> None:  # field case C09
    for text, (limit, version) in NUMBERS.items():
        sent = text.replace("+", "%2B")
        got = await wire.ask(f"{N}?limit={sent}", accept=accept)
        assert got.status_code == limit, got.text
        if version == 504:
            asking = asyncio.ensure_future(wire.ask(f"{N}?resourceVersion={sent}", accept=accept))
            await until(lambda: wire.one.replica.app.in_flight.requests == 1)
            await wire.one.replica.advance(3.25)
            got = await asking
        else:
            got = await wire.ask(f"{N}?resourceVersion={sent}", accept=accept)
        assert got.status_code == version, text
        if version != 200:
            refusal_of(got)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (f"{V1}/namespaces/a%00b/attempts", {200, 404}),  # nobody can have made that project
        (f"{N}/a%00b", {404}),
        (f"{N}/a%00b?resourceVersion=0", {404}),
        (f"{N}?labelSelector=a%3D%00", {400}),
        (f"{N}?labelSelector=%00%3Da", {400}),
        (f"{N}?fieldSelector=status.phase%3D%00", {400}),
        (f"{N}?continue=%00", {400}),
        (f"{N}?resourceVersion=%00", {400}),
        (f"{N}?watch=1&resourceVersion=%00", {400}),
        (f"{N}?limit=%00", {400}),
    ],
)
async def test_a_nul_wherever_a_client_may_put_one(
    reader: Wire, target: str, code: set[int], caplog: pytest.LogCaptureFixture
) -> None:  # field case C07
    got = await reader.ask(target)
    assert got.status_code in code
    if got.status_code == 200:
        assert got.json()["items"] == []
    else:
        refusal_of(got)
    assert "Traceback" not in caplog.text


async def test_forwarded_headers_are_believed_of_nobody(wire: Wire) -> None:  # field case C19
    """Limits count the real peer, however it calls itself."""
    codes = [
        (
            await wire.ask(
                authorization="Bearer guess",
                x_forwarded_for=f"10.9.9.{number}",
                forwarded=f"for=10.9.9.{number};proto=http",
                x_forwarded_proto="http",
            )
        ).status_code
        for number in range(23)
    ]

    assert codes[:21] == [401] * 21
    assert set(codes[21:]) == {429}
    assert (await wire.ask("/livez", authorization="")).status_code == 200
