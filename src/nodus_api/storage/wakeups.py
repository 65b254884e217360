"""Waiting for a word from Postgres: LISTEN on a connection of its own, or a poll interval.

A notification is a hint without payload; what it hints at is read from the tables. So a lost one
costs a poll interval, never a change (storage.md sections 1.3 and 3.3).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import sqlalchemy as sa

from nodus_api.clock import Clock
from nodus_api.storage.engine import Database
from nodus_api.tasks import end, spawn

FEED = "nodus_feed"
LOOP = "nodus_loop"
ACCESS = "nodus_access"


class Wakeups:
    """Notifications of one channel, any number of them coalesced into one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stir = asyncio.Event()
        self._notified = False
        self.alive = True

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - a poll interval, not a deadline
        """Return True when notified since the last call, False after `timeout` seconds.

        Once the connection is lost (`alive` is False) it is always the timeout.
        """
        timer = spawn("wake-up poll", self._clock.sleep(timeout))
        timer.add_done_callback(lambda _: self._stir.set())
        try:
            await self._stir.wait()
        finally:
            await end(timer)
        self._stir.clear()
        notified, self._notified = self._notified, False
        return notified

    def notify(self, *_: object) -> None:
        """Take a notification."""
        self._notified = True
        self._stir.set()

    def lost(self, *_: object) -> None:
        """Take note that the connection is gone."""
        self.alive = False


@contextlib.asynccontextmanager
async def listen(database: Database, channel: str, clock: Clock) -> AsyncIterator[Wakeups]:
    """Listen on `channel` until the block ends.

    Raises StorageUnavailable when no connection can be had. A server that cannot LISTEN (a hot
    standby) raises StorageFault.
    """
    wakeups = Wakeups(clock)
    async with database.dedicated() as connection:
        connection.add_termination_listener(wakeups.lost)
        await connection.add_listener(channel, wakeups.notify)
        yield wakeups


async def notify(database: Database, channel: str) -> None:
    """Wake the listeners of `channel`, in a transaction of its own.

    Never inside the transaction that writes: a notifying commit takes an instance-wide lock.
    """
    async with database.single_reads() as connection:
        await connection.execute(sa.select(sa.func.pg_notify(channel, "")))
