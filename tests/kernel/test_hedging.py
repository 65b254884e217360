"""When a second machine may race a slow first one (SC-340)."""

from datetime import UTC, datetime, timedelta

import pytest

from nodus_api.kernel.hedging import late_at, may_hedge, room_for_hedges
from nodus_api.kernel.offering import CandidateStats
from nodus_api.kernel.spec import HedgePolicy, PlacementPolicy
from nodus_api.kernel.vocabulary import Profile

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("hedge", HedgePolicy)
def test_auto_hedges_under_speed_alone(profile: Profile, hedge: HedgePolicy) -> None:
    wanted = {
        HedgePolicy.ALWAYS: True,
        HedgePolicy.AUTO: profile is Profile.SPEED,
        HedgePolicy.NEVER: False,
    }
    assert may_hedge(PlacementPolicy(profile=profile, hedge=hedge)) is wanted[hedge]


def test_late_is_later_than_the_p95_of_grant_and_boot() -> None:
    stats = CandidateStats(grant_p95=45.5, boot_p95=300.0)
    assert late_at(NOON, stats) == NOON + timedelta(seconds=345.5)


@pytest.mark.parametrize(
    ("live", "in_flight", "room"),
    [
        (1, 0, 1),
        (1, 1, 0),
        (39, 0, 1),
        (40, 0, 2),
        (40, 1, 1),
        (100, 5, 0),
        (1000, 20, 30),
        (3, 4, 0),
    ],
)
def test_one_in_twenty_races_and_one_always_may(live: int, in_flight: int, room: int) -> None:
    assert room_for_hedges(live=live, in_flight=in_flight) == room
