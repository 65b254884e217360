"""What a new leader does first: the epoch of another server begins (storage.md section 8)."""

import asyncio
import logging

import pytest
import sqlalchemy as sa
from tests.storage.scene import SCENE

from nodus_api.clock import SystemClock
from nodus_api.scheduler.lease import Leadership
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.feed import Feed, FeedEpoch
from nodus_api.storage.leader_store import LeaderStore, Reign
from nodus_api.tasks import spawn

FIRST = FeedEpoch(epoch=0, first_rev=1, prev_last=0)


@pytest.mark.parametrize("what", ["timeline = '000000FE'", "sysid = 7"])
async def test_the_marker_of_another_server_is_there_at_once(own_url: str, what: str) -> None:
    """A promotion raises the timeline; a restored dump keeps it, and has another identifier."""
    database = Database(own_url, role=Role.SCHEDULER)
    feed, leader = Feed(database, clock=SystemClock()), LeaderStore(database)
    async with database.dedicated() as owner:
        await owner.execute("SET ROLE nodus_migrate")
        async with owner.transaction():
            await owner.execute(SCENE)
        assert (await leader.take_over("first")).epoch_began is None
        assert await feed.state() == await feed.state()
        assert (await feed.state()).epochs == (FIRST,)
        head = await feed.head()
        await owner.execute(f"UPDATE nodus.feed SET {what}")  # noqa: S608

        reign = await leader.take_over("second")
        state = await feed.state()
        assert state.epochs == (FIRST, FeedEpoch(epoch=1, first_rev=1 << 44, prev_last=head))
        assert reign.epoch_began == state.head == 1 << 44
        assert (await leader.take_over("third")).epoch_began is None
        assert await feed.head() == 1 << 44
    await database.close()


async def test_the_leader_says_that_an_epoch_began_and_beats(
    own_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nodus_api.scheduler.lease")
    database = Database(own_url, role=Role.SCHEDULER)
    async with database.dedicated() as owner:
        await owner.execute("SET ROLE nodus_migrate; UPDATE nodus.feed SET sysid = 7")
        began = await owner.fetchval("SELECT nodus.now()")
    beats: set[object] = set()
    stop = asyncio.Event()

    async def reign(_: Reign) -> None:
        async with asyncio.timeout(60):
            while len(beats) < 3:
                async with database.single_reads() as connection:
                    found = await connection.execute(sa.select(t.leader_heartbeat.c.at))
                    beats.add(found.scalar_one())
                await SystemClock().sleep(0.05)
        stop.set()
        await asyncio.Event().wait()

    leadership = Leadership(
        LeaderStore(database), SystemClock(), holder="test", reign=reign, wake=lambda: None
    )
    async with asyncio.timeout(90):
        await spawn("leadership", leadership.run(stop))
    assert len(beats) == 3  # one when it took over, then one a second
    assert all(beat >= began for beat in beats)
    (line,) = [r for r in caplog.records if "a new epoch of revisions begins" in r.message]
    assert (line.levelname, line.__dict__["rev"]) == ("WARNING", 1 << 44)
    await database.close()
