"""Leading in the scheduler's place, so that nothing else moves Attempts meanwhile (SC-601).

Whoever leads already is asked to stand aside only where that is wanted: a raised token fences it
off at its next heartbeat, it lets go of the lock, and leads again when the lock is free.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import sqlalchemy as sa

from nodus_api.clock import Clock
from nodus_api.scheduler.lease import Leadership
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.upkeep import Upkeep
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import (
    FencedOff,
    StorageContention,
    StorageTimeout,
    StorageUnavailable,
)
from nodus_api.storage.leader_store import LeaderStore, Reign
from nodus_api.storage.upkeep import UpkeepStore
from nodus_api.tasks import end, spawn

_TRY_SECONDS = 0.1
_PATIENCE_SECONDS = 30.0
_PASSING = (StorageUnavailable, StorageContention, StorageTimeout, FencedOff)


class AnotherLeads(Exception):
    """A scheduler leads the database; `holder` says which."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


async def lead(
    database: Database,
    work: Callable[[Reign], Awaitable[None]],
    *,
    clock: Clock,
    holder: str,
    take_over: bool,
    retention: timedelta,
) -> None:
    """Do `work` as the leader; it is begun again when the lead was lost and regained.

    Meanwhile the log is kept as a leader keeps it: a change stays for `retention`.
    Raises AnotherLeads at once if somebody leads, or with `take_over` after 30 s, and what `work`
    raises, save what passes: a lost lead or connection, a lock or statement that took too long.
    """
    store = LeaderStore(database)
    await _free(database, store, clock, holder, take_over)
    stop, errors = asyncio.Event(), list[Exception]()

    async def reign(reign: Reign) -> None:
        keeper = Upkeep(
            UpkeepStore(database), clock, LoopMetrics(), token=reign.token, retention=retention
        )
        await keeper.look()  # what is published next must find room
        upkeep = spawn("upkeep of the log", keeper.run())
        try:
            await work(reign)
        except _PASSING:
            raise  # the next campaign takes it up
        except Exception as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)
        finally:
            await end(upkeep)
        stop.set()

    await Leadership(store, clock, holder=holder, reign=reign, wake=lambda: None).run(stop)
    if errors:
        raise errors[0]


async def _free(
    database: Database, store: LeaderStore, clock: Clock, holder: str, take_over: bool
) -> None:
    """See that the leader's lock is free, or make it so."""
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    async with store.line() as line:
        if await line.try_lock():
            return
        if not take_over:
            raise AnotherLeads(await _holder(database))
        await store.take_over(holder)
        while not await line.try_lock():
            if clock.monotonic() > deadline:
                raise AnotherLeads(await _holder(database))
            await clock.sleep(_TRY_SECONDS)


async def _holder(database: Database) -> str:
    async with database.single_reads() as connection:
        return str(await connection.scalar(sa.select(t.leader.c.holder)) or "unknown")
