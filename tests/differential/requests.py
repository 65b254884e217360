"""The requests that both servers get: tables that are multiplied out, not written one by one."""

from collections.abc import Iterator
from itertools import combinations, product
from urllib.parse import urlencode

from tests.apiserver.conftest import ALICE
from tests.differential.asking import Ask

V1 = "/apis/nodus.dev/v1"
A = f"{V1}/attempts"
N = f"{V1}/namespaces/example/attempts"
ONE = f"{N}/train-0-e1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def url(path: str, *pairs: tuple[str, str]) -> str:
    """Return a target; symbols of versions stay as they are."""
    return f"{path}?{urlencode(pairs, safe='@')}" if pairs else path


# -- paths and verbs (section 1) -----------------------------------------------------------------

PATHS = (
    A,
    N,
    ONE,
    f"{N}/nope",
    f"{ONE}/status",
    f"{ONE}/scale",
    f"{ONE}/status/deeper",
    f"{V1}/namespaces/ghost/attempts",
    f"{V1}/namespaces/empty/attempts",
    f"{V1}/namespaces/example",
    f"{V1}/namespaces",
    f"{V1}/attempts/train-0-e1",
    f"{V1}/unknown",
    f"{V1}/namespaces/example/unknown",
    f"{V1}/namespaces/example/unknown/x",
    "/apis/nodus.dev/v2/attempts",
    "/apis/nodus.dev/v2",
    "/apis/nodus.dev/v1beta1/namespaces/example/attempts",
    "/apis/unknown.dev",
    "/apis/unknown.dev/v1/attempts",
    "/apis/nodus.dev",
    V1,
    "/nope",
    "/nope/deeper",
    "/api/v1/attempts",
    "/api/v1/namespaces/example/attempts",
)
SPELLINGS = (
    f"{N}/",
    f"{N}//",
    f"/{N}",
    f"//{N}",
    f"{ONE}/",
    f"{V1}//namespaces/example/attempts",
    f"{V1}/namespaces/./attempts",
    f"{V1}/namespaces/../attempts",
    f"{V1}/namespaces/a%25b/attempts",
    f"{V1}/namespaces//attempts",
    f"{V1}/namespaces/example//attempts",
    f"{N}//train-0-e1",
    f"{N}/.",
    f"{N}/..",
    f"{N}/%2e",
    f"{N}/%2e%2e",
    f"{N}/a%2Fb",
    f"{N}/a%25b",
    f"{N}/%74rain-0-e1",
    f"{N}/train-0-e1%20",
    f"{N}/Train-0-e1",
    f"{N}/train_0",
    f"{N}/{'a' * 300}",
    f"{N}/%C3%A4",
    f"{N}/a%00b",
    f"{V1}/namespaces/%65xample/attempts",
    f"{V1}/namespaces/Example/attempts",
    f"{V1}/namespaces/a%2Fb/attempts",
    f"{V1}/namespaces/{'b' * 70}/attempts",
    f"{V1}/Attempts",
    f"{V1}/attempt",
    f"{V1}/att",
    "/apis/",
    "/apis/nodus.dev/",
    f"{V1}/",
    "/APIS",
    f"{V1}/watch",
    f"{V1}/watch/unknown",
    f"{V1}/proxy/attempts",
)
WRITES = ("POST", "PUT", "PATCH", "DELETE")
OTHERS = ("HEAD", "OPTIONS", "TRACE", "FOO")


def paths() -> Iterator[Ask]:
    """Give every path with every method; what would write only says so."""
    for path in (*PATHS, *SPELLINGS):
        yield Ask(target=path)
    for path, method in product(PATHS, OTHERS):
        yield Ask(target=path, method=method)
    bodies = {
        "PATCH": ("application/merge-patch+json", b"{}"),
        "DELETE": ("application/json", b""),
    }
    for path, method in product(PATHS, WRITES):
        kind, body = bodies.get(method, ("application/json", b"{}"))
        target = url(path, ("dryRun", "All"))
        yield Ask(target=target, method=method, headers=(f"Content-Type: {kind}",), body=body)
    for path, method in product((N, ONE), WRITES):
        yield Ask(
            target=url(path, ("dryRun", "All")),
            method=method,
            headers=("Content-Type: text/x",),
            body=b"{",
        )


def users() -> Iterator[Ask]:
    """Give requests of somebody who may see some projects, and of nobody."""
    for token, path in product(
        (ALICE.text, None, "nodus_unknown"),
        (
            A,
            N,
            ONE,
            f"{N}/nope",
            f"{V1}/namespaces/other/attempts",
            f"{V1}/namespaces/other/attempts/scan-0-e1",
            f"{V1}/namespaces/ghost/attempts",
            V1,
            "/apis",
            "/nope",
            f"{V1}/unknown",
            url(N, ("watch", "1"), ("limit", "x")),
            url(A, ("watch", "1")),
            url(A, ("fieldSelector", "metadata.namespace=example")),
            url(A, ("fieldSelector", "metadata.name=<a&b>")),
            url(f"{V1}/namespaces/other/attempts", ("fieldSelector", "metadata.name=x")),
        ),
    ):
        yield Ask(target=path, token=token)


# -- content negotiation (section 3) -------------------------------------------------------------

ACCEPTS = (
    "",
    "*/*",
    "application/*",
    "application/json",
    "APPLICATION/JSON",
    "application/json; charset=utf-8",
    "application/json;pretty=1",
    "application/json;stream=watch",
    "application/json;stream=other",
    "application/json;x=y",
    "application/json;sv=v1",
    "application/json;q=0",
    "application/json;q=0.1,*/*;q=0.9",
    "application/json;q=2",
    "application/json;q=banana",
    "application/json;q=0.5, text/html",
    "text/html,application/json",
    "text/html",
    "text/*",
    "application/json, */*;q=0.8",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/vnd.kubernetes.protobuf",
    "application/json;q=0.9,application/cbor",
    "application/cbor",
    "application/yaml",
    "application/yaml,application/json",
    "application/json,application/yaml",
    "nonsense",
    "/",
    ",",
    ";",
    " ",
    "*",
    "application",
    TABLE,
    TABLE.replace("v1", "v1beta1"),
    TABLE.replace("v1", "v2"),
    TABLE.replace("meta.k8s.io", "example.org"),
    "application/json;as=Table",
    "application/json;as=Table;v=v1",
    "application/json;as=Table;g=meta.k8s.io",
    "application/json;v=v1;g=meta.k8s.io",
    f"{TABLE},application/json",
    f"{TABLE},{TABLE.replace('v1', 'v1beta1')},application/json",
    f"{TABLE};q=0.1,application/json;q=0.9",
    TABLE.replace("application/json", "*/*"),
    TABLE.replace("application/json", "application/vnd.kubernetes.protobuf"),
    f"{TABLE.replace('application/json', 'application/vnd.kubernetes.protobuf')},{TABLE}",
    "application/json;as=Unknown;v=v1;g=meta.k8s.io",
    METADATA,
    METADATA.replace("v1", "v1beta1"),
    METADATA_LIST,
    METADATA_LIST.replace("v1", "v1beta1"),
    f"{METADATA},application/json",
    f"{METADATA_LIST},application/json",
    DISCOVERY,
)


def accepts() -> Iterator[Ask]:
    """Give every Accept on an object, a list and a refusal."""
    yield Ask(target=N)
    for accept, path in product(ACCEPTS, (N, ONE, f"{N}/nope", f"{N}?limit=x")):
        yield Ask(target=path, headers=(f"Accept: {accept}",))
    for accept, path in product(ACCEPTS, (V1, "/apis/nodus.dev")):
        yield Ask(target=path, headers=(f"Accept: {accept}",))
    for include in ("None", "Object", "Metadata", "", "X", "none"):
        for path, accept in product(
            (N, ONE, f"{N}/nope", f"{N}?limit=x"), (TABLE, METADATA_LIST, "application/json")
        ):
            sign = "&" if "?" in path else "?"
            target = f"{path}{sign}includeObject={include}"
            yield Ask(target=target, headers=(f"Accept: {accept}",))
    yield Ask(target=N, headers=("Accept: text/html", "Accept: application/json"))
    yield Ask(target=N, headers=("Accept: text/html", "Accept: text/plain"))


# -- ListOptions (section 4) ---------------------------------------------------------------------

VALUES: dict[str, tuple[str, ...]] = {
    "limit": (
        "",
        "0",
        "1",
        "3",
        "500",
        "-5",
        "+3",
        "abc",
        "1.5",
        "9223372036854775808",
        " 1",
        "0x1",
    ),
    "continue": ("", "xx", "@page@", "@lastpage@"),
    "resourceVersion": (
        "",
        "0",
        "@w5@",
        "@w27@",
        "@head@",
        "@old@",
        "abc",
        "-1",
        "00",
        "1.5",
        "99999999999999999999",
    ),
    "resourceVersionMatch": ("", "Exact", "NotOlderThan", "Foo", "exact"),
    "sendInitialEvents": ("", "true", "false", "0", "banana"),
    "allowWatchBookmarks": ("", "true", "0"),
    "timeoutSeconds": ("", "0", "5", "-1", "abc"),
    "watch": ("0", "false", "FALSE", "False"),
    "labelSelector": ("", "tier=t1", "tier in (t1", "nope"),
    "fieldSelector": ("", "status.phase=Running", "spec.foo=1", "metadata.name=train-1-e1", "a"),
    "timeout": ("", "5s", "xyz", "0s", "-1s", "5", "1h"),
    "pretty": ("", "1", "0", "banana"),
}
"""Each option with good and bad values; those that would open a watch are in watches.py."""
FEW: dict[str, tuple[str, ...]] = {
    "limit": ("3", "abc"),
    "continue": ("@page@", "xx"),
    "resourceVersion": ("0", "00", "@w27@", "@old@", "abc"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "Foo"),
    "sendInitialEvents": ("true", "false"),
    "allowWatchBookmarks": ("true",),
    "timeoutSeconds": ("5", "abc"),
    "labelSelector": ("tier=t1", "tier in (t1"),
    "fieldSelector": ("status.phase=Running", "spec.foo=1"),
    "timeout": ("xyz",),
}


def options() -> Iterator[Ask]:
    """Give every option alone on each kind of path, and in pairs and chosen triples on a list."""
    for (name, values), path in product(VALUES.items(), (N, A, ONE)):
        for value in values:
            yield Ask(target=url(path, (name, value)))
    for (name, values), (other, others) in combinations(FEW.items(), 2):
        for value, second in product(values, others):
            yield Ask(target=url(N, (name, value), (other, second)))
    for version, match, limit in product(
        ("0", "@w5@", "@w27@", "@head@", "@old@"), ("", "Exact", "NotOlderThan"), ("0", "2")
    ):
        pairs = [("resourceVersion", version), ("limit", limit)]
        if match:
            pairs.append(("resourceVersionMatch", match))
        for path in (A, N):
            yield Ask(target=url(path, *pairs))
            yield Ask(target=url(path, *pairs), headers=(f"Accept: {TABLE}",))


def future() -> Iterator[Ask]:
    """Give requests for a version that nobody has reached; each takes three seconds."""
    for path, match in product((N, A, ONE), ("", "NotOlderThan", "Exact")):
        pairs = [("resourceVersion", "@future@")]
        if match:
            pairs.append(("resourceVersionMatch", match))
        yield Ask(target=url(path, *pairs))
        if path == N:
            yield Ask(target=url(path, *pairs, ("limit", "3")))


# -- the query itself (LW-018, LW-022) -----------------------------------------------------------

QUERIES = (
    "limit=2&limit=x",
    "limit=x&limit=2",
    "limit=2&limit=3",
    "Limit=2",
    "LIMIT=x",
    "unknown=1",
    "limit=%32",
    "l%69mit=2",
    "limit=2%",
    "limit=%zz",
    "limit=%2",
    "limit=2;watch=1",
    "limit=2&a;b=c",
    "limit=2&&&pretty=0",
    "&limit=2",
    "=",
    "=&limit=2",
    "limit",
    "limit==2",
    "labelSelector=tier%3Dt1&labelSelector=tier%3Dt2",
    "labelSelector=tier=t1",
    "labelSelector=tier%3dt1",
    "fieldSelector=metadata.name=train-1-e1",
    "labelSelector=a+in+(b)",
    "labelSelector=%FF",
    "fieldSelector=status.phase%3D%FF",
    "fieldSelector=status.phase%3D%C3%A4",
    "resourceVersion=%30",
    "resourceVersion=+5",
    "watch=0&watch=1",
    "?",
    "#",
)


def queries() -> Iterator[Ask]:
    """Give queries that are odd as texts."""
    for query, path in product(QUERIES, (N, ONE)):
        yield Ask(target=f"{path}?{query}")


# -- discovery (section 2) -----------------------------------------------------------------------


def discovery() -> Iterator[Ask]:
    """Give the documents that say what there is, of which our group alone is compared."""
    for path in ("/apis/nodus.dev", V1):
        for method in ("GET", "HEAD"):
            yield Ask(target=path, method=method)
        yield Ask(target=f"{path}?timeout=32s")
        yield Ask(target=f"{path}?pretty=1")
    for accept in (
        "",
        "application/json",
        DISCOVERY,
        f"{DISCOVERY},application/json",
        DISCOVERY.replace("v2", "v2beta1"),
        f"{DISCOVERY.replace('v2', 'v2beta1')},application/json",
        f"application/json;q=0.5,{DISCOVERY}",
        f"{DISCOVERY};profile=nopeer",
    ):
        for path in ("/apis", "/api"):
            yield Ask(target=path, headers=(f"Accept: {accept}",))
            yield Ask(target=path, method="HEAD", headers=(f"Accept: {accept}",))
