"""Bodies, framing and targets that the plain sweep does not send; each answer is whole, none hangs.

Where the framing itself is in doubt the connection must close, or what follows would be read as
the next request (LW-193, LW-201, AS-036).
"""

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.apiserver.conftest import ADMIN, A, N
from tests.apiserver.raw import PATIENCE, Answer, Connection, connected, request
from tests.apiserver.serving import Served, served
from tests.apiserver.test_sweep import PATHS, QUICK, REVIEW, V1, sweep, whole

WRITES = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND")
REVIEW_BODY = b'{"spec":{"nonResourceAttributes":{"path":"/apis","verb":"get"}}}'
JSON = "Content-Type: application/json"


CHUNKED = b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
async def one(certificates: Path) -> AsyncIterator[Served]:
    async with served(certificates, QUICK) as made:
        yield made


def chunked(*pieces: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(one), extension, one) for one in pieces)
    return body + b"0\r\n" + trailer + b"\r\n"


def with_body(method: str, target: str, *lines: str, body: bytes) -> bytes:
    return request(method, target, *lines) + body


async def told(connection: Connection) -> Answer | None:
    """The next answer, None where the server closed instead."""
    try:
        async with asyncio.timeout(30):
            return await connection.answer()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*WRITES, "GET"])
async def test_a_body_on_every_path(one: Served, method: str) -> None:  # LW-010, LW-062, LW-201
    """It is neither parsed nor in the way of the next request of the connection."""
    few = PATHS[::3]
    requests = []
    for path in few:
        requests += [
            (request(method, path, "Content-Type: text/x", body=b"{"), False),
            (request(method, path, JSON, body=b"x" * 30_000), False),
            (
                with_body(method, path, "Transfer-Encoding: chunked", body=chunked(b"{", b"}")),
                False,
            ),
        ]

    answers = await sweep(one, requests)

    assert len(answers) == 3 * len(few)


REVIEWS = {
    "chunked": (("Transfer-Encoding: chunked",), chunked(REVIEW_BODY[:9], REVIEW_BODY[9:]), 201),
    "by one byte": (
        ("Transfer-Encoding: chunked",), chunked(*(bytes((one,)) for one in REVIEW_BODY)), 201,
    ),
    "with extensions": (
        ("Transfer-Encoding: chunked",), chunked(REVIEW_BODY, extension=b';a="b";c'), 201,
    ),
    "with a trailer": (
        ("Transfer-Encoding: chunked", "Trailer: X"),
        chunked(REVIEW_BODY, trailer=b"X: y\r\n"),
        201,
    ),
    "nothing in it": (("Transfer-Encoding: chunked",), chunked(), 400),
    "too much": (("Transfer-Encoding: chunked",), chunked(*([b"x" * 9000] * 9)), 413),
    "upper case": (("TRANSFER-ENCODING: CHUNKED",), chunked(REVIEW_BODY), 201),
    "packed": (
        ("Content-Encoding: gzip", "Transfer-Encoding: chunked"),
        chunked(gzip.compress(REVIEW_BODY)),
        400,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REVIEWS)
async def test_every_form_of_a_body_that_is_read(one: Served, name: str) -> None:  # LW-023, LW-193
    lines, body, status = REVIEWS[name]

    [got, after] = await sweep(
        one,
        [(with_body("POST", REVIEW, JSON, *lines, body=body), False), (request("GET", N), False)],
    )

    assert got.status == status
    assert after.status == 200


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("POST", N, 405), ("PATCH", f"{N}/x", 405), ("POST", "/nope", 404), ("GET", N, 200)],
)
@pytest.mark.parametrize("length", ["Content-Length: 5", "Transfer-Encoding: chunked"])
async def test_a_body_that_is_waited_for_in_vain(
    one: Served, method: str, target: str, status: int, length: str
) -> None:  # LW-062
    """Whoever expects 100 sends its body only then; the answer comes without it."""
    raw = request(method, target, "Expect: 100-continue", length)
    async with connected(one.port, one.context) as connection:
        got = await connection.ask(raw)

    assert got.status == status
    whole(got)


# -- framing in doubt ------------------------------------------------------------------------------

DOUBTFUL = {
    "both lengths": ("Content-Length: 5", "Transfer-Encoding: chunked"),
    "both lengths, the other way": ("Transfer-Encoding: chunked", "Content-Length: 5"),
    "chunked twice": ("Transfer-Encoding: chunked, chunked",),
    "two encodings": ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    "not chunked at the end": ("Transfer-Encoding: chunked, gzip",),
    "hidden by a blank": ("Transfer-Encoding : chunked",),
    "hidden by a tab": ("Transfer-Encoding:\tx",),
    "two lengths": ("Content-Length: 5", "Content-Length: 6"),
    "a list of lengths": ("Content-Length: 5, 5",),
    "a signed length": ("Content-Length: +5",),
    "a length in hexadecimal": ("Content-Length: 0x5",),
    "a folded header": ("X: a", " b"),
    "a folded length": ("Content-Length:", " 5"),
    "a bare carriage return": ("X: a\rTransfer-Encoding: chunked",),
    "a bare line feed": ("X: a\nContent-Length: 5",),
    "a NUL": ("X: a\x00",),
    "no name": (": a",),
}


@pytest.mark.parametrize("name", DOUBTFUL)
async def test_framing_in_doubt_is_refused_and_nothing_after_it_read(
    one: Served, name: str
) -> None:  # AS-036, LW-201
    hidden = request("GET", "/livez", token=None)
    raw = with_body("POST", N, *DOUBTFUL[name], body=b"0\r\n\r\n" + hidden)
    async with connected(one.port, one.context) as connection, asyncio.timeout(30):
        got = await connection.ask(raw)
        rest = await connection.reader.read()

    assert (got.status, got.closes, rest) == (400, True, b"")
    whole(got)


HOSTS = {
    "none": ((), 400),
    "twice": (("Host: nodus.test", "Host: other.test"), 400),
    "empty": (("Host:",), 200),
    "with a path": (("Host: nodus.test/x",), 400),
    "with a user": (("Host: user@nodus.test",), 400),
    "bytes": (("Host: \xff\xfe",), 400),
    "very long": ((f"Host: {'a' * 10_000}",), 200),
    "a port that is none": (("Host: nodus.test:99999999",), 200),
}


@pytest.mark.parametrize("name", HOSTS)
async def test_every_host(one: Served, name: str) -> None:  # field case E20, LW-201
    lines, status = HOSTS[name]
    head = [f"GET {N} HTTP/1.1", *lines, f"Authorization: Bearer {ADMIN.text}", "", ""]
    async with connected(one.port, one.context) as connection:
        got = await connection.ask("\r\n".join(head).encode("latin-1"))

    assert got.status == status
    whole(got)


# -- many in one write -----------------------------------------------------------------------------


async def test_requests_in_one_write_are_answered_in_order(one: Served) -> None:
    """Errors and bodies among them, and a watch, whose end the later ones wait for."""
    targets = {
        "/apis": 200, "/nope": 404, N: 200, f"{N}/nope": 404, f"{N}?limit=x": 400,
        f"{N}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnone": 200,
        f"{N}?resourceVersionMatch=Exact": 422, "/livez": 200, f"{N}/train-0-e1": 200,
    }  # fmt: skip
    raws = [request("GET", target) for target in targets]
    raws.insert(4, request("POST", N, body=b"{}"))
    raws.insert(7, with_body("PUT", N, "Transfer-Encoding: chunked", body=chunked(b"x")))
    statuses = list(targets.values())
    statuses.insert(4, 405)
    statuses.insert(7, 405)
    async with connected(one.port, one.context) as connection:
        connection.writer.write(b"".join(raws))
        answers = [await told(connection) for _ in raws]

    assert [got.status if got else 0 for got in answers] == statuses
    for got in answers:
        assert got is not None
        whole(got)


@pytest.mark.parametrize("count", [200])
async def test_what_a_client_sends_ahead_has_a_bound(one: Served, count: int) -> None:
    """Each is answered in its turn, however many lie ahead."""
    async with connected(one.port, one.context) as connection:
        connection.writer.write(request("GET", f"{N}/train-0-e1") * count)
        answers = [await told(connection) for _ in range(count)]

    assert {got.status if got else 0 for got in answers} == {200}


# -- targets ---------------------------------------------------------------------------------------

TARGETS = (
    *(f"{N}?{'a&' * 10_000}", f"{N}?{'limit=5&' * 3000}", f"{N}?{'&' * 30_000}"),
    *("/a" * 10_000, f"{N}{'/x' * 10_000}", "/" * 30_000, f"/{'%2e%2e/' * 3000}", "/%41" * 5000),
    *(f"{N}?labelSelector={'a,' * 5000}", f"{N}?labelSelector={'(' * 10_000}"),
    *(f"{N}?labelSelector=a+in+({'b,' * 9000})", f"{N}?fieldSelector={'a%3Db,' * 4000}"),
    *(f"{N}?shardSelector={'(' * 4000}", f"{N}?shardSelector={'!' * 4000}"),
    *(f"{N}?shardSelector={'(' * 2000}1{')' * 2000}", f"{N}?continue={'%FF' * 9000}"),
    *(f"{N}?limit={'9' * 20_000}", f"{N}?resourceVersion={'0' * 20_000}1"),
    f"{N}?timeout={'1' * 9999}s",
    *(f"{N}?watch=1&timeoutSeconds={'0' * 9000}1&fieldSelector=metadata.name%3Dnone",),
    *(f"http://u:p@nodus.test{A}", "http://nodus.test", "https://nodus.test:0/livez", "HTTP://X/"),
    *("ftp://nodus.test/livez", "//nodus.test/livez", "http:/livez", "http:livez", "?", "?a", "#"),
    *("livez", "./livez", "../livez", "\\livez", "/livez\\..", "/livez\x7f"),
    *("/\xc3\x28", "/%c3%28", f"{V1}/namespaces/%c3%28/attempts"),
    *(f"{N}?a=\xc3\x28", f"{N}?%c3%28=1", f"{N}?labelSelector=%c3%28"),
    *(f"{V1}/namespaces/{'a' * 10_000}/attempts", f"{V1}/namespaces/a%00/attempts/b%00"),
)  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "CONNECT", "OPTIONS"])
async def test_every_target(one: Served, method: str) -> None:  # LW-014, LW-193, LW-201
    targets = [t for t in TARGETS if method == "GET" or "watch=1" not in t]

    await sweep(one, [(request(method, target), method == "HEAD") for target in targets])


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /livez HTTP/0.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
        b"\r\n" * 1000 + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\nHost: x\n\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n \r\n\r\n",
        b"GET /livez\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1 \r\nHost: x\r\n\r\n",
        b"GET\t/livez\tHTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nA" + b"\xff" * 100 + b": b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\nHost: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"\xef\xbb\xbfGET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        CHUNKED + b"f" * 18 + b"\r\n",
        CHUNKED + b"-1\r\n\r\n",
        CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:60]),
)
async def test_what_is_hardly_a_request(one: Served, raw: bytes) -> None:  # LW-193, LW-201
    """Told by a Status, or by the end where nothing can be said any more."""
    async with connected(one.port, one.context) as connection:
        connection.writer.write(raw)
        connection.writer.write_eof() if connection.writer.can_write_eof() else None
        got = await told(connection)
    if got is not None:
        whole(got)
    assert (await one.http.get("/livez")).text == "ok"


UPGRADES = {
    "websocket": ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
}


@pytest.mark.parametrize("name", UPGRADES)
async def test_what_comes_right_behind_an_upgrade_is_a_request(
    one: Served, name: str
) -> None:  # LW-149, LW-201
    async with connected(one.port, one.context) as connection:
        connection.writer.write(
            request("GET", N, *UPGRADES[name])
            + request("GET", f"{N}?limit=1", *UPGRADES[name])
            + request("GET", "/apis")[:20]
        )
        connection.writer.write(request("GET", "/apis")[20:])
        async with asyncio.timeout(PATIENCE):
            answers = [await connection.answer() for _ in range(3)]

    assert [got.status for got in answers] == [200, 200, 200]
    assert [got.json()["kind"] for got in answers] == ["AttemptList", "AttemptList", "APIGroupList"]


@pytest.mark.parametrize("name", UPGRADES)
@pytest.mark.parametrize("framing", ["Content-Length: 500", "Transfer-Encoding: chunked"])
async def test_a_body_behind_an_upgrade_is_never_read_as_a_request(
    one: Served, name: str, framing: str
) -> None:  # AS-036
    """The parser does not look for one; so what comes next might be it, or be another request."""
    async with connected(one.port, one.context) as connection:
        got = await connection.ask(request("GET", N, *UPGRADES[name], framing))
        connection.writer.write(request("GET", N))
        async with asyncio.timeout(PATIENCE):
            assert await connection.reader.read() == b""

    assert got.status == 400
    assert got.closes
