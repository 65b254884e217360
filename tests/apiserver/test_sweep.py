"""No request of any kind is answered by anything but an object or a Status, and none hangs.

Methods, paths, headers and bodies, odd and broken ones among them, go byte by byte over a real TLS
socket (LW-201). What is asked for does not matter here, only that the answer is whole.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests.apiserver.conftest import A, N, T
from tests.apiserver.raw import Answer, Connection, connected, request
from tests.apiserver.serving import Served, served

from nodus_api.apiserver import ServerOptions

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
V1 = "/apis/nodus.dev/v1"
METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"),
    *("PROPFIND", "M-SEARCH", "QUERY", "LINK"),
)
NO_METHODS = ("FOO", "get", "PRI", "G", "GE T", "")
PATHS = (
    *("/", "", "*", "//", "///", "/..", "/.", "/%2e%2e/apis", "/%", "/%00", "/\xe9", "/%ff"),
    *("/api", "/api/", "/api/v1", "/api/v1/namespaces", "/api/v1/namespaces/example"),
    *("/api/v1/namespaces/nope", "/api/v1/namespaces/example/events", "/api/v1/pods"),
    *("/api/v1/namespaces/example/status", "/api/v1/watch", "/api/v1/namespaces/%ed%a0%80"),
    *("/apis", "/apis/", "/apis/nodus.dev", V1, f"{V1}/", "/apis/nodus.dev/v2", "/apis/apps/v1"),
    *(f"{V1}/watch", f"{V1}/watch/x", f"{V1}/namespaces", f"{V1}/namespaces/example"),
    *(f"{V1}/namespaces/example/pods", "/APIS/nodus.dev/v1", "/%61pis", f"{V1};x=1"),
    *("/version", "/livez", "/readyz/", "/livez/ping", "/livez/ping/x", "/healthz", "/metrics"),
    *("/readyz?verbose", "/readyz?exclude=%ff", "/readyz?exclude=%00", "/livez?x=%0d%0aX:1"),
    *("/openapi", "/openapi/v2", "/openapi/v3", f"/openapi/v3{V1}", "/openapi.json", "/docs"),
    *(f"/openapi/v3{V1}?hash=%ff", "/openapi/v3/apis/x", "/redoc", "/favicon.ico"),
    *("/docs/errors", "/docs/errors/", "/docs/errors/NotFound", "/docs/errors/Nope"),
    *("/docs/errors/%00", "/docs/errors/<script>", REVIEW, f"{REVIEW}/x"),
    *(f"http://other.test:1{N}", "https://other.test", "nodus.test:443", f"{N}#frag"),
    *(A, N, f"{N}/", f"//{N}", f"{N}//x", f"{N}/.", f"{N}/..", f"{N}/%2e%2e", f"{N}/a%2Fb"),
    *(f"{N}/train-0-e1", f"{N}/nope", f"{N}/train-0-e1/status", f"{N}/a%00b", f"{N}/a%25"),
    *(f"{N}/%", f"{N}/%zz", f"{N}/%ff", f"{N}/%ed%a0%80", f"{N}/{'a' * 300}", f"{N}/\xe9"),
    *(f"{N}/a;x=1", f"{N}/a b", f"{N}/a\tb", f"{V1}/namespaces/%00/attempts"),
    *(f"{N}?", f"{N}??", f"{N}?&&&", f"{N}?=", f"{N}?%", f"{N}?limit=%zz", f"{N}?limit=\xff"),
    *(f"{N}?{'a=1&' * 200}", f"{N}?a={'b' * 20_000}", f"{N}?a={'b' * 40_000}"),
)
ODD = ("", "%ff", "%00", "%ed%a0%80", "%F0%9F%98%80", "%0d%0a", "x", "-1", "%22", "(", "a%3Db%3Dc")
KEYS = (
    *("limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector"),
    *("fieldSelector", "shardSelector", "sendInitialEvents", "timeoutSeconds", "timeout"),
    *("pretty", "includeObject", "allowWatchBookmarks", "watch"),
)
QUICK = ServerOptions(
    public_url="https://nodus.test",
    shutdown_delay=timedelta(0),
    shutdown_watch_grace=timedelta(0),
    max_failed_logins=10_000,
)


@pytest.fixture(scope="module")
async def one(certificates: Path) -> AsyncIterator[Served]:
    async with served(certificates, QUICK) as made:
        yield made


def whole(got: Answer, *, head: bool = False) -> None:
    """Assert that an answer is one that a Kubernetes client can read."""
    assert got.status < 500, got
    assert not 300 <= got.status < 400 or got.status == 304, got
    assert len(got.headers[b"audit-id"]) == 1
    if got.status >= 400:
        assert got.header("content-type") == "application/json"
        if not head:
            status = got.json()
            assert (status["kind"], status["status"]) == ("Status", "Failure")
            assert status["code"] == got.status
            assert status["message"]
            assert status["reason"]
            assert status["fix"]
            assert status["docs"] == f"https://nodus.test/docs/errors/{status['reason']}"
            assert status["requestId"]


async def sweep(one: Served, requests: Iterable[tuple[bytes, bool]]) -> list[Answer]:
    """Send requests, on one connection for as long as it is kept; each must be answered whole."""
    answers = []
    async with AsyncExitStack() as held:
        connection: Connection | None = None
        for raw, head in requests:
            if connection is None:
                connection = await held.enter_async_context(connected(one.port, one.context))
            try:
                got = await connection.ask(raw, head=head)
                whole(got, head=head)
            except Exception as error:
                raise AssertionError(f"the answer to {raw[:300]!r}") from error
            answers.append(got)
            if got.closes:
                connection = None
    assert (await one.http.get("/livez")).text == "ok"
    return answers


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_on_every_path(one: Served, method: str) -> None:  # LW-201, LW-012
    requests = [(request(method, path), method == "HEAD") for path in PATHS]

    answers = await sweep(one, requests)

    if method not in ("GET", "HEAD"):
        assert {got.status for got in answers} <= {400, 403, 404, 405, 414}


@pytest.mark.parametrize("method", NO_METHODS)
async def test_what_is_no_method(one: Served, method: str) -> None:  # LW-201
    answers = await sweep(one, [(request(method, path), False) for path in ("/", N, "/livez", "*")])

    assert {got.status for got in answers} == {405 if method in ("FOO", "get", "G") else 400}


@pytest.mark.parametrize("target", [N, A, f"{N}/train-0-e1", "/api/v1/namespaces", f"{N}?watch=1"])
async def test_every_parameter_with_odd_values(one: Served, target: str) -> None:  # LW-201
    sign = "&" if "?" in target else "?"
    # a stream that begins is over after a second at most: nothing is chosen, so it is empty
    rest = "&timeoutSeconds=1&timeout=1s&fieldSelector=metadata.name%3Dnone"
    watches = "?" in target
    keys = [key for key in KEYS if key != "watch" or watches]
    requests = [
        (request("GET", f"{target}{sign}{key}={value}{rest}"), False)
        for key in keys
        for value in ODD
        if not watches or value in ("%ed%a0%80", "", "%00")
    ]
    if watches:
        await asyncio.gather(*(sweep(one, [each]) for each in requests))
    else:
        await sweep(one, requests)


HEADERS: tuple[tuple[str | bytes, ...], ...] = (
    *((f"Accept: {accept}",) for accept in (
        "", ",", ";", "*", "*/*;q=nan", "*/*;q=inf", "application/json;q=", "text/html",
        "application/json;as=Table;v=v1;g=", "a/b;" * 1000, '"', "\xff", T, "application/*;q=0",
    )),
    *((f"Audit-ID: {value}",) for value in ("", "\xff\xfe", "a" * 10_000, "<b>", "\x80", "a b")),
    ("Audit-ID: a", "Audit-ID: b"),
    *((f"User-Agent: {value}",) for value in ("", "\x80\x81", "curl", "a" * 10_000, "\t\t")),
    *((f"If-None-Match: {value}",) for value in ("*", 'W/"x"', '"', "\xff", "x" * 10_000)),
    *((f"Accept-Encoding: {value}",) for value in ("", "gzip;q=x", "gzip;q=-1", "\xff", ",;,;")),
    *((f"Expect: {value}",) for value in ("100-continue", "nonsense", "")),
    *((f"Connection: {value}",) for value in ("Upgrade", "keep-alive, close", "\xff", "te")),
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAA"),
    ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    ("Range: bytes=0-1",), ("If-Modified-Since: x",), ("If-Match: x",), ("Host: other",),
    ("X-Forwarded-For: \xff",), ("X-HTTP-Method-Override: DELETE",), ("Origin: null",),
    ("Cookie: a=b",), ("Content-Type: \xff",), ("Content-Encoding: gzip",), ("Trailer: x",),
    ("Content-Length: x",), ("Content-Length: -1",), ("Content-Length: 99999999999999999999",),
    ("Content-Length: 1", "Content-Length: 2"), ("Content-Length: 65537",), ("Content-Length:",),
    ("Transfer-Encoding: gzip",), ("Transfer-Encoding: chunked, identity",),
    ("Transfer-Encoding: \xff",), ("\xff: x",), (": x",), ("x",), ("a b: c",), ("a: b\x00c",),
    ("a: b\rc",), ("a:\x0bc",), *((f"X-{n}: y",) for n in ("_", "!", "'")),
)  # fmt: skip


@pytest.mark.parametrize("target", [N, "/apis", "/docs/errors/NotFound", f"/openapi/v3{V1}"])
async def test_every_header(one: Served, target: str) -> None:  # LW-201
    await sweep(one, ((request("GET", target, *lines), False) for lines in HEADERS))


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Bearer \xff", "Basic YTpi", f"Bearer {'a' * 20_000}", "\x80",
     "Bearer nodus_\xe9.x", "Bearer a b c", "bearer\tx", "Negotiate x"],
)  # fmt: skip
async def test_every_credential_that_is_none(one: Served, value: str) -> None:  # LW-186, AS-055
    raw = request("GET", N, f"Authorization: {value}", token=None)

    [got] = await sweep(one, [(raw, False)])

    assert got.status == 401
    assert got.json()["message"] == "Unauthorized"


@pytest.mark.parametrize(
    "raw",
    [
        b"GET\r\n\r\n",
        b"\r\n\r\nGET\r\n\r\n",
        request("GET", N, version="2.0"),
        request("GET", N, version="0.9"),
        request("GET", N, version="9.9"),
        request("GET", N, version="1.x"),
        b"GET /livez\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50) + b"\r\n\r\n",
        b"\x00" * 100,
        request("GET", b"/\x00"),
        request("GET", b"/\x7f"),
        request("GET", N).replace(b"\r\n", b"\n"),
        b"GET  /livez  HTTP/1.1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET x://y:99999999/livez HTTP/1.1\r\nHost: x\r\n\r\n",
        request("POST", N, "Transfer-Encoding: chunked", body=b"") + b"zz\r\n",
        request("GET", "/" + "a" * 300_000),
        request("GET", N, f"X: {'a' * 300_000}"),
        request("GET", N, *(f"X-{n}: y" for n in range(30_000))),
        request("POST", N, body=b"x" * 70_000),
        request("POST", REVIEW, body=b"x" * 70_000),
    ],
    ids=lambda raw: repr(raw[:40]),
)
async def test_what_is_hardly_http(one: Served, raw: bytes) -> None:  # LW-193, LW-201
    """Answered by a Status, or, where nothing can be said any more, by the end."""
    async with connected(one.port, one.context) as connection, asyncio.timeout(30):
        connection.writer.write(raw)
        try:
            got = await connection.answer()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
    whole(got)


BODIES = (
    *(b"", b"{", b"null", b"[]", b"{}", b'{"spec":null}', b'{"spec":{}}', b'{"spec":5}', b"\xff"),
    b'{"spec":{"resourceAttributes":{}}}',
    b'{"spec":{"resourceAttributes":[]}}',
    b'{"spec":{"resourceAttributes":{"verb":5,"resource":{"a":1}}}}',
    b'{"spec":{"nonResourceAttributes":{"path":"\\ud800","verb":"get"}}}',
    b'{"spec":{"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{}}}',
    *(b"[" * 5000, b'{"spec":1e999}', b"k8s\0", b"k8s\0\x12\x80", b"k8s\0" + b"\xff" * 50),
    *(b"k8s\0\x12\x02\x12\x00", b"k8s\0\x12\x04\x12\x02\x0a\x00"),
    b"k8s\0\x12\x06\x12\x04\x0a\x02\x0a\xff",
)
READ = (
    "",
    "application/json",
    "application/json; charset=\xff",
    "application/vnd.kubernetes.protobuf",
)


@pytest.mark.parametrize("kind", [*READ, "text/plain", "\xff", "a", "application/yaml"])
async def test_every_review_body(one: Served, kind: str) -> None:  # LW-023, LW-194
    lines = (f"Content-Type: {kind}",) if kind else ()
    answers = await sweep(
        one, [(request("POST", REVIEW, *lines, body=body), False) for body in BODIES]
    )

    assert {got.status for got in answers} <= ({201, 400} if kind in READ else {415})
