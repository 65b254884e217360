"""Postgres, or the network before it, says nothing, and nobody is told: noticed within 5 s.

storage.md section 6 ("Behind or cut off"), reliability.md section 5 (F20, F26).
"""

import os
import signal

import pytest
from tests.cli.live import eventually
from tests.faults.stand import CACHED, CLOCK, FRESH, Fault, Stand, fault
from tests.faults.test_postgres import (
    ACCESS_CUT_OFF,
    CUT_OFF,
    FOLLOWED,
    assert_in_time,
    assert_told_the_truth,
)

pytestmark = pytest.mark.slow  # silence lasts
FROZEN = (6, 20) if os.environ.get("NODUS_LONG_FAULTS") else (6,)  # seconds

NOTICED = 5.0  # seconds
SLOW = 3


def noticed(seen: Fault) -> float:
    """Wait until the server has noticed; return after how long."""
    eventually(lambda: CUT_OFF in seen.lines("warning"), 60)
    took = CLOCK.monotonic() - seen.began
    assert took < NOTICED * SLOW
    assert seen.metric("nodus_watchcache_connected") == 0
    return took


@pytest.mark.parametrize("length", FROZEN)
async def test_a_frozen_postgres(stand: Stand, length: float) -> None:
    with fault(stand) as seen:
        stand.signal_postgres(signal.SIGSTOP)
        try:
            took = noticed(seen)
            stand.report[f"frozen {length} s, noticed"] = took
            asked = seen.onlooker.first(FRESH, 503, seen.began)
            assert asked.answered - asked.asked < 3 * SLOW  # LW-103, the longest wait
            await CLOCK.sleep(max(0.0, length - (CLOCK.monotonic() - seen.began)))
        finally:
            thawed = CLOCK.monotonic()
            stand.signal_postgres(signal.SIGCONT)
        seconds = seen.over(f"frozen {length} s")
        assert_told_the_truth(seen, asked.asked, thawed)
        seen.told_once(CUT_OFF, perhaps=[ACCESS_CUT_OFF])
        assert seen.lines("info").count(FOLLOWED) == 1
    assert_in_time(seconds)


async def test_a_network_that_swallows(stand: Stand) -> None:
    with fault(stand) as seen:
        stand.proxy.swallow()
        stand.report["network cut, noticed"] = noticed(seen)
        asked = seen.onlooker.first(FRESH, 503, seen.began)
        cached = seen.onlooker.first(CACHED, 200, asked.answered)
        healed = CLOCK.monotonic()
        stand.proxy.heal()
        seconds = seen.over("network cut")
        assert cached.answered < healed
        assert_told_the_truth(seen, asked.asked, healed)
        seen.told_once(CUT_OFF, perhaps=[ACCESS_CUT_OFF])
        assert seen.metric("nodus_watchcache_reloads_total") == 1
    assert_in_time(seconds, dict.fromkeys(seconds, 2 * NOTICED))  # F26
