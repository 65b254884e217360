"""Readers that wait for a revision, and those that ask for the newest."""

import asyncio

import pytest
from tests.watchcache.conftest import until

from nodus_api.clock import ManualClock
from nodus_api.tasks import spawn
from nodus_api.watchcache.errors import FeedUnavailable
from nodus_api.watchcache.freshness import WAIT_SECONDS, Head, Reached


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


class Database:
    """Answers 1, 2, 3 …; while it is frozen it takes queries and says nothing."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.running.set()
        self.queries = 0

    async def head(self) -> int:
        self.queries += 1
        number = self.queries
        await self.running.wait()
        return number


async def test_one_query_serves_all_that_asked_before_it() -> None:
    database = Database()
    head = Head(database.head)

    assert await asyncio.gather(*(head.ask() for _ in range(5))) == [1] * 5
    assert await head.ask() == 2


async def test_a_server_that_says_nothing_is_out_of_reach() -> None:  # LW-199
    database = Database()
    head = Head(database.head, seconds=0.05)
    database.running.clear()

    answers = await asyncio.gather(*(head.ask() for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [FeedUnavailable] * 3
    with pytest.raises(FeedUnavailable):
        await head.ask()

    database.running.set()
    assert await head.ask() == database.queries
    await head.close()
