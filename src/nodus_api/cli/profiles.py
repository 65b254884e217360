"""A placement under each profile, side by side: what Balanced, Cost and Speed would choose."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodus_api.attempts import preview
from nodus_api.cli.tabular import render_table
from nodus_api.kernel.money import format_hours, format_rate, format_usd
from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import Decision, PlacementRequest, place
from nodus_api.kernel.vocabulary import Profile


def side_by_side(
    request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime
) -> list[Decision]:
    """Return what is decided under each profile, in the order Balanced, Cost, Speed (SC-323).

    All else is as requested, so that the one of the request's own profile is its decision.
    """
    return [
        place(replace(request, policy=replace(request.policy, profile=profile)), snapshot, now)
        for profile in Profile
    ]


def profiles_as_json(decisions: Sequence[Decision], asked: Profile) -> list[dict[str, Any]]:
    """Return each as `status.placement` would show it, with `predicted`; the asked is marked."""
    return [preview(one.placement) | {"asked": one.placement.profile is asked} for one in decisions]


def profiles_text(decisions: Sequence[Decision], asked: Profile) -> str:
    """Return a line for each profile that places something, `*` before the one asked for."""
    headings = ["PROFILE", "OFFERING", "MARKET", "USD/H", "HOURS", "USD", "INTERRUPTIONS/H"]
    rows = [
        [
            f"{'*' if one.placement.profile is asked else ' '} {one.placement.profile.value}",
            choice.offering,
            choice.market.value,
            format_rate(choice.rate_usd_per_hour),
            format_hours(choice.predicted.hours),
            format_usd(choice.predicted.cost_usd),
            format_rate(choice.predicted.interruption_rate),
        ]
        for one in decisions
        if (choice := one.placement.choice) is not None
    ]
    return render_table(headings, rows, right=headings[3:])
