"""A leader killed between its commit and the NOTIFY: storage.md section 11.6, F04."""

import asyncio
import signal
import sys

from tests.cli.live import environment
from tests.failover.conftest import head_of, opened
from tests.watchcache.conftest import running, until
from tests.watchcache.published import Publisher

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.reflector import POLL_SECONDS

PATIENCE = 30.0


async def test_a_commit_without_its_notification_is_found_by_the_next_poll(
    clean_database: str, api_database: Database, clock: ManualClock
) -> None:
    async with opened(clean_database, Role.SCHEDULER) as scheduler:
        publisher = Publisher(scheduler)
        await publisher.begin()
        first = await publisher.add("n1")
    feed = Feed(api_database, clock=clock)
    async with running(AttemptCache(feed, clock=clock, chance=lambda: 0.5)) as cache:
        await until(lambda: sleeps_for_a_poll(clock), PATIENCE)
        leader = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.failover.dying_leader", clean_database,
            stdout=asyncio.subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert leader.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert await leader.stdout.readline() == b"committed\n"
            leader.kill()
            assert await leader.wait() == -signal.SIGKILL
        head = await head_of(clean_database)
        assert (head, cache.position) == (first + 1, first)  # the clock stands, so nobody polls

        await until(lambda: sleeps_for_a_poll(clock), PATIENCE)
        await clock.advance(POLL_SECONDS)
        await until(lambda: cache.position == head, PATIENCE)

        assert cache.health.faults == 0


def sleeps_for_a_poll(clock: ManualClock) -> bool:
    due = clock.monotonic() + POLL_SECONDS
    return any(at <= due and not waiting.done() for at, _, waiting in clock._sleepers)
