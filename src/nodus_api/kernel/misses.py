"""What a placement ruled out: how often for which reason, and which classes are told (SC-332).

Candidates outside the families asked for are never looked at one by one (SC-370): all of a family
fail the same filter.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from nodus_api.kernel.offering import Candidate, CandidateKey, CatalogSnapshot
from nodus_api.kernel.rejection import Demand, RejectionCode
from nodus_api.kernel.request import PlacementRequest

MOST_REJECTED = 20

Miss = tuple[Candidate, RejectionCode]
"""A candidate that is ruled out, and by which filter."""

Failures = dict[CandidateKey, Miss]
"""The candidates of the families asked for that a filter rules out."""


def count_reasons(
    request: PlacementRequest, snapshot: CatalogSnapshot, failures: Failures
) -> dict[str, int]:
    """Count the reasons over all candidates, those outside the family too (SC-333)."""
    counts = Counter(code.value for _, code in failures.values())
    for family, members in snapshot.families.items():
        code = _family_code(request, family)
        if code is not None and members:
            counts[code.value] += len(members)
    return dict(sorted(counts.items()))


def list_misses(
    request: PlacementRequest,
    demand: Demand,
    feasible: Iterable[Candidate],
    failures: Failures,
) -> tuple[Miss, ...]:
    """List the classes ruled out in every market, near misses first (SC-332)."""
    open_classes = {candidate.offering.name for candidate in feasible}
    failed_here = {name for name, _ in demand.failed}
    worst: dict[str, Miss] = {}
    for candidate, code in failures.values():
        name = candidate.offering.name
        if name not in open_classes and (name not in worst or code.number > worst[name][1].number):
            worst[name] = (candidate, code)
    listed = sorted(
        worst.values(),
        key=lambda miss: (
            miss[0].offering.name not in failed_here,
            -miss[1].number,
            miss[0].offering.rate_on_demand,
            miss[0].offering.name,
        ),
    )
    for code in (RejectionCode.ACCELERATOR_COUNT_MISMATCH, RejectionCode.ACCELERATOR_MISMATCH):
        if len(listed) >= MOST_REJECTED:
            break
        cheapest = _cheapest_classes(request, demand.snapshot, code)
        listed += [(one, code) for one in islice(cheapest, MOST_REJECTED - len(listed))]
    return tuple(listed[:MOST_REJECTED])


def _family_code(request: PlacementRequest, family: tuple[str | None, int]) -> RejectionCode | None:
    allowed: tuple[str | None, ...] = request.resources.accelerators or (None,)
    if family[0] not in allowed:
        return RejectionCode.ACCELERATOR_MISMATCH
    if family[1] != request.resources.count:
        return RejectionCode.ACCELERATOR_COUNT_MISMATCH
    return None


def _cheapest_classes(
    request: PlacementRequest, snapshot: CatalogSnapshot, code: RejectionCode
) -> Iterator[Candidate]:
    """Yield a candidate a class of the families with that code; lazily, for families are sorted."""
    families = [
        members
        for family, members in snapshot.families.items()
        if _family_code(request, family) is code
    ]
    last = None
    merged = heapq.merge(*families, key=lambda c: (c.offering.rate_on_demand, c.offering.name))
    for candidate in merged:
        if candidate.offering.name != last:
            last = candidate.offering.name
            yield candidate
