"""Which Attempts have a label or a field value: a set of slots for each (storage.md section 6).

Every Attempt has a slot, a small number that it keeps for life. A set of slots is a bitmap, some
bits an Attempt; a value that one Attempt alone has, as names of Jobs often are, is kept as the slot
itself, since an empty bitmap takes 200 bytes.

The index tells of the present state alone. Whoever walks an older one asks of each entry whether it
is still the present version of its Attempt, and checks the others value by value.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TypeVar

from pyroaring import BitMap

from nodus_api.watchcache.entry import NOT_INDEXED, Entry
from nodus_api.watchcache.filters import Filter
from nodus_api.watchcache.terms import Key, Term, split, values_of

GATHERED = 4096
"""At most so many Attempts are taken from the index and sorted, in one step of the loop."""

_ALL, _TOLD, _JUDGED = 256, 32, 8
"""Entries for one step of the loop: all are chosen, the index tells of most, a selector of perhaps
1,000 terms must judge each."""

_WORTH = 8
"""Taking one from the index and sorting it costs as much as passing so many by."""

_K = TypeVar("_K")

_name_of = attrgetter("project", "name")
_rev_of = attrgetter("rev")


class Index:
    """All Attempts of a cache by slot, project, and value."""

    def __init__(self) -> None:
        self.present: list[Entry | None] = []
        self._free: list[int] = []
        self._all = BitMap()
        self._projects: dict[str, BitMap] = {}
        self._by_value: dict[tuple[Key, str], int | BitMap] = {}
        self._by_key: dict[Key, int | BitMap] = {}

    def slot(self) -> int:
        """Return a slot for an Attempt that has none."""
        if self._free:
            return self._free.pop()
        self.present.append(None)
        return len(self.present) - 1

    def put(self, entry: Entry, before: Entry | None) -> None:
        """Make `entry` the present version of its slot; `before` is the one until now."""
        self.present[entry.slot] = entry
        if before is None:
            self._all.add(entry.slot)
            self._projects.setdefault(entry.project, BitMap()).add(entry.slot)
            self._change(entry.slot, {}, dict(values_of(entry.selection)))
        elif before.selection is not entry.selection:
            self._change(
                entry.slot, dict(values_of(before.selection)), dict(values_of(entry.selection))
            )

    def remove(self, entry: Entry) -> None:
        """Take an Attempt out; its slot may pass to another."""
        self.present[entry.slot] = None
        self._free.append(entry.slot)
        self._all.remove(entry.slot)
        of_project = self._projects[entry.project]
        of_project.remove(entry.slot)
        if not of_project:
            del self._projects[entry.project]
        self._change(entry.slot, dict(values_of(entry.selection)), {})

    def _change(self, slot: int, was: Mapping[Key, str], now: Mapping[Key, str]) -> None:
        for key, value in was.items():
            if now.get(key) != value:
                _discard(self._by_value, (key, value), slot)
                if key not in now:
                    _discard(self._by_key, key, slot)
        for key, value in now.items():
            if was.get(key) != value:
                _add(self._by_value, (key, value), slot)
                if key not in was:
                    _add(self._by_key, key, slot)

    # -- read -------------------------------------------------------------------------------

    def choice(self, project: str | None, chosen: Filter) -> "Choice":
        """Return what the filter chooses of a project, or of all, as it stands now."""
        terms, rest = split(chosen)
        if not terms:
            return Choice(chosen, chosen, self.present, None)
        return Choice(chosen, rest, self.present, self._slots(project, terms))

    def _slots(self, project: str | None, terms: Sequence[Term]) -> BitMap:
        """Return the slots that all terms leave; never touches those of other projects."""
        found = self._all if project is None else self._projects.get(project, BitMap())
        for term in sorted(terms, key=lambda term: term.negated):
            having = self._having(term, found)
            found = found - having if term.negated else having
        return found if found is not self._all else found.copy()

    def _having(self, term: Term, among: BitMap) -> BitMap:
        if term.values is None:
            return _within(self._by_key.get(term.key), among)
        found = BitMap()
        for value in term.values:
            found |= _within(self._by_value.get((term.key, value)), among)
        if term.or_absent:
            found |= among - _within(self._by_key.get(term.key), among)
        return found


class Choice:
    """What a filter chooses, answered by the index as of one moment where it can."""

    __slots__ = ("_chosen", "_present", "_rest", "_slots")

    def __init__(
        self,
        chosen: Filter,
        rest: Filter,
        present: Sequence[Entry | None],
        slots: BitMap | None,
    ) -> None:
        """`slots` are those that the index leaves, None where it can tell nothing."""
        self._chosen = chosen
        self._rest = rest
        self._present = present
        self._slots = slots

    @classmethod
    def unaided(cls, chosen: Filter) -> "Choice":
        """Return the choice of a filter among entries that no index tells of."""
        return cls(chosen, chosen, (), None)

    @property
    def at_once(self) -> int:
        """How many entries one step may take: fewer where a selector judges them."""
        if self._chosen.empty:
            return _ALL
        return _TOLD if self._rest.empty else _JUDGED

    def of(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the chosen ones of any entries, of whatever state not newer than the choice.

        An entry of before that is the present version still was it when the choice was made.
        """
        if self._slots is None:
            return list(entries if self._chosen.empty else filter(self._chosen.chooses, entries))
        slots, present, chooses = self._slots, self._present, self._chosen.chooses
        found = [
            one
            for one in entries
            if (
                one.slot in slots
                if one.slot != NOT_INDEXED and present[one.slot] is one
                else chooses(one)
            )
        ]
        return found if self._rest.empty else list(filter(self._rest.chooses, found))

    def gathered(self, size: int, limit: int, *, by_revision: bool = False) -> list[Entry] | None:
        """Return the entries that the index leaves, in order, where that is less than to walk.

        They are to be passed through `of` still. `size` is what a walk of all would pass by,
        `limit` where it would end (0: nowhere). To be called in the step in which the choice was
        made.
        """
        if self._slots is None:
            return None
        count = len(self._slots)
        walk = min(size, limit * size // count) if limit and count else size
        most = GATHERED if self._rest.empty else GATHERED // 4
        if count > most or count * _WORTH > walk:
            return None
        found = _taken(self._present, self._slots)
        found.sort(key=_rev_of if by_revision else _name_of)
        return found


def _taken(present: Sequence[Entry | None], slots: BitMap) -> list[Entry]:
    if len(slots) < 2:
        return [one for slot in slots if (one := present[slot]) is not None]
    return list(itemgetter(*slots)(present))


def _within(having: int | BitMap | None, among: BitMap) -> BitMap:
    if having is None:
        return BitMap()
    if isinstance(having, int):
        return BitMap([having]) if having in among else BitMap()
    return among & having


def _add(sets: dict[_K, int | BitMap], key: _K, slot: int) -> None:
    held = sets.get(key)
    if held is None:
        sets[key] = slot
    elif not isinstance(held, int):
        held.add(slot)
    elif held != slot:
        sets[key] = BitMap((held, slot))


def _discard(sets: dict[_K, int | BitMap], key: _K, slot: int) -> None:
    held = sets[key]
    if isinstance(held, int):
        del sets[key]
        return
    held.discard(slot)
    if len(held) == 1:
        sets[key] = held[0]
