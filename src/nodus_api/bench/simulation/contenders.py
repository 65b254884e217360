"""Who places a study's week: the three profiles, and two baselines over the same candidates.

The baselines are the product too, with one thing left out: spot, by the manifests' own policy, or
the scores, by another choice among what the product's filters let through.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import Decide, Decision, PlacementRequest, place
from nodus_api.kernel.vocabulary import Profile

_LEAST = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way to place everything."""

    name: str
    profile: Profile = Profile.BALANCED
    spot: bool = True
    decide: Decide = place

    @property
    def baseline(self) -> bool:
        """Whether it is what the profiles are compared with."""
        return self.decide is not place or not self.spot

    def asks(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a spec as it asks to be placed this way."""
        placement = dict(spec["placement"]) | {"profile": self.profile.value}
        if not self.spot:
            placement["interruptible"] = "Never"
        return {**spec, "placement": placement}


def cheapest_first(request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime) -> Decision:
    """Choose the lowest rate, in whichever market, of what the product would consider.

    The product is asked again with a limit just below its own choice, until nothing is left: so
    that every filter is its own. What only its second pass would take (SC-311) is taken only
    where the first finds nothing at all.
    """
    decision = place(request, snapshot, now)
    while decision.chosen is not None:
        rate = decision.chosen.candidate.rate
        if rate < _LEAST:
            break
        lower = place(replace(request, max_rate_usd_per_hour=rate - _LEAST), snapshot, now)
        if lower.chosen is None or lower.relaxed != decision.relaxed:
            break
        decision = lower
    return decision


CONTENDERS = (
    Contender(name="Balanced"),
    Contender(name="Cost", profile=Profile.COST),
    Contender(name="Speed", profile=Profile.SPEED),
    Contender(name="cheapest first", decide=cheapest_first),
    Contender(name="on-demand only", spot=False),
)
