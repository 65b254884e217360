"""What a placement ruled out: how often for which reason, and which classes are told (SC-332).

Candidates outside the families asked for are never looked at one by one (SC-370): all of a family
fail the same filter. The list is filled from buckets sorted by rate, and ends when it is full.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from nodus_api.kernel.offering import Candidate, CatalogSnapshot, by_rate
from nodus_api.kernel.rejection import Demand, RejectionCode, Sifted
from nodus_api.kernel.request import PlacementRequest

MOST_REJECTED = 20

Miss = tuple[Candidate, RejectionCode]
"""A candidate that is ruled out, and by which filter."""

_NEAREST_FIRST = tuple(sorted(RejectionCode, key=lambda code: -code.number))


def count_reasons(
    request: PlacementRequest, snapshot: CatalogSnapshot, sifted: Sequence[Sifted]
) -> dict[str, int]:
    """Count the reasons over all candidates, those outside the family too (SC-333)."""
    counts: Counter[str] = Counter()
    for one in sifted:
        for code, failing in one.ruled_out.items():
            counts[code.value] += failing.bit_count()
    same_accelerator = snapshot.count(request.accelerators)
    same_family = sum(len(one.bucket) for one in sifted)
    counts[RejectionCode.ACCELERATOR_MISMATCH.value] += snapshot.size - same_accelerator
    counts[RejectionCode.ACCELERATOR_COUNT_MISMATCH.value] += same_accelerator - same_family
    return {code: count for code, count in sorted(counts.items()) if count}


def list_misses(
    request: PlacementRequest, demand: Demand, sifted: Sequence[Sifted]
) -> tuple[Miss, ...]:
    """List the classes ruled out in every market, near misses first (SC-332)."""
    return tuple(islice(_misses(request, demand, sifted), MOST_REJECTED))


def _misses(request: PlacementRequest, demand: Demand, sifted: Sequence[Sifted]) -> Iterator[Miss]:
    shut = [one.bucket.everything & ~one.bucket.whole_classes(one.feasible) for one in sifted]
    if demand.failed:
        names = {name for name, _ in demand.failed}
        failed = [
            one.bucket.names.among(names) & left for one, left in zip(sifted, shut, strict=True)
        ]
        yield from _nearest_first(sifted, failed)
        shut = [left & ~here for left, here in zip(shut, failed, strict=True)]
    yield from _nearest_first(sifted, shut)
    yield from _of_other_families(request, demand.snapshot)


def _nearest_first(sifted: Sequence[Sifted], among: Sequence[int]) -> Iterator[Miss]:
    """Yield a candidate a class: the nearest reason first, then by (on-demand rate, name)."""
    among = list(among)
    for code in _NEAREST_FIRST:
        found = []
        for place, one in enumerate(sifted):
            if here := one.ruled_out.get(code, 0) & among[place]:
                among[place] &= ~one.bucket.whole_classes(here)
                found.append(one.bucket.of(one.bucket.one_a_class(here)))
        for candidate in heapq.merge(*found, key=by_rate) if len(found) > 1 else chain(*found):
            yield candidate, code


def _of_other_families(request: PlacementRequest, snapshot: CatalogSnapshot) -> Iterator[Miss]:
    allowed = request.accelerators
    for one in snapshot.cheapest_with(allowed):
        if one.offering.count != request.resources.count:
            yield one, RejectionCode.ACCELERATOR_COUNT_MISMATCH
    for one in snapshot.cheapest():
        if one.offering.accelerator not in allowed:
            yield one, RejectionCode.ACCELERATOR_MISMATCH
