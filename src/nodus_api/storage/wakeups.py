"""Waiting for a word from Postgres: LISTEN on a connection of its own, or a poll interval.

A notification is a hint without payload; what it hints at is read from the tables. So a lost one
costs a poll interval, never a change (storage.md sections 1.3 and 3.3).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import asyncpg

from nodus_api.clock import Clock
from nodus_api.storage import statements
from nodus_api.storage.driver import Deadline, DriverConnection
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import StorageError, StorageUnavailable
from nodus_api.tasks import end, spawn

FEED = "nodus_feed"
LOOP = "nodus_loop"
ACCESS = "nodus_access"

PROBE_SECONDS = 2.0
"""A listener is asked for a sign of life so often, and has as long again to give it."""

SETTLE_SECONDS = 0.5
"""How long a listener is waited for at first; what comes later does so while polls go on."""

LISTEN_AGAIN_SECONDS = 15.0
"""After so long without LISTEN it is tried again: a standby may be the primary by now."""

log = logging.getLogger(__name__)


class Wakeups:
    """Notifications of one channel, any number of them coalesced into one.

    `listening` is False where the server gives no notifications (yet): then only polls find
    changes, and should come more often. `alive` is False once a listener was lost: listen anew.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stir = asyncio.Event()
        self._notified = False
        self.listening = False
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

    Where LISTEN cannot be had (a hot standby, a transaction pooler, no connection left) the
    wake-ups are those of the clock alone, and it is tried again.
    """
    wakeups, tried = Wakeups(clock), asyncio.Event()
    keeping = spawn("listener", _keep(database, channel, clock, wakeups, tried))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await tried.wait()
        yield wakeups
    finally:
        await end(keeping)


async def _keep(
    database: Database, channel: str, clock: Clock, wakeups: Wakeups, tried: asyncio.Event
) -> None:
    """Get a listener, and stay with it until it is lost."""
    while wakeups.alive:
        try:
            async with database.dedicated() as connection:
                async with asyncio.timeout(PROBE_SECONDS):
                    await connection.add_listener(channel, wakeups.notify)
                connection.add_termination_listener(wakeups.lost)
                wakeups.listening = True
                tried.set()
                await _probe(connection, clock)
                wakeups.lost()
        except (StorageError, OSError, TimeoutError) as error:
            if not tried.is_set():
                cause = {"channel": channel, "cause": str(error) or "no answer in time"}
                log.info("no notifications come, polling", extra=cause)
            tried.set()
            await clock.sleep(LISTEN_AGAIN_SECONDS)


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

    Never inside the transaction that writes: a notifying commit takes an instance-wide lock. Where
    the connection at hand gives no sign of life, another one is tried. Raises StorageUnavailable.
    """
    try:
        await database.read(statements.notify(channel), deadline=Deadline(PROBE_SECONDS))
    except StorageUnavailable:
        await database.read(statements.notify(channel), deadline=Deadline(PROBE_SECONDS))
