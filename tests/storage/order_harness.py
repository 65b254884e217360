"""Writers that hurt the order of changes, readers that follow it, and a judge of what they saw.

The judge knows no SQL: a way of ordering is given to it as an `Ordering`, so that a broken one can
be shown to be found (storage.md sections 3.1 and 11.1).
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import asyncpg

WRITERS = 6
POLL_SECONDS = (0.001, 0.005, 0.020)
LIMITS = (7, 100, 1000)

Key = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a log: version `ver` (None: deleted) of an object, at `rev`."""

    rev: int
    key: Key
    ver: int | None
    prev_rev: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All objects with their versions, as of `head`."""

    head: int
    objects: dict[Key, int]


class Ordering(Protocol):
    """A way to write changes and to read them in order."""

    gap_free: bool

    async def write(self, chance: random.Random) -> list[tuple[Key, int | None]]:
        """Run one transaction; return the versions it committed, none if it did not."""
        ...

    async def read(self, after: int, limit: int) -> list[Row]:
        """Return the next rows of the log."""
        ...

    async def list(self) -> Listing | None:
        """Return all objects in one view, None where this ordering has no lists."""
        ...


@dataclass(kw_only=True)
class Observed:
    """What a run wrote and what its readers saw."""

    gap_free: bool
    committed: list[tuple[Key, int | None]] = field(default_factory=list)
    seen: list[list[Row]] = field(default_factory=lambda: [[] for _ in POLL_SECONDS])
    lists: list[Listing] = field(default_factory=list)

    def faults(self) -> dict[str, int]:
        """Return how often each rule of order was broken, broken ones alone."""
        counts = {
            "committed change never seen": len(self.skipped()),
            "order of an object broken": sum(map(count_order_breaks, self.seen)),
            "gap in the revisions": sum(map(count_gaps, self.seen)) if self.gap_free else 0,
            "wrong predecessor": sum(map(count_wrong_predecessors, self.seen)),
            "readers saw different logs": sum(rows != self.seen[0] for rows in self.seen),
            "list unequal to the replay": sum(
                listing.objects != replay(self.seen[0], listing.head) for listing in self.lists
            ),
        }
        return {fault: count for fault, count in counts.items() if count}

    def skipped(self) -> set[tuple[Key, int | None]]:
        """Return the committed changes that some reader missed."""
        written = set(self.committed)
        return {change for rows in self.seen for change in written - {(r.key, r.ver) for r in rows}}


def count_gaps(rows: list[Row]) -> int:
    """Count the rows that do not follow their predecessor by one."""
    return sum(later.rev != earlier.rev + 1 for earlier, later in itertools.pairwise(rows))


def count_order_breaks(rows: list[Row]) -> int:
    """Count the rows whose version is not the object's last one plus one."""
    last: dict[Key, int] = {}
    breaks = 0
    for row in rows:
        if row.ver is None:
            last.pop(row.key, None)
            continue
        breaks += row.ver != last.get(row.key, 0) + 1
        last[row.key] = row.ver
    return breaks


def count_wrong_predecessors(rows: list[Row]) -> int:
    """Count the rows whose `prev_rev` is not the revision that held the object before."""
    last: dict[Key, int] = {}
    wrong = 0
    for row in rows:
        if row.prev_rev is not None:
            wrong += last.get(row.key) != row.prev_rev
        last[row.key] = row.rev
    return wrong


def replay(rows: list[Row], head: int) -> dict[Key, int]:
    """Return the objects that the log says there are at `head`."""
    objects: dict[Key, int] = {}
    for row in rows:
        if row.rev > head:
            break
        if row.ver is None:
            objects.pop(row.key)
        else:
            objects[row.key] = row.ver
    return objects


async def observe(
    ordering: Ordering, *, seconds: float, seed: int, enough: Callable[[Observed], bool]
) -> Observed:
    """Write and read at once for so long, or until `enough`; then let the readers finish."""
    run = _Run(ordering, seconds, enough)
    async with asyncio.TaskGroup() as followers:
        for number in range(len(POLL_SECONDS)):
            followers.create_task(run.read(number))
        followers.create_task(run.list())
        async with asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                chance = random.Random(seed * 100 + number)  # noqa: S311 - a load, not a secret
                writers.create_task(run.write(chance))
        run.written.set()
    return run.observed


class _Run:
    """One run: what its writers, readers and lister share."""

    def __init__(
        self, ordering: Ordering, seconds: float, enough: Callable[[Observed], bool]
    ) -> None:
        self._ordering = ordering
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._enough = enough
        self.written = asyncio.Event()
        self.observed = Observed(gap_free=ordering.gap_free)

    async def write(self, chance: random.Random) -> None:
        while self._loop.time() < self._deadline and not self._enough(self.observed):
            self.observed.committed += await self._ordering.write(chance)

    async def read(self, number: int) -> None:
        rows, limit = self.observed.seen[number], LIMITS[number]
        while True:
            last = self.written.is_set()
            piece = await self._ordering.read(rows[-1].rev if rows else 0, limit)
            rows += piece
            if len(piece) == limit:
                continue
            if last:
                return
            await asyncio.sleep(POLL_SECONDS[number])

    async def list(self) -> None:
        while not self.written.is_set():
            listing = await self._ordering.list()
            if listing is not None:
                self.observed.lists.append(listing)
            await asyncio.sleep(0.05)


async def pause(chance: random.Random) -> None:
    """Let others in between, for up to 3 ms, half of the time."""
    if chance.random() < 0.5:
        await asyncio.sleep(chance.uniform(0, 0.003))


class RolledBack(Exception):
    """The writer changed its mind."""


@contextlib.contextmanager
def perhaps_rolled_back() -> Iterator[None]:
    """Take a rollback for what it is: nothing committed."""
    with contextlib.suppress(RolledBack, asyncpg.DeadlockDetectedError):
        yield
