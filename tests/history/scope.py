"""Which objects a request is about: project, name, labels and fields, worked out anew.

On purpose not the product's selectors: a fault there must not hide itself. Understood are
equality, sets and existence of labels, equality of fields, and shards by uid; anything else is
refused, never taken for everything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.history.facts import Request

_PATH = re.compile(r"/apis/nodus\.dev/v1(/namespaces/(?P<project>[^/]+))?/attempts(/(?P<name>.+))?")
_TERM = re.compile(r"(?P<key>[^=!,\s()]+)(?P<no>!?)==?(?P<value>[^=!,\s()\\]*)")
_SET = re.compile(r"(?P<key>[^=!,\s()]+) (?P<no>not)?in \((?P<values>[^()]*)\)")
_THERE = re.compile(r"(?P<no>!?)(?P<key>[^=!,\s()<>]+)")
_COMMA = re.compile(r",(?![^(]*\))")
_SHARD = re.compile(r"shardRange\(object\.metadata\.uid, ?'0x(\w+)', ?'0x(\w+)'\)")
_SELECTS = ("labelSelector", "fieldSelector")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One of some values, or none of them; without `values` whether there is any.

    An absent value compares as empty for fields, as unequal for labels.
    """

    key: str
    values: frozenset[str] | None
    negated: bool

    def has(self, value: str | None) -> bool:
        found = value is not None if self.values is None else value in self.values
        return found is not self.negated


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
        by_label = all(term.has(labels.get(term.key)) for term in self.labels)
        return by_label and all(term.has(_field(obj, term.key)) for term in self.fields)


def scope_of(request: Request) -> Scope | None:
    """Return what a request selects; None if it is not about Attempts.

    Raises ValueError for a selector that this module does not understand.
    """
    path = _PATH.fullmatch(request.path)
    if path is None:
        return None
    labels, fields = (_terms(request.options.get(name, ""), name) for name in _SELECTS)
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


def _terms(text: str, of: str) -> tuple[Term, ...]:
    return tuple(_term(part.strip(), of) for part in filter(None, _COMMA.split(text)))


def _term(part: str, of: str) -> Term:
    equal = _TERM.fullmatch(part)
    if equal is not None:
        return Term(key=equal["key"], values=frozenset([equal["value"]]), negated=bool(equal["no"]))
    one = _SET.fullmatch(part) if of == "labelSelector" else None
    if one is not None:
        values = frozenset(value.strip() for value in one["values"].split(","))
        return Term(key=one["key"], values=values, negated=bool(one["no"]))
    there = _THERE.fullmatch(part) if of == "labelSelector" else None
    if there is None:
        raise ValueError(f"the selector is not understood: {part}")
    return Term(key=there["key"], values=None, negated=bool(there["no"]))


def _field(obj: Any, path: str) -> str:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)
