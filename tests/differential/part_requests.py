"""Lists of a part: of what selectors and shards choose, and of what a token goes on with."""

from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

from tests.differential.asking import Ask
from tests.differential.requests import METADATA_LIST, TABLE, V1, A, N, url
from tests.differential.selector_texts import FIELDS, LABELS, SHARDS

# -- selectors (sections 4.3, 4.4) ---------------------------------------------------------------


def selectors() -> Iterator[Ask]:
    """Give selectors of both grammars, good and malformed."""
    for (name, texts), path in product(
        (("labelSelector", LABELS), ("fieldSelector", FIELDS)), (N, A)
    ):
        for text in texts:
            yield Ask(target=url(path, (name, text)))
    for text in ("x>5", "x<5", "x", "x=", "!x", "x notin (4)", "x>=4", "x in (,4)"):
        yield Ask(target=url(f"{V1}/namespaces/sizes/attempts", ("labelSelector", text)))


def shards() -> Iterator[Ask]:
    """Give shard selectors; the feature is behind a gate that kube.py opens."""
    for text, path in product(SHARDS, (N, A)):
        yield Ask(target=url(path, ("shardSelector", text)))
    yield Ask(target=url(N, ("shardSelector", SHARDS[2]), ("limit", "1")))
    yield Ask(target=url(N, ("shardSelector", SHARDS[2]), ("labelSelector", "tier=t1")))
    for accept in (TABLE, METADATA_LIST):
        yield Ask(target=url(N, ("shardSelector", SHARDS[2])), headers=(f"Accept: {accept}",))


# -- continue tokens (section 4.6) ---------------------------------------------------------------


def tokens() -> Iterator[Ask]:
    """Give tokens that a server made, and texts that none made."""
    for token in ("@page@", "@allpage@", "@lastpage@", "@oldpage@", "@onward@"):
        for path, limit in product((N, A), ("", "2")):
            pairs = [("continue", token), *([("limit", limit)] if limit else [])]
            yield Ask(target=url(path, *pairs))
            yield Ask(target=url(path, *pairs), headers=(f"Accept: {TABLE}",))
            yield Ask(target=url(path, *pairs, ("resourceVersion", "0")))
            yield Ask(target=url(path, *pairs, ("resourceVersion", "@w27@")))
    yield Ask(target=url(N, ("continue", "@page@"), ("labelSelector", "tier=t1")))
    for text in (
        "x",
        "!",
        "e30",
        "e30=",
        "bnVsbA",
        "W10",
        "IiI",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIifQ",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6NSwic3RhcnQiOiJhIn0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi9hIn0",
        "a" * 3000,
        quote("ä"),
    ):
        for path in (N, A):
            yield Ask(target=url(path, ("continue", text)))
