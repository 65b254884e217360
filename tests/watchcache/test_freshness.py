"""Asking for the head of the log: once for many, and never for ever."""

import asyncio

import pytest

from nodus_api.watchcache.errors import FeedUnavailable
from nodus_api.watchcache.freshness import Head


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
