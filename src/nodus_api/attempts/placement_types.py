"""A placement on the wire: the decision, its explanation, what it predicted.

Published like the rest of `types`. An estimate's placementPreview has the shape of
`PlacementExplain`, so it stands apart from the Attempt.
"""

from pydantic import Field

from nodus_api.metav1.objects import Int64, WireObject

_V1 = "dev.nodus.v1"


class PlacementRejection(WireObject):
    """PlacementRejection is one offering class that a placement ruled out."""

    schema_name = f"{_V1}.PlacementRejection"

    offering_class: str = Field(
        alias="offeringClass", description="The offering class that was ruled out."
    )
    reason: str = Field(
        description="Why, as a code that does not change, for example InsufficientCapacity."
    )


class PlacementExplain(WireObject):
    """PlacementExplain is the scheduler's own account of a placement.

    The placementPreview of an estimate has the same shape.
    """

    schema_name = f"{_V1}.PlacementExplain"

    fallbacks: tuple[str, ...] | None = Field(
        None, description="The offering classes that would be tried next, best first; at most 5."
    )
    profile: str = Field(description="The placement profile that weighted the scores.")
    rejected: tuple[PlacementRejection, ...] = Field(
        description="Offering classes that were ruled out, each with why; at most 20, near misses "
        "first."
    )
    scores: dict[str, str] | None = Field(
        None,
        description="The winner's scores by name, decimals from 0 to 1. fit, timeToResult, "
        "costToComplete, recoveryValue and health.",
    )


class AttemptPlacement(WireObject):
    """AttemptPlacement is the placement decision as customers see it; it never names a provider."""

    schema_name = f"{_V1}.AttemptPlacement"

    candidates: Int64 = Field(description="How many offerings were considered.")
    explain: PlacementExplain = Field(description="Why this offering and not another.")
    hedged: bool | None = Field(
        None, description="Whether a second machine was started to race the first."
    )
    interruptible: bool | None = Field(
        None, description="Whether the capacity can be reclaimed while the Attempt runs."
    )
    offering: str | None = Field(
        None,
        description="The offering class that was chosen, for example h100-sxm-80g-x1-us; left out "
        "while the Attempt is queued.",
    )
    profile: str = Field(description="The placement profile. Balanced, Cost or Speed.")
    rate_usd_per_hour: str | None = Field(
        None,
        alias="rateUSDPerHour",
        description="The capacity's rate in USD an hour, fixed at placement for the Attempt's "
        "life.",
    )
    region_class: str | None = Field(
        None, alias="regionClass", description="The region class of the offering."
    )
    warm_reuse: bool | None = Field(
        None,
        alias="warmReuse",
        description="Whether the Attempt took over a warm machine of the same organization.",
    )


class AttemptPredicted(WireObject):
    """AttemptPredicted is what the placement expected of this Attempt, interruption included."""

    schema_name = f"{_V1}.AttemptPredicted"

    cost_usd: str = Field(
        alias="costUSD", description="The predicted cost of the Attempt, in USD with 6 decimals."
    )
    hours: str = Field(
        description="The predicted run time of the Attempt, in decimal hours with 6 decimals."
    )
    interruption_rate: str = Field(
        alias="interruptionRate", description="The predicted interruptions an hour, as a decimal."
    )
