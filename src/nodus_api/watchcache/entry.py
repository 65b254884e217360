"""One Attempt in memory: its place, its selectable values and its finished bytes.

Bytes, never parsed objects: 50,000 Attempts of 1,875 bytes take 2.2 KB each this way and 9 KB as
dicts (storage.md section 6).
"""

from collections.abc import Mapping
from uuid import UUID
from weakref import WeakValueDictionary

import orjson

HEAD = b'{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":"'
"""Every document up to the quote that opens the resourceVersion: what the projection writes and a
CHECK of `attempt_objects` demands."""


class Selection:
    """Labels and selectable fields of one or many Attempts; equal texts share one object."""

    __slots__ = ("__weakref__", "fields", "labels")

    def __init__(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self.labels = labels
        self.fields = fields


class Selections:
    """Keeps one `Selection` for each distinct text, for as long as something holds it."""

    def __init__(self) -> None:
        self._by_text: WeakValueDictionary[str, Selection] = WeakValueDictionary()

    def of(self, text: str) -> Selection:
        """Return the selection that the JSON `text` of the log says."""
        found = self._by_text.get(text)
        if found is None:
            values = orjson.loads(text)
            found = Selection(values["labels"], values["fields"])
            self._by_text[text] = found
        return found


class Entry:
    """One version of one Attempt; never changed, so readers may keep it."""

    __slots__ = ("body", "name", "project", "rev", "selection", "uid")

    def __init__(
        self,
        *,
        project: str,
        name: str,
        uid: UUID,
        rev: int,
        selection: Selection,
        body: bytes | None,
    ) -> None:
        """`body` is the document with its resourceVersion, None where it must be fetched."""
        self.project = project
        self.name = name
        self.uid = uid
        self.rev = rev
        self.selection = selection
        self.body = body


def finished(doc: bytes, rev: int) -> bytes:
    """Return a stored document with its resourceVersion put in; a copy of exactly its size."""
    return b"%b%d%b" % (HEAD, rev, doc[len(HEAD) :])


def at_revision(body: bytes, rev: int) -> bytes:
    """Return a finished document with another resourceVersion, as DELETED needs it (LW-133)."""
    close = body.index(b'"', len(HEAD))
    return b"%b%d%b" % (HEAD, rev, body[close:])
