"""Which objects a request is about: project, name, labels and fields, worked out anew.

On purpose not the product's selectors: a fault there must not hide itself. Only equality,
inequality and shards by uid are understood; anything else is refused, never taken for everything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.history.facts import Request

_PATH = re.compile(r"/apis/nodus\.dev/v1(/namespaces/(?P<project>[^/]+))?/attempts(/(?P<name>.+))?")
_TERM = re.compile(r"(?P<key>[^=!,\s()]+)(?P<no>!?)==?(?P<value>[^=!,\s()\\]*)")
_SHARD = re.compile(r"shardRange\(object\.metadata\.uid, ?'0x(\w+)', ?'0x(\w+)'\)")
_SELECTS = ("labelSelector", "fieldSelector")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One comparison; an absent value compares as empty for fields, as unequal for labels."""

    key: str
    value: str
    negated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a request selects. `name` is set for a get."""

    project: str | None
    name: str | None
    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()
    shards: tuple[range, ...] = ()
    """Hashes of the uid, any of which is enough; all objects if empty (LW-162)."""

    @property
    def narrowed(self) -> bool:
        """Whether a selector takes part, so that no remaining count may be told (LW-111)."""
        return bool(self.labels or self.fields or self.shards)

    def has(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object in this state belongs to the scope."""
        metadata = obj["metadata"]
        if self.project not in (None, metadata["namespace"]):
            return False
        if self.name not in (None, metadata["name"]):
            return False
        if self.shards and not any(hash_of(metadata["uid"]) in one for one in self.shards):
            return False
        labels = metadata.get("labels", {})
        by_label = all((labels.get(t.key) == t.value) is not t.negated for t in self.labels)
        return by_label and all(
            (_field(obj, term.key) == term.value) is not term.negated for term in self.fields
        )


def scope_of(request: Request) -> Scope | None:
    """Return what a request selects; None if it is not about Attempts.

    Raises ValueError for a selector that this module does not understand.
    """
    path = _PATH.fullmatch(request.path)
    if path is None:
        return None
    labels, fields = (_terms(request.options.get(name, "")) for name in _SELECTS)
    return Scope(
        project=path["project"],
        name=path["name"],
        labels=labels,
        fields=fields,
        shards=_shards(request.options.get("shardSelector", "")),
    )


def hash_of(text: str) -> int:
    """Return the 64-bit FNV-1a hash of a text (LW-162)."""
    found = _FNV_OFFSET
    for byte in text.encode():
        found = (found ^ byte) * _FNV_PRIME % 2**64
    return found


def _shards(text: str) -> tuple[range, ...]:
    found = []
    for part in filter(None, text.split("||")):
        shard = _SHARD.fullmatch(part.strip())
        if shard is None:
            raise ValueError(f"the shard is not understood: {part}")
        found.append(range(int(shard[1], 16), int(shard[2], 16)))
    return tuple(found)


def _terms(text: str) -> tuple[Term, ...]:
    found = []
    for part in filter(None, text.split(",")):
        term = _TERM.fullmatch(part)
        if term is None:
            raise ValueError(f"the selector is not understood: {part}")
        found.append(Term(key=term["key"], value=term["value"], negated=bool(term["no"])))
    return tuple(found)


def _field(obj: Any, path: str) -> str:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)
