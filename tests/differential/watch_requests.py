"""The watches that both servers get, and the writes that they see."""

from collections.abc import Iterator
from itertools import product

from tests.differential.asking import Ask
from tests.differential.pair import Pair
from tests.differential.requests import METADATA, METADATA_LIST, ONE, TABLE, V1, A, N, url
from tests.differential.selector_texts import SHARDS

W = f"{V1}/watch"
PATHS = (
    A,
    N,
    f"{V1}/namespaces/empty/attempts",
    f"{V1}/namespaces/ghost/attempts",
    f"{N}/",
)
DEPRECATED = (
    f"{W}/attempts",
    f"{W}/namespaces/example/attempts",
    f"{W}/namespaces/example/attempts/train-0-e1",
    f"{W}/namespaces/example/attempts/later-0-e1",
    f"{W}/namespaces/example/attempts/nope",
)
VERSIONS = ("", "0", "@w5@", "@w27@", "@head@", "@old@", "abc")
SELECTORS = (
    ("labelSelector", "tier=t1"),
    ("labelSelector", "tier!=t1"),
    ("labelSelector", "!tier"),
    ("labelSelector", "tier in (t1"),
    ("fieldSelector", "status.phase=Running"),
    ("fieldSelector", "status.phase!=Running"),
    ("fieldSelector", "status.reason="),
    ("fieldSelector", "metadata.name=live-0-e1"),
    ("fieldSelector", "metadata.name=nope"),
    ("fieldSelector", "metadata.namespace=other"),
    ("fieldSelector", "spec.foo=1"),
    ("shardSelector", SHARDS[2]),
    ("shardSelector", SHARDS[3]),
    ("shardSelector", "x"),
)
FORMS = (
    "application/json;stream=watch",
    "application/json;stream=other",
    "application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch",
    "*/*",
    "text/html",
    TABLE,
    TABLE.replace("v1", "v1beta1"),
    f"{TABLE},application/json",
    METADATA,
    METADATA.replace("v1", "v1beta1"),
)


def starts() -> Iterator[Ask]:
    """Give every way to begin (section 5.1), right and wrong."""
    for version, initial, match, bookmarks in product(
        VERSIONS,
        (None, "true", "false", ""),
        (None, "NotOlderThan", "Exact", "Foo"),
        (None, "true"),
    ):
        pairs = [("watch", "1")]
        for name, value in (
            ("resourceVersion", version or None),
            ("sendInitialEvents", initial),
            ("resourceVersionMatch", match),
            ("allowWatchBookmarks", bookmarks),
        ):
            if value is not None:
                pairs.append((name, value))
        yield Ask(target=url(N, *pairs))
    for path, version, bookmarks in product(PATHS, ("", "0", "@head@"), ("", "1")):
        pairs = [("watch", "true"), ("resourceVersion", version)]
        yield Ask(target=url(path, *pairs, ("allowWatchBookmarks", bookmarks)))
    for initial in (None, "true", "false"):
        pairs = [("watch", "1"), ("resourceVersion", "@future@")]
        if initial is not None:
            pairs += [("sendInitialEvents", initial), ("resourceVersionMatch", "NotOlderThan")]
        yield Ask(target=url(N, *pairs))


def spellings() -> Iterator[Ask]:
    """Give what is a watch and what is none (LW-004 to LW-007, LW-080, LW-092)."""
    for value in ("", "1", "true", "TRUE", "t", "yes", "banana", "2", "00", "False1", " false"):
        yield Ask(target=url(N, ("watch", value), ("resourceVersion", "@head@")))
    for query in ("watch", "watch=1&watch=0", "watch&watch=0", "watch=%31", "Watch=1&watch=true"):
        yield Ask(target=f"{N}?{query}&resourceVersion=@head@")
    for path in DEPRECATED:
        yield Ask(target=path)
        yield Ask(target=url(path, ("resourceVersion", "@head@")))
        yield Ask(target=url(path, ("watch", "0"), ("resourceVersion", "@head@")))
        yield Ask(target=url(path, ("fieldSelector", "metadata.name=train-0-e1")))
        yield Ask(target=url(path, ("fieldSelector", "status.phase=Running")))
    for name, value in (
        *(("limit", value) for value in ("1", "0", "-1", "abc", "")),
        *(("continue", value) for value in ("xx", "@page@")),
        *(("timeoutSeconds", value) for value in ("0", "300", "abc", "", "-1")),
        *(("timeout", value) for value in ("5s", "xyz", "0s")),
        *(("pretty", value) for value in ("1", "0")),
    ):
        yield Ask(target=url(N, ("watch", "1"), ("resourceVersion", "@head@"), (name, value)))
    yield Ask(target=url(ONE, ("watch", "1")))
    yield Ask(
        target=url(N, ("watch", "1"), ("continue", "xx"), ("resourceVersionMatch", "NotOlderThan"))
    )


def selectors() -> Iterator[Ask]:
    """Give watches of a part; the writes let objects enter, change in, and leave it (LW-132)."""
    for (name, value), path, version, bookmarks in product(
        SELECTORS, (A, N), ("", "@w5@", "@head@"), ("", "1")
    ):
        pairs = [("watch", "1"), ("allowWatchBookmarks", bookmarks), (name, value)]
        yield Ask(target=url(path, *pairs, ("resourceVersion", version)))


def forms() -> Iterator[Ask]:
    """Give watches of Tables and metadata (section 5.4)."""
    for accept, path, version, bookmarks in product(
        FORMS, (A, N), ("", "@head@", "@old@", "abc"), ("", "1")
    ):
        pairs = [("watch", "1"), ("resourceVersion", version), ("allowWatchBookmarks", bookmarks)]
        yield Ask(target=url(path, *pairs), headers=(f"Accept: {accept}",))
    for include, accept, bookmarks in product(
        ("None", "Object", "Metadata", "", "X"), (TABLE, METADATA, "application/json"), ("", "1")
    ):
        pairs = [("watch", "1"), ("includeObject", include), ("allowWatchBookmarks", bookmarks)]
        yield Ask(target=url(N, *pairs), headers=(f"Accept: {accept}",))
    for (name, value), accept in product(SELECTORS, (TABLE, METADATA)):
        pairs = [("watch", "1"), ("allowWatchBookmarks", "1"), (name, value)]
        yield Ask(target=url(N, *pairs), headers=(f"Accept: {accept}",))


def lists() -> Iterator[Ask]:
    """Give watches of a form that only lists have."""
    for path, version in product((A, N), ("", "@head@", "@old@")):
        pairs = [("watch", "1"), ("resourceVersion", version)]
        yield Ask(target=url(path, *pairs), headers=(f"Accept: {METADATA_LIST}",))


def brief() -> Iterator[Ask]:
    """Give watches that end by their own timeout while nothing happens (LW-143, LW-144)."""
    for version, bookmarks in product(("", "0", "@head@", "@future@", "@old@"), ("", "1")):
        pairs = [("watch", "1"), ("timeoutSeconds", "6"), ("allowWatchBookmarks", bookmarks)]
        yield Ask(target=url(N, *pairs, ("resourceVersion", version)))


async def write(pair: Pair) -> None:
    """Let objects come, enter and leave selectors, change in them, and go."""
    await pair.create("example", "live-0-e1", "queued", tier="t1")
    await pair.change("example", "live-0-e1", "acquiring", tier="t1")
    await pair.change("example", "live-0-e1", "running", tier="t1")
    await pair.change("example", "live-0-e1", "running", tier="t2")
    await pair.change("example", "live-0-e1", "failed-lost")
    await pair.change("example", "live-0-e1", "running-resumed", tier="t1")
    await pair.create("other", "live-1-e1", "running", tier="t1")
    await pair.change("other", "live-1-e1", "running", tier="t1", size="1")
    await pair.change("other", "live-1-e1", "succeeded", tier="t1")
    await pair.create("example", "later-0-e1", "running-gang")
    await pair.delete("other", "live-1-e1")
    await pair.delete("example", "live-0-e1")
    await pair.change("example", "later-0-e1", "failed-signal")
    await pair.delete("example", "later-0-e1")
    await pair.caught_up()
