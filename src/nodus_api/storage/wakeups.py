"""Waiting for a word from Postgres: LISTEN on a connection of its own, or a poll interval.

A notification is a hint without payload; what it hints at is read from the tables. So a lost one
costs a poll interval, never a change (storage.md sections 1.3 and 3.3).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import asyncpg
import sqlalchemy as sa

from nodus_api.clock import Clock
from nodus_api.storage.engine import Database, DriverConnection
from nodus_api.storage.errors import StorageError
from nodus_api.tasks import end, spawn

FEED = "nodus_feed"
LOOP = "nodus_loop"
ACCESS = "nodus_access"

PROBE_SECONDS = 2.0
"""A listener is asked for a sign of life so often, and has as long again to give it."""

LISTEN_AGAIN_SECONDS = 15.0
"""After so long without LISTEN it is tried again: a standby may be the primary by now."""

log = logging.getLogger(__name__)


class Wakeups:
    """Notifications of one channel, any number of them coalesced into one.

    `listening` is False where the server gives no notifications: then only polls find changes, and
    should come more often.
    """

    def __init__(self, clock: Clock, *, listening: bool = True) -> None:
        self._clock = clock
        self._stir = asyncio.Event()
        self._notified = False
        self._lost = False
        self._until = None if listening else clock.monotonic() + LISTEN_AGAIN_SECONDS
        self.listening = listening

    @property
    def alive(self) -> bool:
        """Whether all is as it can be; if not, listen anew."""
        return not self._lost and (self._until is None or self._clock.monotonic() < self._until)

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
        self._lost = True


@contextlib.asynccontextmanager
async def listen(database: Database, channel: str, clock: Clock) -> AsyncIterator[Wakeups]:
    """Listen on `channel` until the block ends.

    Where LISTEN cannot be had (a hot standby, a transaction pooler, no connection left) the
    wake-ups are those of the clock alone.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            wakeups = await stack.enter_async_context(_listening(database, channel, clock))
        except StorageError as error:
            log.info("no LISTEN here, polling", extra={"channel": channel, "cause": str(error)})
            wakeups = Wakeups(clock, listening=False)
        yield wakeups


@contextlib.asynccontextmanager
async def _listening(database: Database, channel: str, clock: Clock) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(clock)
    async with database.dedicated() as connection:
        connection.add_termination_listener(wakeups.lost)
        await connection.add_listener(channel, wakeups.notify)
        probing = spawn("listener's probe", _probe(connection, clock))
        try:
            yield wakeups
        finally:
            await end(probing)


async def _probe(connection: DriverConnection, clock: Clock) -> None:
    """Close the connection once it gives no sign of life: silence alone tells nothing."""
    while not connection.is_closed():
        await clock.sleep(PROBE_SECONDS)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.execute("SELECT 1")
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()


async def notify(database: Database, channel: str) -> None:
    """Wake the listeners of `channel`, in a transaction of its own.

    Never inside the transaction that writes: a notifying commit takes an instance-wide lock.
    """
    async with database.single_reads() as connection:
        await connection.execute(sa.select(sa.func.pg_notify(channel, "")))
