"""H-10: nothing from outside a request's scope, and no object in two shards that do not meet."""

import json
from collections.abc import Iterator
from dataclasses import replace

from tests.history.facts import Finding, History, Request
from tests.history.lists import fetched, listed
from tests.history.scope import Scope
from tests.history.streams import served
from tests.history.truth import Truth

_Shown = tuple[Request, Scope, str, str, bytes]


def filtered(history: History, _: Truth) -> Iterator[Finding]:
    """H-10: every object shown belongs to the scope; a DELETED by its last state in it."""
    for request, scope, what, _uid, body in _shown(history):
        if not scope.has(json.loads(body)):
            yield Finding(
                rule="H-10",
                where=str(request),
                said="the request selects what it names",
                but=f"{what} is none of it",
            )


def apart(history: History, _: Truth) -> Iterator[Finding]:
    """H-10: two shards that have no hash in common show no object in common."""
    seen: dict[Scope, dict[str, tuple[Scope, str]]] = {}
    for request, scope, what, uid, _body in _shown(history):
        if not scope.shards:
            continue
        others = seen.setdefault(replace(scope, shards=()), {})
        first, where = others.setdefault(uid, (scope, str(request)))
        if not _meet(first, scope):
            yield Finding(
                rule="H-10",
                where=str(request),
                said=f"another shard has {uid}: {where}",
                but=f"{what} is shown here too",
            )


def _shown(history: History) -> Iterator[_Shown]:
    for stream, scope in served(history):
        for event in stream.changes:
            yield stream, scope, str(event), event.uid, event.body
    for answer, scope in (*listed(history), *fetched(history)):
        for item in answer.items:
            yield answer, scope, str(item), item.uid, item.body


def _meet(one: Scope, two: Scope) -> bool:
    return any(a.start < b.stop and b.start < a.stop for a in one.shards for b in two.shards)
