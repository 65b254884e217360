"""The server on a real TLS socket: streams, ends, limits of a connection, the drain."""

import asyncio
import gc
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import orjson
import pytest
from tests.apiserver.conftest import ADMIN, A, N
from tests.apiserver.raw import PATIENCE, connected, left_unread
from tests.apiserver.serving import QUICK, Served, plain, served
from tests.watchcache.conftest import until
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from nodus_api.apiserver.peer import STATE_KEY
from nodus_api.apiserver.protocol import NodusProtocol
from nodus_api.tasks import spawn


def request(target: str, *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    head = [f"{method} {target} HTTP/{version}", "Host: nodus.test",
            f"Authorization: Bearer {ADMIN.text}", *lines]  # fmt: skip
    return ("\r\n".join(head) + "\r\n\r\n").encode()


@pytest.fixture
async def one(certificates: Path) -> AsyncIterator[Served]:
    async with served(certificates) as made:
        yield made


def status_of(raw: bytes) -> tuple[int, dict[str, object]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), orjson.loads(body)


async def test_a_list_over_tls(one: Served) -> None:
    got = await one.http.get(N)

    assert (got.status_code, len(got.json()["items"])) == (200, 12)
    assert got.headers["content-length"] == str(len(got.content))
    assert got.headers.get_list("audit-id") == [got.headers["audit-id"]]
    assert "server" not in got.headers  # AS-038
    assert "date" in got.headers  # LW-059


async def test_a_large_list_is_one_gzip_member(one: Served) -> None:  # LW-057
    for number in range(2000):
        one.replica.add("bulk", f"n-{number}-e1")
    got = await one.http.get(A)

    assert got.headers["content-encoding"] == "gzip"
    assert got.headers["transfer-encoding"] == "chunked"
    assert len(got.json()["items"]) == 2015


async def test_a_watch_streams_and_ends_cleanly(one: Served) -> None:  # LW-127, LW-144
    target = f"{N}?watch=1&resourceVersion={one.replica.rev}&timeoutSeconds=1"
    async with one.http.stream("GET", target) as got:
        lines = got.aiter_lines()
        rev = one.replica.change("example", "train-0-e1", "Failed")
        event = orjson.loads(await anext(lines))
        rest = [line async for line in lines]  # a cut stream would raise

    assert got.headers["transfer-encoding"] == "chunked"
    assert event["object"]["metadata"]["resourceVersion"] == str(rev)
    assert rest == []


async def test_the_headers_of_a_watch_come_at_once(one: Served) -> None:  # LW-121
    async with one.connect() as (reader, writer), asyncio.timeout(2):
        writer.write(request(f"{N}?watch=1&resourceVersion={one.replica.rev}"))
        head = await reader.readuntil(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: application/json\r\n" in head
    await until(lambda: len(one.replica.app.watches) == 0)  # LW-148


async def test_what_was_written_is_sent_at_once(one: Served) -> None:  # LW-129, LW-151
    """Else each answer, and each event of a watch, waits for an acknowledgement of the last.

    And a quiet watch, which has no heartbeat, is kept open by TCP.
    """
    async with one.connect():
        await until(lambda: len(one.server.server_state.connections) == 1)
        [connection] = one.server.server_state.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 30


async def test_a_watch_by_http_1_0_has_no_chunks(one: Served) -> None:  # LW-127
    target = f"{N}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dtrain-0-e1"
    raw = await one.exchange(request(target, version="1.0"))

    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert orjson.loads(body)["type"] == "ADDED"


async def test_a_list_by_http_1_0(one: Served) -> None:
    status, found = status_of(await one.exchange(request(N, version="1.0")))

    assert (status, found["kind"]) == (200, "AttemptList")


async def test_an_upgrade_is_ignored(one: Served) -> None:  # LW-149, AS-010
    raw = await one.exchange(
        request(f"{N}/train-0-e1", "Connection: close, Upgrade", "Upgrade: websocket")
    )

    assert status_of(raw)[0] == 200


async def test_a_watch_by_websocket_is_the_stream(one: Served) -> None:  # LW-149, LW-127
    """All that a browser sends to open one; no message is framed, and the connection goes on."""
    replica = one.replica
    opening = request(
        f"{N}?watch=1&resourceVersion={replica.rev}&timeoutSeconds=2",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YQ, binary.k8s.io",
    )
    async with connected(one.port, one.context) as connection, asyncio.timeout(PATIENCE):
        connection.writer.write(opening)
        head = await connection.head()
        rev = replica.change("example", "train-0-e1", "Succeeded")
        event = await connection.chunk()
        end = await connection.chunk()
        after = await connection.ask(request(f"{N}/train-0-e1"))

    assert (head.status, head.header("content-type")) == (200, "application/json")
    assert head.header("transfer-encoding") == "chunked"
    assert not {b"upgrade", b"sec-websocket-accept"} & head.headers.keys()
    found = orjson.loads(event)
    assert event == orjson.dumps(found) + b"\n"
    assert (found["type"], found["object"]["metadata"]["resourceVersion"]) == ("MODIFIED", str(rev))
    assert end == b""
    assert (after.status, after.json()["status"]["phase"]) == (200, "Succeeded")


async def test_a_connection_is_kept_and_requests_may_be_pipelined(one: Served) -> None:
    first, second = request(f"{N}/train-0-e1"), request(f"{N}/train-1-e1", "Connection: close")
    raw = await one.exchange(first + second)

    assert raw.count(b"HTTP/1.1 200 OK") == 2
    assert raw.index(b'"name":"train-0-e1"') < raw.index(b'"name":"train-1-e1"')


# -- what a connection may not do ------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        request(N, "Content-Length: 1", "Transfer-Encoding: chunked"),  # AS-036
        request(N, "Folded: a\r\n b"),
        request(N, "Name : x"),
    ],
)
async def test_what_is_not_http_is_a_status(one: Served, raw: bytes) -> None:  # LW-201
    status, found = status_of(await one.exchange(raw))

    assert (status, found["reason"], found["status"]) == (400, "BadRequest", "Failure")
    assert found["requestId"]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (request(N, "X: " + "a" * 300_000), 431),
    ],
    ids=["no-http", "no-host", "headers"],
)
async def test_what_is_refused_before_it_is_a_request_is_logged_too(
    one: Served, raw: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:  # LW-202: the requestId that a client reports is found
    with caplog.at_level(logging.INFO):
        status, found = status_of(await one.exchange(raw))

    lines = [vars(record) for record in caplog.records]
    [line] = [line for line in lines if line.get("request_id") == found["requestId"]]
    assert line["code"] == status == code


@pytest.mark.parametrize("method", ["FOO", "get", "X-Y"])
async def test_a_method_that_nobody_knows_is_405(
    one: Served, method: str
) -> None:  # LW-010, LW-202
    raw = f"{method} {N} HTTP/1.1\r\nHost: nodus.test\r\n\r\n".encode()
    answer = await one.exchange(raw)
    status, found = status_of(answer)

    assert (status, found["reason"]) == (405, "MethodNotAllowed")
    assert b"\r\nallow: GET, HEAD\r\n" in answer
    assert "GET or HEAD" in str(found["fix"])


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x02\x00\x01", b"nonsense\r\n\r\n"])
async def test_noise_is_no_method(one: Served, raw: bytes) -> None:  # LW-201
    status, found = status_of(await one.exchange(raw))

    assert status == 400
    assert "method GET or HEAD" in str(found["fix"])


@pytest.mark.parametrize(
    "lines", [["Host: a b"], ["Host: x", "X: " + "a" * 20_000]], ids=["host", "headers"]
)
async def test_what_is_refused_before_it_is_a_request_has_every_header(
    one: Served, lines: list[str]
) -> None:  # LW-059
    head = ["GET /livez HTTP/1.1", "Audit-ID: abc", *lines]
    raw = await one.exchange(("\r\n".join(head) + "\r\n\r\n").encode())

    said = raw.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    assert status_of(raw)[1]["requestId"] == "abc"
    assert [line for line in said if line.startswith("audit-id:")] == ["audit-id: abc"]
    assert {
        "cache-control: no-cache, private",
        "vary: accept, accept-encoding",
        "x-content-type-options: nosniff",
    } <= set(said)
    assert any(line.startswith("date: ") for line in said)


async def test_what_is_no_request_has_no_headers_of_the_one_before(one: Served) -> None:  # LW-059
    async with one.connect() as (reader, writer), asyncio.timeout(5):
        writer.write(request("/livez", "Audit-ID: abc"))
        first = await reader.readuntil(b"\r\n\r\nok")
        writer.write(b"nonsense\r\n\r\n")
        second = await reader.read()

    assert b"audit-id: abc\r\n" in first
    assert status_of(second)[0] == 400
    assert b"audit-id: abc" not in second


@pytest.mark.parametrize(
    ("version", "hosts", "said"),
    [
        ("1.1", [], "missing required Host header"),
        ("1.1", ["nodus.test", "nodus.test"], "too many Host headers"),
        ("1.0", ["nodus.test", "other.test"], "too many Host headers"),
        ("1.1", ["nodus.test/path"], "malformed Host header"),
        ("1.1", ["a b"], "malformed Host header"),
    ],
)
async def test_a_request_names_one_host(
    one: Served, version: str, hosts: list[str], said: str
) -> None:
    """As kube-apiserver, whose server is Go's net/http, in its words (RFC 9112, section 3.2)."""
    lines = [f"GET /livez HTTP/{version}", *(f"Host: {host}" for host in hosts)]
    status, found = status_of(await one.exchange(("\r\n".join(lines) + "\r\n\r\n").encode()))

    assert (status, found["reason"], found["message"]) == (400, "BadRequest", said)
    assert "Host: NAME" in str(found["fix"])
    assert found["requestId"]


@pytest.mark.parametrize(
    ("version", "host"),
    [("1.0", None), ("1.1", ""), ("1.1", "[::1]:8443"), ("1.1", "a_b.%C3%A9:1")],
)
async def test_any_host_that_go_accepts_is_accepted(
    one: Served, version: str, host: str | None
) -> None:
    lines = [f"GET /livez HTTP/{version}", *([] if host is None else [f"Host: {host}"])]
    raw = await one.exchange("\r\n".join([*lines, "Connection: close", "", ""]).encode())

    assert raw.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_connection_that_is_gone_is_asked_nothing(one: Served) -> None:  # LW-148
    """Its transport answers no question any more, and that is no fault to be told of."""
    async with one.connect() as (_, writer):
        writer.write(request(f"{N}?watch=1&resourceVersion={one.replica.rev}"))
        await until(lambda: len(one.replica.app.watches) == 1)
        [connection] = one.server.server_state.connections
        peer = connection.app_state[STATE_KEY]
        before = peer.acknowledged()
    await until(lambda: not one.server.server_state.connections)
    peer.begin_stream()

    assert before is not None
    assert peer.acknowledged() is None
    await until(lambda: len(one.replica.app.watches) == 0)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_header_block_is_bounded(one: Served, ends: bool) -> None:  # AS-089
    raw = request(N, *(f"X-{number}: {'y' * 1000}" for number in range(40)))
    status, found = status_of(await one.exchange(raw if ends else raw[:-4]))

    assert (status, found["reason"]) == (431, "RequestEntityTooLarge")
    assert found["message"] == "Request entity too large: limit is 16384"


@pytest.mark.parametrize(
    "raw",
    [request(f"{N}?{'y' * 40_000}", method="HEAD"), b"HEAD /livez HTTP/1.1\r\n\r\n"],
    ids=["headers", "no-host"],
)
async def test_a_refusal_of_a_head_has_no_body(one: Served, raw: bytes) -> None:  # LW-007, LW-193
    head, _, body = (await one.exchange(raw)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 4")
    assert (content_length(head) > 0, body) == (True, b"")


async def test_headers_that_never_end_are_cut_off(one: Served) -> None:  # AS-090
    async with one.connect() as (reader, writer), asyncio.timeout(3):
        writer.write(b"GET /livez HTTP/1.1\r\nX-Slow: ")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
            await reader.readexactly(1)


async def test_an_idle_connection_may_wait_for_its_next_request(one: Served) -> None:  # AS-011
    async with one.connect() as (reader, writer), asyncio.timeout(5):
        for _ in range(2):
            writer.write(request(f"{N}/train-0-e1"))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            # longer than the time for headers, which counts from a request's first byte
            await asyncio.sleep(0.5)


async def test_a_watcher_that_reads_nothing_is_cut_off(one: Served) -> None:  # AS-093, LW C-88
    replica = one.replica
    target = f"{N}?watch=1&resourceVersion={replica.rev}"
    seen: list[str] = []
    with await asyncio.to_thread(left_unread, one, request(target)):
        async with one.http.stream("GET", target) as other:
            lines = other.aiter_lines()
            async with asyncio.timeout(20):
                while replica.app.metrics.terminated_watchers == 0:
                    replica.change(
                        "example", "train-0-e1", "Running", **{"status.reason": "y" * 200_000}
                    )
                    seen.append(await anext(lines))  # the other one is not delayed
                    await asyncio.sleep(0.02)  # some megabytes until then, not all that can be
    await until(lambda: len(replica.app.watches) == 0)
    async with one.http.stream("GET", target) as again:
        resumed = again.aiter_lines()
        missed = [await anext(resumed) for _ in seen]

    assert len(seen) > 1
    assert missed == seen


HURRIED = replace(
    QUICK,
    stuck_watch_timeout=timedelta(seconds=60),
    stuck_watch_in_the_way_timeout=timedelta(seconds=0.3),
)


@pytest.mark.parametrize(("large", "small"), [(12, 0), (7, 1400)], ids=["bytes", "events"])
async def test_a_watcher_that_much_waits_for_is_cut_off_sooner(
    certificates: Path, large: int, small: int
) -> None:  # AS-093, LW-146
    async with served(certificates, HURRIED) as one:
        target = f"{N}?watch=1&resourceVersion={one.replica.rev}"
        with await asyncio.to_thread(left_unread, one, request(target)):
            for _ in range(large):
                one.replica.change(
                    "example", "train-0-e1", "Running", **{"status.reason": "y" * 200_000}
                )
            for _ in range(small):
                one.replica.change("example", "train-0-e1", "Running")
            await until(lambda: len(one.replica.app.watches) == 0, 30)

        assert one.replica.app.metrics.terminated_watchers == 1


@pytest.mark.parametrize("asked", ["", "&timeoutSeconds=1"], ids=["drain", "timeout"])
async def test_a_watcher_that_reads_nothing_at_its_end_is_cut_off_sooner(
    certificates: Path, asked: str
) -> None:  # LW-144: else it would hold up a server that stops
    async with served(certificates, HURRIED) as one:
        watches = one.replica.app.watches
        target = f"{N}?watch=1&resourceVersion={one.replica.rev}{asked}"
        with await asyncio.to_thread(left_unread, one, request(target)):
            for _ in range(7):  # more than is sent unread; less than a MiB is left
                one.replica.change(
                    "example", "train-0-e1", "Running", **{"status.reason": "y" * 200_000}
                )
            if not asked:
                await asyncio.sleep(0.7)  # twice as long as it would have at its end
                assert (len(watches), one.replica.app.metrics.terminated_watchers) == (1, 0)
                await watches.drain(0)
            await until(lambda: len(watches) == 0, 30)

        assert one.replica.app.metrics.terminated_watchers == 1


async def test_a_watcher_that_reads_slowly_is_not_cut_off() -> None:  # AS-093, LW-146
    """It takes longer for the room that the server waits for than one may stand still."""
    async with plain() as (replica, port):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, request(f"{N}?watch=1&resourceVersion={replica.rev}"))
        await until(lambda: len(replica.app.watches) == 1)
        for _ in range(10):
            replica.change("example", "train-0-e1", "Running", **{"status.reason": "y" * 200_000})
        left = 1_200_000
        async with asyncio.timeout(20):
            while left > 0:
                left -= len(await loop.sock_recv(sock, 4096))
                await asyncio.sleep(0.012)  # at most 340 kB a second: that is what slow means
        cut_off_so_far = replica.app.metrics.terminated_watchers
        sock.close()
        await until(lambda: len(replica.app.watches) == 0)

    assert cut_off_so_far == 0


# -- the end ---------------------------------------------------------------------------------------


async def test_a_signal_drains_and_ends_watches_cleanly(certificates: Path) -> None:  # AS-095
    async with served(certificates) as one:
        target = f"{N}?watch=1&resourceVersion={one.replica.rev}"
        async with one.http.stream("GET", target) as got:
            await until(lambda: len(one.replica.app.watches) == 1)
            signal.raise_signal(signal.SIGTERM)
            rest = [line async for line in got.aiter_lines()]
        async with asyncio.timeout(10):
            await one.serving
        with pytest.raises(httpx.TransportError):
            await one.http.get(N)

    assert rest == []


async def test_a_request_that_runs_is_finished_by_the_drain(certificates: Path) -> None:  # AS-095
    async with served(certificates) as one:
        rev = one.replica.rev + 1
        asking = spawn("list", one.http.get(f"{N}?resourceVersion={rev}"))
        await until(lambda: one.replica.app.in_flight.requests == 1)
        signal.raise_signal(signal.SIGINT)
        await until(lambda: one.replica.app.gate.refusing)
        refused = await one.http.get(N)
        one.replica.change("example", "train-0-e1", "Failed")
        got = await asking

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert (got.status_code, got.json()["metadata"]["resourceVersion"]) == (200, str(rev))


async def test_plain_http_is_served_without_a_context() -> None:
    async with plain() as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        got = await http.get("/livez")

    assert (got.status_code, got.text) == (200, "ok")


@pytest.mark.parametrize(
    "late",
    [b"11000\r\n" + b"x" * 0x11000, b"2\r\nx"],
    ids=["more than the limit", "slower than the time"],
)
async def test_a_body_after_its_answer_is_bounded(one: Served, late: bytes) -> None:  # AS-091
    """A write is answered before its body has come; the rest is not waited for without end."""
    async with one.connect() as (reader, writer), asyncio.timeout(5):
        writer.write(request(N, "Transfer-Encoding: chunked", method="POST"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405 ")
        await reader.readexactly(content_length(head))
        writer.write(late)
        with suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_body_after_its_answer_keeps_the_connection(one: Served) -> None:  # LW-062
    """As kubectl sends it: the body in a record of its own."""
    async with one.connect() as (reader, writer), asyncio.timeout(5):
        for _ in range(2):
            writer.write(request(N, "Content-Length: 2", "Expect: 100-continue", method="POST"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 405 ")
            await reader.readexactly(content_length(head))
            writer.write(b"{}")


def content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length: "):
            return int(line.partition(b": ")[2])
    raise AssertionError(head)


ENDINGS = {
    "a list": request(N, "Connection: close"),
    "a list of a connection kept": request(N),
    "a watch cut off": request(f"{A}?watch=true"),
    "a list of HTTP/1.0": request(N, version="1.0"),
    "a watch of HTTP/1.0": request(f"{A}?watch=true", version="1.0"),
    "what is not found": request("/nothing"),
    "what is no request": b"\x16\x03\x01 noise\r\n\r\n",
    "a header block cut off": b"GET / HTTP/1.1\r\nHost: ",
    "requests at once": request(N) * 2 + request(f"{A}?watch=true") + request(N),
}


def connections_in_memory() -> int:
    return sum(isinstance(one, NodusProtocol | RequestResponseCycle) for one in gc.get_objects())


@pytest.mark.parametrize("name", ENDINGS)
async def test_a_connection_leaves_nothing_for_the_garbage_collector(
    one: Served, name: str
) -> None:
    async def come_and_go() -> None:
        async with one.connect() as (reader, writer), asyncio.timeout(PATIENCE):
            writer.write(ENDINGS[name])
            if not ENDINGS[name].endswith(b"Host: "):
                await reader.readuntil(b"\r\n\r\n")

    await come_and_go()  # what is made once
    gc.collect()
    gc.disable()
    try:
        before = connections_in_memory()
        for _ in range(3):
            await come_and_go()
        await until(lambda: connections_in_memory() <= before)
    finally:
        gc.enable()
