"""Which fields of an Attempt a field selector may name (LW-098)."""

from nodus_api.kernel.attempt import AttemptView
from nodus_api.metav1.fields import NAME, NAMESPACE

FIELDS = (
    "status.phase",
    "status.reason",
    "status.progress.stage",
    "spec.slot",
    "spec.gang.id",
    "status.placement.offering",
    "status.placement.regionClass",
)
"""The selectable fields that stand in `sel`, without the two of metadata."""

SUPPORTED = frozenset({NAME, NAMESPACE, *FIELDS})
"""Every field that a field selector may name."""


def selectable(view: AttemptView) -> dict[str, str]:
    """Return the selectable fields that are present; an absent one compares as empty (LW-099)."""
    attempt = view.attempt
    choice = view.placement.choice if view.placement else None
    values = (
        attempt.phase.value,
        attempt.reason.value if attempt.reason else None,
        attempt.stage.value,
        attempt.slot,
        attempt.gang.id if attempt.gang else None,
        choice.offering if choice else None,
        choice.region_class if choice else None,
    )
    return {field: value for field, value in zip(FIELDS, values, strict=True) if value is not None}
