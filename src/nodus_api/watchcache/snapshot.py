"""The order of Attempts: immutable, so that a snapshot is a reference and a pin costs nothing.

A project's entries lie in chunks of at most 256, sorted by name; a change copies one chunk and the
list of chunks (some 400 references at 100,000 Attempts), and shares all others with older states.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from nodus_api.watchcache.entry import Entry

CHUNK = 256
_FILL = 192
_name_of = attrgetter("name")

Chunk = tuple[Entry, ...]


class SortedEntries:
    """The entries of one project by name, in byte order (LW-106)."""

    __slots__ = ("_chunks", "_firsts", "size")

    def __init__(
        self,
        chunks: tuple[Chunk, ...] = (),
        firsts: tuple[str, ...] | None = None,
        size: int | None = None,
    ) -> None:
        """`chunks` are sorted, and none is empty; the rest follows from them unless given."""
        self._chunks = chunks
        self._firsts = tuple(chunk[0].name for chunk in chunks) if firsts is None else firsts
        self.size = sum(map(len, chunks)) if size is None else size

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "SortedEntries":
        """Return an order of entries that come in any order, names distinct."""
        ordered = sorted(entries, key=_name_of)
        return cls(tuple(tuple(ordered[at : at + _FILL]) for at in range(0, len(ordered), _FILL)))

    def get(self, name: str) -> Entry | None:
        """Return the entry of that name."""
        if not self._chunks:
            return None
        chunk = self._chunks[self._chunk_of(name)]
        at = bisect_left(chunk, name, key=_name_of)
        return chunk[at] if at < len(chunk) and chunk[at].name == name else None

    def put(self, entry: Entry) -> "SortedEntries":
        """Return the order with `entry` in the place of its name."""
        if not self._chunks:
            return SortedEntries(((entry,),))
        index = self._chunk_of(entry.name)
        chunk = self._chunks[index]
        at = bisect_left(chunk, entry.name, key=_name_of)
        if at < len(chunk) and chunk[at].name == entry.name:
            return self._with(index, 1, ((*chunk[:at], entry, *chunk[at + 1 :]),))
        grown = (*chunk[:at], entry, *chunk[at:])
        if len(grown) <= CHUNK:
            return self._with(index, 1, (grown,))
        half = len(grown) // 2
        return self._with(index, 1, (grown[:half], grown[half:]))

    def remove(self, name: str) -> "SortedEntries":
        """Return the order without that name."""
        if self.get(name) is None:
            return self
        index = self._chunk_of(name)
        chunk = self._chunks[index]
        at = bisect_left(chunk, name, key=_name_of)
        left = chunk[:at] + chunk[at + 1 :]
        if not left:
            return self._with(index, 1, ())
        if index + 1 < len(self._chunks) and len(left) + len(self._chunks[index + 1]) <= CHUNK // 2:
            return self._with(index, 2, (left + self._chunks[index + 1],))
        return self._with(index, 1, (left,))

    def edited(self, changes: Mapping[str, Entry | None]) -> Iterator["SortedEntries | None"]:
        """Give the order with each entry put in the place of its name, and taken out where None.

        Gives None after each step of some changes, so that others may run, and the order at last.
        """
        by_chunk: dict[int, dict[str, Entry | None]] = {}
        for number, (name, entry) in enumerate(changes.items()):
            by_chunk.setdefault(self._chunk_of(name), {})[name] = entry
            if number % CHUNK == 0:
                yield None
        made: list[Chunk] = []
        for index, chunk in enumerate(self._chunks or ((),)):
            edits = by_chunk.get(index)
            if edits is None:
                made.append(chunk)
                continue
            merged: dict[str, Entry | None] = {entry.name: entry for entry in chunk}
            merged.update(edits)
            left = sorted((e for e in merged.values() if e is not None), key=_name_of)
            size = _FILL if len(left) > CHUNK else CHUNK
            made.extend(tuple(left[cut : cut + size]) for cut in range(0, len(left), size))
            yield None
        yield SortedEntries(tuple(chunk for chunk in made if chunk))

    def rank(self, name: str) -> int:
        """Return how many names sort before `name`."""
        if not self._chunks:
            return 0
        index = self._chunk_of(name)
        before = sum(len(chunk) for chunk in self._chunks[:index])
        return before + bisect_left(self._chunks[index], name, key=_name_of)

    def pieces(self, start: str = "") -> Iterator[Chunk]:
        """Give the entries whose name is `start` or sorts after it, a chunk at a time."""
        if not self._chunks:
            return
        index = self._chunk_of(start)
        first = self._chunks[index]
        at = bisect_left(first, start, key=_name_of)
        if at < len(first):
            yield first[at:] if at else first
        yield from self._chunks[index + 1 :]

    def _chunk_of(self, name: str) -> int:
        return max(bisect_right(self._firsts, name) - 1, 0)

    def _with(self, index: int, replaced: int, new: tuple[Chunk, ...]) -> "SortedEntries":
        end = index + replaced
        was = sum(len(chunk) for chunk in self._chunks[index:end])
        return SortedEntries(
            (*self._chunks[:index], *new, *self._chunks[end:]),
            (*self._firsts[:index], *(chunk[0].name for chunk in new), *self._firsts[end:]),
            self.size - was + sum(map(len, new)),
        )


Start = tuple[str, str]
"""Where a page begins: the first (project, name) that may stand in it."""


class ScopeSnapshot:
    """All entries of one project, or of all projects in order, at one revision."""

    __slots__ = ("_parts", "rev", "size")

    def __init__(self, rev: int, parts: tuple[tuple[str, SortedEntries], ...]) -> None:
        """`parts` are (project, order), sorted by project; `rev` is the state's revision."""
        self.rev = rev
        self._parts = parts
        self.size = sum(order.size for _, order in parts)

    @property
    def parts(self) -> tuple[tuple[str, SortedEntries], ...]:
        """The orders by project."""
        return self._parts

    def get(self, project: str, name: str) -> Entry | None:
        """Return one entry."""
        return next((o.get(name) for p, o in self._parts if p == project), None)

    def named(self, name: str) -> list[Entry]:
        """Return the entries of that name, one a project at most (LW-100)."""
        return [found for _, order in self._parts if (found := order.get(name)) is not None]

    def pieces(self, start: Start | None = None) -> Iterator[Chunk]:
        """Give the entries from `start` on, in order, a chunk at a time."""
        for project, order in self._parts:
            if start is None or project > start[0]:
                yield from order.pieces()
            elif project == start[0]:
                yield from order.pieces(start[1])

    def after(self, entry: Entry) -> int:
        """Return how many entries follow `entry` (LW-111)."""
        total = 0
        for project, order in self._parts:
            if project > entry.project:
                total += order.size
            elif project == entry.project:
                total += order.size - order.rank(entry.name) - 1
        return total
