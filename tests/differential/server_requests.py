"""The requests about the server around the resource: layout, headers, health, projects, reviews."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tests.apiserver.conftest import ALICE
from tests.differential.asking import Ask
from tests.differential.requests import DISCOVERY, ONE, TABLE, V1, N, url

AGENTS = (
    "",
    "curl/8.5.0",
    "Wget/1.21",
    "Mozilla/5.0 (X11)",
    "mozilla/5.0",
    "Mozilla/4.0",
    "kubectl/v1.37.0",
    "x curl/8",
)
CORE = "/api/v1/namespaces"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def layouts() -> Iterator[Ask]:
    """Give what decides whether a body is indented (LW-019)."""
    for agent, pretty in product(AGENTS, (None, "", "1", "0", "true", "T", "yes", "false")):
        query = () if pretty is None else (("pretty", pretty),)
        for path in (ONE, f"{N}/nope", V1):
            headers = (f"User-Agent: {agent}",) if agent else ()
            yield Ask(target=url(path, *query), headers=headers)
    for accept in ("application/json;pretty=1", f"{TABLE};pretty=1", TABLE):
        yield Ask(target=N, headers=(f"Accept: {accept}", "User-Agent: curl/8.5.0"))
    for path in (f"{V1}/namespaces/empty/attempts", "/apis", "/version"):
        yield Ask(target=path, headers=("User-Agent: curl/8.5.0",))
        yield Ask(target=path)
    for agent in ("curl/8.5.0", "kubectl/v1.37.0"):
        yield Ask(target="/apis", headers=(f"Accept: {DISCOVERY}", f"User-Agent: {agent}"))


def headers() -> Iterator[Ask]:
    """Give headers that are echoed, judged, or of no account (LW-022, LW-037, LW-057 to LW-062)."""
    for path in (ONE, f"{N}/nope", N, "/nope"):
        yield Ask(target=path, headers=("Audit-ID: abc",))
        yield Ask(target=path, headers=("Accept-Encoding: gzip",))
        yield Ask(target=path, headers=("Accept-Encoding: gzip;q=0, identity",))
        yield Ask(target=path, headers=("Content-Type: text/x",), body=b"{")
        yield Ask(target=path, headers=("Origin: https://example.org",))
        yield Ask(target=path, headers=("X-Remote-User: root", "X-Remote-Group: system:masters"))
        yield Ask(target=path, headers=("Range: bytes=0-10",))
        yield Ask(target=path, headers=("If-Modified-Since: Mon, 01 Jan 2035 00:00:00 GMT",))
        yield Ask(target=path, headers=('If-None-Match: "x"', "If-Match: y"))
        yield Ask(target=path, headers=("X-HTTP-Method-Override: DELETE",))
    for tag in ("@etag@", '"x"', "*", 'W/"x"'):
        for path in ("/apis", V1):
            yield Ask(target=path, headers=(f"Accept: {DISCOVERY}", f"If-None-Match: {tag}"))
    for scheme in ("bearer", "BEARER", "Bearer ", "Basic", "Token"):
        yield Ask(target=N, token=None, headers=(f"Authorization: {scheme} {ALICE.text}",))
    for value in ("Bearer", "Bearer  ", "", ALICE.text, "Basic YTpi"):
        yield Ask(target=N, token=None, headers=(f"Authorization: {value}",))


def server() -> Iterator[Ask]:
    """Give the paths of the server itself (LW-038, LW-039)."""
    for path in ("/version", "/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/ping",
                 "/healthz/ping", "/livez/nope", "/readyz/nope"):  # fmt: skip
        for method in ("GET", "HEAD", "POST"):
            yield Ask(target=path, method=method)
        yield Ask(target=f"{path}?timeout=5s")
        yield Ask(target=path, headers=("Accept: text/plain",))
    yield Ask(target="/version/")


def projects() -> Iterator[Ask]:
    """Give refusals of the projects as namespaces (LW-016); what they hold is another server's."""
    for path in (f"{CORE}/ghost", f"{CORE}/Example", f"{CORE}/example/nope"):
        yield Ask(target=path)
        yield Ask(target=f"{path}?pretty=1")
    for query in (
        "fieldSelector=spec.foo%3D1",
        "labelSelector=a%20in%20(",
        "limit=abc",
        "resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "resourceVersion=abc",
    ):
        yield Ask(target=f"{CORE}?{query}")
        yield Ask(target=f"{CORE}?watch=1&{query}")
    for path in (f"{CORE}/other", f"{CORE}/ghost"):
        yield Ask(target=path, token=ALICE.text)


def reviews() -> Iterator[Ask]:
    """Give the question that `kubectl auth can-i` asks (LW-023)."""
    for token, verb, namespace, rest in product(
        (None, ALICE.text),
        ("get", "list", "watch", "delete", "*"),
        ("example", "other", ""),
        ({}, {"name": "train-0-e1"}, {"group": "apps"}, {"resource": "unknown"}),
    ):
        attributes = {"group": "nodus.dev", "resource": "attempts", "verb": verb} | rest
        if namespace:
            attributes["namespace"] = namespace
        yield _review({"resourceAttributes": attributes}, token)
    for path in ("/apis", "/nope", "/metrics", "/version"):
        yield _review({"nonResourceAttributes": {"path": path, "verb": "get"}}, ALICE.text)
    asked = _review({"nonResourceAttributes": {"path": "/apis", "verb": "get"}}, ALICE.text)
    for header in ("User-Agent: curl/8.5.0", "Accept: text/html", "Accept: application/json"):
        yield replace(asked, headers=(*asked.headers, header))
    yield _review({}, None)
    yield _review({"resourceAttributes": {}, "nonResourceAttributes": {}}, None)
    for kind, body in (("application/json", b"{"), ("text/x", b"x"), ("application/json", b"[]")):
        yield Ask(target=REVIEWS, method="POST", headers=(f"Content-Type: {kind}",), body=body)
    for method in ("GET", "PUT", "DELETE"):
        yield Ask(target=REVIEWS, method=method)


def _review(spec: object, token: str | None) -> Ask:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": spec,
    }
    one = Ask(
        target=REVIEWS,
        method="POST",
        headers=("Content-Type: application/json",),
        body=json.dumps(review).encode(),
    )
    return one if token is None else replace(one, token=token)
