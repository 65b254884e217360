"""Which Attempts a request is about: labels, fields and shards, joined by AND."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from nodus_api.watchcache.entry import Entry, Selection


class ValueSelector(Protocol):
    """A label or field selector of metav1."""

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        ...

    def matches(self, values: Mapping[str, str], /) -> bool:
        """Return whether these values are selected."""
        ...


class ShardRange(Protocol):
    """A shard selector of metav1 (LW-160)."""

    def matches(self, *, uid: str, namespace: str) -> bool:
        """Return whether an object lies in the shard."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Selectors of one request; without any, everything is chosen.

    `name` is the one name that the field selector allows, where it names one: reading it needs no
    walk (LW-100).
    """

    labels: ValueSelector | None = None
    fields: ValueSelector | None = None
    shards: ShardRange | None = None
    name: str | None = None

    @property
    def empty(self) -> bool:
        """Whether everything is chosen."""
        return self.labels is None and self.fields is None and self.shards is None

    def chooses(self, entry: Entry) -> bool:
        """Return whether an entry is chosen."""
        return self.matches(entry.project, entry.name, entry.uid, entry.selection)

    def matches(self, project: str, name: str, uid: UUID, selection: Selection) -> bool:
        """Return whether an Attempt with these values is chosen."""
        if self.name is not None and name != self.name:
            return False
        if self.labels is not None and not self.labels.matches(selection.labels):
            return False
        if self.fields is not None and not self.fields.matches(
            {**selection.fields, "metadata.name": name, "metadata.namespace": project}
        ):
            return False
        return self.shards is None or self.shards.matches(uid=str(uid), namespace=project)


EVERYTHING = Filter()
