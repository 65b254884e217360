"""The order of Attempts: immutable, so that a snapshot is a reference and a pin costs nothing.

A project's entries lie in chunks of at most 256, sorted by name; some changes together copy the
chunks they touch and the list of chunks (some 500 references at 100,000 Attempts), and share all
others with older states.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from nodus_api.watchcache.entry import Entry

CHUNK = 256
_FILL = 192
_LEAST = 64
"""A chunk that shrinks below is joined with a neighbour where both together are small."""

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
        """`chunks` are sorted, and none is empty; the rest follows from them unless given.

        `firsts` separate the chunks: none above a name of its own chunk, save in the first.
        """
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

    def with_edits(self, edits: Mapping[str, Entry | None]) -> "SortedEntries":
        """Return the order with each entry in the place of its name, taken out where None."""
        last = self
        for order in self.edited(edits):
            last = order or last
        return last

    def edited(self, edits: Mapping[str, Entry | None]) -> Iterator["SortedEntries | None"]:
        """Give what `with_edits` returns, at last.

        Gives None after each step of some edits, so that others may run.
        """
        by_chunk: dict[int, list[str]] = {}
        for number, name in enumerate(edits):
            by_chunk.setdefault(self._chunk_of(name), []).append(name)
            if number % CHUNK == CHUNK - 1:
                yield None
        chunks, size, fits = list(self._chunks) or [()], self.size, bool(self._chunks)
        for index, names in by_chunk.items():
            was = len(chunks[index])
            chunk = list(chunks[index])
            for name in names:
                _edit(chunk, name, edits[name])
            chunks[index] = tuple(chunk)
            size += len(chunk) - was
            fits = fits and min(was, _LEAST) <= len(chunk) <= CHUNK
            yield None
        # where none was split or joined, what began a chunk still separates it from the one before
        firsts = self._firsts if fits else None
        yield SortedEntries(tuple(chunks if fits else _fitting(chunks)), firsts, size)

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


def _edit(chunk: list[Entry], name: str, entry: Entry | None) -> None:
    at = bisect_left(chunk, name, key=_name_of)
    there = at < len(chunk) and chunk[at].name == name
    if entry is not None:
        chunk[at : at + there] = [entry]
    elif there:
        del chunk[at]


def _fitting(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Split what is too large, and join neighbours that are small together."""
    made: list[Chunk] = []
    for chunk in chunks:
        if made and len(made[-1]) + len(chunk) <= CHUNK // 2:
            made[-1] += chunk
        elif len(chunk) > CHUNK:
            made.extend(chunk[at : at + _FILL] for at in range(0, len(chunk), _FILL))
        elif chunk:
            made.append(chunk)
    return made


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
