"""H-22: one object at one version has one body, wherever and however it is read."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.history.facts import Answer, Finding, History
from tests.history.lists import fetched, listed
from tests.history.scope import scope_of
from tests.history.streams import served
from tests.history.truth import Truth

_MOVING = frozenset({"Age", "Runtime"})
"""Columns that tell a time since; equal versions may differ in them."""

_Key = tuple[str, int, bool]


def agreed(history: History, truth: Truth) -> Iterator[Finding]:
    """H-22: equal (uid, version) means equal bytes in every list, get, watch, and in the log.

    A DELETED is compared with other DELETED alone: on a scope that an object leaves, it carries
    the state before.
    """
    known: dict[_Key, tuple[str, bytes]] = {}
    for versions in truth.lives().values():
        for version in versions:
            known[*version.key, False] = ("the log", version.body)
    for key, where, body in _bodies(history):
        first = known.setdefault(key, (where, body))
        if first[1] != body:
            yield Finding(
                rule="H-22",
                where=where,
                said=f"{first[0]} has {first[1]!r}",
                but=f"here {key[0]} at {key[1]} is {body!r}",
            )


def _bodies(history: History) -> Iterator[tuple[_Key, str, bytes]]:
    for stream, _ in served(history):
        for event in stream.changes:
            yield (event.uid, event.rev, event.type == "DELETED"), str(stream), event.body
    for answer, _ in (*listed(history), *fetched(history)):
        for item in answer.items:
            yield (item.uid, item.rev, False), str(answer), item.body


def views(history: History, truth: Truth) -> Iterator[Finding]:
    """H-22: Tables and metadata are functions of the bodies.

    Their metadata are those of the body at the same version, and equal versions have equal cells
    but for ages.
    """
    metadata = {
        one.key: json.loads(one.body)["metadata"]
        for versions in truth.lives().values()
        for one in versions
    }
    cells: dict[tuple[str, int], Mapping[str, Any]] = {}
    for answer in history.answers:
        if not answer.accept or answer.status != 200 or scope_of(answer) is None:
            continue
        for shown, row in _rows(answer):
            key = (shown["uid"], int(shown["resourceVersion"]))
            if metadata.get(key) != shown:
                yield _differs(answer, f"the body has {metadata.get(key)}", f"the view has {shown}")
            if row is not None and cells.setdefault(key, row) != row:
                yield _differs(answer, f"one Table has {cells[key]}", f"another has {row}")


def _rows(answer: Answer) -> Iterator[tuple[Any, Mapping[str, Any] | None]]:
    """Give the metadata of each object that a view shows, of a Table with its lasting cells."""
    told = answer.decoded
    if told["kind"] != "Table":
        for one in told.get("items", [told]):
            yield one["metadata"], None
        return
    names = [column["name"] for column in told["columnDefinitions"]]
    for row in told["rows"]:
        named = dict(zip(names, row["cells"], strict=True))
        yield (
            row["object"]["metadata"],
            {name: cell for name, cell in named.items() if name not in _MOVING},
        )


def _differs(answer: Answer, said: str, but: str) -> Finding:
    return Finding(rule="H-22", where=str(answer), said=said, but=but)
