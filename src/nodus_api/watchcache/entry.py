"""One Attempt in memory: its place, its selectable values and its finished bytes.

Bytes, never parsed objects: 50,000 Attempts of 1,875 bytes take 2.2 KB each this way and 9 KB as
dicts (storage.md section 6).
"""

from collections.abc import Mapping
from operator import attrgetter
from sys import intern
from uuid import UUID
from weakref import WeakValueDictionary

import orjson

HEAD = b'{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":"'
"""Every document up to the quote that opens the resourceVersion: what the projection writes and a
CHECK of `attempt_objects` demands."""


class Values(dict[str, str]):
    """Labels, or selectable fields; equal ones are one object. Never changed."""

    __slots__ = ("__weakref__",)


class Selection:
    """Labels and selectable fields of one or many Attempts."""

    __slots__ = ("fields", "labels")

    def __init__(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self.labels = labels
        self.fields = fields


class Selections:
    """Gives equal labels, equal fields and, as long as they are recent, equal texts one object.

    Attempts of a Job share their labels and those in one state their fields, while hardly two
    Attempts share both: so the two are kept apart, as long as something holds them.
    """

    _RECENT = 1024

    def __init__(self) -> None:
        self._recent: dict[str, Selection] = {}
        self._values: WeakValueDictionary[tuple[str, ...], Values] = WeakValueDictionary()

    def of(self, text: str) -> Selection:
        """Return the selection that the JSON `text` of the log says."""
        found = self._recent.get(text)
        if found is None:
            values = orjson.loads(text)
            found = Selection(self._shared(values["labels"]), self._shared(values["fields"]))
            if len(self._recent) >= self._RECENT:
                self._recent.clear()
            self._recent[text] = found
        return found

    def _shared(self, values: Mapping[str, str]) -> Values:
        key = tuple(intern(text) for pair in values.items() for text in pair)
        found = self._values.get(key)
        if found is None:
            pairs = iter(key)
            found = self._values[key] = Values(zip(pairs, pairs, strict=True))
        return found


NOT_INDEXED = -1
"""The slot of a version that the cache does not hold as the present one."""


class Entry:
    """One version of one Attempt; never changed, so readers may keep it."""

    __slots__ = ("body", "name", "project", "rev", "selection", "slot", "uid")

    def __init__(
        self,
        *,
        project: str,
        name: str,
        uid: UUID,
        rev: int,
        selection: Selection,
        body: bytes | None,
        slot: int = NOT_INDEXED,
    ) -> None:
        """`body` is the document with its resourceVersion, None where it must be fetched.

        `slot` is the Attempt's place in the index, the same for all its versions.
        """
        self.project = project
        self.name = name
        self.uid = uid
        self.rev = rev
        self.selection = selection
        self.body = body
        self.slot = slot


body_of = attrgetter("body")
"""Reads bodies at the speed of C: pages go through hundreds of them."""


def finished(doc: bytes, rev: int) -> bytes:
    """Return a stored document with its resourceVersion put in; a copy of exactly its size."""
    return b"%b%d%b" % (HEAD, rev, doc[len(HEAD) :])


def at_revision(body: bytes, rev: int) -> bytes:
    """Return a finished document with another resourceVersion, as DELETED needs it (LW-133)."""
    close = body.index(b'"', len(HEAD))
    return b"%b%d%b" % (HEAD, rev, body[close:])
