"""The digest of Attempts in memory: equal to the one that storage makes of the rows (G11).

Of each Attempt the first 60 bits of the MD5 of `uid rev name sel md5(doc)`, where `sel` is spelled
as jsonb spells it and `doc` has an empty resourceVersion; summed by project, so order is no matter.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from hashlib import md5

from nodus_api.clock import Clock
from nodus_api.watchcache.entry import HEAD, Entry, Selection
from nodus_api.watchcache.undo import Turns

_AT_ONCE = 64
"""Entries between two looks at the clock."""

_REMEMBERED = 4096

Digests = dict[str, tuple[int, int]]
"""By project: how many Attempts, and the sum of their digests."""


class Digester:
    """Makes digests; Attempts that share labels or fields have them spelled once."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Mapping[str, str], str]] = {}

    def of(self, entry: Entry) -> int:
        """Return the digest of one Attempt, which has its body."""
        doc = md5(HEAD, usedforsecurity=False)
        doc.update(memoryview(entry.body or b"")[len(HEAD) + len(str(entry.rev)) :])
        text = f"{entry.uid} {entry.rev} {entry.name} {self.spelled(entry.selection)} "
        whole = md5(f"{text}{doc.hexdigest()}".encode(), usedforsecurity=False)
        return int(whole.hexdigest()[:15], 16)

    def spelled(self, selection: Selection) -> str:
        """Return a selection as jsonb spells it."""
        fields, labels = self._spelled(selection.fields), self._spelled(selection.labels)
        return f'{{"fields": {fields}, "labels": {labels}}}'

    def _spelled(self, values: Mapping[str, str]) -> str:
        # the mapping is kept beside its text, so that its id is of nothing else meanwhile
        found = self._texts.get(id(values))
        if found is None:
            if len(self._texts) >= _REMEMBERED:
                self._texts.clear()
            pairs = sorted(values.items(), key=_jsonb_order)
            found = self._texts[id(values)] = values, json.dumps(dict(pairs), ensure_ascii=False)
        return found[1]


async def digests_of(pieces: AsyncIterator[Iterable[Entry]], clock: Clock) -> Digests:
    """Return the digest of each project, giving the loop to others every 3 ms."""
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    digester, turns, since = Digester(), Turns(clock), 0
    async for piece in pieces:
        for entry in piece:
            counts[entry.project] = counts.get(entry.project, 0) + 1
            totals[entry.project] = totals.get(entry.project, 0) + digester.of(entry)
            since += 1
            if since == _AT_ONCE:
                since = 0
                await turns.give()
    return {project: (count, totals[project]) for project, count in counts.items()}


def _jsonb_order(pair: tuple[str, str]) -> tuple[int, bytes]:
    """Shorter keys come first, then by their bytes."""
    key = pair[0].encode()
    return len(key), key
