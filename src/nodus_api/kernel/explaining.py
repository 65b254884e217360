"""What a decision tells beside its choice, and how one class stands under a kept request.

The numbers of a rejection are those of the moment (free machines, health, rates), so its
sentence is made when the decision is, and kept with it (SC-009b, SC-333).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodus_api.kernel.offering import Candidate, CatalogSnapshot
from nodus_api.kernel.placement import Decision, PlacementRequest, Ranked, demand_of, rank
from nodus_api.kernel.rejection import RejectionCode, sift
from nodus_api.kernel.waiting import explain


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldClass:
    """One rejected class: the market that came nearest, its code, and its sentence."""

    offering: str
    market: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The sentences of one decision; `sentence` is its own, where it chose nothing.

    `relaxed` tells that only candidates were left that are avoided otherwise (SC-311).
    """

    classes: tuple[ToldClass, ...]
    sentence: str | None
    relaxed: bool

    def to_json(self, counters: Mapping[str, int]) -> dict[str, Any]:
        """Write it beside the decision's counters, as both are kept."""
        return {
            "reasons": dict(counters),
            "classes": [
                {
                    "offering": one.offering,
                    "market": one.market,
                    "reason": one.reason,
                    "message": one.message,
                }
                for one in self.classes
            ],
            "sentence": self.sentence,
            "relaxed": self.relaxed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one candidate stands: ruled out with a sentence, or ranked."""

    candidate: Candidate
    code: RejectionCode | None
    message: str | None
    ranked: Ranked | None


def told_of(
    request: PlacementRequest, snapshot: CatalogSnapshot, decision: Decision, now: datetime
) -> Told:
    """Return the sentences of a decision that `place` made of the same three."""
    demand = demand_of(request, snapshot, now)
    return Told(
        classes=tuple(
            ToldClass(
                offering=candidate.offering.name,
                market=candidate.market.value,
                reason=code.value,
                message=explain(demand, candidate, code),
            )
            for candidate, code in decision.misses
        ),
        sentence=decision.waiting_message,
        relaxed=decision.relaxed,
    )


def standings(
    request: PlacementRequest, snapshot: CatalogSnapshot, offering: str, now: datetime
) -> tuple[Standing, ...]:
    """Return how the candidates of one class stand; nothing if the catalog has none.

    Soft reasons count: they explain why the class came after others (SC-311).
    """
    family = snapshot.layout.families.get(offering)
    if family is None:
        return ()
    demand = demand_of(request, snapshot, now)
    sifted = sift(demand, snapshot.families[family])
    found = []
    for candidate in sifted.bucket.of(sifted.bucket.names.among([offering])):
        code = sifted.code_of(candidate)
        found.append(
            Standing(
                candidate=candidate,
                code=code,
                message=None if code is None else explain(demand, candidate, code),
                ranked=rank(demand, candidate) if code is None else None,
            )
        )
    return tuple(found)
