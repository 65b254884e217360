"""Postgres dies, restarts and freezes under a server, a writer, watches and lists.

storage.md section 6 ("Behind or cut off"), reliability.md sections 2 and 5 (F08, F09).
"""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping

import asyncpg
import pytest
from tests.cli.live import eventually
from tests.faults.stand import CACHED, CLOCK, FRESH, Fault, Stand, fault

pytestmark = pytest.mark.slow  # each fault lasts seconds

CUT_OFF = "the change log cannot be read"
ACCESS_CUT_OFF = "the access tables cannot be read"
FOLLOWED = "the change log is followed again"
BOUND = {"reads": 3.0, "writes": 5.0, "watch": 5.0}  # F09, in seconds
SLOW = 5  # so many times a bound, on a machine that does much else


def assert_in_time(seconds: dict[str, float], bound: Mapping[str, float] = BOUND) -> None:
    late = {what: took for what, took in seconds.items() if took > SLOW * bound[what]}
    assert not late, seconds


def assert_told_the_truth(seen: Fault, since: float, until: float) -> None:
    """Nobody is told to restart the server; the cache answers, what needs Postgres does not."""
    assert {one.status for one in seen.onlooker.of("/livez")} == {200}
    meanwhile = [one for one in seen.onlooker.told if since < one.asked and one.answered < until]
    assert {one.status for one in meanwhile if one.target == CACHED} <= {200}
    assert {one.status for one in meanwhile if one.target == FRESH} <= {503}


async def kill_a_writing_backend(stand: Stand) -> None:
    """End it as a crash of its own does: all sessions end with it."""
    connection = await asyncpg.connect(stand.postgres.url)
    pid = await connection.fetchval(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
        "AND pid <> pg_backend_pid() ORDER BY query ILIKE '%publish%' DESC LIMIT 1"
    )
    os.kill(pid, signal.SIGKILL)
    connection.terminate()


async def killed_postmaster(stand: Stand) -> None:
    os.kill(stand.postmaster, signal.SIGKILL)
    eventually(lambda: not stand.postgres.alive())


async def stopped_fast(stand: Stand) -> None:
    stand.postgres.stop()


async def stopped_immediately(stand: Stand) -> None:
    os.kill(stand.postmaster, signal.SIGQUIT)
    eventually(lambda: not stand.postgres.alive())


@pytest.mark.parametrize(
    "stop", [stopped_fast, stopped_immediately, killed_postmaster], ids=lambda one: one.__name__
)
async def test_a_restart(  # F09, field case C14
    stand: Stand, stop: Callable[[Stand], Awaitable[None]]
) -> None:
    with fault(stand) as seen:
        await stop(stand)
        away = CLOCK.monotonic()
        seen.onlooker.first(FRESH, 503, away)
        eventually(lambda: CUT_OFF in seen.lines("warning"))
        eventually(lambda: seen.metric("nodus_watchcache_connected") == 0)
        back = CLOCK.monotonic()
        stand.postgres.start()
        seconds = seen.over(stop.__name__)
        assert seen.metric("nodus_watchcache_connected") == 1
        assert_told_the_truth(seen, away, back)
        seen.told_once(CUT_OFF, perhaps=[ACCESS_CUT_OFF])
        assert seen.lines("info").count(FOLLOWED) == 1
    assert_in_time(seconds)


async def test_a_backend_is_killed(stand: Stand) -> None:  # F08
    with fault(stand) as seen:
        before = stand.postmaster
        await kill_a_writing_backend(stand)
        seconds = seen.over("killed backend")
        assert stand.postmaster == before  # it restarts all its children by itself
        seen.told_once(perhaps=[CUT_OFF, ACCESS_CUT_OFF])  # none, where it is over before a poll
    assert_in_time(seconds)
