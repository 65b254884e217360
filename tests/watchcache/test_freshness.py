"""Readers that wait for a revision."""

import asyncio

import pytest
from tests.watchcache.conftest import until

from nodus_api.clock import ManualClock
from nodus_api.tasks import spawn
from nodus_api.watchcache.freshness import WAIT_SECONDS, Reached


async def test_those_who_wait_are_let_go_in_time(clock: ManualClock) -> None:  # LW-103
    reached = Reached(clock)
    waiting = [spawn("wait", reached.wait(rev)) for rev in (5, 3, 9)]
    await until(lambda: len(reached) == 3)
    reached.advance(5)
    assert await asyncio.gather(*waiting[:2]) == [True, True]
    await clock.advance(WAIT_SECONDS)

    assert await waiting[2] is False
    assert await reached.wait(4) is True


async def test_those_who_gave_up_are_not_kept(clock: ManualClock) -> None:  # LW-103
    """Anybody may ask for a revision that never comes, as often as he likes."""
    reached = Reached(clock)
    staying = spawn("wait", reached.wait(7))
    for _ in range(50):
        waiting = [spawn("wait", reached.wait(2**60)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        await clock.advance(WAIT_SECONDS / 100)
        for one in waiting[1:]:
            one.cancel()
        await asyncio.wait(waiting[1:])
        assert len(reached) <= 6
    reached.advance(7)

    assert await staying is True
    assert len(reached) <= 4
