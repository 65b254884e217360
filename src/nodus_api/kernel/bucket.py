"""One bucket of the catalog's index: the candidates of one accelerator and count (SC-370).

Its members are in rising order of (on-demand rate, name), the markets of a class side by side,
on-demand first. What the filters ask for is indexed by bitmaps over these positions, each made
when it is asked for first: most of it never is, and a bucket lives until its catalog changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any, overload

from nodus_api.kernel.bitmaps import Labelled, Ordered, bitmap, pick
from nodus_api.kernel.candidate import Candidate, CandidateKey, Family
from nodus_api.kernel.vocabulary import Market

UNHEALTHY_BELOW = 0.55
"""The health below which a candidate is avoided (SC-310)."""


class Bucket(Sequence[Candidate]):
    """Candidates of one family in their order, and bitmaps of what they have.

    Immutable, but for the indexes that it keeps once they are made.
    """

    def __init__(self, family: Family, members: Iterable[Candidate]) -> None:
        """Keep the members, which must be sorted."""
        self.family = family
        self.members = tuple(members)
        self.everything = (1 << len(self.members)) - 1

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Candidate]: ...
    def __getitem__(self, index: int | slice) -> Candidate | Sequence[Candidate]:
        """Return a member by its position."""
        return self.members[index]

    def __len__(self) -> int:
        """Return how many candidates there are."""
        return len(self.members)

    def __iter__(self) -> Iterator[Candidate]:
        """Yield the members in their order."""
        return iter(self.members)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same candidates in the same order."""
        return isinstance(other, Bucket) and self.members == other.members

    def of(self, positions: int) -> Iterator[Candidate]:
        """Yield the members at these positions, cheapest first."""
        return pick(self.members, positions)

    def keys(self, keys: Iterable[CandidateKey]) -> int:
        """Return the positions of these candidates; those of other buckets have none."""
        found = 0
        for key in keys:
            place = self.places.get(key)
            if place is not None:
                found |= 1 << place
        return found

    def whole_classes(self, positions: int) -> int:
        """Return these positions and the other market of each."""
        pairs = self._pairs
        return positions | (positions & pairs) << 1 | positions >> 1 & pairs

    def one_a_class(self, positions: int) -> int:
        """Return the first of these positions in each class."""
        return positions & ~((positions & self._pairs) << 1)

    @cached_property
    def classes(self) -> int:
        """How many classes there are."""
        return self.one_a_class(self.everything).bit_count()

    @cached_property
    def places(self) -> dict[CandidateKey, int]:
        """The position of each candidate."""
        return {member.key: position for position, member in enumerate(self.members)}

    @cached_property
    def _pairs(self) -> int:
        """The positions that the other market of their class follows."""
        names = [one.offering.name for one in self.members]
        return bitmap(one == following for one, following in pairwise(names))

    # what a class is
    @cached_property
    def accelerator_memory(self) -> Ordered:
        """GiB an accelerator."""
        return Ordered(self._column("accelerator_memory_gib"))

    @cached_property
    def vcpus(self) -> Ordered:
        """Virtual CPUs."""
        return Ordered(self._column("vcpus"))

    @cached_property
    def memory(self) -> Ordered:
        """GiB of memory."""
        return Ordered(self._column("memory_gib"))

    @cached_property
    def disk(self) -> Ordered:
        """GiB of disk."""
        return Ordered(self._column("disk_gib"))

    @cached_property
    def rates(self) -> Ordered:
        """USD per hour in the candidate's market."""
        return Ordered([one.rate for one in self.members])

    @cached_property
    def arches(self) -> Labelled:
        """Architectures of the CPU."""
        return Labelled(self._column("arch"))

    @cached_property
    def regions(self) -> Labelled:
        """Region classes."""
        return Labelled(self._column("region_class"))

    @cached_property
    def names(self) -> Labelled:
        """Names of classes."""
        return Labelled(self._column("name"))

    @cached_property
    def spot(self) -> int:
        """Those on spot."""
        return bitmap(one.market is Market.SPOT for one in self.members)

    @cached_property
    def gang_capable(self) -> int:
        """Those with an interconnect for gangs."""
        return bitmap(self._column("gang_capable"))

    # what is known of a candidate at this moment
    @cached_property
    def disabled(self) -> int:
        """Closed by an operator, or for their credentials."""
        return bitmap(
            one.stats.credentials_refused or not one.offering.enabled for one in self.members
        )

    @cached_property
    def out_of_quota(self) -> int:
        """Those whose supplier gives no more."""
        return bitmap(one.stats.supplier_quota_used_up for one in self.members)

    @cached_property
    def unhealthy(self) -> int:
        """Those that deliver too seldom."""
        return bitmap(one.figures.health < UNHEALTHY_BELOW for one in self.members)

    @cached_property
    def full(self) -> int:
        """Those of which no machine is left."""
        return bitmap(one.stats.available == 0 for one in self.members)

    @cached_property
    def largest(self) -> Ordered:
        """Machines left within one supplier offer; none where that is not known."""
        return Ordered([one.stats.largest for one in self.members])

    def resting(self, now: datetime) -> int:
        """Return those that back off until later than `now` (SC-360)."""
        return self._rests.above(now)

    @cached_property
    def _rests(self) -> Ordered:
        return Ordered([one.stats.backoff_until for one in self.members])

    @cached_property
    def digest(self) -> bytes:
        """A hash of all that placement may depend on."""
        found = sha256()
        told = None
        for one in self.members:
            if one.offering is not told:
                told = one.offering
                found.update(repr(told).encode())
            found.update(one.market.encode())
            found.update(one.stats.packed())
        return found.digest()

    def _column(self, attribute: str) -> list[Any]:
        return [getattr(one.offering, attribute) for one in self.members]
